//! A store that several replicas share: the trait, and the stores behind it (LDG-1).
//!
//! Replicas share decisions about pushes through a store of the operator. A [`Ledger`] opens a session. The
//! session loads all entries, watches the changes after the load, and holds a lease: entries under the lease
//! go when the replica dies. The room knows entries and revisions. The records in the entries are the
//! callers' matter.
//!
//! 1. [`settings`]: the keys of the configuration.
//! 2. [`holdings`]: the bounds of a ledger's content.
//! 3. [`live`], [`keeper`]: the session in force, and one session after the other, for each kind of store.
//! 4. [`etcd`]: the ledger on etcd. [`kubernetes`]: the ledger in the API server of a cluster.

mod settings;
mod holdings;
mod live;
mod keeper;
mod etcd;
mod kubernetes;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::sync::mpsc;

pub use etcd::EtcdLedger;
pub use holdings::{ENTRIES_MAX, KEY_BYTES_MAX, LEDGER_BYTES_MAX, VALUE_BYTES_MAX};
pub use kubernetes::KubernetesLedger;
pub use settings::{EtcdSettings, EtcdUser, KubernetesSettings, LEASE, LedgerSettings, LedgerStore};

/// A store that replicas share.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Opens a session, and returns at once. The session ends with the handle. A caller without a look at the
    /// events for the length of the lease loses the session, and hears so with the next events.
    /// Must be called within a tokio runtime.
    fn open(&self) -> (Box<dyn LedgerSession>, mpsc::Receiver<LedgerEvent>);

    /// The kind of the store and its addresses, for people.
    fn place(&self) -> &str;
}

/// The caller's end of a session.
pub trait LedgerSession: fmt::Debug + Send + Sync {
    /// Writes an entry, and gives its new revision. Ends within 6 s.
    fn put(&self, put: Put) -> BoxFuture<'static, WriteResult>;

    /// Deletes an entry, and gives the revision of the deletion; 0 if the store does not tell it. Ends within
    /// 5 s.
    fn delete(&self, key: String, only_if: Precondition) -> BoxFuture<'static, WriteResult>;

    /// How long the lease lasts for certain, by the clock of the process; `None` without a lease. After a
    /// pause of the process the answer is right before [`LedgerEvent::Lost`] has arrived, so a decision about
    /// the lease asks here.
    fn lease_left(&self) -> Option<Duration>;

    /// Gives the lease back, so that the entries under the lease go at once. Ends within a second. After a
    /// plain drop of the handle the entries stay until the lease has run out.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

pub type WriteResult = Result<u64, WriteError>;

/// An entry to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: String,
    pub value: Bytes,
    pub only_if: Precondition,
    /// The entry goes when the lease of the session ends.
    pub leased: bool,
}

/// The state of an entry before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no such entry.
    Absent,
    /// The entry has been at this revision since its last change.
    Revision(u64),
    /// None.
    Any,
}

/// An entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Without the ledger's prefix.
    pub key: String,
    pub value: Bytes,
    /// The revision of the last change.
    pub revision: u64,
}

/// An event of a session. Events of an entry come in the order of revisions, without gaps. Own writes are
/// among the events, before or after the answer to the write.
///
/// ```text
/// (Lost* ─► Loaded ─► (Changed | Gone | Loaded)*)*
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// The whole content, in place of all before. After [`LedgerEvent::Lost`] the lease is new: entries under
    /// the old lease go, unless the caller writes the entries again. Without a loss between, the store has
    /// dropped events before the session saw them, and the lease is the same.
    Loaded {
        /// The store behind the ledger. Another text is another store.
        identity: String,
        /// The revision of the whole store. Grows with each change. A store without its data may have the
        /// same identity and a lower revision.
        revision: u64,
        /// In the order of keys.
        entries: Vec<LedgerEntry>,
    },
    Changed(LedgerEntry),
    Gone {
        key: String,
        revision: u64,
    },
    /// The session or its lease is lost, for this reason. Attempts follow until there is another `Loaded`; a
    /// failure with another reason is another `Lost`.
    Lost(String),
}

/// A write did not happen, or may not have happened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Not written. The revision of the entry, if there is one.
    #[error("the entry is not as expected")]
    Conflict { revision: Option<u64> },
    /// Not written: the ledger does not take the entry.
    #[error("{0}")]
    Refused(String),
    /// Perhaps written: the events or the next [`LedgerEvent::Loaded`] tell.
    #[error("{0}")]
    Failed(String),
}
