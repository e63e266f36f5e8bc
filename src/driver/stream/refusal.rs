//! A stream with types whose class has no room.

use std::time::Duration;

use crate::engine::Time;
use crate::xds::Status;

/// A stream without any served type ends after this time. Its client learns the reason, and may use its next
/// server. Until then, the client may ask for types whose class has room.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The time between two searches for room. A free place is found soon, and 10,000 waiting streams cause one
/// search per millisecond.
pub(crate) const RETRY: Duration = Duration::from_secs(10);

/// Some types of a stream have no room for their class.
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
