//! A server that is still answering a request withholds nothing: the rest is outstanding.
//!
//! 100,000 names take a slow server longer than the resource timer. A name without an answer by then is not
//! gone (RLY-2, TMR-3). So a timer depends on the names of the same request and of earlier requests: the
//! timer ends no earlier than a whole timer after the last first answer to these names. Names of later
//! requests do not count, because newcomers would put off the end for ever.

use std::collections::VecDeque;

use crate::engine::Time;

/// The pace of answers to the requests of one type on one stream.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The request time of a name with a first answer, and the earliest end of timers because of the answer.
    /// Both ascend.
    answered: VecDeque<(Time, Time)>,
}

impl Pace {
    /// Records the first answer to a name that was requested at `asked`.
    pub(super) fn note(&mut self, asked: Time, until: Time, now: Time) {
        while self.answered.front().is_some_and(|(_, until)| *until <= now) {
            self.answered.pop_front();
        }
        // An earlier request counts for all later requests.
        while self.answered.back().is_some_and(|(later, _)| *later >= asked) {
            self.answered.pop_back();
        }
        self.answered.push_back((asked, until));
    }

    /// The earliest end of timers for names that were requested at `asked`, if the end is later than `now`.
    pub(super) fn holds(&self, asked: Time, now: Time) -> Option<Time> {
        let (_, until) = self.answered.iter().rev().find(|(earlier, _)| *earlier <= asked)?;
        Some(*until).filter(|until| *until > now)
    }
}
