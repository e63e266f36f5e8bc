//! The resource behind an alias, and earlier resources behind the same alias (ALI-2).

use std::collections::{BTreeMap, BTreeSet};

use sluice_xds::{Resource, ResourceName, Version};

/// The number of remembered earlier names and versions. A client that is further behind may be told of
/// removals more than once.
const REMEMBERED: usize = 8;

/// The resource behind a name that is or was an alias. Exists as long as the name is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aliased {
    /// The name of the resource itself.
    name: ResourceName,
    /// The recent versions of the resource, newest last.
    versions: Vec<Version>,
    /// The names of earlier resources behind the alias, each with its last version.
    earlier: Vec<(ResourceName, Version)>,
}

impl Aliased {
    pub fn new(resource: &Resource) -> Aliased {
        Aliased { name: resource.name.clone(), versions: vec![resource.version], earlier: Vec::new() }
    }

    /// The alias answers this resource now.
    pub fn answer(&mut self, resource: &Resource) {
        if self.name != resource.name {
            let left = std::mem::replace(&mut self.name, resource.name.clone());
            let last = self.versions.last().copied().unwrap_or_default();
            self.earlier.retain(|(name, _)| *name != left && *name != self.name);
            self.earlier.push((left, last));
            self.versions.clear();
        }
        self.versions.push(resource.version);
        self.versions.drain(..self.versions.len().saturating_sub(REMEMBERED));
        self.earlier.drain(..self.earlier.len().saturating_sub(REMEMBERED));
    }

    /// Adds the resources behind the alias at another server, which may have served the client.
    pub fn add_earlier(&mut self, there: &Aliased) {
        let current_there = there.versions.iter().map(|version| (there.name.clone(), *version));
        let mut earlier: Vec<_> = there.earlier.iter().cloned().chain(current_there).collect();
        let is_here = |name: &ResourceName| self.earlier.iter().any(|(earlier, _)| earlier == name);
        earlier.retain(|(name, _)| *name != self.name && !is_here(name));
        earlier.append(&mut self.earlier);
        self.earlier = earlier;
    }

    /// The name under which clients hold the resource.
    pub fn name(&self) -> &ResourceName {
        &self.name
    }

    /// Whether the alias has, or had, the resource in this version.
    pub fn has(&self, version: Version) -> bool {
        self.versions.contains(&version) || self.earlier.iter().any(|(_, last)| *last == version)
    }

    /// The earlier names under which a client may hold a resource, given the client's version of the alias.
    pub fn left_behind(&self, held: Version) -> impl Iterator<Item = &ResourceName> {
        let is_current = self.versions.contains(&held);
        let since = self.earlier.iter().position(|(_, version)| *version == held).unwrap_or_default();
        self.earlier.iter().skip(since).filter(move |_| !is_current).map(|(name, _)| name)
    }
}

/// The aliases that present resources list. Empty as long as nobody uses aliases.
///
/// A resource may be held before anyone requests its alias, and the server may be out of reach then. A client
/// that requests the alias keeps the resource for it, so the relay has to know the same (ALI-1).
#[derive(Debug, Default)]
pub struct ListedAliases {
    /// Each alias, with the names under which the resources are held.
    names: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Name of a resource → the aliases that the resource answers by its list alone.
    unanswered: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
}

impl ListedAliases {
    /// A resource is held under `name` from now on, or no longer. Variants for dynamic parameters do not
    /// count, since an alias without parameters requests none of them.
    pub fn note(&mut self, name: &ResourceName, resource: &Resource, is_held: bool) {
        if resource.aliases.is_empty() || resource.constraints.is_some() || name.is_located() {
            return;
        }
        for alias in resource.aliases.iter().filter(|alias| *alias != name) {
            match is_held {
                true => drop(self.names.entry(alias.clone()).or_default().insert(name.clone())),
                false => take(&mut self.names, alias, name),
            }
        }
    }

    /// A name under which a resource with this alias is held.
    pub fn find(&self, alias: &ResourceName) -> Option<&ResourceName> {
        self.names.get(alias)?.first()
    }

    /// The resource answers the alias until the server does.
    pub fn answer(&mut self, alias: &ResourceName, resource: &Resource) {
        self.unanswered.entry(resource.name.clone()).or_default().insert(alias.clone());
    }

    /// The server has answered for the alias, or nobody requests it any more. `name`: the resource of the
    /// alias.
    pub fn end_answer(&mut self, alias: &ResourceName, name: &ResourceName) {
        if !self.unanswered.is_empty() {
            take(&mut self.unanswered, name, alias);
        }
    }

    /// Whether some alias has a resource by its list alone.
    pub fn has_followers(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The aliases that get the new content of a resource by its list alone.
    pub fn followers(&self, name: &ResourceName) -> Vec<ResourceName> {
        self.unanswered.get(name).into_iter().flatten().cloned().collect()
    }
}

fn take(from: &mut BTreeMap<ResourceName, BTreeSet<ResourceName>>, key: &ResourceName, name: &ResourceName) {
    if let Some(names) = from.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            from.remove(key);
        }
    }
}
