//! The resource behind an alias, and earlier resources behind the same alias (ALI-2).

use crate::xds::{Resource, ResourceName, Version};

/// The number of remembered former names and versions. A client that is further behind may be told of
/// removals more than once.
const REMEMBERED: usize = 8;

/// The resource behind a name that is or was an alias. Exists as long as the name is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aliased {
    /// The resource's own name.
    own: ResourceName,
    /// The recent versions of the resource, newest last.
    versions: Vec<Version>,
    /// The own names of former resources behind the alias, each with its last version.
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

    /// The former names under which a client may hold a resource, given the client's version of the alias.
    pub fn left_behind(&self, held: Version) -> impl Iterator<Item = &ResourceName> {
        let is_current = self.versions.contains(&held);
        let since = self.former.iter().position(|(_, version)| *version == held).unwrap_or_default();
        self.former.iter().skip(since).filter(move |_| !is_current).map(|(name, _)| name)
    }
}
