//! The progress of a client in a routing type: accepted and rejected answers (RLY-51).

use std::sync::Arc;

use crate::engine::collection::CollectionKind;
use crate::engine::view::{View, difference};
use crate::xds::{ResourceName, Variant};

/// The client's verdicts on the answers of a routing type. An answer is identified by the count of carried
/// responses at its beginning.
#[derive(Debug, Default)]
pub struct AcknowledgedAnswers {
    /// The count of the latest answer that was handed out as a whole.
    begun: u64,
    /// The nonce of the last message of that answer; nonces begin with 1.
    ended: u64,
    /// The count of the latest ACKed answer, plus one.
    acked: u64,
}

impl AcknowledgedAnswers {
    /// Notes that a whole answer was handed out. `begun` is the count of carried responses at its
    /// beginning.
    pub(in crate::engine::downstream) fn hand_over(&mut self, begun: u64, nonce: u64) {
        self.begun = begun;
        self.ended = nonce;
    }

    /// Notes an ACK.
    pub(in crate::engine::downstream) fn ack(&mut self, nonce: Option<u64>) {
        if self.ended > 0 && nonce >= Some(self.ended) {
            self.acked = self.begun + 1;
        }
    }

    /// Whether the client has ACKed an answer that was begun at this count of carried responses, or later.
    pub(in crate::engine::downstream) fn covers(&self, carried: u64) -> bool {
        self.acked > carried
    }
}

/// A client's rejection of content: the content before, and the rejected content.
#[derive(Clone, Debug)]
pub struct RejectedContent {
    pub(in crate::engine::downstream) before: Arc<View>,
    pub(in crate::engine::downstream) sent: Arc<View>,
}

impl RejectedContent {
    /// Whether the client was sent no other content since, nor the same content once more. `held`: the client's content;
    /// `before`: its content before the response that it accepts.
    pub(in crate::engine::downstream) fn stands(
        &self,
        (before, held): (Option<&View>, &View),
        kind: CollectionKind,
        variant: Variant,
    ) -> bool {
        let difference = difference(&self.before, &self.sent, kind);
        let gone = |name: &ResourceName| self.before.has(name) && !held.has(name);
        let is_resent = |name: &ResourceName| {
            before.is_some_and(|before| before.is_due_again(name)) && !held.is_due_again(name)
        };
        let is_same = |name: &ResourceName| held.known_version_of(name) == self.sent.known_version_of(name);
        difference.put.iter().any(|name| is_same(name) && !is_resent(name))
            || (variant == Variant::Delta && difference.gone.iter().any(gone))
    }
}
