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

use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff::BackoffSettings;
use crate::xds::{ResourceName, Variant};

pub(super) const PRIMARY: u16 = 0;
pub(super) const FAILOVER: u16 = 1;

/// Failures of the primary, in a row, until the failover server has its turn (E3).
pub(super) const FAILURES_MAX: u32 = 2;

/// Between the attempts of a round, of one at each server, while the primary has never answered.
pub(super) fn default_backoff() -> BackoffSettings {
    BackoffSettings {
        initial: Duration::from_millis(500),
        cap: Duration::from_secs(5),
        ..BackoffSettings::default()
    }
}

/// A failed attempt to connect comes without a jitter of its own.
pub(super) const MIDDLE: f64 = 0.5;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Failover {
    /// The server that is asked, or will be next.
    pub(super) server: u16,
    /// The server of the last stream.
    pub(super) asked: u16,
    /// The primary's, since it was asked first. They are never forgotten: see E9.
    pub(super) failures: u32,
    pub(super) has_primary_answered: bool,
}

/// What was said of one type with the other server.
#[derive(Debug)]
pub(super) struct Stash {
    pub(super) variant: Variant,
    pub(super) accepted: String,
    pub(super) held: BTreeMap<ResourceName, (Box<str>, bool)>,
}
