//! A change that is over, with all that its trace shows.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::telemetry::metrics::ChangeOutcome;
use crate::xds::TypeUrl;

/// Single clients in a trace: the slowest, and the first that rejected. They keep a trace small at any number of clients.
pub const SLOWEST_MAX: usize = 5;
pub const REJECTED_MAX: usize = 16;

/// A published change of one type of one source, and its way to the clients. Durations count from the receipt.
#[derive(Clone, Debug)]
pub struct FinishedChange {
    /// As `/changes` names it.
    pub name: String,
    pub server: Arc<str>,
    pub list: Arc<str>,
    pub class: Arc<str>,
    pub type_url: TypeUrl,
    /// The version that clients see. The same content has the same version on every relay (OBS-4).
    pub version: String,
    pub upstream_version: Option<Arc<str>>,
    pub received_at: SystemTime,
    pub published: Duration,
    /// The end of the wait for answers.
    pub over: Duration,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    pub bytes: usize,
    pub outcome: ChangeOutcome,
    /// Streams that were to be sent the change, and their answers.
    pub wanted: u32,
    pub acked: u32,
    pub rejected: u32,
    pub waiting: u32,
    pub superseded: u32,
    /// To the ACK: the median, the 99th percentile, the slowest.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub last: Option<Duration>,
    /// The last clients that ACKed, which are the slowest.
    pub slowest: Vec<Delivery>,
    pub rejections: Vec<Delivery>,
}

/// The answer of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the stream, as in `/clients`.
    pub stream: u64,
    pub after: Duration,
    /// The client's words, if it rejected the change; for Secrets, only their length.
    pub rejection: Option<Arc<str>>,
}

impl FinishedChange {
    pub fn is_bad(&self) -> bool {
        matches!(self.outcome, ChangeOutcome::Rejected | ChangeOutcome::Unfinished)
    }

    /// The last answer, or the end of the wait for answers.
    pub(super) fn end(&self) -> Duration {
        let answers = self.slowest.iter().chain(&self.rejections).map(|delivery| delivery.after).max();
        match self.waiting {
            0 => answers.max(self.last).unwrap_or_default().max(self.published),
            _ => self.over.max(self.published),
        }
    }
}
