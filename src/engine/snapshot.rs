//! Snapshots: the content of a source at one moment, immutable and cheap to share.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::cache::Known;
use super::cache::aliased::Aliased;
use super::collection::{Collection, NameSet, SetId};
use super::planted::{Bug, planted};
use super::reach::Reach;
use super::remarks::Remarks;
use super::view::View;
use crate::engine::collection::CollectionKind;
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Resources by name, sorted, persistent.
pub type Bodies = OrdMap<ResourceName, Arc<Resource>>;

/// Names and their states, sorted, persistent.
pub type Names = OrdMap<ResourceName, Known>;

/// A watched set, and its view.
#[derive(Clone, Debug)]
pub struct WatchedSet {
    pub names: Arc<NameSet>,
    pub view: Arc<View>,
}

/// The current parts of a type that is not current as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    pub wildcard: bool,
    pub globs: bool,
    /// The names from before the stream that the server has not answered yet; `None` if the server has answered no
    /// name.
    pub unanswered: Option<OrdSet<ResourceName>>,
}

impl Answered {
    pub(super) fn says_anything(&self) -> bool {
        self.wildcard || self.globs || self.unanswered.is_some()
    }

    /// Like `==`, but quick for shared names.
    pub(super) fn is_same(&self, other: &Answered) -> bool {
        let is_shared = match (&self.unanswered, &other.unanswered) {
            (Some(own), Some(others)) => own.ptr_eq(others) || own.len() == others.len() && own == others,
            (own, others) => own.is_none() && others.is_none(),
        };
        (self.wildcard, self.globs) == (other.wildcard, other.globs) && is_shared
    }

    /// Whether a part became current since `before`.
    pub(super) fn says_more(&self, before: Option<&Answered>) -> bool {
        let Some(before) = before else { return true };
        let has_more_names = match (&self.unanswered, &before.unanswered) {
            (Some(own), Some(before)) => own.len() < before.len(),
            (own, before) => own.is_some() && before.is_none(),
        };
        has_more_names || self.wildcard && !before.wildcard || self.globs && !before.globs
    }

    fn has(&self, collection: &Collection) -> bool {
        let names = match collection {
            Collection::Wildcard => return self.wildcard,
            Collection::Globs(_) => return self.globs,
            Collection::Names(names) => names,
        };
        self.unanswered.as_ref().is_some_and(|unanswered| match unanswered.len() < names.len() {
            true => !unanswered.iter().any(|name| names.contains(name)),
            false => !names.iter().any(|name| unanswered.contains(name)),
        })
    }
}

/// One type of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TypeSnapshot {
    /// The server has answered for this type since the last loss: the resources are at least as new (I9).
    pub is_current: bool,
    /// The current part of a type that is not current as a whole. Only sources in lists of several servers have it.
    pub answered: Option<Arc<Answered>>,
    /// Whether the server can be heard for this type, where each type has streams of its own (RLY-40).
    pub reach: Option<Reach>,
    pub named: Names,
    /// The names that are or were an alias of a resource (ALI-2).
    pub aliases: OrdMap<ResourceName, Arc<Aliased>>,
    pub sets: OrdMap<SetId, WatchedSet>,
    pub members: Bodies,
    /// `None` while no session watches the wildcard.
    pub wildcard: Option<Arc<View>>,
    /// The members of all watched globs; each name is in one glob.
    pub glob_members: Bodies,
    pub glob_sets: OrdMap<SetId, WatchedSet>,
    /// The last bytes of absent names, and of former members of the wildcard and of globs.
    pub departed_names: Bodies,
    pub departed_members: Bodies,
    pub departed_glob_members: Bodies,
    /// Changes whenever last bytes are freed.
    pub evicted: u64,
    /// Errors and leases of names, globs and members of globs. The wildcard's view has the remarks of its
    /// members.
    pub remarks: Remarks,
    pub glob_remarks: Remarks,
    /// Some resources are from before a restart of the relay, and not confirmed by the server (I14).
    pub restored: bool,
}

impl TypeSnapshot {
    /// Whether the server answered for the whole collection on its present stream, so that a session may return
    /// (RLY-44). Names that were requested later are UNKNOWN until their answer.
    pub fn is_current_for(&self, collection: &Collection) -> bool {
        self.is_current || self.answered.as_ref().is_some_and(|answered| answered.has(collection))
    }

    /// The body behind a name of a view of this snapshot.
    pub fn body(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        match kind {
            CollectionKind::Wildcard => self.members.get(name),
            CollectionKind::Globs => self.glob_members.get(name),
            CollectionKind::Names => self.named.get(name)?.resource(),
        }
    }

    /// The last bytes under a name that left a view.
    pub fn departed(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        match kind {
            CollectionKind::Wildcard => self.departed_members.get(name),
            CollectionKind::Globs => self.departed_glob_members.get(name),
            CollectionKind::Names => self.departed_names.get(name),
        }
    }

    /// Another server supplied missing names of a set.
    pub(super) fn stand_in(
        &mut self,
        collection: &Collection,
        stand_ins: Vec<(ResourceName, Arc<Resource>)>,
    ) {
        let Collection::Names(names) = collection else { return };
        if stand_ins.is_empty() {
            return;
        }
        let Some(set) = self.sets.get_mut(&names.id()) else { return };
        set.view = Arc::new(set.view.with_stand_ins(&stand_ins));
        // For the source the names are absent. So the bytes are stored as last bytes of departed names.
        self.departed_names.extend(stand_ins);
    }

    /// Adds last bytes from the snapshot of another server. `mark` distinguishes these bytes from the
    /// source's own evictions.
    pub(super) fn keep_last(
        &mut self,
        kind: CollectionKind,
        lasts: Vec<(ResourceName, Arc<Resource>)>,
        mark: u64,
    ) {
        if lasts.is_empty() {
            return;
        }
        self.evicted = u64::MAX - 1 - mark;
        let departed = match kind {
            CollectionKind::Wildcard => &mut self.departed_members,
            CollectionKind::Globs => &mut self.departed_glob_members,
            CollectionKind::Names => &mut self.departed_names,
        };
        for (name, resource) in lasts {
            departed.entry(name).or_insert(resource);
        }
    }

    /// Identifies the content of [`TypeSnapshot::departed`] for the names that a view lacks; 0 if there are
    /// no last bytes.
    pub fn last_bytes(&self) -> u64 {
        let all = [&self.departed_names, &self.departed_members, &self.departed_glob_members];
        if all.iter().all(|bodies| bodies.is_empty()) { 0 } else { self.evicted + 1 }
    }

    /// Whether two snapshots share their resources and agree on the completeness of the wildcard. The check
    /// compares pointers: false may be returned for equal content.
    pub fn holds_the_same(&self, other: &TypeSnapshot) -> bool {
        let is_whole = |snapshot: &TypeSnapshot| snapshot.wildcard.as_ref().map(|view| view.is_complete());
        let same = |one: &Bodies, other: &Bodies| one.ptr_eq(other) || one.is_empty() && other.is_empty();
        let same_names = self.named.ptr_eq(&other.named) || self.named.is_empty() && other.named.is_empty();
        same_names
            && is_whole(self) == is_whole(other)
            && same(&self.members, &other.members)
            && same(&self.glob_members, &other.glob_members)
    }

    /// The names of a collection, in the copy that all equal collections share.
    pub fn names(&self, collection: &Collection) -> Option<&Arc<NameSet>> {
        let sets = match collection {
            Collection::Wildcard => return None,
            Collection::Globs(_) => &self.glob_sets,
            Collection::Names(_) => &self.sets,
        };
        Some(&sets.get(&collection.names()?.id())?.names)
    }

    /// The view of a collection; `None` until the source has processed the collection.
    pub fn view(&self, collection: &Collection) -> Option<&Arc<View>> {
        match collection {
            Collection::Wildcard => self.wildcard.as_ref(),
            Collection::Globs(globs) => self.glob_sets.get(&globs.id()).map(|set| &set.view),
            Collection::Names(names) => {
                let any = || self.sets.values().next().filter(|_| planted(Bug::SetsMixedUp));
                self.sets.get(&names.id()).or_else(any).map(|set| &set.view)
            }
        }
    }
}

/// All types of one source. Cloning copies a few pointers per type.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    reach: Reach,
    types: BTreeMap<TypeUrl, TypeSnapshot>,
}

impl Snapshot {
    /// Whether the server can be heard.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Whether the server can be heard for a type.
    pub fn reach_of(&self, type_url: &TypeUrl) -> &Reach {
        self.of(type_url).and_then(|types| types.reach.as_ref()).unwrap_or(&self.reach)
    }

    pub(super) fn set_reach(&mut self, reach: Reach) {
        self.reach = reach;
    }

    pub(super) fn of_mut(&mut self, type_url: &TypeUrl) -> Option<&mut TypeSnapshot> {
        self.types.get_mut(type_url)
    }

    pub fn of(&self, type_url: &TypeUrl) -> Option<&TypeSnapshot> {
        self.types.get(type_url)
    }

    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, &TypeSnapshot)> {
        self.types.iter()
    }

    /// As [`TypeSnapshot::holds_the_same`], for all types.
    pub fn holds_the_same(&self, other: &Snapshot) -> bool {
        let pairs = || self.types.iter().zip(&other.types);
        self.types.len() == other.types.len()
            && pairs()
                .all(|((one_url, one), (other_url, other))| one_url == other_url && one.holds_the_same(other))
    }

    pub(super) fn replace(&mut self, type_url: &TypeUrl, snapshot: TypeSnapshot) {
        self.types.insert(type_url.clone(), snapshot);
    }

    pub(super) fn remove(&mut self, type_url: &TypeUrl) {
        self.types.remove(type_url);
    }
}
