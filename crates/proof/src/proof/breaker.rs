//! A control plane in motion is no matter of grouping (PRF-29).
//!
//! A class that is too coarse differs for as many of its members as the control plane tells apart, and the
//! classes that are split off from it may differ again. All of this is one *family*, and a family alone never
//! opens the breaker, whatever share of its samples differs. Families that begin to differ at the same time
//! have no rule in common but the control plane's own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::input::ClassKey;
use sluice_engine::Time;

/// Nothing splits or refuses for so long.
const PAUSE: Duration = Duration::from_secs(600);
/// Families that begin to differ within this time count together.
const WITHIN: Duration = Duration::from_secs(300);
/// More families than this open the breaker.
const FAMILIES_MAX: usize = 3;
/// Samples that make a share.
const SAMPLES_MIN: usize = 20;
/// A greater share of differing samples opens the breaker: one of twenty, which is 5 %.
const SHARE: usize = 20;

/// The samples of one minute since the last change of a class, over all classes of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub samples: usize,
    pub differing: usize,
    /// The families with a differing sample.
    pub families: usize,
}

/// Stops splits and refusals.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    /// The families that began to differ, by the class that no other class was split from.
    begun: BTreeMap<ClassKey, Time>,
    open: Option<(Arc<str>, Time)>,
}

impl Breaker {
    /// How long the breaker stays open.
    pub const PAUSE: Duration = PAUSE;

    /// A class of the family began to differ.
    pub fn note(&mut self, family: ClassKey, now: Time) {
        self.begun.insert(family, now);
    }

    /// Opens the breaker if too much differs at once. Returns the reason, if the breaker was closed.
    pub fn trip(&mut self, share: Share, now: Time) -> Option<Arc<str>> {
        self.begun.retain(|_, begun| now.since(*begun) <= WITHIN);
        if self.open.is_some() {
            return None;
        }
        let Share { samples, differing, families } = share;
        let reason: Arc<str> = if self.begun.len() > FAMILIES_MAX {
            let (begun, minutes) = (self.begun.len(), WITHIN.as_secs() / 60);
            format!("{begun} classes began to differ within {minutes} min").into()
        } else if samples >= SAMPLES_MIN && differing * SHARE > samples && families >= 2 {
            format!("{differing} of {samples} samples of the last minute differ, in {families} classes")
                .into()
        } else {
            return None;
        };
        self.open = Some((reason.clone(), now + PAUSE));
        Some(reason)
    }

    /// The reason and the end, while the breaker is open.
    pub fn open(&self) -> Option<(&Arc<str>, Time)> {
        self.open.as_ref().map(|open| (&open.0, open.1))
    }

    /// Closes the breaker at the end of the pause. Returns whether this was the end.
    pub fn close(&mut self, now: Time) -> bool {
        let is_over = self.open.as_ref().is_some_and(|open| now >= open.1);
        if is_over {
            *self = Breaker::default();
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    fn share(samples: usize, differing: usize, families: usize) -> Share {
        Share { samples, differing, families }
    }

    #[test]
    fn prf_29_four_families_within_five_minutes_open_the_breaker_for_ten() {
        let mut breaker = Breaker::default();
        (0..3).for_each(|family| breaker.note(format!("c{family}").into(), at(family)));
        breaker.note("c0".into(), at(3));
        assert!(breaker.trip(Share::default(), at(4)).is_none(), "three families");
        breaker.note("c3".into(), at(302));
        assert!(breaker.trip(Share::default(), at(302)).is_none(), "the second is too long ago");
        breaker.note("c4".into(), at(302));
        assert!(breaker.trip(Share::default(), at(302)).is_some());
        assert!(breaker.trip(Share::default(), at(303)).is_none(), "told once");
        assert!(!breaker.close(at(901)) && breaker.open().is_some());
        assert!(breaker.close(at(902)) && breaker.open().is_none());
        assert!(breaker.trip(Share::default(), at(902)).is_none(), "old divergences count no more");
    }

    #[test]
    fn prf_29_more_than_one_of_twenty_samples_in_two_families_opens_the_breaker() {
        let trips = |share| Breaker::default().trip(share, at(0)).is_some();
        assert!(!trips(share(19, 19, 2)), "too few samples");
        assert!(!trips(share(20, 1, 2)) && trips(share(20, 2, 2)));
        assert!(!trips(share(100, 90, 1)), "a coarse class is no plane in motion");
    }
}
