//! One ledger in a cluster, as configured, and the way of a session there.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::content::Renewals;
use super::objects::{ConfigMap, LABEL};
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
    /// The name of a ConfigMap that may have lost its label.
    pub(super) hidden: Mutex<Option<String>>,
}

impl KubernetesPlace {
    /// Looks for a ConfigMap that no list and no watch shows. One without its label ends the session, until
    /// the label is back or the ConfigMap is gone.
    ///
    /// # Errors
    /// It is there without its label, in words, or cannot be read.
    pub(super) async fn look_for(&self, maps: &Collection, name: &str) -> Result<(), String> {
        *self.hidden.lock() = Some(name.to_owned());
        let ledger = &self.settings.name;
        match maps.get::<ConfigMap>(name).await {
            Ok(map) if map.metadata.labels.get(LABEL) == Some(ledger) => {}
            Ok(_) => {
                let namespace = maps.namespace();
                return Err(format!(
                    "the ConfigMap {name:?} of the ledger has lost its label; this puts it back: \
                    kubectl label configmap {name} --namespace {namespace} --overwrite {LABEL}={ledger}"
                ));
            }
            Err(error) if error.status == Some(404) => {}
            Err(error) => return Err(error.text),
        }
        *self.hidden.lock() = None;
        Ok(())
    }
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
