//! The contents that a plan gives to nobody who has, or can be given, something else (WAV-22).

use imbl::OrdSet;

use crate::xds::{Resource, ResourceName, TypeUrl, Version};

/// The condemned contents, and the contents of a halted push. A clone shares all contents with the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused(OrdSet<(TypeUrl, ResourceName, Version)>);

impl Refused {
    pub fn of(contents: impl Iterator<Item = (TypeUrl, ResourceName, Version)>) -> Refused {
        Refused(contents.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, type_url: &TypeUrl, resource: &Resource) -> bool {
        self.contains(&(type_url.clone(), resource.name.clone(), resource.version))
    }

    pub fn contains(&self, content: &(TypeUrl, ResourceName, Version)) -> bool {
        self.0.contains(content)
    }

    pub fn iter(&self) -> impl Iterator<Item = &(TypeUrl, ResourceName, Version)> {
        self.0.iter()
    }
}
