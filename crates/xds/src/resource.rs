//! A resource: opaque bytes with a name.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Constraints, ResourceName, TypeUrl, Version};

/// A `google.protobuf.Any`, kept verbatim (TYP-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    pub type_url: Arc<str>,
    pub value: Bytes,
}

/// A resource as received from an upstream. Immutable, and shared by `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: ResourceName,
    /// The content version (RLY-30). Equal versions mean equal bytes.
    pub version: Version,
    pub body: Any,
    /// The body states this name in its first field. Senders may state the name in the wrapper only (WIR-9).
    pub body_has_name: bool,
    /// Other names of this resource, sorted (ALI-1).
    pub aliases: Box<[ResourceName]>,
    /// The time to live stated by the upstream (TTL-1).
    pub ttl: Option<Duration>,
    /// The resource must not be stored or shared (CCH-1).
    pub do_not_cache: bool,
    /// `Resource.metadata`, encoded. Forwarded to delta clients (CCH-2).
    pub metadata: Option<Bytes>,
    /// For a cluster of type EDS: the name of its endpoints (ORD-5).
    pub endpoints: Option<ResourceName>,
    /// The clients that this variant is meant for, if the upstream states constraints (DYN-2).
    pub constraints: Option<Arc<Constraints>>,
}

impl Resource {
    /// The payload contains the resource's name, so the resource needs no wrapper in a SotW response of this
    /// type. False for redirects (NAM-20), for types without a name field and bodies without this name
    /// (WIR-9), and for variants with constraints (DYN-2).
    pub fn names_itself(&self, type_url: &TypeUrl) -> bool {
        self.body_has_name
            && type_url.kind().has_name_field()
            && *self.body.type_url == *type_url.as_str()
            && self.constraints.is_none()
    }

    /// The unique key within the type: the name, with the constraints if there are any (DYN-1).
    pub fn variant_name(&self) -> Cow<'_, ResourceName> {
        match &self.constraints {
            None => Cow::Borrowed(&self.name),
            Some(constraints) => Cow::Owned(self.name.variant(constraints)),
        }
    }

    /// False only for the answer "no such virtual host" to an on-demand subscription (VHD-6).
    pub fn has_payload(&self) -> bool {
        !self.body.type_url.is_empty()
    }

    /// The cost in memory, roughly equal to the cost on the wire. In bytes: what operators read as `bytes` of
    /// a resource.
    pub fn size(&self) -> usize {
        let beside = self.metadata.as_ref().map_or(0, |metadata| metadata.len());
        let aliases: usize = self.aliases.iter().map(|alias| alias.as_str().len()).sum();
        self.body.value.len() + self.body.type_url.len() + self.name.as_str().len() + beside + aliases + 64
    }
}

/// Resources that several readers of responses share (BOD-1). An entry may go at any time after the last
/// owner of the resource has gone.
pub trait ResourceCopies: Debug + Send + Sync {
    /// A resource with this version and TTL. It may differ in the rest (BOD-2).
    fn find_resource(&self, version: Version, ttl: Option<Duration>) -> Option<Arc<Resource>>;

    /// Adds a resource, or replaces the resource with this version and TTL.
    fn add_resource(&self, resource: &Arc<Resource>);
}
