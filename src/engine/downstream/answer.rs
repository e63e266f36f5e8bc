//! Answers: from what a client holds to what it should hold.
//!
//! An [`Answer`] names two views per part of a subscription; [`Answer::compose`] turns it into resources and removals.
//! Equal keys mean equal compositions, so the driver composes and encodes once for all clients that stand at the same
//! place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::located::Located;
use super::spelling::Spellings;
use crate::engine::interest::Interest;
use crate::engine::snapshot::Snapshot;
use crate::engine::view::{View, ViewId, difference};
use crate::xds::{Constraints, Resource, ResourceName, TypeUrl, Variant, Version};

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
    pub interest: Interest,
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
    /// Names that must be answered whatever the parts say: unsubscribed from beside a wildcard (DEL-19), or refused
    /// (NAM-5).
    pub departed: Vec<ResourceName>,
    /// The client's own spelling of names, where it is not the canonical one (NAM-8).
    pub spellings: Option<Arc<Spellings>>,
    /// The client asks with dynamic parameters (DYN-7); this is what it was told under those names.
    pub located: Option<Arc<Located>>,
    /// Which message of the composition comes next.
    pub chunk: usize,
}

/// One message.
#[derive(Debug, Default)]
pub struct Chunk {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<ResourceName>,
    /// Variants that are removed by their constraints (DYN-6).
    pub removed_variants: Vec<(ResourceName, Arc<Constraints>)>,
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

/// How what the client holds differs from what it should hold, over all parts.
#[derive(Debug, Default)]
struct News {
    /// What is new or changed, by name, each name once (SST-8, DEL-16).
    put: BTreeMap<ResourceName, Arc<Resource>>,
    /// What a delta client must be told is gone.
    removed: BTreeSet<ResourceName>,
    /// The client holds something that is gone.
    lost: bool,
    /// Some name is newly known to be absent.
    told_absent: bool,
}

impl News {
    /// What is wanted by several aliases, or by its own name as well, is one resource (SST-8, DEL-16).
    fn by_own_name(&mut self) {
        if self.put.iter().any(|(name, resource)| *name != resource.name) {
            let put = std::mem::take(&mut self.put);
            self.put = put.into_values().map(|resource| (resource.name.clone(), resource)).collect();
            self.removed.retain(|name| !self.put.contains_key(name));
        }
    }
}

impl Answer {
    pub fn key(&self) -> AnswerKey {
        let ids = match self.parts.as_slice() {
            [part] if self.departed.is_empty() => {
                part.view.id().derived((part.held.id(), part.interest.leaving()))
            }
            parts => {
                let start = ViewId::default().derived(&self.departed);
                parts.iter().fold(start, |id, part| {
                    id.derived((part.view.id(), part.held.id(), part.interest.leaving()))
                })
            }
        };
        let ids = match &self.spellings {
            Some(spellings) => ids.derived(spellings.id()),
            None => ids,
        };
        let ids = match &self.located {
            Some(located) => ids.derived(located),
            None => ids,
        };
        AnswerKey { variant: self.variant, full: self.full, greeting: self.greeting, ids }
    }

    pub fn compose(&self) -> Composition {
        let news = self.news();
        let endpoints: BTreeSet<_> =
            news.put.values().filter_map(|resource| resource.endpoints.clone()).collect();
        let chunks = match (self.variant, self.full) {
            (Variant::Sotw, true) => self.full_state(&news),
            (Variant::Sotw, false) => split(news.put.into_values(), BTreeSet::new()),
            (Variant::Delta, _) => {
                let mut chunks = split(news.put.into_values(), news.removed);
                if chunks.is_empty() && self.greeting {
                    chunks.push(Chunk::default());
                }
                chunks
            }
        };
        Composition { chunks, endpoints: endpoints.into_iter().collect() }
    }

    /// Compares what the client holds of all parts together with what it should hold. A name that is wanted for itself
    /// and by the wildcard is one resource to the client: its own subscription decides, and where that has nothing, the
    /// wildcard does (SUB-12, DEL-22).
    fn news(&self) -> News {
        // In SotW only a refusal is answered so, which is an absence that is known at once.
        let told_absent = self.variant == Variant::Sotw && !self.departed.is_empty();
        let mut news = News { told_absent, ..News::default() };
        let after: Vec<_> = self
            .parts
            .iter()
            .map(|part| part.held.brought_to(&part.view, |name| part.interest.covers(name), self.deletes()))
            .collect();
        let mut changed: BTreeSet<ResourceName> = self.departed.iter().cloned().collect();
        for part in &self.parts {
            let difference = difference(&part.held, &part.view, part.interest.leaving());
            news.told_absent |= !difference.gone.is_empty();
            changed.extend(difference.put.into_iter().chain(difference.gone));
        }
        for name in changed {
            let held = self.parts.iter().rev().find_map(|part| part.held.version_of(&name));
            let due = after.iter().rev().find_map(|view| view.version_of(&name));
            match due {
                Some(version) if held == Some(version) => {}
                Some(_) => {
                    if let Some(resource) = self.body(&name) {
                        news.put.insert(name, resource.clone());
                    }
                }
                None => {
                    news.lost |= held.is_some();
                    if !self.parts.iter().any(|part| part.is_in_doubt(&name)) {
                        let own = held
                            .and_then(|_| self.own_name(&name))
                            .filter(|own| !after.iter().any(|view| view.has(own)));
                        news.removed.extend(own);
                        news.removed.insert(name);
                    }
                }
            }
        }
        news.by_own_name();
        news
    }

    /// Of an alias under which the client was sent a resource: the name under which it holds it (ALI-1).
    fn own_name(&self, alias: &ResourceName) -> Option<ResourceName> {
        let of_part = |part: &AnswerPart| part.snapshot.of(&self.type_url)?.aliases.get(alias).cloned();
        self.parts.iter().find_map(of_part)
    }

    /// Whether the client learns from it what is gone (SST-6).
    pub fn deletes(&self) -> bool {
        self.full || self.variant == Variant::Delta
    }

    /// The resource under a name: the last part that has it decides, for names come after the wildcard.
    pub(super) fn body(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
        part.snapshot.of(&self.type_url)?.body(part.interest.leaving(), name)
    }

    /// The complete set in one message (SST-12), if it is news.
    fn full_state(&self, news: &News) -> Vec<Chunk> {
        // If every name is known absent, the client is told so by an empty response (SST-14).
        let all_absent = news.told_absent && self.parts.iter().all(|part| part.view.is_empty());
        if news.put.is_empty() && !(news.lost || all_absent || self.greeting) {
            return Vec::new();
        }
        let names: BTreeSet<_> = self.parts.iter().flat_map(|part| part.view.names()).collect();
        let put = names.into_iter().filter_map(|name| Some((name.clone(), self.body(name)?.clone())));
        let mut all = News { put: put.collect(), ..News::default() };
        all.by_own_name();
        let resources: Vec<_> = all.put.into_values().collect();
        let version = version_of(&resources);
        vec![Chunk { resources, version, ..Chunk::default() }]
    }
}

impl AnswerPart {
    /// Of the wildcard or of globs: the name may be in it, but it is not known yet whether it is.
    pub fn may_have(&self, name: &ResourceName) -> bool {
        let is_open = match &self.interest {
            Interest::Wildcard => !self.view.is_complete(),
            Interest::Globs(_) => self.interest.covers(name) && !self.view.knows_gone(name),
            Interest::Names(_) => false,
        };
        is_open && !self.view.has(name)
    }

    /// The name was asked for, and the source does not know yet whether it exists (RLY-2).
    pub fn is_in_doubt(&self, name: &ResourceName) -> bool {
        let named = matches!(&self.interest, Interest::Names(names) if names.contains(name));
        named && !self.view.has(name) && !self.view.knows_absent(name)
    }
}

pub(super) fn version_of(resources: &[Arc<Resource>]) -> Version {
    resources.iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// Cuts an answer into messages below [`CHUNK_BYTES`]; removals come last (DEL-26, SST-13).
fn split(resources: impl Iterator<Item = Arc<Resource>>, removed: BTreeSet<ResourceName>) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut bytes = 0;
    for resource in resources {
        let chunk = open(&mut chunks, &mut bytes, resource.size());
        chunk.version = chunk.version.plus(resource.version);
        chunk.resources.push(resource);
    }
    for name in removed {
        // Its text, a tag and a length.
        let chunk = open(&mut chunks, &mut bytes, name.as_str().len() + 8);
        chunk.removed.push(name);
    }
    chunks
}

/// The message that takes `size` more bytes: the last one, or a new one if that is full.
fn open<'a>(chunks: &'a mut Vec<Chunk>, bytes: &mut usize, size: usize) -> &'a mut Chunk {
    if chunks.is_empty() || *bytes + size > CHUNK_BYTES {
        *bytes = 0;
        chunks.push(Chunk::default());
    }
    *bytes += size;
    let last = chunks.len() - 1;
    &mut chunks[last]
}
