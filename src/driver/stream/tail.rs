//! The lines of the stream for tails (ADM-15). Cold: called only while a tail is open.

use crate::driver::api::status::names_type;
use crate::driver::ground::encoder::Encoded;
use crate::driver::ground::registry::lock;
use crate::driver::ground::tails::{
    Answered, Asked, Fact, NAMES_MAX, Sent, SomeNames, TailLine, word, words,
};
use crate::driver::stream::private_part::shared_source;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::{Answer, RequestOutcome, Verdict};
use crate::xds::{Node, Request, ResourceName, Status, TypeUrl, Version};

impl StreamState {
    fn line(&self, now: Time, fact: Fact) -> TailLine {
        TailLine { at: self.shared.clock.wall(now), stream: self.id, fact }
    }

    /// The stream has named its node.
    #[cold]
    pub(crate) fn tell_opened(&self, node: &str, now: Time) {
        let opened = || Fact::Opened {
            service: self.kind.to_string(),
            listener: self.peer.listener.clone(),
            peer: self.peer.address,
        };
        self.shared.tails.tell((self.id, node), |_| true, || self.line(now, opened()));
    }

    /// A request, with the session's outcome.
    #[cold]
    pub(crate) fn tell_request(
        &self,
        node: Option<&Node>,
        request: &Request,
        outcome: &Result<RequestOutcome, Status>,
        now: Time,
    ) {
        let node = node.map_or("", |node| node.id.as_str());
        let stated = TypeUrl::new(match request {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        });
        let type_url = outcome.as_ref().map_or(&stated, |outcome| &outcome.type_url);
        let fact = || Fact::Request(asked(type_url, request, outcome));
        let is_type = |text: &str| names_type(text, type_url);
        self.shared.tails.tell((self.id, node), is_type, || self.line(now, fact()));
    }

    /// A message that was just committed.
    #[cold]
    pub(crate) fn tell_response(
        &self,
        inner: &Inner,
        index: usize,
        answer: &Answer,
        encoded: &Encoded,
        (nonce, bytes): (&str, usize),
        now: Time,
    ) {
        let carried = || {
            let subscription = inner.session.subscriptions().get(index);
            let changes = subscription.map_or(&[][..], |of| of.nonces.latest_changes());
            changes.iter().map(|id| (shared_source(id.source).0, id.number)).collect()
        };
        let sent = || Sent { nonce: Some(nonce.into()), changes: carried(), ..sent(answer, encoded, bytes) };
        let node = inner.node.as_deref().map_or("", |node| node.id.as_str());
        let is_type = |text: &str| names_type(text, &answer.type_url);
        let line = || self.line(now, Fact::Response(sent()));
        self.shared.tails.tell((self.id, node), is_type, line);
    }

    /// The answer to a poll.
    #[cold]
    pub(crate) fn tell_polled(&self, answer: &Answer, version: Version, bytes: usize) {
        let node = lock(&self.inner).node.clone();
        let node = node.as_deref().map_or("", |node| node.id.as_str());
        let sent = || {
            let count = answer.parts.iter().map(|part| part.view.len()).sum();
            let (names, _) = answer.some_names(&[], NAMES_MAX);
            Sent {
                type_name: word(answer.type_url.message()),
                version: (!answer.type_url.is_secret()).then_some(version),
                nonce: None,
                names: SomeNames::of(names, count),
                removed: SomeNames::default(),
                bytes,
                message: (1, 1),
                changes: Box::default(),
            }
        };
        let (now, is_type) = (self.shared.clock.now(), |text: &str| names_type(text, &answer.type_url));
        self.shared.tails.tell((self.id, node), is_type, || self.line(now, Fact::Response(sent())));
    }

    /// The stream has ended, and no list has it any more.
    #[cold]
    pub(crate) fn tell_end(&self) {
        let (node, end) = {
            let inner = lock(&self.inner);
            (inner.node.clone(), inner.end.as_deref().cloned())
        };
        let node = node.as_deref().map_or("", |node| node.id.as_str());
        let end = end.map(|status| Status::new(status.code, words(&status.message)));
        let now = self.shared.clock.now();
        self.shared.tails.tell_end((self.id, node), || self.line(now, Fact::Ended(end.clone())));
    }
}

fn asked(type_url: &TypeUrl, request: &Request, outcome: &Result<RequestOutcome, Status>) -> Asked {
    let (nonce, error) = match request {
        Request::Sotw(request) => (&request.response_nonce, &request.error_detail),
        Request::Delta(request) => (&request.response_nonce, &request.error_detail),
    };
    let answered = match outcome {
        Err(status) => Answered::Refused(words(&status.to_string())),
        Ok(outcome) if outcome.is_report || outcome.reports_error => {
            let error = error.clone().map(|error| error.of_nack(type_url).to_string());
            Answered::Report(words(&error.unwrap_or_default()))
        }
        Ok(outcome) => match &outcome.verdict {
            Verdict::Ack { .. } => Answered::Ack,
            Verdict::Nack { status, .. } => Answered::Nack(words(&type_url.quote(&status.to_string()))),
            Verdict::Stale => Answered::Stale,
            Verdict::None => Answered::Nothing,
        },
    };
    let names = |names: &[ResourceName]| SomeNames::of(names, names.len());
    let (type_name, nonce) = (word(type_url.message()), word(nonce));
    match request {
        Request::Sotw(request) => {
            // A version of a Secret is a hash of the content, and a refused request may have hidden the type.
            let is_shown = !type_url.is_secret() && outcome.is_ok() && !request.version_info.is_empty();
            Asked {
                type_name,
                answered,
                nonce,
                version: is_shown.then(|| word(&request.version_info)),
                subscribe: names(&request.resource_names),
                unsubscribe: SomeNames::default(),
                presented: 0,
                is_delta: false,
            }
        }
        Request::Delta(request) => Asked {
            type_name,
            answered,
            nonce,
            version: None,
            subscribe: names(&request.subscribe),
            unsubscribe: names(&request.unsubscribe),
            presented: request.initial_resource_versions.len(),
            is_delta: true,
        },
    }
}

fn sent(answer: &Answer, encoded: &Encoded, bytes: usize) -> Sent {
    let message = encoded.messages.get(answer.chunk);
    let (resources, removed) = message.map_or((0, 0), |message| (message.resources, message.removed));
    let (names, gone) = answer.some_names(&encoded.told, NAMES_MAX);
    let version = message.map(|message| message.version).filter(|_| !answer.type_url.is_secret());
    Sent {
        type_name: word(answer.type_url.message()),
        version,
        nonce: None,
        names: SomeNames::of(names, resources),
        removed: SomeNames::of(gone, removed),
        bytes,
        message: (answer.chunk + 1, encoded.messages.len()),
        changes: Box::default(),
    }
}
