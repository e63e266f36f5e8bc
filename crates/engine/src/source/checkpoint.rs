//! The part of a source that survives a restart of the relay (RLY-7).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::cache::expiry::{Leased, Left};
use crate::collection::CollectionKind;
use crate::snapshot::{Snapshot, TypeSnapshot};
use crate::upstream::FormerResource;
use sluice_xds::{Resource, ResourceName, TypeUrl};

/// One resource of a restored source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name that was asked for; a member's own name.
    pub name: ResourceName,
    pub resource: Arc<Resource>,
    /// The server's version; empty if no version may be claimed (RLY-64).
    pub server_version: Box<str>,
    /// The rest of the time to live (I17).
    pub left: Option<Duration>,
}

/// One type of a restored source. All other names are UNKNOWN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredType {
    pub type_url: TypeUrl,
    pub names: Vec<Kept>,
    /// The members of the wildcard, if the membership was complete.
    pub wildcard: Option<Vec<Kept>>,
    /// The globs whose membership was complete.
    pub globs: Vec<(ResourceName, Vec<Kept>)>,
}

impl RestoredType {
    pub fn new(type_url: TypeUrl) -> RestoredType {
        RestoredType { type_url, names: Vec::new(), wildcard: None, globs: Vec::new() }
    }

    pub fn resources(&self) -> usize {
        self.all().count()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Kept> {
        let members = self.globs.iter_mut().flat_map(|(_, members)| members);
        self.names.iter_mut().chain(self.wildcard.iter_mut().flatten()).chain(members)
    }

    pub fn all(&self) -> impl Iterator<Item = &Kept> {
        let members = self.globs.iter().flat_map(|(_, members)| members);
        self.names.iter().chain(self.wildcard.iter().flatten()).chain(members)
    }
}

/// ClaimedVersions by name, sorted.
pub type ClaimedVersions = Vec<(ResourceName, Box<str>)>;

/// The state of a source at one moment, complete enough to restore the source.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub snapshot: Snapshot,
    /// The server's versions of the held resources.
    pub versions: BTreeMap<(TypeUrl, CollectionKind), ClaimedVersions>,
    /// The server's last stated TTL of each resource with a TTL, and the rest of the time. The resource
    /// itself may lack the TTL.
    pub left: BTreeMap<Leased, Left>,
    pub complete_globs: BTreeMap<TypeUrl, Vec<ResourceName>>,
}

impl Image {
    /// The state with the content of another release, which clients go on with after a restart (WAV-8). The
    /// server has another version of the names that differ, so none is claimed.
    #[must_use]
    pub fn serving(mut self, release: &Snapshot) -> Image {
        for ((type_url, kind), versions) in &mut self.versions {
            let (published, released) = (self.snapshot.of(type_url), release.of(type_url));
            let version = |snapshot: Option<&TypeSnapshot>, name: &ResourceName| {
                snapshot.and_then(|types| types.body(*kind, name)).map(|resource| resource.version)
            };
            versions.retain(|(name, _)| version(published, name) == version(released, name));
        }
        self.snapshot = release.clone();
        self
    }
}

/// The unconfirmed part of a restored source.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    /// Unconfirmed collections, and whether the server is told of all their held resources.
    pub(super) unheard: BTreeMap<(TypeUrl, CollectionKind), bool>,
    /// The time when the source frees its resources for lack of sessions.
    pub(super) given_up_at: Option<Time>,
}

impl Restoring {
    pub(super) fn is_over(&self) -> bool {
        self.unheard.is_empty()
    }

    pub(super) fn has_type(&self, type_url: &TypeUrl) -> bool {
        !self.is_over() && CollectionKind::ALL.into_iter().any(|kind| self.has(type_url, kind))
    }

    pub(super) fn has(&self, type_url: &TypeUrl, kind: CollectionKind) -> bool {
        self.unheard.contains_key(&(type_url.clone(), kind))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.given_up_at
    }
}

/// The entries of a collection that the stream starts with.
pub(super) fn former_resources(kept: &[Kept]) -> Vec<FormerResource> {
    let one = |kept: &Kept| FormerResource {
        name: kept.name.clone(),
        own_name: kept.resource.name.clone(),
        version: kept.server_version.clone(),
    };
    kept.iter().map(one).collect()
}
