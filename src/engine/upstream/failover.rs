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
use std::time::Duration;

use super::backoff::BackoffSettings;
use crate::xds::{ResourceName, Variant};

pub(super) const PRIMARY: u16 = 0;
pub(super) const FAILOVER: u16 = 1;

/// Consecutive failures of the primary before the turn of the failover server (E3).
pub(super) const FAILURES_MAX: u32 = 2;

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
pub(super) struct Failover {
    /// The server of the current or next stream.
    pub(super) server: u16,
    /// The server of the last stream.
    pub(super) asked: u16,
    /// Failures of the primary since its first attempt. The count is never reset: see E9.
    pub(super) failures: u32,
    pub(super) has_primary_answered: bool,
}

/// The state of one type with the other server.
#[derive(Debug)]
pub(super) struct Stash {
    pub(super) variant: Variant,
    pub(super) accepted: String,
    pub(super) held: BTreeMap<ResourceName, (Box<str>, bool)>,
}
