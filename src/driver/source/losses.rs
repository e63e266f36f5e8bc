//! The streams of a source with an end soon after a response, and not by the relay (TRU-1).
//!
//! A client may die of a resource without a NACK: only the stream ends. Streams count in here at the end
//! only.

use sluice_engine::Time;
use sluice_xds::TypeUrl;
use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The counted minutes.
pub const MINUTES: usize = 10;

/// The types with losses. Clients choose types, so the number is bounded.
const TYPES_MAX: usize = 64;

const MINUTE_MICROS: u64 = 60_000_000;

/// The lost streams by type.
#[derive(Debug, Default)]
pub struct Losses(Mutex<BTreeMap<TypeUrl, Recent>>);

/// Counts of the latest minutes.
#[derive(Debug, Default)]
struct Recent {
    /// The minute of the latest loss, since the start of the process.
    minute: u64,
    /// By minute, modulo [`MINUTES`].
    counts: [u32; MINUTES],
}

impl Losses {
    pub fn add(&self, type_url: &TypeUrl, now: Time) {
        let mut types = self.0.lock();
        if types.len() >= TYPES_MAX && !types.contains_key(type_url) {
            let is_over = |recent: &Recent| recent.sum(now) == 0;
            types.retain(|_, recent| !is_over(recent));
            if types.len() >= TYPES_MAX {
                return;
            }
        }
        types.entry(type_url.clone()).or_default().add(now);
    }

    /// The lost streams of the latest [`MINUTES`].
    pub fn recent(&self, type_url: &TypeUrl, now: Time) -> u64 {
        self.0.lock().get(type_url).map_or(0, |recent| recent.sum(now))
    }
}

impl Recent {
    fn add(&mut self, now: Time) {
        let minute = minute_of(now);
        // Minutes without a loss begin anew at zero.
        for passed in (self.minute + 1..=minute).rev().take(MINUTES) {
            self.counts[slot(passed)] = 0;
        }
        self.minute = self.minute.max(minute);
        self.counts[slot(minute)] += 1;
    }

    fn sum(&self, now: Time) -> u64 {
        let first = (minute_of(now) + 1).saturating_sub(MINUTES as u64);
        let latest = (first..=self.minute).rev().take(MINUTES);
        latest.map(|minute| u64::from(self.counts[slot(minute)])).sum()
    }
}

fn minute_of(time: Time) -> u64 {
    time.as_micros() / MINUTE_MICROS
}

fn slot(minute: u64) -> usize {
    (minute % MINUTES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tru_1_losses_count_for_ten_minutes() {
        let losses = Losses::default();
        let url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let at = |minute: u64| Time::from_micros(minute * MINUTE_MICROS + 1);
        for minute in [0, 3, 3, 12] {
            losses.add(&url, at(minute));
        }
        assert_eq!([12, 13, 21, 22, 100].map(|minute| losses.recent(&url, at(minute))), [3, 1, 1, 0, 0]);
        losses.add(&url, at(50));
        assert_eq!(losses.recent(&url, at(50)), 1);
        assert_eq!(losses.recent(&TypeUrl::of_message("a.B"), at(50)), 0);
    }

    #[test]
    fn types_of_clients_cost_a_bounded_number() {
        let losses = Losses::default();
        let url = |number: usize| TypeUrl::of_message(&format!("a.B{number}"));
        (0..100).for_each(|number| losses.add(&url(number), Time::ZERO));
        assert_eq!(losses.0.lock().len(), TYPES_MAX);
        let later = Time::from_micros(MINUTES as u64 * MINUTE_MICROS);
        losses.add(&url(100), later);
        assert_eq!(losses.recent(&url(100), later), 1);
        assert_eq!(losses.0.lock().len(), 1);
    }
}
