//! The ledger in the API server of a Kubernetes cluster.
//!
//! Entries are ConfigMaps, one each, and replicas are Leases. A session lists both, takes the Lease of its
//! replica, and watches both from the versions of the lists on. An entry under a lease belongs to the Lease,
//! and goes with it. Whatever goes wrong ends the session. A watch that is merely cut goes on from its last
//! version, as API servers cut watches by themselves.
//!
//! 1. [`objects`]: the objects, and the entries in them. [`content`]: all entries and replicas, pure.
//! 2. [`watch`]: the changes of one kind. [`lease`]: the lease of a session.
//! 3. [`task`]: the task of a session. [`write`]: entries put and deleted.

mod objects;
mod content;
mod place;
mod watch;
mod lease;
mod task;
mod write;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::place::{CurrentKubernetes, KubernetesPlace};
use self::task::KubernetesStore;
use self::write::PacedWrites;
use super::keeper::{EVENTS_MAX, FAREWELL, LedgerPlace, SessionKeeper, WRITES_MAX};
use super::live::CurrentSession;
use super::{KubernetesSettings, Ledger, LedgerEvent, LedgerSession, Precondition, Put, WriteResult};
use crate::telemetry::{Metrics, Throttle};

/// A ledger in the API server of a cluster.
#[derive(Debug)]
pub struct KubernetesLedger {
    place: Arc<KubernetesPlace>,
}

impl KubernetesLedger {
    /// Reads no credentials yet, and makes no connection.
    pub fn new(
        settings: &KubernetesSettings,
        replica: &str,
        lease: Duration,
        metrics: &Metrics,
    ) -> KubernetesLedger {
        let namespace = settings.namespace.as_deref().unwrap_or("the relay's own");
        let ledger = Arc::new(LedgerPlace {
            name: format!("Kubernetes, namespace {namespace}, name {}", settings.name),
            lease,
            metrics: metrics.ledger.ledger("kubernetes"),
            throttle: Throttle::new(metrics.log.clone()),
        });
        let (settings, replica, pause) = (settings.clone(), replica.to_owned(), Arc::default());
        let hidden = Mutex::default();
        KubernetesLedger { place: Arc::new(KubernetesPlace { ledger, settings, replica, pause, hidden }) }
    }
}

impl Ledger for KubernetesLedger {
    fn open(&self) -> (Box<dyn LedgerSession>, mpsc::Receiver<LedgerEvent>) {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let current = Arc::new(CurrentSession::new());
        let keeper = SessionKeeper::new(self.place.ledger.clone(), current.clone(), sender);
        let holder = format!("{}_{:016x}", self.place.replica, fastrand::u64(..));
        let store = KubernetesStore { place: self.place.clone(), holder, old: None };
        let session = KubernetesSession {
            place: self.place.clone(),
            current,
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            paced: Arc::default(),
            task: AbortOnDropHandle::new(tokio::spawn(keeper.run(store))),
        };
        (Box::new(session), events)
    }

    fn place(&self) -> &str {
        &self.place.ledger.name
    }
}

/// The caller's end of a session in a cluster.
#[derive(Debug)]
struct KubernetesSession {
    place: Arc<KubernetesPlace>,
    current: Arc<CurrentKubernetes>,
    writes: Arc<Semaphore>,
    paced: Arc<PacedWrites>,
    task: AbortOnDropHandle<()>,
}

impl LedgerSession for KubernetesSession {
    fn put(&self, put: Put) -> BoxFuture<'static, WriteResult> {
        let (place, current, writes) = (self.place.clone(), self.current.clone(), self.writes.clone());
        let paced = self.paced.clone();
        async move {
            let (key, value) = (put.key.clone(), put.value.clone());
            if put.leased {
                write::pace(&paced, &key).await;
            }
            let writing = write::put(&place, &current, put);
            place.ledger.bound_write(&writes, &key, Some(&value), writing).await
        }
        .boxed()
    }

    fn delete(&self, key: String, only_if: Precondition) -> BoxFuture<'static, WriteResult> {
        let (place, current, writes) = (self.place.clone(), self.current.clone(), self.writes.clone());
        async move {
            let writing = write::delete(&place, &current, &key, only_if);
            place.ledger.bound_write(&writes, &key, None, writing).await
        }
        .boxed()
    }

    fn lease_left(&self) -> Option<Duration> {
        self.current.lease_left()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let KubernetesSession { current, task, .. } = *self;
        async move {
            let session = current.get();
            current.end("the session is closed");
            drop(task);
            if let Ok(session) = session {
                let _ = timeout(FAREWELL, lease::close(&session)).await;
            }
        }
        .boxed()
    }
}
