//! One ledger in a cluster, as configured, and the way of a session there.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::content::Renewals;
use crate::kubernetes::{ApiPause, Collection};
use crate::ledger::KubernetesSettings;
use crate::ledger::keeper::LedgerPlace;
use crate::ledger::live::{CurrentSession, LiveSession};

#[derive(Debug)]
pub(super) struct KubernetesPlace {
    pub(super) ledger: Arc<LedgerPlace>,
    pub(super) settings: KubernetesSettings,
    pub(super) replica: String,
    /// The server's wish to be left alone, beyond the end of a session.
    pub(super) pause: Arc<ApiPause>,
}

#[derive(Debug)]
pub(super) struct KubernetesLink {
    pub(super) maps: Collection,
    pub(super) leases: Collection,
    pub(super) lease_name: String,
    pub(super) lease_uid: String,
    pub(super) renewals: Mutex<Renewals>,
    /// The own lease is to be renewed at once.
    pub(super) renew: Notify,
}

pub(super) type KubernetesLive = LiveSession<KubernetesLink>;
pub(super) type CurrentKubernetes = CurrentSession<KubernetesLink>;
