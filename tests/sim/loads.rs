//! Worlds of load reports: the world of the crate's own tests, played by seeds.

#[path = "../../crates/load-reports/tests/loads/world.rs"]
mod world;

use self::world::{Event, play};
use super::rng::{Rng, mix};
use super::schedule::{Act, EVENTS_MIN, MILLI, SECOND};
use super::world::{Failure, Invariant, Outcome};

/// From this seed on schedules have these worlds.
pub const LOADS: u64 = 1 << 53;

/// The events of a seed.
pub fn acts(seed: u64) -> Vec<Act> {
    let mut rng = Rng::new(mix(seed) ^ 0x10ad);
    let count = EVENTS_MIN / 2 + rng.below(100) as usize;
    let act = |_| Act {
        gap: match rng.below(100) {
            0..50 => rng.below(300 * MILLI),
            50..90 => rng.below(6 * SECOND),
            _ => rng.below(70 * SECOND),
        },
        what: rng.below(100) as u8,
        choice: rng.next(),
    };
    (0..count).map(act).collect()
}

pub fn run(seed: u64, acts: &[Act], origin: u64) -> Outcome {
    let events = acts.iter().map(|act| Event { gap: act.gap, what: act.what, choice: act.choice });
    let played = play(seed, &events.collect::<Vec<_>>(), origin);
    let failure = played.failure.map(|text| Failure { invariant: Invariant::Load, text, at: played.lasted });
    let story = failure.iter().map(|failure| failure.text.clone()).collect();
    Outcome { hash: played.hash, failure, story }
}
