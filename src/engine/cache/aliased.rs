//! What an alias answers, and what it answered before (ALI-2).

use crate::xds::{Resource, ResourceName, Version};

/// How many of the former names and versions are remembered. A client that is further behind is told of what is gone once
/// more than it needs to be.
const REMEMBERED: usize = 8;

/// The resource behind a name that is or was an alias, for as long as the name is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aliased {
    /// The resource's own name.
    own: ResourceName,
    /// The versions that it had lately, the newest last.
    versions: Vec<Version>,
    /// The own names of resources that answered before, with the version that each had last.
    former: Vec<(ResourceName, Version)>,
}

impl Aliased {
    pub fn new(resource: &Resource) -> Aliased {
        Aliased { own: resource.name.clone(), versions: vec![resource.version], former: Vec::new() }
    }

    /// The alias answers this resource now.
    pub fn answer(&mut self, resource: &Resource) {
        if self.own != resource.name {
            let own = std::mem::replace(&mut self.own, resource.name.clone());
            let last = self.versions.last().copied().unwrap_or_default();
            self.former.retain(|(name, _)| *name != own && *name != self.own);
            self.former.push((own, last));
            self.versions.clear();
        }
        self.versions.push(resource.version);
        self.versions.drain(..self.versions.len().saturating_sub(REMEMBERED));
        self.former.drain(..self.former.len().saturating_sub(REMEMBERED));
    }

    /// The name under which clients hold the resource.
    pub fn own(&self) -> &ResourceName {
        &self.own
    }

    /// The names under which a client may hold what the alias answered before, if that is what it holds.
    pub fn left_behind(&self, held: Version) -> impl Iterator<Item = &ResourceName> {
        let is_current = self.versions.contains(&held);
        let since = self.former.iter().position(|(_, version)| *version == held).unwrap_or_default();
        self.former.iter().skip(since).filter(move |_| !is_current).map(|(name, _)| name)
    }
}
