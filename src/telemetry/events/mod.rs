//! Events: the latest occurrences that an operator may ask about, numbered, in a ring of bounded memory (ADM-11).
//!
//! A place that logs a line reports the same occurrence here. The ring needs no throttle of the caller's: within a
//! second, repeated causes share an event, and each kind gets a few events.

mod kind;
mod occurrence;
mod counted;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::instruments::lock;
use super::wall_now;
pub use counted::count_each_second;
pub use kind::{Kind, Severity};
pub use occurrence::Occurrence;

/// The number of remembered events: a busy day of a relay, in at most 4 MiB.
pub const EVENTS_MAX: usize = 4096;

/// The time in which repeated causes share an event. After it, an event changes no more.
pub const WINDOW: Duration = Duration::from_secs(1);

/// New events of one kind in a window. Further ones are counted: a storm of one kind must not push out the others.
const NEW_MAX: u32 = 32;

/// An event in the ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From 1, without gaps.
    pub number: u64,
    /// The wall clock, for display.
    pub at: SystemTime,
    since: Instant,
    /// How often the cause occurred.
    pub count: u64,
    /// Further occurrences of the kind with other causes, which have no event of their own.
    pub left_out: u64,
    /// The first occurrence.
    pub first: Occurrence,
}

impl Event {
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the event changes no more.
    pub fn is_settled(&self) -> bool {
        self.age() >= WINDOW
    }
}

/// The ring of events. Cheap to clone; all clones share the ring.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// The number of the latest event.
    latest: u64,
    kinds: [Option<Allowance>; Kind::ALL.len()],
}

/// The new events of one kind in the current window.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    began: Instant,
    new: u32,
    /// The number of the latest event of the kind.
    last: u64,
}

/// Events after a number.
#[derive(Debug, Default)]
pub struct Page {
    pub events: Vec<Arc<Event>>,
    /// The numbers that the ring has dropped already, first and last.
    pub gap: Option<(u64, u64)>,
    /// The number up to which the page has looked.
    pub looked_to: u64,
    /// Whether the ring has further events.
    pub has_more: bool,
}

impl Events {
    pub fn add(&self, occurrence: Occurrence) {
        lock(&self.0).add(occurrence, Instant::now(), wall_now());
    }

    /// The number of the latest event; 0 without events.
    pub fn latest(&self) -> u64 {
        lock(&self.0).latest
    }

    /// At most `max` wanted events after `number`, the oldest first.
    pub fn after(&self, number: u64, max: usize, wants: impl Fn(&Event) -> bool) -> Page {
        lock(&self.0).after(number, max, wants)
    }
}

impl Ring {
    fn add(&mut self, occurrence: Occurrence, now: Instant, at: SystemTime) {
        let is_recent = |event: &&mut Arc<Event>| now.saturating_duration_since(event.since) < WINDOW;
        let mut recent = self.events.iter_mut().rev().take_while(is_recent);
        if let Some(known) = recent.find(|event| occurrence.repeats(&event.first)) {
            let known = Arc::make_mut(known);
            known.count = known.count.saturating_add(occurrence.count);
            return;
        }
        let number = self.latest + 1;
        if let Some(last) = self.fill(occurrence.kind, number, now) {
            let known = self.position(last).and_then(|at| self.events.get_mut(at));
            if let Some(known) = known {
                let known = Arc::make_mut(known);
                known.left_out = known.left_out.saturating_add(occurrence.count);
            }
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.latest = number;
        let count = occurrence.count;
        self.events.push_back(Arc::new(Event {
            number,
            at,
            since: now,
            count,
            left_out: 0,
            first: occurrence,
        }));
    }

    /// Takes one of the new events of a kind. Fails with the number of the latest event of the kind if none is left.
    fn fill(&mut self, kind: Kind, number: u64, now: Instant) -> Option<u64> {
        let kind = self.kinds.get_mut(kind as usize)?;
        match kind {
            Some(allowance) if now.saturating_duration_since(allowance.began) < WINDOW => {
                if allowance.new == NEW_MAX {
                    return Some(allowance.last);
                }
                allowance.new += 1;
                allowance.last = number;
            }
            _ => *kind = Some(Allowance { began: now, new: 1, last: number }),
        }
        None
    }

    fn oldest(&self) -> u64 {
        self.events.front().map_or(self.latest + 1, |event| event.number)
    }

    fn position(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.oldest())?).ok()
    }

    fn after(&self, number: u64, max: usize, wants: impl Fn(&Event) -> bool) -> Page {
        let oldest = self.oldest();
        let gap = (number + 1 < oldest).then(|| (number + 1, oldest - 1));
        let begin = (number + 1).max(oldest);
        let mut page = Page { gap, looked_to: begin - 1, ..Page::default() };
        for event in self.events.iter().skip(self.position(begin).unwrap_or_default()) {
            if wants(event) {
                if page.events.len() == max {
                    page.has_more = true;
                    break;
                }
                page.events.push(event.clone());
            }
            page.looked_to = event.number;
        }
        page
    }
}

#[cfg(test)]
mod tests;
