//! A resource: opaque bytes under a name.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{ResourceName, TypeUrl, Version};

/// A `google.protobuf.Any`, kept verbatim (TYP-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    pub type_url: Arc<str>,
    pub value: Bytes,
}

/// One resource as an upstream sent it. Immutable; shared by `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: ResourceName,
    /// Of the content (RLY-30); equal versions mean equal bytes.
    pub version: Version,
    pub body: Any,
    /// Other names that this resource answers to, sorted (ALI-1).
    pub aliases: Box<[ResourceName]>,
    /// The time to live that the upstream stated (TTL-1).
    pub ttl: Option<Duration>,
    /// Not to be stored or shared (CCH-1).
    pub do_not_cache: bool,
    /// `Resource.metadata`, encoded, carried through in delta (CCH-2).
    pub metadata: Option<Bytes>,
    /// Of an EDS cluster: the name of its endpoints (ORD-5).
    pub endpoints: Option<ResourceName>,
}

impl Resource {
    /// A SotW response of this type may hold it without a wrapper: it carries its name, and is no redirect (WIR-9).
    pub fn is_bare(&self, type_url: &TypeUrl) -> bool {
        type_url.kind().has_name_field() && *self.body.type_url == *type_url.as_str()
    }

    /// What the resource costs in memory and, near enough, on the wire: bytes.
    pub fn size(&self) -> usize {
        self.body.value.len() + self.body.type_url.len() + self.name.as_str().len() + 64
    }
}
