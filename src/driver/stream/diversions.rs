//! When a stream is diverted, so that a burst of responses costs it one diversion.

use std::time::Duration;

use tokio::time::Instant;

use crate::xds::TypeUrl;

/// Between two diversions of a stream. Each goes through all names of the stream, and a control plane may bring them one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// The types of a stream of which some part is to be asked for elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Diverts {
    waiting: Vec<TypeUrl>,
    not_before: Option<Instant>,
}

impl Diverts {
    /// How long to wait, for whoever has to see to it; `None` if somebody does already.
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
    fn cch_1_what_a_burst_of_responses_gives_up_is_one_diversion() {
        let (mut diverts, start) = (Diverts::default(), Instant::now());
        let [one, other] = ["acme.One", "acme.Other"].map(TypeUrl::of_message);
        assert_eq!(diverts.note(one.clone(), start), Some(Duration::ZERO), "the first one goes at once");
        for _ in 0..1000 {
            assert_eq!(diverts.note(one.clone(), start), None, "it covers what came meanwhile");
        }
        assert_eq!(diverts.note(other.clone(), start), None);
        assert_eq!(diverts.take(start), [one.clone(), other]);
        assert_eq!(diverts.note(one.clone(), start + PAUSE / 5), Some(PAUSE * 4 / 5));
        assert_eq!(diverts.note(one.clone(), start + PAUSE / 2), None);
        assert_eq!(diverts.take(start + PAUSE), std::slice::from_ref(&one));
        assert_eq!(diverts.note(one, start + PAUSE * 3), Some(Duration::ZERO));
    }
}
