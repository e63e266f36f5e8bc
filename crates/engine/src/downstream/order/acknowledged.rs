//! The progress of a client in a routing type: accepted and rejected answers (RLY-51).

use std::sync::Arc;

use crate::collection::CollectionKind;
use crate::view::{View, difference};
use sluice_xds::{ResourceName, Variant};

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
    pub(in crate::downstream) fn hand_over(&mut self, begun: u64, nonce: u64) {
        self.begun = begun;
        self.ended = nonce;
    }

    /// Notes an ACK.
    pub(in crate::downstream) fn ack(&mut self, nonce: Option<u64>) {
        if self.ended > 0 && nonce >= Some(self.ended) {
            self.acked = self.begun + 1;
        }
    }

    /// Whether the client has ACKed an answer that was begun at this count of carried responses, or later.
    pub(in crate::downstream) fn covers(&self, carried: u64) -> bool {
        self.acked > carried
    }
}

/// A client's rejection of content: the content before, and the rejected content.
#[derive(Clone, Debug)]
pub struct RejectedContent {
    pub(in crate::downstream) before: Arc<View>,
    pub(in crate::downstream) sent: Arc<View>,
}

impl RejectedContent {
    /// The content before a later response that the client rejected, too, and before all that it rejected
    /// earlier and never accepted. `sent`: the content with the later response.
    pub(in crate::downstream) fn before_again(&self, mut before: Arc<View>, sent: &View) -> Arc<View> {
        let is_unchanged = |name: &&ResourceName| sent.version_of(name) == self.sent.version_of(name);
        let names = self.before.differing(&self.sent).filter(is_unchanged);
        let (held, gone): (Vec<_>, Vec<_>) = names.partition(|name| self.before.has(name));
        let held: Vec<_> =
            held.into_iter().filter_map(|name| Some((name, self.before.known_version_of(name)?))).collect();
        // The client never had the content that it was sent in the meantime.
        held.iter().for_each(|(name, _)| View::unlearn(&mut before, name));
        let view = Arc::make_mut(&mut before);
        view.hold(held.into_iter(), std::iter::empty());
        gone.into_iter().for_each(|name| view.let_go(name));
        before
    }

    /// Whether the client was sent no other content since, nor the same content once more. `held`: the
    /// client's content; `before`: its content before the response that it accepts.
    pub(in crate::downstream) fn stands(
        &self,
        before: Option<&View>,
        held: &View,
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

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Version;

    /// The client may have something of a name that nobody knows, is sent a content, rejects it, and is sent
    /// it once more.
    #[test]
    fn tru_1_content_that_is_rejected_again_is_not_accepted() {
        let (name, version) = (ResourceName::from("a"), Version(1));
        let with = |version| {
            let mut view = View::default();
            view.hold([(&name, version)].into_iter(), std::iter::empty());
            Arc::new(view)
        };
        let rejected = RejectedContent { before: with(Version::default()), sent: with(version) };
        let mut again = rejected.sent.clone();
        View::forget(&mut again, &name);
        assert_eq!(again.known_version_of(&name), Some(version));
        let before = rejected.before_again(again, &rejected.sent);
        assert_eq!(before.known_version_of(&name), Some(Version::default()));
    }
}
