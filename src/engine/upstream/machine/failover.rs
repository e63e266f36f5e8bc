//! Envoy's failover (FBK-20): one stream at a time, to the primary server or to the failover one.
//!
//! ```text
//!              2 failures in a row                 answered
//!   primary ───────────────────────▶ failover ───────────────▶ on the failover server
//!      ▲ │                              │ failure                      │ the stream ends
//!      │ └ failure ▶ failover           │                              │
//!      ├────────────────────────────────┴──────────────────────────────┘
//!      └ answered: the failover server is never asked again
//! ```
//!
//! The failover server is asked after two failures in a row of a primary that never answered; from then on the two are asked
//! in turns (E9), and a stream of the failover server that ends gives the primary its turn (E7). Once the primary has
//! answered, it alone is asked (E6). A response makes an answer, headers alone do not (E5).
//!
//! Versions belong to the server that gave them (DEL-34, STR-8): the other one is asked as if nothing were held, and the
//! failover server's are taken up again if it has the next turn (E8). They are of what is held still, since nobody else has
//! answered meanwhile.

use crate::engine::Time;
use crate::engine::upstream::api::Output;
use crate::engine::upstream::failover::{FAILOVER, FAILURES_MAX, Failover, MIDDLE, PRIMARY};
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::proof::Flaps;
use crate::xds::{Status, Variant};
use std::time::Duration;

impl Upstream {
    /// The server whose turn it is: its number in the list.
    pub fn server(&self) -> u16 {
        self.failover.server
    }

    /// Whether the failover server will never be asked any more.
    pub fn stays_with_primary(&self) -> bool {
        self.failover.has_primary_answered
    }

    /// The primary answered on another stream of the source: all of them are with one server (E6).
    pub fn stay_with_primary(&mut self, now: Time) {
        self.failover.has_primary_answered = true;
        if std::mem::take(&mut self.failover.server) != PRIMARY
            && matches!(self.phase, Phase::Opening | Phase::Open(_))
        {
            self.renew(now);
        }
        self.check_invariants();
    }

    /// The two servers are asked in turns, as far as is known.
    pub(super) fn alternates(&self) -> bool {
        self.settings.failover && !self.failover.has_primary_answered
    }

    /// An attempt brought no answer: how long to wait before the next one. The failover server has its turn at once, the
    /// primary its next one after the backoff.
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

    /// A stream that was answered ended: the primary has its turn (E7).
    pub(super) fn ask_primary(&mut self) {
        self.failover.server = PRIMARY;
    }

    /// A connection could not be made. The primary's first failure leaves the attempt to go on; else the other server has
    /// its turn.
    pub(super) fn unconnected(&mut self, status: Status, now: Time) {
        if !self.alternates() {
            // The shell goes on trying, and waits in between (CLI-7).
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

    /// A stream to this turn's server is about to open, in this variant.
    ///
    /// Whether it goes to another server than the last one.
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

    /// Nothing is wanted any more: whoever comes next is asked about as at the start.
    pub(super) fn forget_turns(&mut self) {
        let has_primary_answered = self.failover.has_primary_answered;
        self.failover = Failover { has_primary_answered, ..Failover::default() };
    }
}
