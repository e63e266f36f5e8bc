//! The pace of a stream's moves to private sources: a burst of responses causes a single move.

use std::time::Duration;

use tokio::time::Instant;

use sluice_xds::TypeUrl;

/// The time between two moves of a stream. Each move goes through all names of the stream, and a control
/// plane may mark the names one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// The types of a stream with names for a private source.
#[derive(Debug, Default)]
pub(crate) struct Diversions {
    waiting: Vec<TypeUrl>,
    not_before: Option<Instant>,
}

impl Diversions {
    /// Adds a type. Returns how long the caller has to wait before the move; `None` if a move is already
    /// scheduled.
    pub fn note(&mut self, type_url: TypeUrl, now: Instant) -> Option<Duration> {
        if self.waiting.contains(&type_url) {
            return None;
        }
        self.waiting.push(type_url);
        let wait = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (self.waiting.len() == 1).then_some(wait)
    }

    pub fn take(&mut self, now: Instant) -> Vec<TypeUrl> {
        self.not_before = Some(now + PAUSE);
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cch_1_a_burst_of_responses_causes_one_diversion() {
        let (mut diversions, start) = (Diversions::default(), Instant::now());
        let [one, other] = ["acme.One", "acme.Other"].map(TypeUrl::of_message);
        assert_eq!(diversions.note(one.clone(), start), Some(Duration::ZERO), "the first one goes at once");
        for _ in 0..1000 {
            assert_eq!(diversions.note(one.clone(), start), None, "the scheduled move covers later names");
        }
        assert_eq!(diversions.note(other.clone(), start), None);
        assert_eq!(diversions.take(start), [one.clone(), other]);
        assert_eq!(diversions.note(one.clone(), start + PAUSE / 5), Some(PAUSE * 4 / 5));
        assert_eq!(diversions.note(one.clone(), start + PAUSE / 2), None);
        assert_eq!(diversions.take(start + PAUSE), std::slice::from_ref(&one));
        assert_eq!(diversions.note(one, start + PAUSE * 3), Some(Duration::ZERO));
    }
}
