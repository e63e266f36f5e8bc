//! Clients with lost streams whatever the content: the losses are no evidence (WAV-12).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;

/// The length of a window. The ends of a node are counted in the present window and in the window before.
pub const WINDOW: Duration = Duration::from_secs(600);

/// The maximum number of nodes with an excuse. Lost streams of others count as evidence.
const NODES_MAX: usize = 10_000;

/// The memory of clients with frequent ends of streams, whatever the content (WAV-12).
pub trait Leavers {
    /// A stream of the node was lost, and no push is to blame.
    fn note(&self, node: &str, now: Time);
    /// The lost streams of the node within the last [`WINDOW`], and up to one window before.
    fn ends_of(&self, node: &str, now: Time) -> u32;
}

/// A client with fewer lost streams before was restarted, as clients are. Such a client has a voice.
const USUAL_FROM: u32 = 3;

/// The nodes that lost streams with the push under way.
#[derive(Debug, Default)]
pub(super) struct Excuses(HashMap<Arc<str>, Excuse>);

impl Excuses {
    /// Whether the client was lost as often before the push.
    pub(super) fn is_excused(&mut self, node: &str, now: Time, leavers: &dyn Leavers) -> bool {
        if let Some(excuse) = self.0.get_mut(node) {
            return excuse.is_usual(now);
        }
        let without = leavers.ends_of(node, now);
        if without < USUAL_FROM || self.0.len() >= NODES_MAX {
            return false;
        }
        let excuse = Excuse { without, with: 0, from: now };
        self.0.entry(node.into()).or_insert(excuse).is_usual(now)
    }
}

/// The lost streams of a node with the push, and without.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    /// Before the first lost stream with the push.
    without: u32,
    with: u32,
    /// The first lost stream with the push.
    from: Time,
}

impl Excuse {
    /// Notes a lost stream. Returns whether the node loses streams as often as it did without the push, or up
    /// to twice as often.
    fn is_usual(&mut self, now: Time) -> bool {
        self.with = self.with.saturating_add(1);
        let windows = now.since(self.from).as_secs() / WINDOW.as_secs();
        u64::from(self.with) <= u64::from(self.without) * (windows + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_12_a_node_is_excused_for_twice_its_usual_ends() {
        let mut excuse = Excuse { without: 3, with: 0, from: Time::ZERO };
        let usual = (0..8).filter(|_| excuse.is_usual(Time::ZERO + WINDOW - Duration::from_secs(1))).count();
        assert_eq!(usual, 6);
        assert!(excuse.is_usual(Time::ZERO + WINDOW), "9 ends in two windows");
        assert!(!excuse.is_usual(Time::ZERO + WINDOW));
    }

    /// A client that was restarted before the push, and dies of it, is evidence.
    #[test]
    fn wav_12_a_client_is_excused_from_three_lost_streams_on() {
        struct Lost(u32);
        impl Leavers for Lost {
            fn note(&self, _: &str, _: Time) {}
            fn ends_of(&self, _: &str, _: Time) -> u32 {
                self.0
            }
        }
        let mut excuses = Excuses::default();
        assert!(!excuses.is_excused("a", Time::ZERO, &Lost(2)));
        assert!(excuses.is_excused("a", Time::ZERO, &Lost(3)));
    }
}
