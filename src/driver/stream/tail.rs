//! The lines about a stream for tails (ADM-15). Cold: called only while a tail is open.

use crate::driver::api::status::names_type;
use crate::driver::ground::encoder::Encoded;
use crate::driver::ground::tails::{
    Answered, Asked, Fact, NAMES_MAX, Sent, SomeNames, TailLine, word, words,
};
use crate::driver::stream::context::{StreamContext, node_id};
use crate::driver::stream::private_part::shared_source;
use sluice_engine::Time;
use sluice_engine::downstream::{Answer, RequestOutcome, Session, Verdict};
use sluice_xds::{Node, Request, ResourceName, Status, TypeUrl, Version};

/// A message that was just committed.
pub(crate) struct SentMessage<'a> {
    /// The index of the subscription.
    pub index: usize,
    pub answer: &'a Answer,
    pub encoded: &'a Encoded,
    pub nonce: &'a str,
    pub bytes: usize,
}

fn line(context: &StreamContext, now: Time, fact: Fact) -> TailLine {
    TailLine { at: context.shared.clock.wall(now), stream: context.id, fact }
}

/// Makes the line for the tails that follow the stream and the type.
fn show(
    context: &StreamContext,
    node: Option<&Node>,
    type_url: &TypeUrl,
    now: Time,
    fact: impl Fn() -> Fact,
) {
    let is_type = |text: &str| names_type(text, type_url);
    context.shared.tails.tell(context.id, node_id(node), is_type, || line(context, now, fact()));
}

/// Shows that the stream has named its node.
#[cold]
pub(crate) fn show_opened(context: &StreamContext, node: &str, now: Time) {
    let opened = || Fact::Opened {
        service: context.kind.to_string(),
        listener: context.peer.listener.clone(),
        peer: context.peer.address,
    };
    context.shared.tails.tell(context.id, node, |_| true, || line(context, now, opened()));
}

/// Shows a request, with the session's outcome.
#[cold]
pub(crate) fn show_request(
    context: &StreamContext,
    node: Option<&Node>,
    request: &Request,
    outcome: &Result<RequestOutcome, Status>,
    now: Time,
) {
    let stated = TypeUrl::new(match request {
        Request::Sotw(request) => &request.type_url,
        Request::Delta(request) => &request.type_url,
    });
    let type_url = outcome.as_ref().map_or(&stated, |outcome| &outcome.type_url);
    show(context, node, type_url, now, || Fact::Request(request_fact(type_url, request, outcome)));
}

/// Shows a message of a response.
#[cold]
pub(crate) fn show_response(
    context: &StreamContext,
    node: Option<&Node>,
    session: &Session,
    message: &SentMessage<'_>,
    now: Time,
) {
    let SentMessage { index, answer, encoded, nonce, bytes } = *message;
    let changes = || {
        let subscription = session.subscriptions().get(index);
        let changes = subscription.map_or(&[][..], |subscription| subscription.nonces.latest_changes());
        changes.iter().map(|id| (shared_source(id.source).0, id.number)).collect()
    };
    let sent =
        || Sent { nonce: Some(nonce.into()), changes: changes(), ..response_fact(answer, encoded, bytes) };
    show(context, node, &answer.type_url, now, || Fact::Response(sent()));
}

/// Shows the answer to a poll.
#[cold]
pub(crate) fn show_polled(
    context: &StreamContext,
    node: Option<&Node>,
    answer: &Answer,
    version: Version,
    bytes: usize,
) {
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
    show(context, node, &answer.type_url, context.shared.clock.now(), || Fact::Response(sent()));
}

/// Shows that the stream has ended, with its status, when no list has the stream any more.
#[cold]
pub(crate) fn show_end(context: &StreamContext, node: Option<&Node>, end: Option<&Status>) {
    let end = end.map(|status| Status::new(status.code, words(&status.message)));
    let now = context.shared.clock.now();
    context.shared.tails.tell_end(context.id, node_id(node), || line(context, now, Fact::Ended(end.clone())));
}

fn request_fact(type_url: &TypeUrl, request: &Request, outcome: &Result<RequestOutcome, Status>) -> Asked {
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

fn response_fact(answer: &Answer, encoded: &Encoded, bytes: usize) -> Sent {
    let message = encoded.messages.get(answer.chunk);
    let (resources, removed) = message.map_or((0, 0), |message| (message.resources, message.removed));
    let (names, gone) = answer.some_names(&encoded.message_names, NAMES_MAX);
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
