//! How many shadows may begin, and when none may (PRF-19, PRF-20).

use std::collections::VecDeque;
use std::time::Duration;

use super::input::Surroundings;
use super::settings::ProofPace;
use sluice_engine::Time;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// No shadow begins for so long after RESOURCE_EXHAUSTED (PRF-20).
const EXHAUSTED: Duration = Duration::from_secs(600);
/// First answers to remember, at most.
const ANSWERS_MAX: usize = 512;
/// First answers of the last minute that make a server slow, at least.
const ANSWERS_MIN: usize = 3;
/// The share of the memory bound from which on shadows give way, in percent (PRF-20).
const MEMORY_PERCENT: u32 = 80;

/// The reason why a server is never asked (PRF-5).
pub const REGISTERS: &str = "the server registers clients while they are connected, by its own words, and a shadow \
    would be such a client";

/// The begins of shadows, and the state of the server and the relay.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    pub surroundings: Surroundings,
    /// Begins of samples in the last minute.
    samples: VecDeque<Time>,
    /// Begins of confirmations in the last minute: a second and a control each. They belong to samples, and
    /// have a bound of the same size of their own: a difference is not to wait for the next free begin.
    confirmations: VecDeque<Time>,
    /// Begins of samples in the last minute that explain a divergence for a split, with a bound of the same
    /// size: a split is not to wait for confirmations of further differences (PRF-27).
    explanations: VecDeque<Time>,
    exhausted_until: Option<Time>,
    answers: VecDeque<(Time, Duration)>,
}

fn forget(begins: &mut VecDeque<Time>, now: Time) {
    while begins.front().is_some_and(|begin| now.since(*begin) >= MINUTE) {
        begins.pop_front();
    }
}

/// The time from which on no minute has more begins than the bound.
fn next(begins: &VecDeque<Time>, pace: &ProofPace, now: Time) -> Time {
    let over = begins.len().checked_sub(pace.per_minute.max(2) as usize);
    over.and_then(|over| begins.get(over)).map_or(now, |first| (*first + MINUTE).max(now))
}

impl Pace {
    pub fn exhausted(&mut self, now: Time) {
        self.exhausted_until = Some(now + EXHAUSTED);
    }

    pub fn first_answer(&mut self, took: Duration, now: Time) {
        while self.answers.len() >= ANSWERS_MAX
            || self.answers.front().is_some_and(|answer| now.since(answer.0) > HOUR)
        {
            self.answers.pop_front();
        }
        self.answers.push_back((now, took));
    }

    /// Whether the server takes longer for first answers than in the hour before, by the factor of
    /// `slow_down`.
    fn is_slow(&self, factor: u32, now: Time) -> bool {
        let is_new = |answer: &&(Time, Duration)| now.since(answer.0) <= MINUTE;
        let times = |answers: Vec<&(Time, Duration)>| -> Vec<Duration> {
            answers.iter().map(|answer| answer.1).collect()
        };
        let latest = times(self.answers.iter().filter(is_new).collect());
        let before = times(self.answers.iter().filter(|answer| !is_new(answer)).collect());
        if latest.len() < ANSWERS_MIN || before.len() < ANSWERS_MIN {
            return false;
        }
        median(latest) > median(before) * factor
    }

    /// The reason why no shadow may begin now (PRF-20).
    pub fn gives_way(&self, pace: &ProofPace, shadow_bytes: u64, now: Time) -> Option<&'static str> {
        let around = &self.surroundings;
        if around.registers_clients {
            Some(REGISTERS)
        } else if around.is_leaving {
            Some("the relay drains or passes its work on")
        } else if around.is_unwell {
            Some("the server is lost, ends its streams, or serves restored content")
        } else if self.exhausted_until.is_some_and(|until| now < until) {
            Some("the server said RESOURCE_EXHAUSTED within the last 10 min")
        } else if around.memory_percent > MEMORY_PERCENT {
            Some("more than 80 % of the memory bound is in use")
        } else if shadow_bytes > 0 && around.shadow_bytes >= shadow_bytes {
            Some("shadows hold all of limits.shadow_bytes")
        } else if u64::from(around.waiting) * 100 > u64::from(around.clients) {
            Some("more than 1 % of the clients wait for a first answer")
        } else if self.is_slow(pace.slow_down, now) {
            Some("first answers of the server take much longer than usual")
        } else {
            None
        }
    }

    /// Whether open witnesses have to close: none, the newest, or all at once.
    pub fn closes(&self, shadow_bytes: u64, now: Time) -> Closing {
        let around = &self.surroundings;
        let is_over = shadow_bytes > 0 && around.shadow_bytes > shadow_bytes;
        let is_short = around.memory_percent > MEMORY_PERCENT;
        if around.is_leaving || around.registers_clients {
            Closing::All
        } else if is_over || is_short || self.exhausted_until.is_some_and(|until| now < until) {
            Closing::Newest
        } else {
            Closing::Nothing
        }
    }

    /// The time from which on a sample may begin, by `per_minute`: samples come at equal distances.
    pub fn next_sample(&self, pace: &ProofPace, now: Time) -> Time {
        let distance = MINUTE / pace.per_minute;
        let after_last = self.samples.back().map_or(now, |last| *last + distance);
        let over = self.samples.len().checked_sub(pace.per_minute as usize);
        let after_first = over.and_then(|over| self.samples.get(over)).map_or(now, |first| *first + MINUTE);
        after_last.max(after_first).max(now)
    }

    /// A sample begins. A failed begin counts, too (PRF-19).
    pub fn begin_sample(&mut self, now: Time) {
        forget(&mut self.samples, now);
        self.samples.push_back(now);
    }

    /// The time from which on a confirmation may begin.
    pub fn next_confirmation(&self, pace: &ProofPace, now: Time) -> Time {
        next(&self.confirmations, pace, now)
    }

    pub fn begin_confirmation(&mut self, now: Time) {
        forget(&mut self.confirmations, now);
        self.confirmations.push_back(now);
    }

    /// The time from which on a sample for an explanation may begin.
    pub fn next_explanation(&self, pace: &ProofPace, now: Time) -> Time {
        next(&self.explanations, pace, now)
    }

    pub fn begin_explanation(&mut self, now: Time) {
        forget(&mut self.explanations, now);
        self.explanations.push_back(now);
    }
}

/// The witnesses to close, because something is short (PRF-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    Nothing,
    Newest,
    All,
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn prf_19_no_minute_has_more_begins_than_the_setting() {
        let (mut pace, settings) = (Pace::default(), ProofPace::default());
        let (mut now, mut begins) = (at(0), Vec::new());
        while now < at(300) {
            if pace.next_sample(&settings, now) <= now {
                pace.begin_sample(now);
                begins.push(now);
            }
            now = now + Duration::from_millis(100);
        }
        assert_eq!(begins.len(), 60);
        for begin in &begins {
            assert!(
                begins.iter().filter(|other| *other >= begin && other.since(*begin) < MINUTE).count() <= 12
            );
        }
    }

    #[test]
    fn prf_20_shadows_give_way() {
        let settings = ProofPace::default();
        let way = |change: &dyn Fn(&mut Surroundings)| {
            let mut pace = Pace::default();
            pace.surroundings.clients = 1_000;
            change(&mut pace.surroundings);
            pace.gives_way(&settings, 100, at(1)).is_some()
        };
        assert!(!way(&|_| ()));
        assert!(way(&|around| around.is_unwell = true));
        assert!(way(&|around| around.is_leaving = true));
        assert!(way(&|around| around.registers_clients = true));
        assert!(!way(&|around| around.memory_percent = 80));
        assert!(way(&|around| around.memory_percent = 81));
        assert!(!way(&|around| around.waiting = 10));
        assert!(way(&|around| around.waiting = 11));
        assert!(way(&|around| around.shadow_bytes = 100));
    }

    #[test]
    fn prf_20_resource_exhausted_counts_for_ten_minutes() {
        let (mut pace, settings) = (Pace::default(), ProofPace::default());
        pace.exhausted(at(5));
        assert!(pace.gives_way(&settings, 0, at(604)).is_some());
        assert_eq!(pace.closes(0, at(604)), Closing::Newest);
        assert_eq!(
            (pace.gives_way(&settings, 0, at(605)), pace.closes(0, at(605))),
            (None, Closing::Nothing)
        );
    }

    #[test]
    fn prf_20_a_slow_server_is_compared_with_its_last_hour() {
        let (mut pace, settings) = (Pace::default(), ProofPace::default());
        let ms = Duration::from_millis;
        (0..10).for_each(|second| pace.first_answer(ms(100), at(second)));
        (0..2).for_each(|second| pace.first_answer(ms(900), at(100 + second)));
        assert_eq!(pace.gives_way(&settings, 0, at(102)), None, "two are no sign");
        pace.first_answer(ms(201), at(102));
        assert!(pace.gives_way(&settings, 0, at(102)).is_some());
        assert_eq!(pace.gives_way(&settings, 0, at(162)), None, "the minute is over");
    }
}
