//! A server that is still answering a request keeps nothing back: it has not come to the rest yet.
//!
//! 100,000 names take a slow server longer than the resource timer. What it has not sent by then is not gone (RLY-2, TMR-3), so
//! a name's timer ends no earlier than a whole timer after the last name that was asked for with it or before it was answered for
//! the first time. What was asked for later says nothing, or newcomers would put off the end for ever.

use std::collections::VecDeque;

use crate::engine::Time;

/// Of the requests of one type on one stream.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When names had been asked for, of which one was answered for the first time, and until when no timer ends because of that.
    /// Both ascend.
    answered: VecDeque<(Time, Time)>,
}

impl Pace {
    /// A name that was asked for then is answered now.
    pub(super) fn note(&mut self, asked: Time, until: Time, now: Time) {
        while self.answered.front().is_some_and(|(_, until)| *until <= now) {
            self.answered.pop_front();
        }
        // An earlier request counts for all later ones.
        while self.answered.back().is_some_and(|(later, _)| *later >= asked) {
            self.answered.pop_back();
        }
        self.answered.push_back((asked, until));
    }

    /// Until when no timer ends of what was asked for then, if that is later than `now`.
    pub(super) fn holds(&self, asked: Time, now: Time) -> Option<Time> {
        let (_, until) = self.answered.iter().rev().find(|(earlier, _)| *earlier <= asked)?;
        Some(*until).filter(|until| *until > now)
    }
}
