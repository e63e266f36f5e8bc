//! The types and names of these worlds: members of two globs, names of the old style, their aliases, and the globs.

use std::sync::Arc;

use bytes::Bytes;
use sluice_xds::{Any, Resource, ResourceName, TypeUrl, Version};

use crate::rng::mix;

pub const TYPES: usize = 3;
/// The only type with aliases.
pub const VHDS: usize = 1;

const MESSAGES: [&str; TYPES] = [
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.route.v3.VirtualHost",
    "envoy.config.route.v3.RouteConfiguration",
];

pub const SHORT: [&str; TYPES] = ["EDS", "VHDS", "RDS"];

/// Anything that a request can list: the names of resources first, then aliases and globs.
pub const NAMES: usize = 9;
pub const ALIASES: std::ops::Range<usize> = 9..12;
pub const GLOBS: std::ops::Range<usize> = 12..14;
pub const LISTED: usize = 14;

const WORDS: [&str; LISTED] =
    ["g/a", "g/b", "g/c", "h/a", "h/b", "p", "q", "r", "s", "x", "y", "z", "g/*", "h/*"];

/// The names of resources that have aliases.
pub const WITH_ALIASES: std::ops::Range<usize> = 5..NAMES;

pub type Mask = u32;

pub fn bit(listed: usize) -> Mask {
    1 << listed
}

pub fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..LISTED).filter(move |listed| mask & bit(*listed) != 0)
}

/// The glob that has the name.
pub fn glob_of(name: usize) -> Option<usize> {
    match name {
        0..3 => Some(GLOBS.start),
        3..5 => Some(GLOBS.start + 1),
        _ => None,
    }
}

pub fn members(glob: usize) -> impl Iterator<Item = usize> {
    (0..NAMES).filter(move |name| glob_of(*name) == Some(glob))
}

/// Names of the authority have a server of their own.
pub fn server_of(listed: usize) -> usize {
    usize::from(listed < WITH_ALIASES.start || GLOBS.contains(&listed))
}

pub struct Names {
    pub types: [TypeUrl; TYPES],
    pub words: [[ResourceName; LISTED]; TYPES],
}

impl Names {
    pub fn new() -> Names {
        let word = |ty: usize, listed: usize| match server_of(listed) {
            0 => ResourceName::new(WORDS[listed]),
            _ => ResourceName::from(format!("xdstp://auth/{}/{}", MESSAGES[ty], WORDS[listed])),
        };
        Names {
            types: MESSAGES.map(TypeUrl::of_message),
            words: std::array::from_fn(|ty| std::array::from_fn(|listed| word(ty, listed))),
        }
    }

    pub fn type_of(&self, url: &str) -> usize {
        self.types.iter().position(|own| own.as_str() == url).unwrap_or_default()
    }

    pub fn mask_of<'a>(&self, ty: usize, names: impl IntoIterator<Item = &'a ResourceName>) -> Mask {
        let find = |name: &ResourceName| self.words[ty].iter().position(|own| own == name);
        names.into_iter().filter_map(find).fold(0, |mask, listed| mask | bit(listed))
    }

    pub fn list(&self, ty: usize, mask: Mask) -> Vec<ResourceName> {
        bits(mask).map(|listed| self.words[ty][listed].clone()).collect()
    }

    /// A resource whose bytes state type, name and edition.
    pub fn resource(&self, ty: usize, name: usize, edition: u32, aliases: Mask) -> Arc<Resource> {
        let mut bytes = vec![ty as u8, name as u8];
        bytes.extend(edition.to_le_bytes());
        Arc::new(Resource {
            name: self.words[ty][name].clone(),
            version: version(ty, name, edition),
            body: Any { type_url: self.types[ty].shared(), value: Bytes::from(bytes) },
            aliases: self.list(ty, aliases).into(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        })
    }
}

pub fn version(ty: usize, name: usize, edition: u32) -> Version {
    let low = mix(u64::from(edition) << 16 | (ty * NAMES + name) as u64);
    Version(u128::from(mix(low)) << 64 | u128::from(low))
}

/// Type, name and edition.
pub fn read(resource: &Resource) -> (usize, usize, u32) {
    let bytes = &resource.body.value;
    let edition = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
    (usize::from(bytes[0]), usize::from(bytes[1]), edition)
}

pub fn show(mask: Mask) -> String {
    bits(mask).map(|listed| WORDS[listed]).collect::<Vec<_>>().join(" ")
}
