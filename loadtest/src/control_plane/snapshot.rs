//! What the control plane serves: clusters and their endpoints, encoded once, in the forms of both variants.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::proto::{put_bytes, put_message, put_uint};
use crate::stamp;
use crate::xds::{Kind, cluster_name};

/// A resource as it stands in a response: field 2 of DiscoveryResponse and of DeltaDiscoveryResponse.
#[derive(Clone)]
pub struct Resource {
    pub sotw: Bytes,
    pub delta: Bytes,
}

impl Resource {
    fn new(kind: Kind, name: &str, version: u64, body: &[u8]) -> Resource {
        let mut any = Vec::with_capacity(body.len() + 100);
        put_bytes(&mut any, 1, kind.type_url());
        put_bytes(&mut any, 2, body);
        let mut sotw = Vec::with_capacity(any.len() + 8);
        put_bytes(&mut sotw, 2, &any);
        let mut delta = Vec::with_capacity(any.len() + 50);
        put_message(&mut delta, 2, |out| {
            put_bytes(out, 1, version.to_string());
            put_bytes(out, 2, &any);
            put_bytes(out, 3, name);
        });
        Resource { sotw: sotw.into(), delta: delta.into() }
    }
}

/// All resources of a type at the first version, by name and strung together.
pub struct Set {
    pub resources: HashMap<String, Resource>,
    /// All but resource 0, which is the one that changes.
    pub rest: Resource,
}

impl Set {
    fn new(kind: Kind, count: usize, body: impl Fn(&str) -> Vec<u8>) -> Set {
        let mut resources = HashMap::with_capacity(count);
        let (mut sotw, mut delta) = (Vec::new(), Vec::new());
        for index in 0..count {
            let name = cluster_name(index);
            let resource = Resource::new(kind, &name, 1, &body(&name));
            if index > 0 {
                sotw.extend_from_slice(&resource.sotw);
                delta.extend_from_slice(&resource.delta);
            }
            resources.insert(name, resource);
        }
        Set { resources, rest: Resource { sotw: sotw.into(), delta: delta.into() } }
    }
}

/// The state of the control plane at a moment. A new one shares all but the changed cluster with the old.
#[derive(Clone)]
pub struct Snapshot {
    pub version: u64,
    /// Cluster 0 at this version; the one in `clusters` is that of version 1.
    pub changed: Resource,
    pub clusters: Arc<Set>,
    pub endpoints: Arc<Set>,
    cluster_bytes: usize,
}

impl Snapshot {
    /// `count` clusters of about `bytes` each, and the endpoints of each. Version 1.
    pub fn new(count: usize, bytes: usize) -> Snapshot {
        let clusters = Set::new(Kind::Cluster, count, |name| cluster(name, bytes, 0));
        let endpoints = Set::new(Kind::Endpoints, count, endpoints);
        let changed = changed_cluster(1, bytes, 0);
        Snapshot {
            version: 1,
            changed,
            clusters: Arc::new(clusters),
            endpoints: Arc::new(endpoints),
            cluster_bytes: bytes,
        }
    }

    /// The next version, in which cluster 0 carries the stamp.
    pub fn change(&mut self, stamp: u64) {
        self.version += 1;
        self.changed = changed_cluster(self.version, self.cluster_bytes, stamp);
    }

    /// The resource of a name at this version.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Resource> {
        match kind {
            Kind::Cluster if name == cluster_name(0) => {
                self.clusters.resources.get(name).map(|_| &self.changed)
            }
            Kind::Cluster => self.clusters.resources.get(name),
            Kind::Endpoints => self.endpoints.resources.get(name),
        }
    }

    /// All resources of a type at this version, in two parts.
    pub fn all(&self, kind: Kind) -> Vec<&Resource> {
        match kind {
            Kind::Cluster if self.clusters.resources.is_empty() => Vec::new(),
            Kind::Cluster => vec![&self.changed, &self.clusters.rest],
            Kind::Endpoints => self
                .endpoints
                .resources
                .get(&cluster_name(0))
                .into_iter()
                .chain([&self.endpoints.rest])
                .collect(),
        }
    }
}

fn changed_cluster(version: u64, bytes: usize, stamp: u64) -> Resource {
    let name = cluster_name(0);
    Resource::new(Kind::Cluster, &name, version, &cluster(&name, bytes, stamp))
}

/// A config.cluster.v3.Cluster that takes its endpoints by EDS over ADS and is padded in its metadata.
fn cluster(name: &str, bytes: usize, stamp: u64) -> Vec<u8> {
    let bare = padded_cluster(name, stamp, 0).len();
    padded_cluster(name, stamp, bytes.saturating_sub(bare))
}

fn padded_cluster(name: &str, stamp: u64, padding: usize) -> Vec<u8> {
    let mut cluster = Vec::new();
    put_bytes(&mut cluster, 1, name);
    // type: EDS; eds_cluster_config.eds_config: ads, of API version V3.
    put_uint(&mut cluster, 2, 3);
    put_message(&mut cluster, 3, |out| {
        put_message(out, 1, |out| {
            put_bytes(out, 3, "");
            put_uint(out, 6, 2);
        });
    });
    put_message(&mut cluster, 4, |out| put_uint(out, 1, 5));
    put_message(&mut cluster, 25, |out| {
        put_message(out, 1, |out| {
            put_bytes(out, 1, "sluice.load");
            put_message(out, 2, |out| {
                put_string_value(out, "stamp", &stamp::text(stamp));
                put_string_value(out, "padding", &"p".repeat(padding));
            });
        });
    });
    cluster
}

/// An entry of a google.protobuf.Struct.
fn put_string_value(out: &mut Vec<u8>, key: &str, value: &str) {
    put_message(out, 1, |out| {
        put_bytes(out, 1, key);
        put_message(out, 2, |out| put_bytes(out, 3, value));
    });
}

/// A config.endpoint.v3.ClusterLoadAssignment with one endpoint.
fn endpoints(name: &str) -> Vec<u8> {
    let mut assignment = Vec::new();
    put_bytes(&mut assignment, 1, name);
    put_message(&mut assignment, 2, |out| {
        put_message(out, 2, |out| {
            put_message(out, 1, |out| {
                put_message(out, 1, |out| {
                    put_message(out, 1, |out| {
                        put_bytes(out, 2, "127.0.0.1");
                        put_uint(out, 3, 9);
                    });
                });
            });
        });
    });
    assignment
}
