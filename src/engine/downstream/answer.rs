//! Answers: from what a client holds to what it should hold.
//!
//! An [`Answer`] names two views per part of a subscription; [`Answer::compose`] turns it into resources and removals.
//! Equal keys mean equal compositions, so the driver composes and encodes once for all clients that stand at the same
//! place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::dialect::{Asides, Dialect};
use super::located::Located;
use super::order::targets;
use super::rest::{Rest, Told};
use super::spelling::Spellings;
use super::subscription::Part;
use crate::engine::Time;
use crate::engine::cache::aliased::Aliased;
use crate::engine::interest::Interest;
use crate::engine::planted::{Bug, planted};
use crate::engine::snapshot::{Snapshot, TypeSnapshot};
use crate::engine::view::{Leaving, View, ViewId, difference};
use crate::xds::{Constraints, Resource, ResourceName, Status, TypeUrl, Variant, Version};

/// Messages of types that may be split stay below this many bytes, since 4 MiB is gRPC's default limit (SST-13).
pub const CHUNK_BYTES: usize = 3 << 20;

/// Identifies the content of an answer inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    variant: Variant,
    full: bool,
    greeting: bool,
    dialect: Dialect,
    /// It is said in the body that some of it is from before a restart.
    restored: bool,
    step: Step,
}

/// From where to where the answer brings its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    /// Of one part, and nothing beside: what nearly all updates are. Nothing of it is hashed, as each client asks for it.
    Plain {
        due: ViewId,
        held: ViewId,
        leaving: Leaving,
        last_bytes: u64,
    },
    Derived(ViewId),
}

/// One part of a subscription: one collection of one source.
#[derive(Clone, Debug)]
pub struct AnswerPart {
    pub interest: Interest,
    pub held: Arc<View>,
    pub view: Arc<View>,
    /// Views with names that `view` has no more, and that the client is to keep for now (RLY-51).
    pub keeps: Vec<Arc<View>>,
    /// Identifies `view` together with `keeps`.
    pub due: ViewId,
    /// [`TypeSnapshot::last_bytes`](crate::engine::snapshot::TypeSnapshot::last_bytes)
    pub last_bytes: u64,
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
    pub dialect: Dialect,
    /// As of when it says what is left of a TTL; zero where it says nothing of that.
    pub told_at: Time,
    /// The version under which a SotW message goes that brings no content.
    pub repeats: Option<Version>,
    pub parts: Vec<AnswerPart>,
    /// Names that must be answered whatever the parts say: unsubscribed from beside a wildcard (DEL-19), or refused
    /// (NAM-5).
    pub departed: Vec<ResourceName>,
    /// Why those of them are refused that are (NAM-5). It follows from the name and the type.
    pub refused: Vec<(ResourceName, Arc<Status>)>,
    /// The client's own spelling of names, where it is not the canonical one (NAM-8).
    pub spellings: Option<Arc<Spellings>>,
    /// The client asks with dynamic parameters (DYN-7); this is what it was told under those names.
    pub located: Option<Arc<Located>>,
    /// Which message of the composition comes next.
    pub chunk: usize,
    /// Of the messages after the first: what stands for the snapshots, which they need no more. Nothing is composed of it.
    pub rest: Option<Box<Rest>>,
    /// How many responses the stream had carried when this answer was begun.
    pub begun: u64,
}

/// One message.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<ResourceName>,
    /// Variants that are removed by their constraints (DYN-6).
    pub removed_variants: Vec<(ResourceName, Arc<Constraints>)>,
    /// Of delta only: what lives on, told by name, version and TTL (TTL-4).
    pub beats: Vec<Arc<Resource>>,
    /// What is left of their TTLs, of those that have one.
    pub ttls: BTreeMap<ResourceName, Duration>,
    /// What cannot be supplied, and why (ERR-1).
    pub errors: Vec<(ResourceName, Arc<Status>)>,
    /// Of exactly this content (RLY-31).
    pub version: Version,
}

/// What an answer amounts to: no message, one, or several.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    pub chunks: Vec<Chunk>,
    /// Of new and changed EDS clusters: the endpoints that must follow, changed or not (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// What the parts are brought to, where that is not just what their sources have; else empty.
    pub targets: Vec<Arc<View>>,
    /// How many resources the client cannot be sent (RLY-23).
    pub left_out: usize,
    /// The names in each message, where there are several.
    pub told: Arc<[Told]>,
}

impl Composition {
    /// A name whose resource goes with it may be told no error beside it (ERR-2), for which there is no second message: the
    /// client does not hold that error then, so that its end is no news (ERR-3).
    fn leave_errors_untold(&mut self, answer: &Answer) {
        // What stays though its source has it no more carries the errors that the client was told.
        let mut views = answer.parts.iter().map(|part| &part.view).chain(&self.targets);
        if views.all(|view| view.remarks().errors().next().is_none()) {
            return;
        }
        let resources = self.chunks.iter().flat_map(|chunk| &chunk.resources);
        let mut sent: BTreeSet<_> =
            resources.flat_map(|resource| std::iter::once(&resource.name).chain(&resource.aliases)).collect();
        for (name, _) in self.chunks.iter().flat_map(|chunk| &chunk.errors) {
            sent.remove(name);
        }
        let views = answer.parts.iter().enumerate().map(|(index, part)| {
            let view = self.targets.get(index).unwrap_or(&part.view);
            let untold: Vec<_> =
                view.remarks().errors().map(|(name, _)| name).filter(|name| sent.contains(name)).collect();
            if untold.is_empty() { view.clone() } else { Arc::new(view.without_errors_of(&untold)) }
        });
        let views: Vec<_> = views.collect();
        let is_own = |(view, part): (&Arc<View>, &AnswerPart)| view.id() == part.view.id();
        if !self.targets.is_empty() || !views.iter().zip(&answer.parts).all(is_own) {
            self.targets = views;
        }
    }
}

/// How what the client holds differs from what it should hold, over all parts.
#[derive(Debug, Default)]
pub(super) struct News {
    /// What is new or changed, by name, each name once (SST-8, DEL-16).
    pub(super) put: BTreeMap<ResourceName, Arc<Resource>>,
    /// What a delta client must be told is gone.
    pub(super) removed: BTreeSet<ResourceName>,
    /// The client holds something that is gone.
    lost: bool,
    /// Some name is newly known to be absent.
    told_absent: bool,
}

impl News {
    /// A complete set, of resources under the names by which they are wanted.
    pub(super) fn complete(put: BTreeMap<ResourceName, Arc<Resource>>) -> News {
        let mut all = News { put, ..News::default() };
        all.by_own_name();
        all
    }

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
        if let Some(key) = self.rest_key() {
            return key;
        }
        let Answer { variant, full, greeting, dialect, .. } = *self;
        AnswerKey { variant, full, greeting, dialect, restored: self.is_restored(), step: self.step() }
    }

    fn step(&self) -> Step {
        let is_timed = self.told_at != Time::ZERO || self.repeats.is_some();
        if let [part] = self.parts.as_slice()
            && self.departed.is_empty()
            && self.spellings.is_none()
            && self.located.is_none()
            && !is_timed
        {
            let AnswerPart { due, last_bytes, .. } = *part;
            return Step::Plain { due, held: part.held.id(), leaving: part.interest.leaving(), last_bytes };
        }
        // Without parts nothing else tells one type from another.
        let start = ViewId::default().derived((&self.departed, self.type_url.as_str()));
        let ids = self.parts.iter().fold(start, |id, part| {
            id.derived((part.due, part.held.id(), part.interest.leaving(), part.last_bytes))
        });
        let ids = match &self.spellings {
            Some(spellings) => ids.derived(spellings.id()),
            None => ids,
        };
        let ids = match &self.located {
            Some(located) => ids.derived(located),
            None => ids,
        };
        Step::Derived(if is_timed { ids.derived((self.told_at, self.repeats)) } else { ids })
    }

    /// Some of it is as it was before the relay was restarted, and unconfirmed since (RLY-7, I14).
    pub fn is_restored(&self) -> bool {
        let mut snapshots = self.parts.iter().filter_map(|part| part.snapshot.of(&self.type_url));
        snapshots.any(|snapshot| snapshot.restored)
    }

    pub fn compose(&self) -> Composition {
        let targets = targets(self);
        let mut composition = match targets.is_empty() {
            true => self.difference(),
            false => Composition { targets: targets.clone(), ..self.brought_to(&targets).difference() },
        };
        composition.leave_errors_untold(self);
        composition.note_told();
        composition
    }

    /// This answer, with these views for those of the sources.
    pub fn brought_to(&self, targets: &[Arc<View>]) -> Answer {
        let mut answer = self.clone();
        for (part, target) in answer.parts.iter_mut().zip(targets) {
            part.view = target.clone();
        }
        answer
    }

    fn difference(&self) -> Composition {
        let mut news = self.news();
        let endpoints: BTreeSet<_> =
            news.put.values().filter_map(|resource| resource.endpoints.clone()).collect();
        let mut asides = self.asides(&mut news);
        let left_out = self.leave_out(&mut news, &mut asides);
        let mut chunks = match (self.variant, self.full) {
            (Variant::Sotw, true) => self.full_state(&news, &asides),
            (Variant::Sotw, false) => {
                let mut chunks = split(news.put.into_values(), BTreeSet::new());
                asides.into_sotw(&mut chunks, self.repeats, self.dialect.errors_alone);
                chunks
            }
            (Variant::Delta, _) => {
                let mut chunks = split(news.put.into_values(), news.removed);
                asides.into_delta(&mut chunks);
                if chunks.is_empty() && self.greeting {
                    chunks.push(Chunk::default());
                }
                chunks
            }
        };
        self.state_ttls(&mut chunks);
        let endpoints = endpoints.into_iter().collect();
        Composition { chunks, endpoints, left_out, ..Composition::default() }
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
            .map(|part| part.held.brought_to(&part.view, |name| self.leaves(part, name), self.deletes()))
            .collect();
        let mut changed: BTreeSet<ResourceName> = self.departed.iter().cloned().collect();
        for part in &self.parts {
            let difference = difference(&part.held, &part.view, part.interest.leaving());
            news.told_absent |= !difference.gone.is_empty();
            changed.extend(difference.put.into_iter().chain(difference.gone));
            if self.full {
                // What the client kept while absence was not told to it (SST-6) goes with the first complete set.
                let kept = part.held.beside(&part.view).map(|(name, _)| name);
                changed.extend(kept.filter(|name| part.view.knows_absent(name)));
            }
        }
        let restated = self.restated();
        changed.extend(restated.iter().cloned());
        for name in changed {
            let held = self.parts.iter().rev().find_map(|part| part.held.version_of(&name));
            let due = after.iter().rev().find_map(|view| view.version_of(&name));
            match due {
                Some(version) if held == Some(version) && !restated.contains(&name) => {}
                Some(_) => {
                    if let Some(resource) = self.body(&name) {
                        news.removed.extend(self.left_behind(&name, held, &after));
                        news.put.insert(name, resource.clone());
                    }
                }
                None => {
                    news.lost |= held.is_some();
                    if !self.parts.iter().any(|part| part.is_in_doubt(&name)) {
                        let own = held.and_then(|_| Some(self.aliased(&name)?.own().clone()));
                        news.removed.extend(own.filter(|own| !after.iter().any(|view| view.has(own))));
                        news.removed.extend(self.left_behind(&name, held, &after));
                        news.removed.insert(name);
                    }
                }
            }
        }
        news.by_own_name();
        news
    }

    /// Whether the client keeps what it holds of a part under a name that the source of the part does not know yet. Where the
    /// wildcard or a glob has something under it, that is what the client is sent (SUB-12).
    pub fn leaves(&self, part: &AnswerPart, name: &ResourceName) -> bool {
        let is_named = |part: &AnswerPart| matches!(part.interest, Interest::Names(_));
        let is_supplied = || self.parts.iter().any(|other| !is_named(other) && other.view.has(name));
        part.interest.covers(name) && !(is_named(part) && is_supplied())
    }

    /// What is behind a name that is or was an alias; clients hold it under its own name (ALI-1).
    fn aliased(&self, alias: &ResourceName) -> Option<&Arc<Aliased>> {
        self.parts.iter().find_map(|part| part.snapshot.of(&self.type_url)?.aliases.get(alias))
    }

    /// An alias moved from one resource to another (ALI-2): what the client holds of the former, which nothing covers any
    /// more.
    fn left_behind(
        &self,
        alias: &ResourceName,
        held: Option<Version>,
        after: &[Arc<View>],
    ) -> impl Iterator<Item = ResourceName> {
        let aliased = held.and_then(|held| Some((self.aliased(alias)?, held)));
        let former = aliased.into_iter().flat_map(|(aliased, held)| aliased.left_behind(held));
        former.filter(|name| !after.iter().any(|view| view.has(name))).cloned()
    }

    /// Whether the client learns from it what is gone (SST-6).
    pub fn deletes(&self) -> bool {
        self.full || self.variant == Variant::Delta
    }

    /// The resource under a name: the last part that has it decides, for names come after the wildcard.
    pub(super) fn body(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
        let (types, leaving) = (part.snapshot.of(&self.type_url)?, part.interest.leaving());
        if planted(Bug::LastBytesPreferred) && types.departed(leaving, name).is_some() {
            return types.departed(leaving, name);
        }
        // What a view has although its source has it no more, goes with its last bytes.
        types.body(leaving, name).or_else(|| types.departed(leaving, name))
    }

    /// The complete set in one message (SST-12), if it is news.
    fn full_state(&self, news: &News, asides: &Asides) -> Vec<Chunk> {
        // If every name is known absent, the client is told so by an empty response (SST-14).
        let is_known =
            |part: &AnswerPart| part.view.is_complete() || self.dialect.excuses(&part.interest, &part.view);
        let all_absent =
            news.told_absent && self.parts.iter().all(|part| part.view.is_empty() && is_known(part));
        let has_errors = self.dialect.errors_alone && asides.has_errors();
        if news.put.is_empty() && !(news.lost || all_absent || self.greeting || has_errors) {
            return Vec::new();
        }
        let (resources, errors) = self.complete_set(news, asides);
        let version = version_of(&resources);
        vec![Chunk { resources, errors, version, ..Chunk::default() }]
    }
}

impl AnswerPart {
    pub(super) fn of(
        part: &Part,
        snapshot: &Arc<Snapshot>,
        types: &TypeSnapshot,
        view: &Arc<View>,
    ) -> AnswerPart {
        AnswerPart {
            interest: part.interest.clone(),
            held: part.held.clone(),
            view: view.clone(),
            keeps: part.keeps(),
            due: part.due(view),
            last_bytes: types.last_bytes(),
            snapshot: snapshot.clone(),
        }
    }

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
pub(super) fn open<'a>(chunks: &'a mut Vec<Chunk>, bytes: &mut usize, size: usize) -> &'a mut Chunk {
    if chunks.is_empty() || *bytes + size > CHUNK_BYTES {
        *bytes = 0;
        chunks.push(Chunk::default());
    }
    *bytes += size;
    let last = chunks.len() - 1;
    &mut chunks[last]
}
