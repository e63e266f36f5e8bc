//! What all worlds of schedules share: a clock, a queue of jobs in flight, and the record of the events.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use sluice_engine::Time;

use super::rng::mix;
use super::world::{Failure, Invariant, Outcome};

/// The maximum number of jobs without progress of the clock.
const BUSY_MAX: u32 = 20_000;

pub struct Scheduler<Job> {
    /// Microseconds since the schedule began.
    pub now: u64,
    /// The engine's clock at the start (I18).
    origin: u64,
    queue: BinaryHeap<Reverse<Due<Job>>>,
    numbers: u64,
    busy: u32,
    /// A hash of all events.
    pub hash: u64,
    pub failure: Option<Failure>,
    story: Option<Vec<String>>,
}

/// Jobs of one time are done in the order of their numbers.
struct Due<Job> {
    at: u64,
    number: u64,
    job: Job,
}

impl<Job> PartialEq for Due<Job> {
    fn eq(&self, other: &Due<Job>) -> bool {
        self.number == other.number
    }
}

impl<Job> Eq for Due<Job> {}

impl<Job> PartialOrd for Due<Job> {
    fn partial_cmp(&self, other: &Due<Job>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<Job> Ord for Due<Job> {
    fn cmp(&self, other: &Due<Job>) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<Job> Scheduler<Job> {
    pub fn new(origin: u64, tells: bool) -> Scheduler<Job> {
        Scheduler {
            now: 0,
            origin,
            queue: BinaryHeap::new(),
            numbers: 0,
            busy: 0,
            hash: 0,
            failure: None,
            story: tells.then(Vec::new),
        }
    }

    /// The time in the engine's form.
    pub fn time(&self) -> Time {
        Time::from_micros(self.origin + self.now)
    }

    pub fn relative(&self, time: Time) -> u64 {
        time.as_micros().saturating_sub(self.origin)
    }

    pub fn after(&mut self, delay: u64, job: Job) {
        self.at(self.now + delay, job);
    }

    pub fn at(&mut self, at: u64, job: Job) {
        let number = self.next_number();
        self.queue.push(Reverse(Due { at, number, job }));
    }

    /// The next number of a job, or of something else that needs one.
    pub fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The time of the next job or timer, at most `end`; `None` without one, and after a violation.
    pub fn next_due(&self, timers: &[Option<u64>], end: u64) -> Option<u64> {
        let job = self.queue.peek().map(|due| due.0.at);
        let next = timers.iter().copied().chain([job]).flatten().min()?;
        (next <= end && self.failure.is_none()).then_some(next)
    }

    /// Advances the clock to a job or timer.
    pub fn pass_to(&mut self, next: u64) {
        if next > self.now {
            self.now = next;
            self.busy = 0;
        }
        self.busy += 1;
        if self.busy > BUSY_MAX {
            self.fail(Invariant::Hygiene, || "a busy loop: time stands still".to_owned());
        }
    }

    pub fn pop(&mut self) -> Option<Job> {
        self.queue.pop().map(|due| due.0.job)
    }

    // === the record ===

    /// Adds an event to the hash.
    pub fn note(&mut self, what: u64, a: u64, b: u64) {
        self.hash = mix(self.hash ^ mix(self.now) ^ mix(what << 48 | a << 24 | b)).wrapping_add(1);
    }

    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            story.push(format!("{:>12.6}  {}", now as f64 / 1e6, text()));
        }
    }

    /// Records the first violation.
    pub fn fail(&mut self, invariant: Invariant, text: impl FnOnce() -> String) {
        if self.failure.is_none() {
            let text = text();
            self.tell(|| format!("VIOLATED {}: {text}", invariant.id()));
            self.failure = Some(Failure { invariant, text, at: self.now });
        }
    }

    pub fn outcome(self) -> Outcome {
        Outcome { hash: self.hash, failure: self.failure, story: self.story.unwrap_or_default() }
    }
}

/// Makes the parts of a world's scheduler parts of the world.
macro_rules! schedules {
    ($world:ty, $job:ty) => {
        impl std::ops::Deref for $world {
            type Target = Scheduler<$job>;

            fn deref(&self) -> &Self::Target {
                &self.scheduler
            }
        }

        impl std::ops::DerefMut for $world {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.scheduler
            }
        }
    };
}
pub(crate) use schedules;
