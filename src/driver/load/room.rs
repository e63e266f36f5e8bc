//! The room of all loads together (LRS-18).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sluice_engine::Time;
use sluice_load_reports::LoadLimits;
use sluice_load_reports::table::level;

/// The time between two looks at the shares of all classes.
const LOOK: Duration = Duration::from_secs(1);

/// The entries of all loads. When seven eighths of the room are in use, the largest classes get less room,
/// and cut the shares of their largest clients. They have their usual room again when half of it is free.
#[derive(Debug)]
pub struct LoadRoom {
    used: AtomicUsize,
    /// The most entries of a class; `usize::MAX` while there is room.
    level: AtomicUsize,
    /// In microseconds.
    looked_at: AtomicU64,
}

impl Default for LoadRoom {
    fn default() -> Self {
        LoadRoom {
            used: AtomicUsize::new(0),
            level: AtomicUsize::new(usize::MAX),
            looked_at: AtomicU64::new(0),
        }
    }
}

impl LoadRoom {
    /// Whether the shares of all classes have to be looked at now.
    pub fn is_look_due(&self, limits: &LoadLimits, now: Time) -> bool {
        let (max, used) = (limits.load_rows_total, self.used.load(Ordering::Relaxed));
        if used <= max / 2 && self.level.load(Ordering::Relaxed) != usize::MAX {
            self.level.store(usize::MAX, Ordering::Relaxed);
        }
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        let is_due = now.as_micros().saturating_sub(looked_at) >= LOOK.as_micros() as u64;
        used > max - max / 8
            && is_due
            && self
                .looked_at
                .compare_exchange(looked_at, now.as_micros(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Sets the most entries of a class, by the entries of all; gives the number.
    pub fn look(&self, limits: &LoadLimits, entries: Vec<usize>) -> usize {
        let level = level(entries, limits.load_rows_total / 4 * 3).max(1);
        self.level.store(level, Ordering::Relaxed);
        level
    }
}

/// The entries of one load.
#[derive(Debug)]
pub struct RoomPart {
    room: Arc<LoadRoom>,
    entries: Arc<AtomicUsize>,
}

impl RoomPart {
    /// `entries`: where others see the number.
    pub fn new(room: &Arc<LoadRoom>, entries: &Arc<AtomicUsize>) -> RoomPart {
        RoomPart { room: room.clone(), entries: entries.clone() }
    }

    /// The most entries that the class may have now.
    pub fn max(&self) -> usize {
        self.room.level.load(Ordering::Relaxed)
    }

    /// The entries that no class has.
    pub fn free(&self, limits: &LoadLimits) -> usize {
        limits.load_rows_total.saturating_sub(self.room.used.load(Ordering::Relaxed))
    }

    pub fn set(&self, entries: usize) {
        let before = self.entries.swap(entries, Ordering::Relaxed);
        self.room.used.fetch_add(entries, Ordering::Relaxed);
        self.room.used.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for RoomPart {
    fn drop(&mut self) {
        self.set(0);
    }
}
