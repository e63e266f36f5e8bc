//! The keys of `ledger`.

use std::path::PathBuf;
use std::time::Duration;

use crate::client::GrpcAddress;
use crate::kubernetes::ClusterAccess;
use crate::trust::client::ClientTls;
use sluice_setting::{Setting, minutes, seconds, time};

/// How long a silent replica counts as alive. A lease is kept alive at a third of its length: 15 s bear two
/// lost messages, and a step of a plan waits no longer for a dead replica.
pub const LEASE: Setting<Duration> = Setting::new("lease", seconds(15), time(seconds(5)..=minutes(5)));

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// The name of this relay among the replicas.
    pub replica: String,
    pub lease: Duration,
    /// Whether the clients of a replica that comes to a push, and knows nothing older, wait for it.
    pub newcomers_wait: bool,
    pub store: LedgerStore,
}

/// The place of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LedgerStore {
    /// The replica's own.
    #[default]
    Local,
    Etcd(Box<EtcdSettings>),
    Kubernetes(KubernetesSettings),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Tried in turn. All belong to one cluster of etcd.
    pub endpoints: Vec<GrpcAddress>,
    /// The begin of all keys of the ledger; not empty.
    pub prefix: String,
    /// `None`: plaintext.
    pub tls: Option<ClientTls>,
    pub user: Option<EtcdUser>,
}

impl EtcdSettings {
    pub const PREFIX: &str = "/sluice/";
}

/// A ledger in the API server of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    pub access: ClusterAccess,
    /// `None`: that of the relay's own Pod, or of the kubeconfig.
    pub namespace: Option<String>,
    /// The value of the label of all objects, and the begin of their names.
    pub name: String,
}

impl KubernetesSettings {
    pub const NAME: &str = "sluice";
}

/// A user of etcd, for a store with authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    pub name: String,
    /// Read at each login.
    pub password_file: PathBuf,
}
