//! The bodies of a stream's answers: a pending body, and the unsent messages of answers with several
//! messages.
//!
//! A stream keeps the messages of an answer until the last is handed out, regardless of the encoder's cache.
//! A set too large for the cache is thus encoded once, and not once per message and client. A client that has
//! stopped reading may keep only current messages. The stream drops outdated messages, and sends the
//! difference when the client reads again (RLY-55).

use std::sync::Arc;
use std::task::{Poll, Waker};

use thin_vec::ThinVec;

use crate::driver::ground::encoder::private_body::{PrivateBody, Sharing};
use crate::driver::ground::encoder::{Encoded, Encoder, Maker};
use sluice_engine::downstream::{Answer, AnswerKey, Session};

/// After this many waits for a body, each ended by a newer state, the stream makes the next body itself.
/// Otherwise it would not be served while updates come faster than bodies are encoded.
pub(crate) const WAITS_MAX: u8 = 3;

/// The bodies of a stream on their way to the client.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Bodies with messages to be sent, for answers of several messages.
    unsent: ThinVec<(AnswerKey, Arc<Encoded>)>,
    /// A pending body for this stream alone.
    private_body: PrivateBody<Arc<Encoded>>,
    /// The number of waits for a body in a row.
    waits: u8,
}

impl Outbox {
    /// The body of an answer, for the answer's first message.
    pub fn poll_body(
        &mut self,
        encoder: &Arc<Encoder>,
        answer: &Answer,
        is_private: bool,
        maker: impl Fn() -> Maker,
        waker: &Waker,
    ) -> Poll<Arc<Encoded>> {
        let patient = self.waits < WAITS_MAX;
        let sharing = Sharing::of(is_private, &mut self.private_body);
        let encoded = encoder.poll_encode(answer, sharing, maker, patient, waker);
        self.waits = if encoded.is_pending() { self.waits.saturating_add(1) } else { 0 };
        encoded
    }

    /// The body that was made for the answer's first message, for a later message. `None`: the body is gone.
    pub fn unsent(&self, answer: &Answer) -> Option<Arc<Encoded>> {
        let key = answer.key();
        self.unsent.iter().find(|(unsent, _)| *unsent == key).map(|(_, body)| body.clone())
    }

    /// The keys of all answers with unsent messages.
    pub fn unsent_keys(&self) -> impl Iterator<Item = &AnswerKey> {
        self.unsent.iter().map(|(key, _)| key)
    }

    /// Keeps the body of an answer while some of its messages are unsent.
    pub fn keep(&mut self, session: &Session, answer: &Answer, encoded: &Arc<Encoded>) {
        let is_last = answer.chunk + 1 >= encoded.messages.len();
        if is_last && self.unsent.is_empty() {
            return;
        }
        self.drop_sent(session);
        let key = answer.key();
        if !is_last && !self.unsent_keys().any(|unsent| *unsent == key) {
            self.unsent.reserve_exact(1);
            self.unsent.push((key, encoded.clone()));
        }
    }

    /// Drops the unsent messages of outdated answers.
    pub fn take_back(&mut self, session: &mut Session, encoder: &Encoder) {
        if !self.unsent.is_empty() {
            session.give_up(|key| !encoder.is_current(key));
            self.drop_sent(session);
        }
    }

    fn drop_sent(&mut self, session: &Session) {
        let subscriptions = session.subscriptions().iter();
        let pending: Vec<_> = subscriptions.filter_map(|subscription| subscription.pending_key()).collect();
        self.unsent.retain(|(key, _)| pending.contains(key));
        if self.unsent.is_empty() {
            self.unsent = ThinVec::new();
        }
    }
}
