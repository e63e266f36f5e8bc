//! The age of the last word, for a client that is a relay (ADR 101).

use crate::driver::api::downstream::Message;
use crate::driver::ground::unread::Unread;
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::inner::StreamInner;
use crate::driver::stream::schedule::LAST_WORD_EVERY;
use sluice_engine::Time;
use sluice_engine::last_word::Confirmed;
use sluice_wire::encode_last_word;

/// The next word, if it is due.
pub fn next(inner: &mut StreamInner, context: &StreamContext, unread: &Unread, now: Time) -> Option<Message> {
    if due_at(inner, context)? > now {
        return None;
    }
    inner.placement.sources.relay.as_mut()?.told_at = Some(now);
    let private = encode_last_word(confirmed(inner).word(now));
    let delivery = Some(unread.hand_out(private.len()));
    Some(Message { private, shared: Default::default(), delivery })
}

/// When the next word is due; `None` for a client that reads none, or asks for nothing.
pub fn due_at(inner: &StreamInner, context: &StreamContext) -> Option<Time> {
    let relay = inner.placement.sources.relay.as_ref().filter(|_| context.kind.last_words)?;
    inner.session.subscriptions().first()?;
    Some(relay.told_at.map_or(Time::ZERO, |last| last + LAST_WORD_EVERY))
}

/// When the servers last confirmed the content for the client.
fn confirmed(inner: &StreamInner) -> Confirmed {
    let parts = inner.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
    let sources = parts.filter_map(|part| inner.placement.sources.get(part.source()));
    Confirmed::of_all(sources.map(|source| source.confirmed()))
}
