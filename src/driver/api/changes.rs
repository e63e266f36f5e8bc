//! The published changes of sources, and their way to the clients, as plain data (ADM-10).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use crate::driver::api::change_name::ChangeName;
use crate::driver::api::status::names_type;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The changes that the relay remembers: the latest of each source.
pub trait ChangesView {
    /// The matching changes, the latest first. Looks at each stream once, if clients still owe answers.
    fn changes(&self, filter: ChangeFilter) -> BoxFuture<'_, Vec<ChangeStatus>>;

    /// A change by its name; `None` if the change is unknown or forgotten.
    fn change(&self, name: ChangeName) -> BoxFuture<'_, Option<ChangeStatus>>;

    /// The name and the counts of the latest change. Looks at no stream: `waiting` is not known, and `total`
    /// counts only the clients that have answered.
    fn latest_change(&self) -> Option<ChangeStatus>;
}

/// Selects changes; `None` selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeFilter {
    /// See [`names_type`].
    pub type_name: Option<String>,
    pub source: Option<u64>,
    /// Only changes behind this place in the order of the list.
    pub after: Option<ChangePlace>,
    pub limit: usize,
}

impl ChangeFilter {
    pub fn wants_type(&self, type_url: &TypeUrl) -> bool {
        self.type_name.as_deref().is_none_or(|text| names_type(text, type_url))
    }
}

/// The place of a change in the list, which stays when the change is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangePlace {
    /// Microseconds from the start of the process to the receipt.
    pub at: u64,
    pub name: ChangeName,
}

/// A change and its way to the clients. Wide because the fields are those of an item of `/changes`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeStatus {
    pub place: ChangePlace,
    /// The server that published the change, its list and the node class.
    pub server: Arc<str>,
    pub list: Arc<str>,
    pub class: Arc<str>,
    pub type_url: TypeUrl,
    /// The version of the type's content after the change.
    pub version: Version,
    /// The server's own version, if the response had one.
    pub upstream_version: Option<Arc<str>>,
    pub received_at: SystemTime,
    pub age: Duration,
    pub added: ChangedNames,
    pub changed: ChangedNames,
    pub removed: ChangedNames,
    /// The size of the added and changed resources.
    pub bytes: usize,
    pub counts: ChangeCounts,
    /// From the receipt to the ACK: the median, the 99th percentile and the slowest so far; `None` before the
    /// first ACK.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub last: Option<Duration>,
    /// The clients' rejections by text; the most frequent first.
    pub rejections: Vec<ChangeRejection>,
}

/// Names of a change, bounded, and their exact number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedNames {
    pub names: Vec<ResourceName>,
    pub count: usize,
}

/// The streams of a change: `total` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Streams that were to be sent the change. A stream counts no more if it ends, or moves to another
    /// source, before an answer.
    pub total: u32,
    pub acked: u32,
    pub rejected: u32,
    /// Not sent yet, or not answered yet.
    pub waiting: u32,
    /// A later change took the place of this one before an answer.
    pub superseded: u32,
}

/// Rejections of a change with like texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRejection {
    /// The text of the first of them; for Secrets, only its length.
    pub text: Arc<str>,
    pub count: u32,
    /// Some of the clients: the number of the stream, and the node id.
    pub clients: Vec<(u64, Arc<str>)>,
}
