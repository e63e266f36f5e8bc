//! The wanted resources of one type.

use std::collections::BTreeMap;

use super::api::{ResourceSelection, Resumed};
use super::globs::Globs;
use super::names::{HeldResource, WantedNames};
use super::wildcard::Wildcard;
use crate::collection::CollectionKind;
use crate::commons::{Commons, ContentKey};
use sluice_xds::ResourceName;

/// The wanted resources of a type: the wildcard, globs or names, never two of the three.
#[derive(Debug, Default)]
pub(super) enum Want {
    #[default]
    Nothing,
    Names(WantedNames),
    Wildcard(Wildcard),
    Globs(Globs),
}

pub(super) fn star() -> ResourceName {
    ResourceName::new("*")
}

impl Want {
    pub(super) fn new(kind: CollectionKind) -> Want {
        match kind {
            CollectionKind::Wildcard => Want::Wildcard(Wildcard::default()),
            CollectionKind::Globs => Want::Globs(Globs::default()),
            CollectionKind::Names => Want::Names(WantedNames::default()),
        }
    }

    /// Adds a name, or a glob. Returns whether the name is new.
    pub(super) fn insert(&mut self, name: ResourceName) -> bool {
        match self {
            Want::Names(names) => names.insert(name),
            Want::Globs(globs) => globs.insert(name),
            Want::Nothing | Want::Wildcard(_) => false,
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Want::Nothing)
    }

    pub(super) fn is_names(&self) -> bool {
        matches!(self, Want::Names(_))
    }

    /// `None` if nothing is wanted.
    pub(super) fn kind(&self) -> Option<CollectionKind> {
        match self {
            Want::Nothing => None,
            Want::Names(_) => Some(CollectionKind::Names),
            Want::Wildcard(_) => Some(CollectionKind::Wildcard),
            Want::Globs(_) => Some(CollectionKind::Globs),
        }
    }

    /// The names from subscriptions one by one.
    pub(super) fn names(&self) -> Option<&WantedNames> {
        if let Want::Names(names) = self { Some(names) } else { None }
    }

    /// Returns true if all of the selection is wanted already.
    pub(super) fn has(&self, selection: &ResourceSelection) -> bool {
        match (self, selection) {
            (Want::Wildcard(_), ResourceSelection::Wildcard) => true,
            (Want::Names(wanted_names), ResourceSelection::Names(names)) => {
                names.iter().all(|name| wanted_names.contains(name))
            }
            _ => false,
        }
    }

    /// The number of names or globs; for a wildcard, the number of held members.
    pub(super) fn len(&self) -> usize {
        match self {
            Want::Nothing => 0,
            Want::Names(names) => names.len(),
            Want::Globs(globs) => globs.len(),
            Want::Wildcard(wildcard) => wildcard.members.len(),
        }
    }

    /// The names, or the names of the globs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        let (names, globs) = match self {
            Want::Names(names) => (Some(names), None),
            Want::Globs(globs) => (None, Some(globs)),
            Want::Nothing | Want::Wildcard(_) => (None, None),
        };
        let names = names.into_iter().flat_map(|names| names.iter());
        names.chain(globs.into_iter().flat_map(|globs| globs.iter()))
    }

    /// The complete list of names (SUB-1); `*` for the wildcard.
    pub(super) fn listed(&self) -> Vec<ResourceName> {
        match self {
            Want::Wildcard(_) => vec![star()],
            Want::Nothing | Want::Names(_) | Want::Globs(_) => self.iter().cloned().collect(),
        }
    }

    /// The server's own version strings of held resources (RLY-64), sorted by name.
    pub(super) fn versions(&self, may_have_aliases: bool) -> BTreeMap<ResourceName, String> {
        match self {
            Want::Nothing => BTreeMap::new(),
            Want::Names(names) => names.versions(may_have_aliases),
            Want::Globs(globs) => globs.versions(),
            Want::Wildcard(wildcard) => {
                let held = wildcard.members.iter().filter(|(_, held)| held.restate);
                held.map(|(name, held)| (name.clone(), held.version.to_string())).collect()
            }
        }
    }

    /// The version strings that may be claimed later, by subscribed name. Sorted.
    pub(super) fn claimable_versions(&self) -> Vec<(ResourceName, Box<str>)> {
        let mut versions = Vec::new();
        let mut add = |name: &ResourceName, held: &HeldResource| {
            if held.restate {
                versions.push((name.clone(), (*held.version).into()));
            }
        };
        match self {
            Want::Nothing => {}
            Want::Names(names) => names.held_names().for_each(|(name, held)| add(name, held)),
            Want::Wildcard(wildcard) => wildcard.members.iter().for_each(|(name, held)| add(name, held)),
            Want::Globs(globs) => {
                globs.members().for_each(|(name, held)| add(name, held));
                versions.sort_unstable();
            }
        }
        versions
    }

    pub(super) fn each_held(&mut self, visit: impl FnMut(&ResourceName, &mut HeldResource)) {
        match self {
            Want::Nothing => {}
            Want::Names(names) => names.each_held(visit),
            Want::Globs(globs) => globs.each_held(visit),
            Want::Wildcard(wildcard) => wildcard.each_held(visit),
        }
    }

    /// Takes equal answers of the server to another source over. `content`: the content of the source.
    pub(super) fn share(&mut self, content: ContentKey, commons: &dyn Commons) {
        match self {
            Want::Names(names) => names.share(content, commons),
            Want::Wildcard(wildcard) => wildcard.share(content, commons),
            Want::Globs(_) | Want::Nothing => {}
        }
    }

    /// Restores the resources that were held before the restart of the relay. `restate`: the versions may be
    /// claimed.
    pub(super) fn resume(&mut self, resumed: &Resumed, restate: bool) {
        match (self, resumed) {
            (Want::Names(names), Resumed::Names(list)) => {
                for resource in list {
                    let held = HeldResource::from_former(&resource.version, restate);
                    names.hold(&resource.name, &resource.own_name, held, false);
                }
            }
            (Want::Wildcard(wildcard), Resumed::Wildcard(list)) => {
                wildcard.members.extend(list.iter().map(|resource| {
                    (resource.name.clone(), HeldResource::from_former(&resource.version, restate))
                }));
                // Provisional until the server has answered: a checkpoint is no source of absence.
                wildcard.complete = true;
            }
            (Want::Globs(globs), Resumed::Globs(list)) => {
                for (glob, members) in list {
                    let held = members.iter().map(|resource| {
                        (resource.name.clone(), HeldResource::from_former(&resource.version, restate))
                    });
                    globs.resume(glob, held);
                }
            }
            _ => {}
        }
    }

    /// The time to live of a resource expired (TTL-8).
    pub(super) fn expire(&mut self, name: &ResourceName) {
        match self {
            Want::Names(names) => {
                names.variants.expire(name);
                names.set_absent(name);
            }
            Want::Wildcard(wildcard) => drop(wildcard.remove(name)),
            Want::Globs(globs) => globs.expire(name),
            Want::Nothing => {}
        }
    }

    /// The other variant of the protocol does not know the versions of the present variant.
    pub(super) fn forget_versions(&mut self) {
        self.each_held(|_, held| held.forget_version());
    }

    pub(super) fn end_stream(&mut self) {
        match self {
            Want::Nothing => {}
            Want::Names(names) => names.end_stream(),
            Want::Globs(globs) => globs.end_stream(),
            Want::Wildcard(wildcard) => wildcard.end_stream(),
        }
    }

    /// Returns true if `name` is a wanted name or glob, or the wildcard.
    fn lists(&self, name: &ResourceName) -> bool {
        match self {
            Want::Nothing => false,
            Want::Names(names) => names.contains(name),
            Want::Globs(globs) => globs.contains(name),
            Want::Wildcard(_) => name.is_wildcard(),
        }
    }

    /// `enter` and `leave`: the names that wait for a request.
    pub(super) fn check_invariants<'a>(
        &self,
        mut enter: impl Iterator<Item = &'a ResourceName>,
        mut leave: impl Iterator<Item = &'a ResourceName>,
        is_open: bool,
    ) {
        let is_empty = matches!(self, Want::Names(_) | Want::Globs(_)) && self.len() == 0;
        debug_assert!(!is_empty, "an empty list of names is no want");
        debug_assert!(enter.all(|name| self.lists(name)), "every name that enters is wanted");
        debug_assert!(!leave.any(|name| self.lists(name)), "no name that leaves is wanted");
        if let Want::Names(names) = self {
            names.check_invariants(is_open);
        }
    }

    /// The number of names in the first request: see [`Self::listed`].
    pub(super) fn listed_len(&self) -> usize {
        if let Want::Wildcard(_) = self { 1 } else { self.len() }
    }
}
