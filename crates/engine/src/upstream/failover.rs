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
//! The failover server is asked after two consecutive failures of a primary that never answered. From then on
//! the two servers take turns (E9), and the end of a stream to the failover server gives the primary its turn
//! (E7). After the primary has answered, only the primary is asked (E6). A response is an answer; headers
//! alone are not (E5).
//!
//! Versions belong to the server that issued them (DEL-34, STR-8). The other server is asked without claims.
//! The versions of the failover server are restored at its next turn (E8). The restored versions still
//! describe the held resources, since no other server has answered meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::BackoffSettings;
use sluice_xds::{ResourceName, Variant};

const PRIMARY: u16 = 0;
const FAILOVER: u16 = 1;

/// Consecutive failures of the primary before the turn of the failover server (E3).
const FAILURES_MAX: u32 = 2;

/// The backoff between rounds of attempts, with one attempt at each server, while the primary has never
/// answered.
pub(super) fn default_backoff() -> BackoffSettings {
    BackoffSettings {
        initial: Duration::from_millis(500),
        max: Duration::from_secs(5),
        ..BackoffSettings::default()
    }
}

/// The jitter for a failed attempt to connect, whose report has no jitter.
pub(super) const MIDDLE: f64 = 0.5;

/// The turns of the two servers.
#[derive(Debug, Default)]
pub(super) struct ServerTurns {
    /// The server of the current or next stream, by its number in the list.
    server: u16,
    /// The server of the last stream.
    last: u16,
    /// Failures of the primary since its first attempt. The count is never reset: see E9.
    failures: u32,
    has_primary_answered: bool,
}

impl ServerTurns {
    pub(super) fn server(&self) -> u16 {
        self.server
    }

    pub(super) fn is_primary(&self) -> bool {
        self.server == PRIMARY
    }

    /// Returns true if the failover server will never be asked again.
    pub(super) fn has_primary_answered(&self) -> bool {
        self.has_primary_answered
    }

    /// Begins a stream. Returns true if the last stream went to the other server.
    pub(super) fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.last, self.server) != self.server
    }

    /// Gives the other server its turn after an attempt without an answer. Returns true if the turn of the
    /// failover server comes at once; otherwise the turn of the primary comes after the backoff.
    pub(super) fn fail(&mut self) -> bool {
        if self.is_primary() {
            self.failures = self.failures.saturating_add(1);
        }
        let is_failover = self.is_primary() && self.failures >= FAILURES_MAX;
        self.server = if is_failover { FAILOVER } else { PRIMARY };
        is_failover
    }

    /// An answered stream ended: the primary has its turn (E7).
    pub(super) fn give_to_primary(&mut self) {
        self.server = PRIMARY;
    }

    /// The server of the stream answered. Returns true if the server is the primary.
    pub(super) fn note_answer(&mut self) -> bool {
        self.has_primary_answered |= self.is_primary();
        self.is_primary()
    }

    /// The primary answered on another stream. Returns true if the failover server had its turn.
    pub(super) fn end(&mut self) -> bool {
        self.has_primary_answered = true;
        std::mem::take(&mut self.server) != PRIMARY
    }

    /// The turns start over with the next subscription.
    pub(super) fn forget(&mut self) {
        let has_primary_answered = self.has_primary_answered;
        *self = ServerTurns { has_primary_answered, ..ServerTurns::default() };
    }
}

/// The state of one type with the other server.
#[derive(Debug)]
pub(super) struct Stash {
    pub(super) variant: Variant,
    pub(super) accepted: String,
    pub(super) versions: BTreeMap<ResourceName, (Arc<str>, bool)>,
}
