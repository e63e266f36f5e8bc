//! One request, one complete set: `Fetch*` and REST (RLY-72).
//!
//! A poll is a stream for a single answer. Its subscription shares sources with other clients. The names
//! linger after the poll, so that the next poll finds them known (RLY-60). The relay keeps no state for the
//! client, because each request tells the client's version (RST-6).

use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::driver::api::downstream::{Codec, Polled};
use crate::driver::ground::encoder::private_body::{PrivateBody, Sharing};
use crate::driver::ground::encoder::{DocumentCaller, Encoded, JsonResult};
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::inner::{MESSAGE_WARN_BYTES, StreamInner};
use crate::driver::stream::outbox::WAITS_MAX;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::tail;
use crate::telemetry::Limit;
use sluice_engine::downstream::{Answer, Session};
use sluice_wire::{NAME_IN_REQUEST_BYTES, response, version};
use sluice_xds::{Code, SotwRequest, Status, Version};

/// The state of one poll.
pub(crate) struct SinglePoll {
    form: Codec,
    /// The version of the requested names (RST-4).
    names: Version,
    presented: Option<Version>,
    /// The client has the current version.
    is_current: bool,
    /// The number of waits for a body.
    waits: u8,
    /// Bodies for this poll alone.
    encoded: PrivateBody<Arc<Encoded>>,
    document: PrivateBody<JsonResult>,
    /// Gone together with the poll.
    presence: Arc<()>,
}

impl SinglePoll {
    pub fn new(form: Codec, request: &SotwRequest) -> SinglePoll {
        SinglePoll {
            form,
            names: version::of_names(&request.resource_names),
            presented: Version::parse(&request.version_info),
            is_current: false,
            waits: 0,
            encoded: PrivateBody::default(),
            document: PrivateBody::default(),
            presence: Arc::default(),
        }
    }

    /// The complete set. `None`: the poll has ended early, and the client has the newest content (RLY-77).
    pub fn poll(&mut self, inner: &mut StreamInner) -> Poll<Result<Option<Answer>, Status>> {
        if let Some(status) = &inner.end {
            return Poll::Ready(if self.is_current { Ok(None) } else { Err(Status::clone(status)) });
        }
        inner.session.doubt_nothing();
        let answer = inner.session.complete_set(&newest(&inner.placement.sources));
        self.is_current = answer
            .as_ref()
            .filter(|_| self.form == Codec::Json && self.presented.is_some())
            .is_some_and(|answer| self.presented == Some(self.version(answer)));
        match answer {
            Some(answer) if !self.is_current => Poll::Ready(Ok(Some(answer))),
            _ => Poll::Pending,
        }
    }

    /// The result at the end of the hold.
    pub fn result_after_hold(&self) -> Result<Polled, Status> {
        if self.is_current {
            return Ok(Polled::Unchanged);
        }
        Err(Status::new(
            Code::Unavailable,
            "the control plane has not answered yet for this type and these names",
        ))
    }

    fn version(&self, answer: &Answer) -> Version {
        answer.version_of_complete_set().plus(self.names)
    }

    /// Writes the complete set in the form of the poll.
    pub fn write(
        &mut self,
        context: &StreamContext,
        inner: &Mutex<StreamInner>,
        answer: &Answer,
        waker: &Waker,
    ) -> Poll<Result<Polled, Status>> {
        // A body too large for the cache may be gone before the lookup. After several waits, the poll makes
        // the body itself.
        let patient = self.waits < WAITS_MAX;
        self.waits = self.waits.saturating_add(1);
        let encoder = &context.shared.content.encoder;
        let is_private = inner.lock().is_private(0);
        let maker = || inner.lock().maker(context, 0, answer);
        let (head, shared) = match self.form {
            Codec::Json => {
                let version = self.version(answer);
                let sharing = Sharing::of(is_private, &mut self.document);
                let caller = DocumentCaller { waker, presence: &self.presence };
                let json = encoder.poll_json(answer, version, sharing, maker, patient, &caller);
                (Bytes::new(), ready!(json)?)
            }
            Codec::Grpc => {
                let sharing = Sharing::of(is_private, &mut self.encoded);
                let encoded = ready!(encoder.poll_encode(answer, sharing, maker, patient, waker));
                let body = encoded.messages.first().map(|message| message.body.clone()).unwrap_or_default();
                if body.len() > MESSAGE_WARN_BYTES {
                    context.note_large(answer, None, body.len());
                }
                let nonce = inner.lock().session.nonce_text(1);
                (response::head(&nonce, None, body.len())?, body)
            }
        };
        let bytes = head.len() + shared.len();
        context.shared.metrics.of_type(&answer.type_url).response(answer.variant, bytes);
        if context.shared.tails.are_open() {
            let node = inner.lock().placement.node.clone();
            tail::show_polled(context, node.as_deref(), answer, self.version(answer), bytes);
        }
        Poll::Ready(Ok(Polled::Set { private: head, shared }))
    }
}

/// The approximate memory of a request.
pub(crate) fn request_bytes(request: &SotwRequest) -> usize {
    let names = request.resource_names.iter().map(|name| name.as_str().len() + NAME_IN_REQUEST_BYTES);
    names.sum()
}

/// Counts a poll that the connection's budget does not allow. Returns the status.
pub(crate) fn over_budget(context: &StreamContext, status: Status) -> Status {
    context.shared.metrics.limit_hit(Limit::ConnectionBytes);
    status
}

/// Refuses an empty list without a wildcard: the answer would be an empty set, which deletes all resources
/// of the client.
pub(crate) fn must_want_something(session: &Session) -> Result<(), Status> {
    let mut subscriptions = session.subscriptions().iter();
    let wants =
        subscriptions.any(|subscription| !subscription.parts.is_empty() || subscription.refusals().is_some());
    match wants {
        true => Ok(()),
        false => Err(Status::new(
            Code::InvalidArgument,
            "resource_names is empty, and this client's class has no wildcard for an empty list",
        )),
    }
}
