//! A stream for some of whose types there is no room.

use std::time::Duration;

use crate::engine::Time;
use crate::xds::Status;

/// A stream of which nothing at all can be served ends after this time, so that its client hears why and may turn to its
/// next server. Until then further types may come for which there is room.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether there is room meanwhile. So a place that came free is taken soon, and ten thousand streams
/// that wait cost one look a millisecond.
pub(crate) const RETRY: Duration = Duration::from_secs(10);

/// That there is no room for the class of some of a stream's types.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: Status,
    pub since: Time,
    pub retry_at: Time,
}

impl Refusal {
    pub fn new(status: Status, now: Time) -> Refusal {
        Refusal { status, since: now, retry_at: now + RETRY.mul_f64(0.5 + fastrand::f64()) }
    }
}
