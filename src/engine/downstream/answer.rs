//! Answers: from what a client holds to what it should hold.
//!
//! An [`Answer`] names two views per part of a subscription; [`Answer::compose`] turns it into resources and removals.
//! Equal keys mean equal compositions, so the driver composes and encodes once for all clients that stand at the same
//! place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::snapshot::Snapshot;
use crate::engine::view::{Difference, Leaving, View, ViewId, difference};
use crate::xds::{Resource, ResourceName, TypeUrl, Variant, Version};

/// Messages of types that may be split stay below this many bytes, since 4 MiB is gRPC's default limit (SST-13).
pub const CHUNK_BYTES: usize = 3 << 20;

/// Identifies the content of an answer inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    variant: Variant,
    full: bool,
    greeting: bool,
    ids: ViewId,
}

/// One part of a subscription: one collection of one source.
#[derive(Clone, Debug)]
pub struct AnswerPart {
    pub leaving: Leaving,
    pub held: Arc<View>,
    pub view: Arc<View>,
    pub snapshot: Arc<Snapshot>,
}

/// A response in the making.
#[derive(Clone, Debug)]
pub struct Answer {
    pub type_url: TypeUrl,
    pub variant: Variant,
    /// The response holds the complete set (SST-1 to SST-3).
    pub full: bool,
    /// A first answer to a wildcard, which is due even if the set is empty (SST-7, DEL-25).
    pub greeting: bool,
    pub parts: Vec<AnswerPart>,
    /// Names unsubscribed from beside a wildcard, which must be answered (DEL-19).
    pub departed: Vec<ResourceName>,
    /// Which message of the composition comes next.
    pub chunk: usize,
}

/// One message.
#[derive(Debug, Default)]
pub struct Chunk {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<ResourceName>,
    /// Of exactly this content (RLY-31).
    pub version: Version,
}

/// What an answer amounts to: no message, one, or several.
#[derive(Debug, Default)]
pub struct Composition {
    pub chunks: Vec<Chunk>,
    /// Of new and changed EDS clusters: the endpoints that must follow, changed or not (ORD-5).
    pub endpoints: Vec<ResourceName>,
}

impl Answer {
    pub fn key(&self) -> AnswerKey {
        let ids = match self.parts.as_slice() {
            [part] if self.departed.is_empty() => part.view.id().derived((part.held.id(), part.leaving)),
            parts => {
                let start = ViewId::default().derived(&self.departed);
                parts
                    .iter()
                    .fold(start, |id, part| id.derived((part.view.id(), part.held.id(), part.leaving)))
            }
        };
        AnswerKey { variant: self.variant, full: self.full, greeting: self.greeting, ids }
    }

    pub fn compose(&self) -> Composition {
        let differences: Vec<Difference> =
            self.parts.iter().map(|part| difference(&part.held, &part.view, part.leaving)).collect();
        let put = self.put(&differences);
        let endpoints: BTreeSet<_> = put.values().filter_map(|resource| resource.endpoints.clone()).collect();
        let chunks = match (self.variant, self.full) {
            (Variant::Sotw, true) => self.full_state(&differences, !put.is_empty()),
            (Variant::Sotw, false) => split(put.into_values(), Vec::new()),
            (Variant::Delta, _) => {
                let mut chunks = split(put.into_values(), self.removed(&differences));
                if chunks.is_empty() && self.greeting {
                    chunks.push(Chunk::default());
                }
                chunks
            }
        };
        Composition { chunks, endpoints: endpoints.into_iter().collect() }
    }

    /// What is new or changed, by name, each name once (SST-8, DEL-16).
    fn put(&self, differences: &[Difference]) -> BTreeMap<ResourceName, Arc<Resource>> {
        let mut put = BTreeMap::new();
        for (part, difference) in self.parts.iter().zip(differences) {
            for name in &difference.put {
                if let Some(resource) = self.body(part, name) {
                    put.insert(name.clone(), resource.clone());
                }
            }
        }
        put
    }

    fn body<'a>(&self, part: &'a AnswerPart, name: &ResourceName) -> Option<&'a Arc<Resource>> {
        part.snapshot.of(&self.type_url)?.body(part.leaving, name)
    }

    /// The complete set in one message (SST-12), if it is news.
    fn full_state(&self, differences: &[Difference], has_put: bool) -> Vec<Chunk> {
        let lost =
            self.parts.iter().zip(differences).any(|(part, d)| d.gone.iter().any(|name| part.held.has(name)));
        let is_empty = self.parts.iter().all(|part| part.view.is_empty());
        // If every name is known absent, the client is told so by an empty response (SST-14).
        let all_absent = is_empty && differences.iter().any(|difference| !difference.gone.is_empty());
        if !(has_put || lost || all_absent || self.greeting) {
            return Vec::new();
        }
        let mut members: BTreeMap<&ResourceName, &Arc<Resource>> = BTreeMap::new();
        for part in &self.parts {
            for name in part.view.names() {
                members.extend(self.body(part, name).map(|resource| (name, resource)));
            }
        }
        let resources: Vec<_> = members.into_values().cloned().collect();
        let version = version_of(&resources);
        vec![Chunk { resources, removed: Vec::new(), version }]
    }

    /// The names of which a delta client must be told that they are gone: never one that another part still has (DEL-22).
    fn removed(&self, differences: &[Difference]) -> Vec<ResourceName> {
        let mut removed: BTreeSet<&ResourceName> = BTreeSet::new();
        for difference in differences {
            removed.extend(&difference.gone);
        }
        removed.extend(&self.departed);
        removed
            .into_iter()
            .filter(|name| !self.parts.iter().any(|part| part.view.has(name)))
            .cloned()
            .collect()
    }
}

fn version_of(resources: &[Arc<Resource>]) -> Version {
    resources.iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// Cuts a list into messages below [`CHUNK_BYTES`]; removals go with the last one (DEL-26, SST-13).
fn split(resources: impl Iterator<Item = Arc<Resource>>, removed: Vec<ResourceName>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let (mut open, mut bytes) = (Vec::new(), 0);
    for resource in resources {
        let size = resource.size();
        if bytes + size > CHUNK_BYTES && !open.is_empty() {
            chunks.push(std::mem::take(&mut open));
            bytes = 0;
        }
        bytes += size;
        open.push(resource);
    }
    if !open.is_empty() || !removed.is_empty() {
        chunks.push(open);
    }
    let mut chunks: Vec<_> = chunks
        .into_iter()
        .map(|resources| Chunk { version: version_of(&resources), resources, removed: Vec::new() })
        .collect();
    if let Some(last) = chunks.last_mut() {
        last.removed = removed;
    }
    chunks
}
