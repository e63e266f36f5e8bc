//! A change that is over, with all that its trace shows.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_xds::TypeUrl;

/// Single clients in a trace: the slowest, and the first that rejected. They keep a trace small at any number
/// of clients.
pub const SLOWEST_MAX: usize = 5;
pub const REJECTED_MAX: usize = 16;

/// The bodies of a change with a span each.
pub const ENCODINGS_MAX: usize = 16;

/// The links of a span.
pub const LINKS_MAX: usize = 8;

/// A published change of one type of one source, and its way to the clients. Durations count from the
/// receipt. Wide because the attributes of a trace are a flat list, and each field is one of them.
#[derive(Clone, Debug)]
pub struct FinishedChange {
    /// As `/changes` names it.
    pub name: String,
    pub server: Arc<str>,
    pub list: Arc<str>,
    pub class: Arc<str>,
    pub type_url: TypeUrl,
    /// The `type` label of the metrics.
    pub type_label: Arc<str>,
    /// The version that clients see. The same content has the same version on every relay (OBS-4).
    pub version: String,
    pub upstream_version: Option<Arc<str>>,
    pub received_at: SystemTime,
    /// `None` for content that no server sent as a response.
    pub decoding: Option<Decoding>,
    pub published: Duration,
    /// The first bodies with the change.
    pub encodings: Vec<Encoding>,
    /// Earlier changes that clients were sent only as a part of this one.
    pub coalesced: Vec<Skipped>,
    /// The end of the wait for answers.
    pub over: Duration,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    pub bytes: usize,
    pub outcome: ChangeOutcome,
    /// Streams that were to be sent the change, and their answers.
    pub streams: u32,
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

/// The end of a published change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// Every client that wanted the change has ACKed it, or a later change in its place.
    Acked,
    /// At least one client rejected the change.
    Rejected,
    /// A later change took its place at every client.
    Superseded,
    /// A client owes an answer after 30 s.
    Unfinished,
    /// No client wanted the change.
    Unwanted,
}

impl ChangeOutcome {
    pub const ALL: [ChangeOutcome; 5] = [
        ChangeOutcome::Acked,
        ChangeOutcome::Rejected,
        ChangeOutcome::Superseded,
        ChangeOutcome::Unfinished,
        ChangeOutcome::Unwanted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ChangeOutcome::Acked => "acked",
            ChangeOutcome::Rejected => "rejected",
            ChangeOutcome::Superseded => "superseded",
            ChangeOutcome::Unfinished => "unfinished",
            ChangeOutcome::Unwanted => "unwanted",
        }
    }
}

/// The answer of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the stream, as in `/clients`.
    pub stream: u64,
    pub after: Duration,
    /// The client's words, if it rejected the change; for Secrets, only their length.
    pub rejection: Option<Arc<str>>,
    /// Earlier changes that the client was not sent, the latest first.
    pub skipped: Vec<Skipped>,
}

/// A change in whose place a later one was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// As `/changes` names it.
    pub name: String,
    /// The change has a trace.
    pub is_traced: bool,
}

/// The way of a response from its last byte to the cache's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// From the last byte to the receipt of the change.
    pub before: Duration,
    pub took: Duration,
}

/// The making of one body, which any number of clients share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    pub begin: Duration,
    pub end: Duration,
    /// The bytes of all messages.
    pub bytes: usize,
    pub messages: usize,
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
