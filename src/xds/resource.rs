//! A resource: opaque bytes under a name.

use std::borrow::Cow;
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
    /// For whom this variant is meant, where that is told along with it (DYN-2).
    pub constraints: Option<Arc<Constraints>>,
}

impl Resource {
    /// Its payload carries its name, so that it may go without a wrapper in a SotW response of this type: it is no
    /// redirect (NAM-20), and not of a type without a name field (WIR-9),
    /// and no variant whose constraints are to be told (DYN-2).
    pub fn names_itself(&self, type_url: &TypeUrl) -> bool {
        type_url.kind().has_name_field()
            && *self.body.type_url == *type_url.as_str()
            && self.constraints.is_none()
    }

    /// What tells it from all others of its type: its name, with the constraints if there are such (DYN-1).
    pub fn variant_name(&self) -> Cow<'_, ResourceName> {
        match &self.constraints {
            None => Cow::Borrowed(&self.name),
            Some(constraints) => Cow::Owned(self.name.variant(constraints)),
        }
    }

    /// A virtual host that was asked for on demand and does not exist has none (VHD-6).
    pub fn has_payload(&self) -> bool {
        !self.body.type_url.is_empty()
    }

    /// What the resource costs in memory and, near enough, on the wire: bytes.
    pub fn size(&self) -> usize {
        self.body.value.len() + self.body.type_url.len() + self.name.as_str().len() + 64
    }
}
