//! The use of the memory budget (FP7).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Percent of the budget at which new connections are refused.
const SOFT_PERCENT: u64 = 80;

/// Percent of the budget that newcomers find free once room is made for them.
const ROOM_PERCENT: u64 = 3;

/// Percent of the budget at which memory is freed.
const HARD_PERCENT: u64 = 90;

/// How much of the budget is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pressure {
    None,
    Soft,
    Hard,
}

impl Pressure {
    /// The bytes that have to become free before newcomers come in, with some room for them.
    pub fn missing(resident: u64, budget: u64) -> u64 {
        let allowed = budget / 100 * (SOFT_PERCENT - ROOM_PERCENT);
        resident.saturating_sub(allowed)
    }

    pub fn of(resident: u64, budget: u64) -> Pressure {
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

/// The current pressure, for all readers.
#[derive(Debug, Default)]
pub struct MemoryGauge {
    pressure: AtomicU8,
    /// 0 without a budget.
    budget: AtomicU64,
    /// The connections refused since the last look.
    refused: AtomicU64,
}

impl MemoryGauge {
    /// Whether a new connection has to be refused; counts the refusal.
    pub fn refuses(&self) -> bool {
        let is_high = self.is_high();
        if is_high {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_high
    }

    /// Whether memory is short.
    pub fn is_high(&self) -> bool {
        self.pressure.load(Ordering::Relaxed) >= Pressure::Soft as u8
    }

    /// The connections refused since the last call.
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    pub fn budget(&self) -> Option<u64> {
        Some(self.budget.load(Ordering::Relaxed)).filter(|budget| *budget > 0)
    }

    pub fn set_budget(&self, budget: Option<u64>) {
        self.budget.store(budget.unwrap_or_default(), Ordering::Relaxed);
    }

    pub fn set(&self, pressure: Pressure) {
        self.pressure.store(pressure as u8, Ordering::Relaxed);
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
        let gauge = MemoryGauge::default();
        assert!(!gauge.refuses());
        gauge.set(Pressure::Soft);
        assert!(gauge.refuses() && gauge.refuses());
        assert_eq!((gauge.take_refused(), gauge.take_refused()), (2, 0));
        assert_eq!(Pressure::missing(1000, 1000), 230);
    }
}
