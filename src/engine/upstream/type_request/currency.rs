//! Decides when a type is current.

use crate::engine::Time;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::type_request::{TypeRequest, Want};

impl TypeRequest {
    /// Returns true if the server has answered for the type, by a response, or by silence where silence is an
    /// answer (DEL-35, STR-10). Omissions are then meant (RLY-2).
    pub(in crate::engine::upstream) fn has_spoken(&self) -> bool {
        self.said.spoken || self.said.may_be_silent && self.currency == Currency::Current
    }

    /// Judges a response about existing resources. `is_good`: the response has no fault. `is_full`: the
    /// response has all resources.
    pub(in crate::engine::upstream) fn judge_currency(&mut self, is_good: bool, is_full: bool) {
        self.is_rejected |= !is_good;
        let is_answered = match &self.want {
            _ if is_full => true,
            // A type becomes current by settling, and stays current afterwards.
            _ if self.first.is_running() => return self.currency.answering(is_good),
            Want::Names(names) if !self.first.is_settled() => {
                self.said.is_good |= is_good;
                names.unanswered().is_empty()
            }
            _ => false,
        };
        match (is_good, is_answered) {
            (true, true) => self.currency = Currency::Current,
            (true, false) => {}
            (false, _) => self.currency.answering(false),
        }
    }

    /// The meaning of silence on a live stream: everything is current, unless the server sets marks.
    pub(in crate::engine::upstream) fn after_silence(&self) -> Currency {
        if self.said.has_marks { Currency::Silent } else { Currency::Current }
    }

    pub(in crate::engine::upstream) fn heard_silence(&mut self, due: Time, signs: u64) {
        if self.has_spoken() {
            self.restart_timers(due, signs);
        }
        if self.currency == Currency::Current
            && let Want::Wildcard(wildcard) = &mut self.want
        {
            wildcard.confirm_by_silence();
        }
    }

    /// Restarts timers of names that expired before the server spoke. The server gets the whole time for the
    /// rest.
    pub(in crate::engine::upstream) fn restart_timers(&mut self, due: Time, signs: u64) {
        if let Want::Names(names) = &mut self.want {
            names.restart(due, signs);
        }
    }
}
