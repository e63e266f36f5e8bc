//! The parts of Pods and Nodes for facts. The rest of an object is passed over unread: the environment of a
//! Pod may hold secrets, and takes most of the room.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kind of objects.
pub(super) trait Object: Clone + DeserializeOwned + Send + Sync + 'static {
    /// The name of the objects, in the words of Kubernetes.
    const PLURAL: &'static str;
    /// The path of all objects on the API server.
    const PATH: &'static str;

    fn metadata(&self) -> &Metadata;
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    /// Empty until the Pod has a place.
    pub node_name: String,
    pub service_account_name: String,
    pub host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// All addresses, with `pod_ip`.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodIp {
    pub ip: String,
}

impl Object for Pod {
    const PLURAL: &'static str = "Pods";
    const PATH: &'static str = "/api/v1/pods";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub metadata: Metadata,
}

impl Object for Node {
    const PLURAL: &'static str = "Nodes";
    const PATH: &'static str = "/api/v1/nodes";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
