//! Snapshots: what a source holds at a moment, immutable and cheap to share.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::cache::Known;
use super::cache::aliased::Aliased;
use super::interest::{Interest, NameSet, SetId};
use super::planted::{Bug, planted};
use super::reach::Reach;
use super::remarks::Remarks;
use super::view::{Leaving, View};
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Resources by name, sorted, persistent.
pub type Bodies = OrdMap<ResourceName, Arc<Resource>>;

/// Names and what is known of each, sorted, persistent.
pub type Names = OrdMap<ResourceName, Known>;

/// A set that somebody watches, and what it amounts to.
#[derive(Clone, Debug)]
pub struct WatchedSet {
    pub names: Arc<NameSet>,
    pub view: Arc<View>,
}

/// What of a type is current although not all of it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    pub wildcard: bool,
    pub globs: bool,
    /// The names that were known before, and of which the server has still to speak; `None` if it has spoken of no name.
    pub unanswered: Option<OrdSet<ResourceName>>,
}

impl Answered {
    pub(super) fn says_anything(&self) -> bool {
        self.wildcard || self.globs || self.unanswered.is_some()
    }

    /// As `==`, and quick where the names are shared.
    pub(super) fn is_same(&self, other: &Answered) -> bool {
        let is_shared = match (&self.unanswered, &other.unanswered) {
            (Some(own), Some(others)) => own.ptr_eq(others) || own.len() == others.len() && own == others,
            (own, others) => own.is_none() && others.is_none(),
        };
        (self.wildcard, self.globs) == (other.wildcard, other.globs) && is_shared
    }

    /// Whether it says something that was not said before.
    pub(super) fn says_more(&self, before: Option<&Answered>) -> bool {
        let Some(before) = before else { return true };
        let has_more_names = match (&self.unanswered, &before.unanswered) {
            (Some(own), Some(before)) => own.len() < before.len(),
            (own, before) => own.is_some() && before.is_none(),
        };
        has_more_names || self.wildcard && !before.wildcard || self.globs && !before.globs
    }

    fn has(&self, interest: &Interest) -> bool {
        let names = match interest {
            Interest::Wildcard => return self.wildcard,
            Interest::Globs(_) => return self.globs,
            Interest::Names(names) => names,
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
    /// The server answered for this type since it was last lost: what is here is no older than that (I9).
    pub is_current: bool,
    /// Where that is not so, what it answered all the same. Only sources that others may stand in for say it.
    pub answered: Option<Arc<Answered>>,
    /// Whether the server can be heard of this type, where each type has streams of its own (RLY-40).
    pub reach: Option<Reach>,
    pub named: Names,
    /// Of names that are or were the alias of a resource (ALI-2).
    pub aliases: OrdMap<ResourceName, Arc<Aliased>>,
    pub sets: OrdMap<SetId, WatchedSet>,
    pub members: Bodies,
    /// `None` while nobody watches the wildcard.
    pub wildcard: Option<Arc<View>>,
    /// The members of all globs that are watched; each name is in one of them.
    pub glob_members: Bodies,
    pub glob_sets: OrdMap<SetId, WatchedSet>,
    /// The last bytes of names that are absent, and of former members of the wildcard and of globs.
    pub departed_names: Bodies,
    pub departed_members: Bodies,
    pub departed_glob_members: Bodies,
    /// Changes whenever some of those bytes are given up.
    pub evicted: u64,
    /// What is said of names, and of globs and their members, beside their content; of members of the wildcard, its view
    /// says it.
    pub remarks: Remarks,
    pub glob_remarks: Remarks,
    /// Some of it is as it was before the relay was restarted, and its server has not spoken since (I14).
    pub restored: bool,
}

impl TypeSnapshot {
    /// The server answered for all of this on its present stream, so that a session may return to it (RLY-44). What it was
    /// asked for later is UNKNOWN until it is answered.
    pub fn is_current_for(&self, interest: &Interest) -> bool {
        self.is_current || self.answered.as_ref().is_some_and(|answered| answered.has(interest))
    }

    /// The body behind a name of a view of this snapshot.
    pub fn body(&self, leaving: Leaving, name: &ResourceName) -> Option<&Arc<Resource>> {
        match leaving {
            Leaving::Wildcard => self.members.get(name),
            Leaving::Globs => self.glob_members.get(name),
            Leaving::Names => self.named.get(name)?.resource(),
        }
    }

    /// The last bytes under a name that left a view.
    pub fn departed(&self, leaving: Leaving, name: &ResourceName) -> Option<&Arc<Resource>> {
        match leaving {
            Leaving::Wildcard => self.departed_members.get(name),
            Leaving::Globs => self.departed_glob_members.get(name),
            Leaving::Names => self.departed_names.get(name),
        }
    }

    /// Names of a set that the source lacks are there all the same: another server supplied them.
    pub(super) fn stand_in(&mut self, interest: &Interest, stand_ins: Vec<(ResourceName, Arc<Resource>)>) {
        let Interest::Names(names) = interest else { return };
        if stand_ins.is_empty() {
            return;
        }
        let Some(set) = self.sets.get_mut(&names.id()) else { return };
        set.view = Arc::new(set.view.with_stand_ins(&stand_ins));
        // What the source knows under these names is that they are absent: their bytes stand with those of names that left.
        self.departed_names.extend(stand_ins);
    }

    /// Last bytes of names that left with another server. `mark` tells them from what this source gave up itself.
    pub(super) fn keep_last(
        &mut self,
        leaving: Leaving,
        lasts: Vec<(ResourceName, Arc<Resource>)>,
        mark: u64,
    ) {
        if lasts.is_empty() {
            return;
        }
        self.evicted = u64::MAX - 1 - mark;
        let departed = match leaving {
            Leaving::Wildcard => &mut self.departed_members,
            Leaving::Globs => &mut self.departed_glob_members,
            Leaving::Names => &mut self.departed_names,
        };
        for (name, resource) in lasts {
            departed.entry(name).or_insert(resource);
        }
    }

    /// Identifies what [`TypeSnapshot::departed`] says of the names that a view lacks; 0 if it has nothing.
    pub fn last_bytes(&self) -> u64 {
        let all = [&self.departed_names, &self.departed_members, &self.departed_glob_members];
        if all.iter().all(|bodies| bodies.is_empty()) { 0 } else { self.evicted + 1 }
    }

    /// Whether the resources are the very ones of another snapshot, and what is known of memberships as well. Without looking
    /// at any of them: false may be said of what is equal.
    pub fn holds_the_same(&self, other: &TypeSnapshot) -> bool {
        let is_whole = |snapshot: &TypeSnapshot| snapshot.wildcard.as_ref().map(|view| view.is_complete());
        let same = |one: &Bodies, other: &Bodies| one.ptr_eq(other) || one.is_empty() && other.is_empty();
        let same_names = self.named.ptr_eq(&other.named) || self.named.is_empty() && other.named.is_empty();
        same_names
            && is_whole(self) == is_whole(other)
            && same(&self.members, &other.members)
            && same(&self.glob_members, &other.glob_members)
    }

    /// The names of an interest, as all share them who have the same.
    pub fn names(&self, interest: &Interest) -> Option<&Arc<NameSet>> {
        let sets = match interest {
            Interest::Wildcard => return None,
            Interest::Globs(_) => &self.glob_sets,
            Interest::Names(_) => &self.sets,
        };
        Some(&sets.get(&interest.names()?.id())?.names)
    }

    /// What an interest amounts to; `None` until the source has taken note of it.
    pub fn view(&self, interest: &Interest) -> Option<&Arc<View>> {
        match interest {
            Interest::Wildcard => self.wildcard.as_ref(),
            Interest::Globs(globs) => self.glob_sets.get(&globs.id()).map(|set| &set.view),
            Interest::Names(names) => {
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

    /// Whether it can be heard of a type.
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

    /// As [`TypeSnapshot::holds_the_same`], of all types.
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
