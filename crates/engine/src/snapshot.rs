//! Snapshots: the content and the standing of a source at one moment, immutable and cheap to share.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, OrdSet};

use super::annotations::{Annotations, Lease};
use super::cache::aliased::Aliased;
use super::cache::slots::WatchedSet;
use super::cache::state::EntryState;
use super::cache::{Bodies, CachedBodies, CachedResource, Names, UnaskedNames};
use super::collection::{Collection, CollectionKind, SetId};
use super::gated::{Gated, Refused};
use super::reachability::Reachability;
use super::view::{PERHAPS, View};
use sluice_xds::{Resource, ResourceName, Status, TypeUrl, Version};

/// The current parts of a type that is not current as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnsweredParts {
    pub wildcard: bool,
    pub globs: bool,
    /// The names from before the stream that the server has not answered yet; `None`: no name is answered.
    pub unanswered: Option<OrdSet<ResourceName>>,
}

impl AnsweredParts {
    pub(super) fn says_anything(&self) -> bool {
        self.wildcard || self.globs || self.unanswered.is_some()
    }

    /// Like `==`, but quick for shared names.
    pub(super) fn is_same(&self, other: &AnsweredParts) -> bool {
        let is_shared = match (&self.unanswered, &other.unanswered) {
            (Some(names), Some(other_names)) => {
                names.ptr_eq(other_names) || names.len() == other_names.len() && names == other_names
            }
            (names, other_names) => names.is_none() && other_names.is_none(),
        };
        (self.wildcard, self.globs) == (other.wildcard, other.globs) && is_shared
    }

    /// Whether a part became current since `before`.
    pub(super) fn says_more(&self, before: Option<&AnsweredParts>) -> bool {
        let Some(before) = before else { return true };
        let has_more_names = match (&self.unanswered, &before.unanswered) {
            (Some(names), Some(before)) => names.len() < before.len(),
            (names, before) => names.is_some() && before.is_none(),
        };
        has_more_names || self.wildcard && !before.wildcard || self.globs && !before.globs
    }

    fn has(&self, collection: &Collection) -> bool {
        let Some(names) = collection.named() else {
            return if collection.kind() == CollectionKind::Globs { self.globs } else { self.wildcard };
        };
        self.unanswered.as_ref().is_some_and(|unanswered| match unanswered.len() < names.len() {
            true => !unanswered.iter().any(|name| names.contains(name)),
            false => !names.iter().any(|name| unanswered.contains(name)),
        })
    }
}

/// How a source stands towards its server: whether the server can be heard, and whether the content is
/// current. The content is the same in any standing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    reach: Reachability,
    types: ByType<TypeStanding>,
}

impl Standing {
    /// Whether the server can be heard.
    pub fn reach(&self) -> &Reachability {
        &self.reach
    }

    /// Whether the server can be heard for a type.
    pub fn reach_of(&self, type_url: &TypeUrl) -> &Reachability {
        self.of(type_url).and_then(|standing| standing.reach.as_ref()).unwrap_or(&self.reach)
    }

    /// The standing of a type with content.
    pub fn of(&self, type_url: &TypeUrl) -> Option<&TypeStanding> {
        self.types.get(type_url)
    }

    pub(super) fn set_reach(&mut self, reach: Reachability) {
        self.reach = reach;
    }

    pub(super) fn of_mut(&mut self, type_url: &TypeUrl) -> Option<&mut TypeStanding> {
        self.types.get_mut(type_url)
    }
}

/// How a source stands for one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeStanding {
    /// The server has answered for this type since the last loss: the resources are at least as new (I9).
    pub is_current: bool,
    /// The current part of a type that is not current as a whole, for sources in lists of several servers.
    pub answered: Option<Arc<AnsweredParts>>,
    /// Whether the server can be heard for this type, where each type has streams of its own (RLY-40).
    pub reach: Option<Reachability>,
    /// Some resources are from before a restart of the relay, and not confirmed by the server (I14).
    pub restored: bool,
    /// The wildcard counts as whole by the end of the first answers, and may have more members (ADR 52).
    pub is_provisional: bool,
}

impl TypeStanding {
    /// Whether the server answered for the whole collection on its present stream, so that a session may
    /// return (RLY-44). Names that were requested later are UNKNOWN until their answer.
    pub fn is_current_for(&self, collection: &Collection) -> bool {
        self.is_current || self.answered.as_ref().is_some_and(|answered| answered.has(collection))
    }
}

/// The parts of a snapshot, by type. There may be thousands of sources, most with few types, and a node of a
/// tree has places for eleven.
#[derive(Clone, Debug, PartialEq)]
struct ByType<T>(Vec<(TypeUrl, T)>);

impl<T> Default for ByType<T> {
    fn default() -> Self {
        ByType(Vec::new())
    }
}

impl<T> ByType<T> {
    fn place(&self, type_url: &TypeUrl) -> Result<usize, usize> {
        self.0.binary_search_by(|(listed, _)| listed.cmp(type_url))
    }

    fn get(&self, type_url: &TypeUrl) -> Option<&T> {
        let (_, part) = self.0.get(self.place(type_url).ok()?)?;
        Some(part)
    }

    fn get_mut(&mut self, type_url: &TypeUrl) -> Option<&mut T> {
        let place = self.place(type_url).ok()?;
        self.0.get_mut(place).map(|(_, part)| part)
    }

    fn get_or_insert(&mut self, type_url: &TypeUrl, new: impl FnOnce() -> T) -> &mut T {
        let place = self.place(type_url).unwrap_or_else(|place| {
            self.0.reserve_exact(1);
            self.0.insert(place, (type_url.clone(), new()));
            place
        });
        &mut self.0[place].1
    }

    fn remove(&mut self, type_url: &TypeUrl) {
        self.0.retain(|(listed, _)| listed != type_url);
    }

    fn iter(&self) -> impl Iterator<Item = (&TypeUrl, &T)> {
        self.0.iter().map(|(type_url, part)| (type_url, part))
    }
}

/// The content of one type: a part for each kind of collection.
#[derive(Clone, Debug, Default)]
pub struct TypeSnapshot {
    pub names: NamesSnapshot,
    pub globs: GlobsSnapshot,
    pub wildcard: WildcardSnapshot,
    /// Changes whenever last bytes are freed.
    pub evicted: u64,
    /// In lanes of a held type: last bytes by version. A client is sent the bytes of its own version, or
    /// bytes that everybody may have (WAV-9).
    pub lasts: Option<Arc<LastVersions>>,
}

/// The last bytes of the releases of a source, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastVersions(pub BTreeMap<CollectionKind, BTreeMap<ResourceName, Vec<LastVersion>>>);

/// The bytes of one release.
#[derive(Clone, Debug)]
pub struct LastVersion {
    pub resource: Arc<Resource>,
    /// Everybody may have these bytes.
    pub is_open: bool,
}

impl PartialEq for LastVersion {
    fn eq(&self, other: &LastVersion) -> bool {
        self.resource.version == other.resource.version && self.is_open == other.is_open
    }
}

/// The names from subscriptions one by one.
#[derive(Clone, Debug, Default)]
pub struct NamesSnapshot {
    pub entries: Names,
    /// The names that are or were an alias of a resource (ALI-2).
    pub aliases: OrdMap<ResourceName, Arc<Aliased>>,
    pub sets: OrdMap<SetId, WatchedSet>,
    /// The last bytes of absent names.
    pub departed: Bodies,
    /// Errors and leases of names.
    pub annotations: Annotations,
    pub unasked: Option<Arc<UnaskedNames>>,
}

impl NamesSnapshot {
    /// Whether the resource of this name is here, under the name itself or under an alias.
    pub fn has_own(&self, name: &ResourceName) -> bool {
        let is_here = self.entries.get(name).is_some_and(|entry| entry.resource().is_some());
        is_here || self.by_alias(name, |_| true).is_some()
    }

    /// The resource of this name, if the server has brought it under one of these aliases (ALI-1).
    pub fn by_alias(
        &self,
        name: &ResourceName,
        is_chosen: impl Fn(&ResourceName) -> bool,
    ) -> Option<&Arc<Resource>> {
        let mut aliases =
            self.aliases.iter().filter(|(alias, aliased)| aliased.name() == name && is_chosen(alias));
        aliases.find_map(|(alias, _)| self.entries.get(alias)?.resource())
    }
}

/// The members of all watched globs.
#[derive(Clone, Debug, Default)]
pub struct GlobsSnapshot {
    /// Each name is in one glob.
    pub members: CachedBodies,
    /// The globs with complete membership.
    pub complete: OrdSet<ResourceName>,
    pub sets: OrdMap<SetId, WatchedSet>,
    /// The last bytes of former members.
    pub departed: Bodies,
    /// Errors and leases of globs and members.
    pub annotations: Annotations,
}

/// The members of the wildcard.
#[derive(Clone, Debug, Default)]
pub struct WildcardSnapshot {
    pub members: CachedBodies,
    /// The view has the errors and leases of members, too. `None` while no session watches the wildcard.
    pub view: Option<Arc<View>>,
    /// The last bytes of former members.
    pub departed: Bodies,
}

impl WildcardSnapshot {
    /// Whether sessions watch the wildcard, and all of its members are known (RLY-5).
    pub fn is_whole(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_complete())
    }
}

/// One name, or one member, in the content of a type.
#[derive(Debug)]
pub struct SnapshotEntry<'a> {
    pub kind: CollectionKind,
    pub name: &'a ResourceName,
    pub cached: Option<&'a CachedResource>,
    pub state: EntryState,
    pub error: Option<&'a Arc<Status>>,
    pub lease: Option<&'a Lease>,
}

impl TypeSnapshot {
    /// All resources, a few of them twice.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let members = self.wildcard.members.values().chain(self.globs.members.values());
        let named = self.names.entries.values().filter_map(|state| state.cached());
        members.chain(named).map(|cached| &cached.resource)
    }

    /// The body behind a name of a view of this snapshot.
    pub fn body(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.cached(kind, name).map(|cached| &cached.resource)
    }

    /// The body behind a name of a view of this snapshot, with the time of its arrival.
    pub fn cached(&self, kind: CollectionKind, name: &ResourceName) -> Option<&CachedResource> {
        match kind {
            CollectionKind::Wildcard => self.wildcard.members.get(name),
            CollectionKind::Globs => self.globs.members.get(name),
            CollectionKind::Names => self.names.entries.get(name)?.cached(),
        }
    }

    /// The entry of a name, or of a member.
    pub fn entry<'a>(&'a self, kind: CollectionKind, name: &'a ResourceName) -> Option<SnapshotEntry<'a>> {
        let (cached, annotations) = (self.cached(kind, name), self.annotations(kind));
        let named = (!kind.is_broad()).then(|| self.names.entries.get(name));
        let state = match named.flatten() {
            Some(entry) => EntryState::of(entry, name, &self.names.annotations),
            None if cached.is_none() => return None,
            None => {
                annotations.map_or(EntryState::Acked, |annotations| EntryState::of_member(name, annotations))
            }
        };
        let error = annotations.and_then(|annotations| annotations.error(name));
        let lease = annotations.and_then(|annotations| annotations.lease(name));
        Some(SnapshotEntry { kind, name, cached, state, error, lease })
    }

    /// The first entry of a kind behind a name.
    pub fn entry_behind(
        &self,
        kind: CollectionKind,
        last: Option<&ResourceName>,
    ) -> Option<SnapshotEntry<'_>> {
        let range = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let members = match kind {
            CollectionKind::Wildcard => &self.wildcard.members,
            CollectionKind::Globs => &self.globs.members,
            CollectionKind::Names => {
                let (name, _) = self.names.entries.range::<_, ResourceName>(range).next()?;
                return self.entry(kind, name);
            }
        };
        self.entry(kind, members.range::<_, ResourceName>(range).next()?.0)
    }

    /// Errors and leases; `None` while no session watches the wildcard.
    fn annotations(&self, kind: CollectionKind) -> Option<&Annotations> {
        match kind {
            CollectionKind::Wildcard => Some(self.wildcard.view.as_ref()?.annotations()),
            CollectionKind::Globs => Some(&self.globs.annotations),
            CollectionKind::Names => Some(&self.names.annotations),
        }
    }

    /// The last bytes under a name that left a view.
    pub fn departed(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.departed_bodies(kind).get(name)
    }

    /// The last bytes under a name for a client that holds the name in a version. Where releases are held,
    /// the bytes of other versions may be of a push that the client must not have (WAV-9): the client gets
    /// the bytes of its own version, or bytes that everybody may have. A client that only may have the name
    /// is told that the name is gone.
    pub fn departed_as(
        &self,
        kind: CollectionKind,
        name: &ResourceName,
        held: impl FnOnce() -> Option<Version>,
    ) -> Option<&Arc<Resource>> {
        let last = self.departed(kind, name);
        let Some(lasts) = &self.lasts else { return last };
        let held = held();
        let is_held = |resource: &&Arc<Resource>| Some(resource.version) == held;
        let versions = || lasts.0.get(&kind).and_then(|names| names.get(name)).into_iter().flatten();
        let of_client = || versions().map(|version| &version.resource).find(is_held);
        let open = || {
            versions()
                .find(|version| version.is_open && held != Some(PERHAPS))
                .map(|version| &version.resource)
        };
        last.filter(is_held).or_else(of_client).or_else(open)
    }

    pub(super) fn departed_bodies(&self, kind: CollectionKind) -> &Bodies {
        match kind {
            CollectionKind::Wildcard => &self.wildcard.departed,
            CollectionKind::Globs => &self.globs.departed,
            CollectionKind::Names => &self.names.departed,
        }
    }

    pub(super) fn departed_bodies_mut(&mut self, kind: CollectionKind) -> &mut Bodies {
        match kind {
            CollectionKind::Wildcard => &mut self.wildcard.departed,
            CollectionKind::Globs => &mut self.globs.departed,
            CollectionKind::Names => &mut self.names.departed,
        }
    }

    fn sets(&self, kind: CollectionKind) -> Option<&OrdMap<SetId, WatchedSet>> {
        match kind {
            CollectionKind::Wildcard => None,
            CollectionKind::Globs => Some(&self.globs.sets),
            CollectionKind::Names => Some(&self.names.sets),
        }
    }

    /// Another server supplied missing names of a set.
    pub(super) fn stand_in(&mut self, collection: &Collection, supplied: Vec<(ResourceName, Arc<Resource>)>) {
        let Some(names) = collection.named() else { return };
        if supplied.is_empty() {
            return;
        }
        let Some(set) = self.names.sets.get_mut(&names.id()) else { return };
        set.view = Arc::new(set.view.with_stand_ins(&supplied));
        for (name, resource) in &supplied {
            if let Some(aliased) = self.names.aliases.get_mut(name) {
                Arc::make_mut(aliased).answer(resource);
            } else if *name != resource.name {
                self.names.aliases.insert(name.clone(), Arc::new(Aliased::new(resource)));
            }
        }
        // For the source the names are absent. So the bytes are stored as last bytes of departed names.
        self.names.departed.extend(supplied);
    }

    /// A name of a collection with this content counts as unknown.
    pub(super) fn withhold(&mut self, collection: &Collection, name: &ResourceName, version: Version) {
        let body = self.body(collection.kind(), name).filter(|body| body.version == version);
        let Some(resource) = body.cloned() else { return };
        let Some(view) = self.view_mut(collection).filter(|view| view.has(name)) else { return };
        *view = Arc::new(view.withholding(name, &resource));
    }

    /// Adds the resources behind aliases at another server, which a client may hold because of the aliases
    /// (ALI-2).
    pub(super) fn add_aliases(&mut self, collection: &Collection, there: &TypeSnapshot) {
        let Some(names) = collection.named() else { return };
        for (alias, aliased) in there.names.aliases.iter().filter(|(alias, _)| names.contains(alias)) {
            match self.names.aliases.get_mut(alias) {
                Some(here) => Arc::make_mut(here).add_earlier(aliased),
                None => drop(self.names.aliases.insert(alias.clone(), aliased.clone())),
            }
        }
    }

    /// Adds last bytes from the snapshot of another server. `mark` distinguishes the bytes from the source's
    /// own evictions.
    pub(super) fn keep_last(
        &mut self,
        kind: CollectionKind,
        lasts: Vec<(ResourceName, LastVersion)>,
        mark: u64,
    ) {
        if lasts.is_empty() {
            return;
        }
        self.evicted = u64::MAX - 1 - mark;
        let departed = self.departed_bodies_mut(kind);
        for (name, last) in &lasts {
            departed.entry(name.clone()).or_insert_with(|| last.resource.clone());
        }
        if let Some(versions) = &mut self.lasts {
            let names = Arc::make_mut(versions).0.entry(kind).or_default();
            for (name, last) in lasts {
                names.entry(name).or_default().push(last);
            }
        }
    }

    /// Identifies the content of [`TypeSnapshot::departed`] for the names that a view lacks; 0 without last
    /// bytes.
    pub fn last_bytes(&self) -> u64 {
        let is_empty = |kind| self.departed_bodies(kind).is_empty();
        if CollectionKind::ALL.into_iter().all(is_empty) { 0 } else { self.evicted + 1 }
    }

    /// Whether two snapshots share their resources and agree on the completeness of the wildcard. False may
    /// be returned for equal content.
    pub fn holds_the_same(&self, other: &TypeSnapshot) -> bool {
        let is_whole = |types: &TypeSnapshot| types.wildcard.view.as_ref().map(|view| view.is_complete());
        is_shared(&self.names.entries, &other.names.entries)
            && is_whole(self) == is_whole(other)
            && is_shared(&self.wildcard.members, &other.wildcard.members)
            && is_shared(&self.globs.members, &other.globs.members)
    }

    /// Whether sessions find the same in two snapshots. False may be returned for equal content.
    fn reads_the_same(&self, other: &TypeSnapshot) -> bool {
        let is_same_view = |one: &Arc<View>, other: &Arc<View>| Arc::ptr_eq(one, other) || one.is_same(other);
        let has_same_views = |kind| {
            let (Some(sets), Some(other_sets)) = (self.sets(kind), other.sets(kind)) else { return true };
            sets.diff(other_sets).all(|item| match item {
                DiffItem::Update { old: (_, one), new: (_, other) } => is_same_view(&one.view, &other.view),
                DiffItem::Add(..) | DiffItem::Remove(..) => false,
            })
        };
        let has_same_lasts = |kind| is_shared(self.departed_bodies(kind), other.departed_bodies(kind));
        let has_same_members = match (&self.wildcard.view, &other.wildcard.view) {
            (Some(view), Some(other_view)) => is_same_view(view, other_view),
            (view, other_view) => view.is_none() && other_view.is_none(),
        };
        has_same_members
            && self.holds_the_same(other)
            && self.evicted == other.evicted
            && is_shared(&self.names.aliases, &other.names.aliases)
            && CollectionKind::ALL.into_iter().all(|kind| has_same_lasts(kind) && has_same_views(kind))
    }

    /// A set of names, in the copy that all equal sets share, and its view.
    pub fn watched(&self, collection: &Collection) -> Option<&WatchedSet> {
        let (sets, names) = (self.sets(collection.kind())?, collection.names()?);
        sets.get(&names.id())
    }

    /// The view of a collection; `None` until the source has processed the collection.
    pub fn view(&self, collection: &Collection) -> Option<&Arc<View>> {
        match collection {
            Collection::Wildcard => self.wildcard.view.as_ref(),
            _ => self.watched(collection).map(|set| &set.view),
        }
    }

    fn view_mut(&mut self, collection: &Collection) -> Option<&mut Arc<View>> {
        let (sets, names) = match collection {
            Collection::Wildcard => return self.wildcard.view.as_mut(),
            Collection::Globs(names) => (&mut self.globs.sets, names),
            Collection::Names(names) => (&mut self.names.sets, names),
        };
        sets.get_mut(&names.id()).map(|set| &mut set.view)
    }
}

fn is_shared<K: Ord, V>(one: &OrdMap<K, V>, other: &OrdMap<K, V>) -> bool {
    one.ptr_eq(other) || one.is_empty() && other.is_empty()
}

/// The release that a snapshot serves, where pushes go by steps (WAV-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneMark {
    /// Counts the releases of the source. A session whose snapshots name another release than before moves
    /// from lane to lane (WAV-9). 0 before the first push.
    pub release: u64,
    /// For the candidate: its push.
    pub push: Option<u64>,
}

/// A source at one moment: its content by type, and its standing towards the server. Cloning copies a few
/// pointers per type.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    lane: LaneMark,
    standing: Standing,
    /// The number of the source's latest change of content.
    last_change: u64,
    types: ByType<TypeSnapshot>,
    /// The contents for clients without other content only (WAV-22). Nearly always none.
    refused: Option<Arc<Refused>>,
}

impl Snapshot {
    /// The release that this snapshot serves.
    pub fn lane(&self) -> LaneMark {
        self.lane
    }

    /// The same standing with other content.
    pub fn with_types(&self, types: BTreeMap<TypeUrl, TypeSnapshot>, lane: LaneMark) -> Snapshot {
        let (standing, types) = (self.standing.clone(), ByType(types.into_iter().collect()));
        Snapshot { lane, standing, last_change: self.last_change, types, refused: None }
    }

    /// The contents that are not sent to a client with other content under the names.
    pub fn refused(&self) -> Option<&Arc<Refused>> {
        self.refused.as_ref()
    }

    /// Marks contents that a plan refuses, for clients with other content.
    pub fn refuse(&mut self, refused: Arc<Refused>) {
        self.refused = Some(refused);
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The number of the source's latest change of content; 0 if there was none.
    pub fn last_change(&self) -> u64 {
        self.last_change
    }

    pub(super) fn set_last_change(&mut self, number: u64) {
        self.last_change = number;
    }

    pub(super) fn standing_mut(&mut self) -> &mut Standing {
        &mut self.standing
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

    /// The types whose changes make pushes.
    pub fn gated_types(&self, gated: &Gated) -> impl Iterator<Item = (&TypeUrl, &TypeSnapshot)> {
        self.types().filter(|(type_url, _)| gated.contains(type_url))
    }

    /// Whether sessions find the same release, standing and content in both. False may be returned for equal
    /// content.
    pub(super) fn reads_the_same(&self, other: &Snapshot) -> bool {
        self.lane == other.lane
            && self.agrees(other, TypeSnapshot::reads_the_same)
            && self.standing == other.standing
            && self.refused == other.refused
    }

    /// As [`TypeSnapshot::holds_the_same`], for all types.
    pub fn holds_the_same(&self, other: &Snapshot) -> bool {
        self.agrees(other, TypeSnapshot::holds_the_same)
    }

    fn agrees(&self, other: &Snapshot, is_same: fn(&TypeSnapshot, &TypeSnapshot) -> bool) -> bool {
        let mut pairs = self.types.iter().zip(other.types.iter());
        self.types.0.len() == other.types.0.len()
            && pairs.all(|((url, types), (other_url, other))| url == other_url && is_same(types, other))
    }

    /// Replaces the content of a type. The standing stays, apart from `restored`.
    pub(super) fn replace(&mut self, type_url: &TypeUrl, snapshot: TypeSnapshot, restored: bool) {
        self.renew(type_url, snapshot);
        self.standing.types.get_or_insert(type_url, TypeStanding::default).restored = restored;
    }

    /// Replaces the content of a type by equal content.
    pub(super) fn renew(&mut self, type_url: &TypeUrl, snapshot: TypeSnapshot) {
        *self.types.get_or_insert(type_url, TypeSnapshot::default) = snapshot;
    }

    pub(super) fn remove(&mut self, type_url: &TypeUrl) {
        self.types.remove(type_url);
        self.standing.types.remove(type_url);
    }
}
