//! The objects of the ledger: a ConfigMap for each entry, one more for the ledger itself, and a Lease for
//! each replica. All have the ledger's label.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kubernetes::ObjectVersion;
use crate::ledger::LedgerEntry;
use sluice_setting::{minutes, seconds};

/// The label of all objects. Its value is the name of the ledger.
pub(super) const LABEL: &str = "sluice/ledger";

/// The longest lease that the configuration of a replica takes.
const LENGTH_MAX: Duration = minutes(5);

/// The part of an object that all kinds have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectMetadata {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) owner_references: Vec<OwnerReference>,
}

impl ObjectMetadata {
    /// This object at this version, and no other one.
    pub(super) fn as_seen(&self) -> ObjectVersion {
        ObjectVersion { uid: Some(self.uid.clone()), version: Some(self.resource_version.clone()) }
    }
}

/// A kind of objects of the ledger.
pub(super) trait ApiObject: DeserializeOwned + Send + 'static {
    fn metadata(&self) -> &ObjectMetadata;

    /// The bytes of the content.
    fn bytes(&self) -> usize;
}

impl ApiObject for ConfigMap {
    fn metadata(&self) -> &ObjectMetadata {
        &self.metadata
    }

    fn bytes(&self) -> usize {
        self.data.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

impl ApiObject for LeaseObject {
    fn metadata(&self) -> &ObjectMetadata {
        &self.metadata
    }

    fn bytes(&self) -> usize {
        0
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct OwnerReference {
    pub(super) uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMap {
    pub(super) metadata: ObjectMetadata,
    data: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseObject {
    pub(super) metadata: ObjectMetadata,
    pub(super) spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaseSpec {
    pub(super) holder_identity: String,
    lease_duration_seconds: u32,
    pub(super) renew_time: String,
}

impl LeaseObject {
    /// How long the holder counts as alive without a renewal: by the holder's own configuration.
    pub(super) fn length(&self) -> Duration {
        seconds(self.spec.lease_duration_seconds.into()).clamp(seconds(1), LENGTH_MAX)
    }
}

impl ConfigMap {
    pub(super) fn revision(&self) -> Result<u64, String> {
        revision(&self.metadata.resource_version)
    }

    /// # Errors
    /// The object is no entry of the ledger, in words.
    pub(super) fn into_entry(mut self, ledger: &str) -> Result<LedgerEntry, String> {
        let revision = self.revision()?;
        let (key, value) = (self.data.remove("key"), self.data.remove("value"));
        match (key, value) {
            (Some(key), Some(value)) if entry_name(ledger, &key) == self.metadata.name => {
                Ok(LedgerEntry { key, value: Bytes::from(value), revision })
            }
            _ => Err(format!(
                "the ConfigMap {:?} has the label {LABEL}, and is no entry of the ledger",
                self.metadata.name
            )),
        }
    }

    /// The Lease with which the entry goes.
    pub(super) fn owner(&self) -> Option<&str> {
        self.metadata.owner_references.first().map(|owner| &*owner.uid)
    }
}

/// # Errors
/// A version that is no number: versions could not be compared.
pub(super) fn revision(version: &str) -> Result<u64, String> {
    version.parse().map_err(|_| format!("the resourceVersion {version:?} is no number"))
}

/// The name of the ConfigMap of an entry. A key may have letters that no name may have.
pub(super) fn entry_name(ledger: &str, key: &str) -> String {
    hashed(ledger, key)
}

pub(super) fn lease_name(ledger: &str, replica: &str) -> String {
    hashed(ledger, replica)
}

fn hashed(ledger: &str, text: &str) -> String {
    format!("{ledger}-{}", &blake3::hash(text.as_bytes()).to_hex()[..32])
}

/// The ConfigMap of the ledger itself, whose uid is the ledger's identity.
pub(super) fn root_object(ledger: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(ledger, ledger),
        "data": { "about": "The ledger of sluice's replicas. Without this object the ledger counts as lost." },
    })
}

/// The ConfigMap of an entry. `lease`: name and uid of the Lease with which the entry goes. `version`: the
/// version that is replaced.
pub(super) fn entry_object(
    ledger: &str,
    key: &str,
    value: &str,
    lease: Option<(&str, &str)>,
    version: Option<u64>,
) -> Value {
    let mut metadata = metadata(ledger, &entry_name(ledger, key));
    if let Some((name, uid)) = lease {
        // The cluster deletes the entry once the Lease is gone.
        let api = "coordination.k8s.io/v1";
        metadata["ownerReferences"] =
            json!([{ "apiVersion": api, "kind": "Lease", "name": name, "uid": uid }]);
    }
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version.to_string());
    }
    // A write without a change would have no event, and so would say nothing about the watch.
    let write = format!("{:016x}", fastrand::u64(..));
    let data = json!({ "key": key, "value": value, "write": write });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
}

pub(super) fn lease_object(ledger: &str, name: &str, holder: &str, length: Duration, now: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(ledger, name),
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": length.as_millis().div_ceil(1000) as u64,
            "acquireTime": now, "renewTime": now,
        },
    })
}

/// The fields that a renewal changes. Another object of the name has another uid, and is not changed.
pub(super) fn renewal(uid: &str, now: &str) -> Value {
    json!({ "metadata": { "uid": uid }, "spec": { "renewTime": now } })
}

fn metadata(ledger: &str, name: &str) -> Value {
    json!({ "name": name, "labels": { LABEL: ledger } })
}
