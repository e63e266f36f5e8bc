//! Clients that end their streams all the time, whatever they are served (WAV-12).
//!
//! The end of such a stream is no evidence against a push. A plan notes the lost streams without content of a
//! push, by node. Many clients may share an id: so a node is excused by count. More ends than before are
//! evidence again.

use sluice_engine::Time;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_fleet::evidence::{self, WINDOW};

/// The maximum number of remembered nodes. The ends of all others are evidence.
const NODES_MAX: usize = 10_000;

/// The lost streams of a plan's clients, apart from a push.
#[derive(Debug, Default)]
pub struct Leavers {
    /// By the hash of the node's id, whose length nothing bounds.
    nodes: Mutex<HashMap<u64, Ends>>,
    hasher: RandomState,
    /// Clients have a halted push, and may be lost for its sake.
    is_paused: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    /// The begin of the present window.
    from: Time,
    before: u32,
    now: u32,
}

impl Ends {
    fn turn(&mut self, now: Time) {
        let age = now.since(self.from);
        if age >= WINDOW {
            self.before = if age < WINDOW * 2 { self.now } else { 0 };
            self.now = 0;
            self.from = now;
        }
    }
}

impl Leavers {
    /// Ends are not noted while clients have a halted push: a crash loop would be excused under the next
    /// push.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }
}

impl evidence::Leavers for Leavers {
    fn note(&self, node: &str, now: Time) {
        if self.is_paused.load(Ordering::Relaxed) {
            return;
        }
        let nodes = &mut *self.nodes.lock();
        let key = self.hasher.hash_one(node);
        if nodes.len() >= NODES_MAX && !nodes.contains_key(&key) {
            nodes.retain(|_, ends| now.since(ends.from) < WINDOW);
            if nodes.len() >= NODES_MAX {
                return;
            }
        }
        let ends = nodes.entry(key).or_insert(Ends { from: now, before: 0, now: 0 });
        ends.turn(now);
        ends.now = ends.now.saturating_add(1);
    }

    fn ends_of(&self, node: &str, now: Time) -> u32 {
        let mut nodes = self.nodes.lock();
        nodes.get_mut(&self.hasher.hash_one(node)).map_or(0, |ends| {
            ends.turn(now);
            ends.before.saturating_add(ends.now)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use sluice_fleet::evidence::Leavers as _;

    #[test]
    fn wav_12_ends_count_for_a_window_and_the_next() {
        let (leavers, at) = (Leavers::default(), |seconds| Time::ZERO + Duration::from_secs(seconds));
        assert_eq!(leavers.ends_of("a", at(0)), 0);
        (0..3).for_each(|second| leavers.note("a", at(second)));
        assert_eq!((leavers.ends_of("a", at(599)), leavers.ends_of("b", at(599))), (3, 0));
        assert_eq!(leavers.ends_of("a", at(600)), 3);
        leavers.note("a", at(700));
        assert_eq!(leavers.ends_of("a", at(1_199)), 4);
        assert_eq!(leavers.ends_of("a", at(1_200)), 1);
        assert_eq!(leavers.ends_of("a", at(3_000)), 0);
        leavers.note("a", at(3_000));
        assert_eq!(leavers.ends_of("a", at(3_000)), 1);
    }

    #[test]
    fn wav_12_ends_under_a_halted_push_excuse_nobody() {
        let leavers = Leavers::default();
        leavers.pause(true);
        leavers.note("a", Time::ZERO);
        assert_eq!(leavers.ends_of("a", Time::ZERO), 0);
        leavers.pause(false);
        leavers.note("a", Time::ZERO);
        assert_eq!(leavers.ends_of("a", Time::ZERO), 1);
    }

    #[test]
    fn wav_12_the_memory_of_nodes_is_bounded() {
        let (leavers, later) = (Leavers::default(), Time::ZERO + WINDOW);
        (0..=NODES_MAX).for_each(|node| leavers.note(&node.to_string(), Time::ZERO));
        assert_eq!(leavers.ends_of(&NODES_MAX.to_string(), Time::ZERO), 0);
        leavers.note("new", later);
        assert_eq!((leavers.ends_of("new", later), leavers.nodes.lock().len()), (1, 1));
    }
}
