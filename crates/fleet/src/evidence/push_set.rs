//! The content of a push: the changes between two snapshots of each source (TRU-1).

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::rollout::shared::{ChangeHash, UnitChanges, UnitKey};
use sluice_engine::cache::{CachedBodies, CachedResource, Known, Names};
use sluice_engine::collection::Collection;
use sluice_engine::downstream::SourceId;
use sluice_engine::gated::{Gated, flows};
use sluice_engine::snapshot::{GlobsSnapshot, Snapshot, TypeSnapshot};
use sluice_xds::{Resource, ResourceName, TypeUrl, Version};

/// The sources of a push, by source.
#[derive(Debug, Default)]
pub struct PushSet {
    units: Vec<PushUnit>,
}

/// One source before and with a push.
#[derive(Debug)]
pub struct PushUnit {
    pub source: SourceId,
    /// The number of the source's latest change before the push, and with the push.
    pub after_change: u64,
    pub last_change: u64,
    pub types: Vec<PushType>,
}

/// One type of a source in a push.
#[derive(Debug)]
pub struct PushType {
    pub type_url: TypeUrl,
    members: Vec<PushedName>,
    glob_members: Vec<PushedName>,
    names: Vec<PushedName>,
    /// The type as a whole, before the push and with the push.
    pub before: Extent,
    pub after: Extent,
}

/// The number and the size of the resources of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub resources: usize,
    pub bytes: usize,
}

/// A name whose known content a push changes. A resource that flows is in no push (WAV-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedName {
    pub name: ResourceName,
    /// `None`: the name was known to have no resource.
    pub before: Option<Arc<Resource>>,
    /// `None`: the resource is gone.
    pub after: Option<Arc<Resource>>,
}

impl PushedName {
    pub fn version(&self) -> Option<Version> {
        self.after.as_ref().map(|resource| resource.version)
    }

    pub fn version_before(&self) -> Option<Version> {
        self.before.as_ref().map(|resource| resource.version)
    }

    /// Whether a plan holds the change, so that it makes a push. The lanes have the same rule.
    fn is_held(&self) -> bool {
        self.version() != self.version_before()
            && !self.before.iter().chain(&self.after).any(|resource| flows(resource))
    }
}

impl PushSet {
    pub fn new(mut units: Vec<PushUnit>) -> PushSet {
        units.sort_by_key(|unit| unit.source);
        PushSet { units }
    }

    pub fn units(&self) -> &[PushUnit] {
        &self.units
    }

    /// The contents that the push brings.
    pub fn contents(&self) -> impl Iterator<Item = (&TypeUrl, &ResourceName, Version)> {
        let types = self.units.iter().flat_map(|unit| &unit.types);
        types.flat_map(|part| {
            part.names().filter_map(|name| Some((&part.type_url, &name.name, name.version()?)))
        })
    }

    /// The changes of one type at one source.
    pub(super) fn find(&self, source: SourceId, type_url: &TypeUrl) -> Option<(&PushUnit, &PushType)> {
        let unit = &self.units[self.units.binary_search_by_key(&source, |unit| unit.source).ok()?];
        Some((unit, unit.types.iter().find(|pushed| pushed.type_url == *type_url)?))
    }
}

impl PushUnit {
    /// The changes of known content between two snapshots of a source. The first answer for a name is no
    /// change.
    pub fn between(source: SourceId, before: &Snapshot, after: &Snapshot, gated: &Gated) -> PushUnit {
        let of_both = before.gated_types(gated).filter_map(|(url, types)| Some((url, types, after.of(url)?)));
        let types = of_both.map(|(url, before, after)| PushType::between(url, before, after));
        PushUnit {
            source,
            after_change: before.last_change(),
            last_change: after.last_change(),
            types: types.filter(|pushed| !pushed.is_empty()).collect(),
        }
    }

    /// The changes, as other replicas compare them (LDG-3).
    pub fn shared(&self, unit: UnitKey) -> UnitChanges {
        let changes = self.types.iter().flat_map(|part| part.names().map(move |name| (&part.type_url, name)));
        let changes =
            changes.map(|(type_url, name)| ChangeHash::new(unit, type_url, &name.name, name.version()));
        UnitChanges { unit, changes: changes.collect() }
    }

    /// Whether [`PushUnit::between`] has any change. Ends with the first.
    pub fn differs(before: &Snapshot, after: &Snapshot, gated: &Gated) -> bool {
        let mut of_both = before.gated_types(gated).filter_map(|(url, types)| Some((types, after.of(url)?)));
        of_both.any(|(before, after)| {
            members(before, after).next().is_some()
                || glob_members(&before.globs, &after.globs).next().is_some()
                || names(&before.names.entries, &after.names.entries).next().is_some()
        })
    }

    /// Whether a plan has to compare its contents after a publication. While lanes hold content back, a first
    /// answer counts, too: a class that slept may return to other content than its lanes have. The end of a
    /// hold counts without a change of content: the source may have forgotten the names. `held`, `holds`: the
    /// lanes hold content back before, and now.
    pub fn concerns(before: &Snapshot, after: &Snapshot, held: bool, holds: bool, gated: &Gated) -> bool {
        let is_same = |url: &TypeUrl, after: &TypeSnapshot| {
            before.of(url).is_some_and(|before| before.holds_the_same(after))
        };
        let is_touched = || after.gated_types(gated).any(|(url, after)| !is_same(url, after));
        match (held, holds) {
            (_, true) => is_touched(),
            (true, false) => true,
            (false, false) => PushUnit::differs(before, after, gated),
        }
    }

    /// Whether a snapshot does not know some name of the push: the source forgot the name, as nobody asks for
    /// it.
    pub fn is_forgotten_by(&self, snapshot: &Snapshot) -> bool {
        let is_forgotten = |pushed: &PushType| {
            snapshot.of(&pushed.type_url).is_none_or(|types| pushed.is_forgotten_by(types))
        };
        self.types.iter().any(is_forgotten)
    }

    /// Whether the push has this change of its source.
    pub(super) fn has_change(&self, number: u64) -> bool {
        number > self.after_change && number <= self.last_change
    }
}

impl PushType {
    fn between(type_url: &TypeUrl, before: &TypeSnapshot, after: &TypeSnapshot) -> PushType {
        PushType {
            type_url: type_url.clone(),
            members: members(before, after).collect(),
            glob_members: glob_members(&before.globs, &after.globs).collect(),
            names: names(&before.names.entries, &after.names.entries).collect(),
            before: Extent::of(before),
            after: Extent::of(after),
        }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.glob_members.is_empty() && self.names.is_empty()
    }

    fn is_forgotten_by(&self, types: &TypeSnapshot) -> bool {
        let is_known = |pushed: &PushedName| {
            types.names.entries.get(&pushed.name).is_some_and(|state| !matches!(state, Known::Unknown))
        };
        !self.members.is_empty() && !is_complete(types)
            || !self.glob_members.iter().all(|pushed| knows_globs_of(&types.globs, &pushed.name))
            || !self.names.iter().all(is_known)
    }

    /// All changed names, by kind of collection.
    pub fn names(&self) -> impl Iterator<Item = &PushedName> {
        self.members.iter().chain(&self.glob_members).chain(&self.names)
    }

    /// The changed names of a collection.
    pub(super) fn names_of(&self, collection: &Collection, mut each: impl FnMut(&PushedName)) {
        match collection {
            Collection::Wildcard => self.members.iter().for_each(each),
            Collection::Globs(_) => {
                self.glob_members.iter().filter(|pushed| collection.covers(&pushed.name)).for_each(each);
            }
            Collection::Names(names) if names.len() < self.names.len() => {
                for name in names.iter() {
                    if let Ok(index) = self.names.binary_search_by(|pushed| pushed.name.cmp(name)) {
                        each(&self.names[index]);
                    }
                }
            }
            Collection::Names(names) => {
                self.names.iter().filter(|pushed| names.contains(&pushed.name)).for_each(each);
            }
        }
    }
}

impl Extent {
    /// Takes time proportional to the number of names outside of the wildcard.
    fn of(types: &TypeSnapshot) -> Extent {
        let named = types.names.entries.values().filter_map(Known::resource);
        let members = types.globs.members.values().map(|cached| &cached.resource);
        let (resources, bytes) =
            types.wildcard.view.as_ref().map_or((0, 0), |view| (view.len(), view.bytes()));
        members.chain(named).fold(Extent { resources, bytes }, |sum, resource| Extent {
            resources: sum.resources + 1,
            bytes: sum.bytes + resource.size(),
        })
    }
}

/// The changed names among those with a known state in both. A name without a state is not subscribed, or not
/// answered.
fn names<'a>(before: &'a Names, after: &'a Names) -> impl Iterator<Item = PushedName> + 'a {
    let is_known = |state: &Known| !matches!(state, Known::Unknown);
    let changed = before.diff(after).filter_map(move |item| match item {
        DiffItem::Update { old: (name, old), new: (_, new) } if is_known(old) && is_known(new) => {
            Some(PushedName {
                name: name.clone(),
                before: old.resource().cloned(),
                after: new.resource().cloned(),
            })
        }
        DiffItem::Add(..) | DiffItem::Remove(..) | DiffItem::Update { .. } => None,
    });
    changed.filter(PushedName::is_held)
}

fn members<'a>(before: &'a TypeSnapshot, after: &'a TypeSnapshot) -> impl Iterator<Item = PushedName> + 'a {
    let (was_known, is_known) = (is_complete(before), is_complete(after));
    let (before, after) = (&before.wildcard.members, &after.wildcard.members);
    changed_members(before, after, move |_| was_known, move |_| is_known)
}

fn glob_members<'a>(
    before: &'a GlobsSnapshot,
    after: &'a GlobsSnapshot,
) -> impl Iterator<Item = PushedName> + 'a {
    let was_known = move |name: &_| knows_globs_of(before, name);
    let is_known = move |name: &_| knows_globs_of(after, name);
    changed_members(&before.members, &after.members, was_known, is_known)
}

fn is_complete(types: &TypeSnapshot) -> bool {
    types.wildcard.is_whole()
}

fn knows_globs_of(globs: &GlobsSnapshot, name: &ResourceName) -> bool {
    name.glob().is_some_and(|glob| globs.sets.values().any(|set| set.view.knows_glob(&glob)))
}

/// Members come and go only where the membership is known, before and after.
fn changed_members<'a>(
    before: &'a CachedBodies,
    after: &'a CachedBodies,
    was_known: impl Fn(&ResourceName) -> bool + 'a,
    is_known: impl Fn(&ResourceName) -> bool + 'a,
) -> impl Iterator<Item = PushedName> + 'a {
    let body = |cached: &CachedResource| Some(cached.resource.clone());
    let changed = before.diff(after).filter_map(move |item| match item {
        DiffItem::Add(name, new) => was_known(name).then(|| (name, None, body(new))),
        DiffItem::Update { old: (name, old), new: (_, new) } => Some((name, body(old), body(new))),
        DiffItem::Remove(name, old) => is_known(name).then(|| (name, body(old), None)),
    });
    let pushed = changed.map(|(name, before, after)| PushedName { name: name.clone(), before, after });
    pushed.filter(PushedName::is_held)
}
