//! The cached copies of one resource, with their bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::api::status::{ResourcePlace, ResourceStatus, SourceStatus};
use sluice_xds::{Node, Resource, ResourceName, TypeUrl, Version};

/// The server's own versions of the resources of a source.
pub type UpstreamVersions = BTreeMap<(TypeUrl, ResourceName), Box<str>>;

/// Gives the bytes of resources. The admin room shows them only without secrets (ADM-12).
pub trait ContentView: Send + Sync + 'static {
    /// The copies of a resource: one for each source and kind of subscription with this name. The type may
    /// have any of the names that [`names_type`](crate::driver::api::status::names_type) takes.
    fn copies(&self, type_name: &str, name: &str) -> Vec<CachedCopy> {
        let _ = (type_name, name);
        Vec::new()
    }

    /// The versions of a resource in the releases that plans hold beside the newest content (TRU-4).
    fn released(&self, type_url: &TypeUrl, name: &ResourceName) -> Vec<ReleasedVersion> {
        let _ = (type_url, name);
        Vec::new()
    }

    /// The sources, with the nodes that their servers see.
    fn held_sources(&self) -> Vec<HeldSource> {
        Vec::new()
    }

    /// The copies of a source, made on demand.
    fn held(&self, source: u64) -> Box<dyn Iterator<Item = CachedCopy> + Send + '_> {
        let _ = source;
        Box::new(std::iter::empty())
    }

    /// The resources that clients are given with a push of a plan, in the order of `units`' numbers, without
    /// Secrets. `after`: the last entry that the caller has.
    fn candidate<'a>(
        &'a self,
        push: u64,
        units: &[u64],
        after: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = CachedCopy> + Send + 'a> {
        let _ = (push, units, after);
        Box::new(std::iter::empty())
    }

    /// The server's own versions of the resources of a source, without Secrets. Empty where the server states
    /// none, or is busy for longer than a moment.
    fn upstream_versions(&self, source: u64) -> BoxFuture<'_, UpstreamVersions> {
        let _ = source;
        std::future::ready(UpstreamVersions::new()).boxed()
    }

    /// The streams whose clients have named their nodes.
    fn nodes(&self) -> Box<dyn Iterator<Item = (u64, Arc<Node>)> + Send + '_> {
        Box::new(std::iter::empty())
    }
}

/// A version of a resource in a release of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedVersion {
    pub version: Version,
    pub release: Release,
    /// The arrival of the version.
    pub received_at: SystemTime,
}

/// A release of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// The push under way.
    Candidate,
    /// The content of all clients outside of the push's steps.
    Stable,
}

/// A source with its server.
#[derive(Clone, Debug)]
pub struct HeldSource {
    /// Unique in this process.
    pub number: u64,
    pub status: Arc<SourceStatus>,
    /// The node that the server sees.
    pub node: Node,
}

/// One source's copy of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedCopy {
    /// The number of the source, unique in this process.
    pub source: u64,
    /// The key of the server list in the configuration.
    pub list: Arc<str>,
    pub status: ResourceStatus,
    /// `None` if the source has only the name.
    pub resource: Option<Arc<Resource>>,
}
