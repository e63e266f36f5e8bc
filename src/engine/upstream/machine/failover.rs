//! Gives the primary and the failover server their turns (FBK-20). The rules stand in
//! [`crate::engine::upstream::failover`].

use crate::engine::Time;
use crate::engine::upstream::api::Output;
use crate::engine::upstream::failover::{FAILOVER, FAILURES_MAX, Failover, MIDDLE, PRIMARY};
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::proof::Flaps;
use crate::xds::{Status, Variant};
use std::time::Duration;

impl Upstream {
    /// The server of the present turn, by its number in the list.
    pub fn server(&self) -> u16 {
        self.failover.server
    }

    /// Returns true if the failover server will never be asked again.
    pub fn stays_with_primary(&self) -> bool {
        self.failover.has_primary_answered
    }

    /// The primary answered on another stream of the source: all streams use one server (E6).
    pub fn stay_with_primary(&mut self, now: Time) {
        self.failover.has_primary_answered = true;
        if std::mem::take(&mut self.failover.server) != PRIMARY
            && matches!(self.phase, Phase::Opening | Phase::Open(_))
        {
            self.renew(now);
        }
        self.check_invariants();
    }

    /// Returns true if the two servers take turns, as far as is known.
    pub(super) fn alternates(&self) -> bool {
        self.settings.failover && !self.failover.has_primary_answered
    }

    /// The wait after an attempt without an answer. The failover server has its turn at once, the primary has
    /// its next turn after the backoff.
    pub(super) fn retry_in(&mut self, jitter: f64) -> Duration {
        if !self.alternates() {
            return self.backoff.after_unanswered(&self.settings.backoff, jitter);
        }
        let failover = &mut self.failover;
        if failover.server == PRIMARY {
            failover.failures = failover.failures.saturating_add(1);
        }
        if failover.server == PRIMARY && failover.failures >= FAILURES_MAX {
            failover.server = FAILOVER;
            return Duration::ZERO;
        }
        failover.server = PRIMARY;
        self.backoff.after_unanswered(&self.settings.failover_backoff, jitter)
    }

    /// An answered stream ended: the primary has its turn (E7).
    pub(super) fn ask_primary(&mut self) {
        self.failover.server = PRIMARY;
    }

    /// A connection attempt failed. After the primary's first failure the attempt goes on; otherwise the
    /// other server has its turn.
    pub(super) fn unconnected(&mut self, status: Status, now: Time) {
        if !self.alternates() {
            // The shell retries with its own backoff (CLI-7).
            return self.unreachable(status, now);
        }
        let before = self.failover.server;
        let retry_in = self.retry_in(MIDDLE);
        self.unreachable(status, now);
        if self.failover.server != before {
            self.outputs.push_back(Output::Close);
            self.retry_at = now + retry_in;
            self.enter(Phase::Waiting { until: self.retry_at }, now);
        }
    }

    pub(super) fn primary_answered(&mut self) {
        if self.failover.server == PRIMARY {
            self.failover.has_primary_answered = true;
            self.subscriptions.values_mut().for_each(|subscription| subscription.stash = None);
        }
    }

    /// Prepares for a stream to the server of this turn, in the new variant.
    ///
    /// Returns true if the last stream went to another server.
    pub(super) fn take_turn(&mut self, before: Variant) -> bool {
        let server = self.failover.server;
        if std::mem::replace(&mut self.failover.asked, server) == server {
            return false;
        }
        self.flaps = Flaps::default();
        let variant = self.variant;
        self.subscriptions.values_mut().for_each(|subscription| subscription.exchange(before, variant));
        true
    }

    /// Nothing is wanted any more: the turns start over with the next subscription.
    pub(super) fn forget_turns(&mut self) {
        let has_primary_answered = self.failover.has_primary_answered;
        self.failover = Failover { has_primary_answered, ..Failover::default() };
    }
}
