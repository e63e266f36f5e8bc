//! Answers: the steps from the views that a client holds to the views that the client should hold.
//!
//! An [`Answer`] names two views per part of a subscription; [`Answer::compose`] turns the views into resources and
//! removals. Equal keys mean equal compositions, so the driver composes and encodes once for all clients with the
//! same views.

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

/// The maximum size of a message of a type with splittable answers. gRPC's default limit is 4 MiB (SST-13).
pub const CHUNK_BYTES: usize = 3 << 20;

/// Identifies the content of an answer inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    variant: Variant,
    full: bool,
    greeting: bool,
    dialect: Dialect,
    /// The body states that some resources are from before a restart.
    restored: bool,
    step: Step,
}

/// The views before and after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    /// An answer of one part and nothing else, as nearly all updates are. Nothing is hashed, because the key is made
    /// for each client.
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
    /// Views with names that left `view`, but that the client keeps for now (RLY-51).
    pub keeps: Vec<Arc<View>>,
    /// Identifies `view` together with `keeps`.
    pub due: ViewId,
    /// [`TypeSnapshot::last_bytes`](crate::engine::snapshot::TypeSnapshot::last_bytes)
    pub last_bytes: u64,
    pub snapshot: Arc<Snapshot>,
}

/// The content of a response, not yet composed.
#[derive(Clone, Debug)]
pub struct Answer {
    pub type_url: TypeUrl,
    pub variant: Variant,
    /// The response holds the complete set (SST-1 to SST-3).
    pub full: bool,
    /// A first answer to a wildcard. The answer is due even if the set is empty (SST-7, DEL-25).
    pub greeting: bool,
    pub dialect: Dialect,
    /// The time to which the remaining TTLs refer; zero if the answer has no TTL.
    pub told_at: Time,
    /// The version of a SotW message without content.
    pub repeats: Option<Version>,
    pub parts: Vec<AnswerPart>,
    /// Names to answer regardless of the parts: the client unsubscribed from the name beside a wildcard (DEL-19), or
    /// the name is refused (NAM-5).
    pub departed: Vec<ResourceName>,
    /// The refused names of `departed`, and the reasons (NAM-5). A reason follows from the name and the type.
    pub refused: Vec<(ResourceName, Arc<Status>)>,
    /// The client's own spellings, for names that the client does not spell canonically (NAM-8).
    pub spellings: Option<Arc<Spellings>>,
    /// The variants that a client with dynamic parameters (DYN-7) was told.
    pub located: Option<Arc<Located>>,
    /// The position of the next message in the composition.
    pub chunk: usize,
    /// Set for the messages after the first, in place of the snapshots. Such an answer is not composed again.
    pub rest: Option<Box<Rest>>,
    /// The number of responses on the stream at the start of this answer.
    pub begun: u64,
}

/// One message.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<ResourceName>,
    /// Variants to remove by their constraints (DYN-6).
    pub removed_variants: Vec<(ResourceName, Arc<Constraints>)>,
    /// Delta only: heartbeats of resources, with name, version and TTL (TTL-4).
    pub beats: Vec<Arc<Resource>>,
    /// The remaining TTLs, for resources with a TTL.
    pub ttls: BTreeMap<ResourceName, Duration>,
    /// Unavailable names, and the reasons (ERR-1).
    pub errors: Vec<(ResourceName, Arc<Status>)>,
    /// The version of exactly this content (RLY-31).
    pub version: Version,
}

/// The messages of an answer: none, one, or several.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    pub chunks: Vec<Chunk>,
    /// The EDS names of new and changed clusters. These endpoints must follow, changed or not (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// The views of the client after this answer; empty if they equal the views of the sources.
    pub targets: Vec<Arc<View>>,
    /// The number of resources that the client cannot be sent (RLY-23).
    pub left_out: usize,
    /// The names in each message of several.
    pub told: Arc<[Told]>,
}

impl Composition {
    /// A message never has both the resource and the error of a name (ERR-2), and no second message follows for the
    /// error. So the client does not hold the error, and is not told of its end (ERR-3).
    fn leave_errors_untold(&mut self, answer: &Answer) {
        // A name that stays in the view although the source no longer has the name keeps the errors that the client
        // was told.
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

/// The difference between the views that the client holds and the views that the client should hold, over all parts.
#[derive(Debug, Default)]
pub(super) struct News {
    /// New and changed resources by name, each name once (SST-8, DEL-16).
    pub(super) put: BTreeMap<ResourceName, Arc<Resource>>,
    /// Names whose removal a delta client must be told.
    pub(super) removed: BTreeSet<ResourceName>,
    /// A resource of the client is gone.
    lost: bool,
    /// Some name is newly known to be absent.
    told_absent: bool,
}

impl News {
    /// A complete set of resources, by the names under which they are wanted.
    pub(super) fn complete(put: BTreeMap<ResourceName, Arc<Resource>>) -> News {
        let mut all = News { put, ..News::default() };
        all.by_own_name();
        all
    }

    /// Merges the entries of a resource with several wanted aliases, or with a wanted alias and its own name (SST-8,
    /// DEL-16).
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
        // Without parts, only the type separates answers of different types.
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

    /// Whether some content is from before the restart of the relay, and not confirmed since (RLY-7, I14).
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

    /// This answer with other views in place of the views of the sources.
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

    /// Compares the client's views with the views that the client should hold, over all parts. A name that is wanted
    /// by itself and by the wildcard is one resource to the client: its own subscription decides, and the wildcard
    /// decides if the subscription has no resource (SUB-12, DEL-22).
    fn news(&self) -> News {
        // In SotW, `departed` has refused names only, and their absence is known at once.
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
                // Names that the client kept because absence could not be told (SST-6) go with the first complete
                // set.
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

    /// Whether the client keeps its resource under a name of a part while the part's source does not know the name.
    /// If the wildcard or a glob supplies the name, the client is sent the supplied resource (SUB-12).
    pub fn leaves(&self, part: &AnswerPart, name: &ResourceName) -> bool {
        let is_named = |part: &AnswerPart| matches!(part.interest, Interest::Names(_));
        let is_supplied = || self.parts.iter().any(|other| !is_named(other) && other.view.has(name));
        part.interest.covers(name) && !(is_named(part) && is_supplied())
    }

    /// The resource behind a name that is or was an alias. Clients hold the resource under its own name (ALI-1).
    fn aliased(&self, alias: &ResourceName) -> Option<&Arc<Aliased>> {
        self.parts.iter().find_map(|part| part.snapshot.of(&self.type_url)?.aliases.get(alias))
    }

    /// The former resources of an alias that moved to another resource (ALI-2), unless a view still covers the
    /// resource.
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

    /// Whether the answer tells the client of removals (SST-6).
    pub fn deletes(&self) -> bool {
        self.full || self.variant == Variant::Delta
    }

    /// The resource under a name. The last part with the name decides, because names come after the wildcard.
    pub(super) fn body(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
        let (types, leaving) = (part.snapshot.of(&self.type_url)?, part.interest.leaving());
        if planted(Bug::LastBytesPreferred) && types.departed(leaving, name).is_some() {
            return types.departed(leaving, name);
        }
        // A name that stays in the view although the source no longer has the name keeps its last bytes.
        types.body(leaving, name).or_else(|| types.departed(leaving, name))
    }

    /// The complete set in one message (SST-12); empty if nothing changed.
    fn full_state(&self, news: &News, asides: &Asides) -> Vec<Chunk> {
        // If every name is known to be absent, an empty response says so (SST-14).
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

    /// Whether the wildcard or a glob may contain the name. The source does not know yet.
    pub fn may_have(&self, name: &ResourceName) -> bool {
        let is_open = match &self.interest {
            Interest::Wildcard => !self.view.is_complete(),
            Interest::Globs(_) => self.interest.covers(name) && !self.view.knows_gone(name),
            Interest::Names(_) => false,
        };
        is_open && !self.view.has(name)
    }

    /// Whether the name was requested, and the source does not know yet if the name exists (RLY-2).
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
        // The name, a tag and a length.
        let chunk = open(&mut chunks, &mut bytes, name.as_str().len() + 8);
        chunk.removed.push(name);
    }
    chunks
}

/// The message for `size` more bytes: the last message, or a new message if the last is full.
pub(super) fn open<'a>(chunks: &'a mut Vec<Chunk>, bytes: &mut usize, size: usize) -> &'a mut Chunk {
    if chunks.is_empty() || *bytes + size > CHUNK_BYTES {
        *bytes = 0;
        chunks.push(Chunk::default());
    }
    *bytes += size;
    let last = chunks.len() - 1;
    &mut chunks[last]
}
