//! The parts of a change's way that only its trace shows (OBS-2, OBS-3).

use std::collections::VecDeque;

use crate::driver::ground::encoder::BodyTimes;
use crate::telemetry::traces::change::ENCODINGS_MAX;

/// The remembered streams that were not sent each change. The slowest clients are among the latest.
const STREAMS_MAX: usize = 64;

/// Bodies made for a change, and streams that were sent the change in place of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    pub bodies: Vec<BodyTimes>,
    /// Streams by their numbers, with the distances of the skipped changes from this one, a bit each.
    skips: VecDeque<(u64, u64)>,
}

impl Journal {
    pub fn encoded(&mut self, times: BodyTimes) {
        if self.bodies.len() < ENCODINGS_MAX {
            self.bodies.push(times);
        }
    }

    /// `number`: of this change. Changes further back than 64 are forgotten.
    pub fn skipped(&mut self, stream: u64, number: u64, earlier: impl Iterator<Item = u64>) {
        let bit = |earlier: u64| {
            let distance = u32::try_from(number.saturating_sub(earlier)).ok()?;
            1_u64.checked_shl(distance)
        };
        let distances = earlier.filter_map(bit).fold(0, |all, bit| all | bit) & !1;
        if distances == 0 {
            return;
        }
        if let Some((_, skipped)) = self.skips.iter_mut().find(|(skipping, _)| *skipping == stream) {
            *skipped |= distances;
            return;
        }
        if self.skips.len() == STREAMS_MAX {
            self.skips.pop_front();
        }
        self.skips.push_back((stream, distances));
    }

    /// The changes that this stream was not sent, the latest first. `number`: of this change.
    pub fn skipped_by(&self, stream: u64, number: u64) -> impl Iterator<Item = u64> + use<> {
        let skips = self.skips.iter().find(|(skipping, _)| *skipping == stream);
        numbers(skips.map_or(0, |(_, distances)| *distances), number)
    }

    /// The changes that any stream was not sent, the latest first.
    pub fn skipped_by_any(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        numbers(self.skips.iter().fold(0, |all, (_, distances)| all | distances), number)
    }
}

fn numbers(mut distances: u64, number: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let distance = (distances != 0).then(|| distances.trailing_zeros())?;
        distances &= distances - 1;
        Some(number.saturating_sub(u64::from(distance)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> BodyTimes {
        let now = tokio::time::Instant::now();
        BodyTimes { begin: now, end: now, bytes: 1, messages: 1 }
    }

    #[test]
    fn obs_3_a_stream_remembers_what_it_was_not_sent_and_the_latest_streams_are_kept() {
        let mut journal = Journal::default();
        journal.skipped(7, 100, [97, 99].into_iter());
        journal.skipped(7, 100, [97, 98, 1].into_iter());
        assert_eq!(
            journal.skipped_by(7, 100).collect::<Vec<_>>(),
            [99, 98, 97],
            "once each, without the forgotten"
        );
        (1000..1064).for_each(|stream| journal.skipped(stream, 100, [90].into_iter()));
        assert_eq!(journal.skipped_by(7, 100).count(), 0, "the oldest stream made room");
        assert_eq!(journal.skipped_by_any(100).collect::<Vec<_>>(), [90]);
        assert_eq!(journal.skips.len(), STREAMS_MAX);
    }

    #[test]
    fn obs_2_the_first_bodies_of_a_change_are_remembered() {
        let mut journal = Journal::default();
        (0..100).for_each(|_| journal.encoded(times()));
        assert_eq!(journal.bodies.len(), ENCODINGS_MAX);
    }
}
