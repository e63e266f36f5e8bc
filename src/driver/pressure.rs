//! The memory budget: who is refused, and who must go, when memory is short (FP7).
//!
//! Every part of the relay has a bound of its own; the budget is what they may take together, and what the bounds do not
//! see: the kernel's idea of this process. Below the soft mark nothing happens. From there on no connection is let in,
//! so that those who are served go on being served. From the hard mark on, what can be made again is dropped, and the
//! connections that have left a response unread the longest are cut: unread responses are what clients make the relay
//! keep.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tracing::{info, warn};

use super::hub::Hub;
use super::source::Subscriber;
use crate::telemetry::{Limit, resident_bytes};

/// Percent of the budget at which no connection is let in any more.
const SOFT_PERCENT: u64 = 80;

/// Percent of the budget at which memory is taken back.
const HARD_PERCENT: u64 = 90;

/// Between two looks at the memory.
const INTERVAL: Duration = Duration::from_millis(250);

/// A response unread for less than this may still be on its way.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// Of the stalled streams one in so many goes at a time, and a few at least: what they held is freed a little later.
const CUT_PART: usize = 8;
const CUT_MIN: usize = 16;

/// How much of the budget is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pressure {
    None,
    Soft,
    Hard,
}

impl Pressure {
    fn of(resident: u64, budget: u64) -> Pressure {
        let at_least = |percent: u64| u128::from(resident) * 100 >= u128::from(budget) * u128::from(percent);
        if at_least(HARD_PERCENT) {
            Pressure::Hard
        } else if at_least(SOFT_PERCENT) {
            Pressure::Soft
        } else {
            Pressure::None
        }
    }
}

/// The pressure, for all who ask.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicU8);

impl Gauge {
    pub fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= Pressure::Soft as u8
    }

    fn set(&self, pressure: Pressure) {
        self.0.store(pressure as u8, Ordering::Relaxed);
    }
}

/// Holds the process to `budget` bytes of resident memory, for as long as it is polled.
pub(super) async fn watch(hub: Hub, budget: u64) {
    let mut before = Pressure::None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        // Where the kernel does not say, there is nothing to hold to; `app` refuses the key there.
        let Some(resident) = resident_bytes() else { continue };
        let now = Pressure::of(resident, budget);
        hub.shared.pressure.set(now);
        if now != before {
            tell(now, before, resident, budget);
            before = now;
        }
        if now == Pressure::Hard {
            relieve(&hub);
        }
    }
}

fn tell(now: Pressure, before: Pressure, resident: u64, budget: u64) {
    match now {
        Pressure::None => info!(resident, budget, "memory is below 80 % of its budget again"),
        Pressure::Soft if before == Pressure::Hard => {
            info!(resident, budget, "memory is below 90 % of its budget again; no connection is let in yet");
        }
        Pressure::Soft => {
            warn!(resident, budget, "memory is above 80 % of its budget: no connection is let in");
        }
        Pressure::Hard => warn!(
            resident,
            budget,
            "memory is above 90 % of its budget: connections that read nothing are cut, the longest first"
        ),
    }
}

/// Drops what can be made again, and cuts the connections that have read nothing for longest.
fn relieve(hub: &Hub) {
    let shared = &hub.shared;
    shared.encoder.clear();
    let mut stalled = Vec::new();
    let mut next = None;
    while let Some(stream) = hub.tables.streams.next(next) {
        next = Some(stream.id().0);
        if let Some(age) = stream.unread_for().filter(|age| *age >= STALLED_AFTER) {
            stalled.push((age, stream));
        }
    }
    stalled.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    stalled.truncate((stalled.len() / CUT_PART).max(CUT_MIN));
    for (_, stream) in &stalled {
        shared.metrics.limit_hit(Limit::MemoryBytes);
        stream.cut();
    }
    if !stalled.is_empty() {
        warn!(
            streams = stalled.len(),
            "connections were cut that left responses unread while memory is short"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp7_the_marks_are_at_80_and_90_percent() {
        for (resident, expected) in [
            (0, Pressure::None),
            (799, Pressure::None),
            (800, Pressure::Soft),
            (899, Pressure::Soft),
            (900, Pressure::Hard),
            (u64::MAX, Pressure::Hard),
        ] {
            assert_eq!(Pressure::of(resident, 1000), expected, "{resident}");
        }
        let gauge = Gauge::default();
        assert!(!gauge.is_high());
        gauge.set(Pressure::Soft);
        assert!(gauge.is_high());
    }
}
