//! The times at which a stream is looked at: the signal of the sources, and the timer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::{Sleep, sleep, sleep_until};

use crate::driver::ground::clock::Clock;
use sluice_engine::Time;

/// The sources may have published something, or a timer of the driver is over.
const NEWS: u8 = 1;
/// The last look found something.
const AGAIN: u8 = 2;

/// The time between two last words for a relay (ADR 101). Between them, the age at the client grows: so each
/// relay on a way adds up to this much to an age that is 0 at the top.
pub(super) const LAST_WORD_EVERY: Duration = Duration::from_secs(5);

/// Wakes the polling task of a stream, and notes the reasons for a look. Each request and each sent message
/// also cause a poll, and most of these polls would find nothing.
pub(crate) struct PollSignal {
    waker: AtomicWaker,
    /// The reasons since the last look.
    due: AtomicU8,
}

/// The reasons for a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reasons(u8);

impl Reasons {
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub fn has_news(self) -> bool {
        self.0 & NEWS != 0
    }
}

impl PollSignal {
    /// A signal with news.
    pub fn new() -> PollSignal {
        PollSignal { waker: AtomicWaker::new(), due: AtomicU8::new(NEWS) }
    }

    /// Registers the task to wake.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Takes the reasons for a look, for the registered task.
    pub fn take(&self) -> Reasons {
        Reasons(self.due.swap(0, Ordering::AcqRel))
    }

    /// Wakes the task for a look at news.
    pub fn wake(&self) {
        self.due.fetch_or(NEWS, Ordering::Release);
        self.waker.wake();
    }

    /// Lets the next poll look, whatever the cause.
    pub fn look_again(&self) {
        self.due.fetch_or(AGAIN, Ordering::Relaxed);
    }

    /// Whether no look is due.
    pub fn is_quiet(&self) -> bool {
        self.due.load(Ordering::Acquire) == 0
    }
}

/// The times of a stream.
#[derive(Default)]
pub(crate) struct Schedule {
    /// The time of the first request.
    asked_at: Option<Time>,
    /// The earliest time of the first answer (RLY-56), set when the answer is due.
    first_answer_at: Option<Time>,
    /// Runs while the first answer is delayed, or while the routing types wait for an ACK (ORD-10).
    timer: Option<Pin<Box<Sleep>>>,
}

impl Schedule {
    /// Notes a request.
    pub fn note_request(&mut self, now: Time) {
        self.asked_at.get_or_insert(now);
    }

    /// The time at which a wait that began with the first request is over; `None` without a request.
    pub fn after_first_request(&self, wait: Duration) -> Option<Time> {
        self.asked_at.map(|asked_at| asked_at + wait)
    }

    /// Whether the time of the first answer is decided.
    pub fn has_first_answer(&self) -> bool {
        self.first_answer_at.is_some()
    }

    /// The time of the first answer. Decided once, by the result of `wait`.
    pub fn first_answer_at(&mut self, now: Time, wait: impl FnOnce() -> Duration) -> Time {
        *self.first_answer_at.get_or_insert_with(|| now + wait())
    }

    /// Whether the timer runs.
    pub fn is_timed(&self) -> bool {
        self.timer.is_some()
    }

    /// Makes the next look happen, whatever the cause. Each look decides about the next.
    pub fn look_within(&mut self, time: Duration) {
        self.timer = Some(Box::pin(sleep(time)));
    }

    /// Sets the timer to this time, or stops the timer. Wakes the task if the time has come already.
    pub fn poll_at(&mut self, until: Option<Time>, clock: &Clock, context: &mut Context<'_>) {
        let Some(until) = until else {
            self.timer = None;
            return;
        };
        let mut timer = Box::pin(sleep_until(clock.instant(until)));
        if timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        self.timer = Some(timer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_all_reasons_and_a_new_stream_has_one() {
        let signal = PollSignal::new();
        let first = signal.take();
        assert!(first.has_news() && signal.is_quiet() && signal.take().is_none());
        signal.look_again();
        let again = signal.take();
        assert!(!again.is_none() && !again.has_news());
        signal.look_again();
        signal.wake();
        assert!(!signal.is_quiet() && signal.take().has_news());
    }

    #[test]
    fn rly_56_the_time_of_the_first_answer_is_decided_once() {
        let (mut schedule, begin) = (Schedule::default(), Time::ZERO);
        let second = Duration::from_secs(1);
        assert!(!schedule.has_first_answer());
        assert_eq!(schedule.first_answer_at(begin, || second), begin + second);
        assert_eq!(schedule.first_answer_at(begin + second, || Duration::MAX), begin + second);
        assert_eq!(schedule.after_first_request(second), None);
        schedule.note_request(begin);
        schedule.note_request(begin + second);
        assert_eq!(schedule.after_first_request(second), Some(begin + second), "the first request counts");
    }
}
