//! One request, one complete set: `Fetch*` and REST (RLY-72).
//!
//! A poll is a stream for a single answer. Its subscription shares sources with other clients. The names linger
//! after the poll, so that the next poll finds them known (RLY-60). The relay keeps no state for the client,
//! because each request tells the client's version (RST-6).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::driver::api::downstream::{Charge, Form, Polled, RelayStream};
use crate::driver::ground::encoder::private_body::{PrivateBody, Sharing};
use crate::driver::ground::encoder::{Encoded, JsonResult};
use crate::driver::ground::registry::lock;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::responses::MESSAGE_WARN_BYTES;
use crate::driver::stream::state::{Stream, StreamState};
use crate::driver::stream::unsent::WAITS_MAX;
use crate::engine::downstream::Answer;
use crate::telemetry::Limit;
use crate::wire::{NAME_IN_REQUEST_BYTES, response, version};
use crate::xds::{Code, Request, SotwRequest, Status, Version};

/// The state of one poll.
struct Wait {
    form: Form,
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
    here: Arc<()>,
}

pub(crate) async fn poll_once(
    stream: &Stream,
    request: SotwRequest,
    form: Form,
    hold: Duration,
) -> Result<Polled, Status> {
    let state = stream.state();
    // A poll ends soon, so it does not keep a draining connection open.
    state.answered.store(true, Ordering::Relaxed);
    // The poll's own connection pays for the poll, also during the wait.
    let connection = &state.peer.connection;
    let over_budget = |status: Status| {
        state.shared.metrics.limit_hit(Limit::ConnectionBytes);
        status
    };
    let mut charge = Charge::new(connection);
    charge.set(request_bytes(&request)).map_err(over_budget)?;
    state.throttle_poll(request.resource_names.len()).await?;
    let mut wait = Wait {
        form,
        names: version::of_names(&request.resource_names),
        presented: Version::parse(&request.version_info),
        is_current: false,
        waits: 0,
        encoded: PrivateBody::default(),
        document: PrivateBody::default(),
        here: Arc::default(),
    };
    // A poll has no earlier response to reject (RST-8), so an error detail means nothing.
    let request = SotwRequest { error_detail: None, ..request };
    stream.request(Request::Sotw(request)).await?;
    drop(charge);
    state.must_want_something()?;
    match timeout(hold, poll_fn(|context| wait.poll(state, context))).await {
        Ok(_) if !connection.account().has_room() => Err(over_budget(connection.account().over_budget())),
        Ok(answer) => {
            let Some(answer) = answer? else { return Ok(Polled::Unchanged) };
            let written = poll_fn(|context| wait.write(state, &answer, context)).await?;
            // Other polls of the connection may have been answered meanwhile.
            match connection.account().has_room() {
                true => Ok(written),
                false => Err(over_budget(connection.account().over_budget())),
            }
        }
        Err(_) if wait.is_current => Ok(Polled::Unchanged),
        Err(_) => Err(Status::new(
            Code::Unavailable,
            "the control plane has not answered yet for this type and these names",
        )),
    }
}

/// The approximate memory of a request.
fn request_bytes(request: &SotwRequest) -> usize {
    let names = request.resource_names.iter().map(|name| name.as_str().len() + NAME_IN_REQUEST_BYTES);
    names.sum()
}

impl Wait {
    /// `None`: the poll has ended early, and the client has the newest content (RLY-77).
    fn poll(
        &mut self,
        state: &StreamState,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Answer>, Status>> {
        // Registered before the look, so no wake is lost in between.
        state.waker.register(context.waker());
        let inner = &mut *lock(&state.inner);
        if let Some(status) = &inner.end {
            return Poll::Ready(if self.is_current { Ok(None) } else { Err(Status::clone(status)) });
        }
        // The time to look again is ignored: the poll ends soon, and each change wakes it.
        state.follow_servers(inner, state.shared.clock.now());
        inner.session.doubt_nothing();
        let answer = inner.session.complete_set(&newest(&inner.sources));
        self.is_current = answer
            .as_ref()
            .filter(|_| self.form == Form::Json && self.presented.is_some())
            .is_some_and(|answer| self.presented == Some(self.version(answer)));
        match answer {
            Some(answer) if !self.is_current => Poll::Ready(Ok(Some(answer))),
            _ => Poll::Pending,
        }
    }

    fn version(&self, answer: &Answer) -> Version {
        answer.version_of_complete_set().plus(self.names)
    }

    fn write(
        &mut self,
        state: &StreamState,
        answer: &Answer,
        context: &Context<'_>,
    ) -> Poll<Result<Polled, Status>> {
        // A body too large for the cache may be gone before the lookup. After several waits, the poll makes the
        // body itself.
        let patient = self.waits < WAITS_MAX;
        self.waits = self.waits.saturating_add(1);
        let (encoder, waker) = (&state.shared.encoder, context.waker());
        let private = lock(&state.inner).is_private(0);
        let maker = || state.maker(&lock(&state.inner), 0, answer);
        let (head, shared) = match self.form {
            Form::Json => {
                let version = self.version(answer);
                let sharing = Sharing::of(private, &mut self.document);
                let caller = (waker, &self.here);
                let json = encoder.poll_json(answer, version, sharing, maker, patient, caller);
                (Bytes::new(), ready!(json)?)
            }
            Form::Grpc => {
                let sharing = Sharing::of(private, &mut self.encoded);
                let encoded = ready!(encoder.poll_encode(answer, sharing, maker, patient, waker));
                let body = encoded.messages.first().map(|message| message.body.clone()).unwrap_or_default();
                if body.len() > MESSAGE_WARN_BYTES {
                    state.warn_large(answer, None, body.len());
                }
                let nonce = lock(&state.inner).session.nonce_text(1);
                (response::head(&nonce, body.len())?, body)
            }
        };
        let types = state.shared.metrics.of_type(&answer.type_url);
        types.response(answer.variant, head.len() + shared.len());
        if state.shared.tails.are_open() {
            state.tell_polled(answer, self.version(answer), head.len() + shared.len());
        }
        Poll::Ready(Ok(Polled::Set { private: head, shared }))
    }
}

impl StreamState {
    /// Refuses an empty list without a wildcard: the answer would be an empty set, which deletes all resources
    /// of the client.
    fn must_want_something(self: &Arc<Self>) -> Result<(), Status> {
        let wants = |session: &crate::engine::downstream::Session| {
            session
                .subscriptions()
                .iter()
                .any(|subscription| !subscription.parts.is_empty() || subscription.refusals().is_some())
        };
        if self.look(|_, session, _| wants(session)) {
            return Ok(());
        }
        Err(Status::new(
            Code::InvalidArgument,
            "resource_names is empty, and this client's class has no wildcard for an empty list",
        ))
    }
}
