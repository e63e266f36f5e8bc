//! The ledger on etcd, in its API of version 3.
//!
//! A session is at one endpoint: the session loads the prefix, watches the prefix from the revision of the
//! load on, and keeps a lease alive. Whatever goes wrong ends the session. The next session, at the next
//! endpoint, begins with a load: no state outlives a failure.
//!
//! 1. [`call`]: calls and streams to one endpoint, and the login.
//! 2. [`content`]: the load and the watch. [`keep_alive`]: the lease of a session.
//! 3. [`task`]: the task of a session. [`write`]: entries put and deleted.

mod call;
mod place;
mod content;
mod keep_alive;
mod task;
mod write;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::call::EtcdEndpoint;
use self::content::MESSAGE_BYTES_MAX;
use self::keep_alive::revoke;
use self::place::{CurrentEtcd, EtcdPlace};
use self::task::EtcdStore;
use self::write::{EntryChange, write};
use super::keeper::{BACKOFF, EVENTS_MAX, FAREWELL, LedgerPlace, SessionKeeper, WRITES_MAX};
use super::live::CurrentSession;
use super::{EtcdSettings, Ledger, LedgerEvent, LedgerSession, Precondition, Put, WriteResult};
use crate::client::{CallMetadata, ClientSettings, Credentials, Pool, ServerChannel};
use crate::telemetry::metrics::ClientMetrics;
use crate::telemetry::{Metrics, Throttle};
use crate::trust::client::Protocol;
use crate::trust::fault::Fault;
use sluice_setting::ms;

/// A ledger on etcd.
#[derive(Debug)]
pub struct EtcdLedger {
    place: Arc<EtcdPlace>,
}

impl EtcdLedger {
    /// Reads the certificates, and watches their files from then on. Makes no connection yet.
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn new(settings: &EtcdSettings, lease: Duration, metrics: &Metrics) -> Result<EtcdLedger, Fault> {
        let client = ClientSettings {
            backoff: sluice_setting::Backoff { initial: ms(100), ..BACKOFF },
            max_response_bytes: MESSAGE_BYTES_MAX,
            ..ClientSettings::default()
        };
        // The metrics of control planes are not about the ledger.
        let client_metrics = Arc::new(ClientMetrics::default());
        let mut endpoints = Vec::new();
        for address in &settings.endpoints {
            let credentials = Credentials { tls: settings.tls.clone(), calls: CallMetadata::default() };
            let tls = &metrics.downstream.tls;
            let channel =
                ServerChannel::open(address.clone(), credentials, Protocol::Http2, "ledger.etcd", tls)?;
            let pool = Pool::with_channel(channel, client.clone(), client_metrics.clone());
            endpoints.push(Arc::new(EtcdEndpoint { address: address.clone(), pool }));
        }
        let addresses: Vec<String> = settings.endpoints.iter().map(ToString::to_string).collect();
        let ledger = Arc::new(LedgerPlace {
            name: format!("etcd at {}, prefix {}", addresses.join(", "), settings.prefix),
            lease,
            metrics: metrics.ledger.ledger("etcd"),
            throttle: Throttle::new(metrics.log.clone()),
        });
        let (prefix, user) = (settings.prefix.clone(), settings.user.clone());
        Ok(EtcdLedger { place: Arc::new(EtcdPlace { ledger, endpoints, prefix, user }) })
    }
}

impl Ledger for EtcdLedger {
    fn open(&self) -> (Box<dyn LedgerSession>, mpsc::Receiver<LedgerEvent>) {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let current = Arc::new(CurrentSession::new());
        let keeper = SessionKeeper::new(self.place.ledger.clone(), current.clone(), sender);
        let store = EtcdStore { place: self.place.clone(), next: 0 };
        let session = EtcdSession {
            place: self.place.clone(),
            current,
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            task: AbortOnDropHandle::new(tokio::spawn(keeper.run(store))),
        };
        (Box::new(session), events)
    }

    fn place(&self) -> &str {
        &self.place.ledger.name
    }
}

/// The caller's end of a session on etcd.
#[derive(Debug)]
struct EtcdSession {
    place: Arc<EtcdPlace>,
    current: Arc<CurrentEtcd>,
    writes: Arc<Semaphore>,
    task: AbortOnDropHandle<()>,
}

impl EtcdSession {
    fn write(
        &self,
        key: String,
        change: EntryChange,
        only_if: Precondition,
    ) -> BoxFuture<'static, WriteResult> {
        let (place, current, writes) = (self.place.clone(), self.current.clone(), self.writes.clone());
        async move {
            // Cloned without a copy.
            let value = change.value().cloned();
            let writing = write(&place, &current, &key, change, only_if);
            place.ledger.bound_write(&writes, &key, value.as_deref(), writing).await
        }
        .boxed()
    }
}

impl LedgerSession for EtcdSession {
    fn put(&self, put: Put) -> BoxFuture<'static, WriteResult> {
        let Put { key, value, only_if, leased } = put;
        self.write(key, EntryChange::Put { value, leased }, only_if)
    }

    fn delete(&self, key: String, only_if: Precondition) -> BoxFuture<'static, WriteResult> {
        self.write(key, EntryChange::Delete, only_if)
    }

    fn lease_left(&self) -> Option<Duration> {
        self.current.lease_left()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let EtcdSession { current, task, .. } = *self;
        async move {
            let session = current.get();
            current.end("the session is closed");
            drop(task);
            if let Ok(session) = session {
                let _ = timeout(FAREWELL, revoke(&session)).await;
            }
        }
        .boxed()
    }
}
