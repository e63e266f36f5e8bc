//! When a type is current.

use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::subscription::{Subscription, Want};

impl Subscription {
    /// The server has said of the type what it has to say, by words or by silence where that is an answer (DEL-35, STR-10), so
    /// that what it leaves out is meant (RLY-2).
    pub(in crate::engine::upstream) fn has_spoken(&self) -> bool {
        self.said.spoken || self.said.may_be_silent && self.currency == Currency::Current
    }

    /// A response said what there is. `is_good`: it has no fault; `is_full`: it says all that there is.
    pub(in crate::engine::upstream) fn judge_currency(&mut self, is_good: bool, is_full: bool) {
        self.is_rejected |= !is_good;
        let is_answered = match &self.want {
            _ if is_full => true,
            // Once settled it stays current, and is so by its settling.
            _ if self.first.is_running() => return self.currency.answering(is_good),
            Want::Names(names) if !self.first.is_settled() => {
                self.said.is_good |= is_good || planted(Bug::RejectedIsCurrent);
                names.unanswered().is_empty()
            }
            _ => false,
        };
        match (is_good || planted(Bug::RejectedIsCurrent), is_answered) {
            (true, true) => self.currency = Currency::Current,
            (true, false) => {}
            (false, _) => self.currency.answering(false),
        }
    }

    /// What it means that the server was silent on a live stream: that all is current, unless it would say so.
    pub(in crate::engine::upstream) fn after_silence(&self) -> Currency {
        if self.said.has_marks { Currency::Silent } else { Currency::Current }
    }

    pub(in crate::engine::upstream) fn heard_silence(&mut self, due: Time, signs: u64) {
        if self.has_spoken() {
            self.restart_timers(due, signs);
        }
    }

    /// The timers of names that ran out before the server had spoken start anew: it gets their whole time to say the rest.
    pub(in crate::engine::upstream) fn restart_timers(&mut self, due: Time, signs: u64) {
        if let Want::Names(names) = &mut self.want {
            names.restart(due, signs);
        }
    }
}
