//! The few types and names of the schedules, and contents that identify their origin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_xds::{Any, Kind, Resource, ResourceName, TypeUrl, Version};

use super::rng::mix;

pub const TYPES: usize = 5;
pub const CDS: usize = 0;
pub const EDS: usize = 1;
pub const LDS: usize = 2;
pub const RDS: usize = 3;
pub const SDS: usize = 4;

const MESSAGES: [&str; TYPES] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];

pub const SHORT: [&str; TYPES] = ["CDS", "EDS", "LDS", "RDS", "SDS"];

/// The names of all worlds are `a` to `f` of the old style, and `x` to `z` of the authority `auth`. Large
/// worlds add `A` to `P`, also of the old style.
pub const OLD: usize = 6;
pub const FEW: usize = 9;
pub const NAMES: usize = 25;
pub const AUTHORITY: &str = "auth";

const LETTERS: &str = "abcdefxyzABCDEFGHIJKLMNOP";

/// A set of names.
pub type Mask = u32;
pub const ALL_FEW: Mask = (1 << FEW) - 1;
pub const ALL_OLD: Mask = ALL & !(ALL_FEW & !((1 << OLD) - 1));
pub const ALL: Mask = (1 << NAMES) - 1;

/// The content of a resource: its maker (the upper eight bits) and its edition. Zero: nothing.
pub type Content = u32;

/// Larger than any edition.
const OTHER_CLASS: Content = 1 << 23;

pub fn content(maker: usize, edition: u32) -> Content {
    ((maker as u32 + 1) << 24) | (edition & 0xff_ffff)
}

pub fn maker(content: Content) -> usize {
    (content >> 24) as usize - 1
}

pub fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    let mut left = mask & ALL;
    std::iter::from_fn(move || {
        let next = (left != 0).then_some(left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        next
    })
}

pub fn bit(name: usize) -> Mask {
    1 << name
}

/// Server lists: the default list for old-style names, the authority's list for the others.
pub fn list_of(name: usize) -> usize {
    usize::from(!is_old(name))
}

/// Whether wildcards can include the name.
pub fn is_old(name: usize) -> bool {
    ALL_OLD & bit(name) != 0
}

/// The name with this number among those of a set.
pub fn nth(mask: Mask, number: u64) -> usize {
    bits(mask).nth(number as usize).unwrap_or_default()
}

/// The number of names, for a draw.
pub fn count(mask: Mask) -> u64 {
    u64::from(mask.count_ones())
}

pub fn names_of_list(list: usize) -> Mask {
    if list == 1 { ALL & !ALL_OLD } else { ALL_OLD }
}

pub fn is_full_state(ty: usize) -> bool {
    ty == CDS || ty == LDS
}

pub fn is_cluster_side(ty: usize) -> bool {
    ty == CDS || ty == EDS
}

pub fn is_routing(ty: usize) -> bool {
    ty == LDS || ty == RDS
}

/// Whether a cluster with this content has its endpoints from EDS (ORD-5).
pub fn has_endpoints(content: Content) -> bool {
    !content.is_multiple_of(4)
}

/// The words in the engine's form.
pub struct Lexicon {
    pub types: [TypeUrl; TYPES],
    pub names: [[ResourceName; NAMES]; TYPES],
    pub star: ResourceName,
}

impl Lexicon {
    pub fn new() -> Lexicon {
        let name = |ty: usize, name: usize| match name {
            0..OLD | FEW.. => ResourceName::new(&LETTERS[name..=name]),
            _ => {
                let letter = &LETTERS[name..=name];
                ResourceName::from(format!("xdstp://{AUTHORITY}/{}/{letter}", MESSAGES[ty]))
            }
        };
        Lexicon {
            types: MESSAGES.map(TypeUrl::of_message),
            names: std::array::from_fn(|ty| std::array::from_fn(|index| name(ty, index))),
            star: ResourceName::new("*"),
        }
    }

    /// The number of a type.
    pub fn type_of(&self, url: &TypeUrl) -> usize {
        match url.kind() {
            Kind::Cluster => CDS,
            Kind::ClusterLoadAssignment => EDS,
            Kind::Listener => LDS,
            Kind::RouteConfiguration => RDS,
            _ => SDS,
        }
    }

    /// The number of a name; `None` if the name is unknown here.
    pub fn name_of(&self, name: &ResourceName) -> Option<usize> {
        let text = name.as_str().as_bytes();
        let index = match text {
            [letter @ b'a'..=b'f'] => usize::from(letter - b'a'),
            [letter @ b'A'..=b'P'] => usize::from(letter - b'A') + FEW,
            [b'x', b'd', .., b'/', letter @ b'x'..=b'z'] => usize::from(letter - b'x') + OLD,
            _ => return None,
        };
        Some(index)
    }

    pub fn mask_of<'a>(&self, names: impl IntoIterator<Item = &'a ResourceName>) -> Mask {
        names.into_iter().filter_map(|name| self.name_of(name)).fold(0, |mask, name| mask | bit(name))
    }

    pub fn list(&self, ty: usize, mask: Mask) -> Vec<ResourceName> {
        bits(mask).map(|name| self.names[ty][name].clone()).collect()
    }

    /// A resource whose bytes state type, name, class and server (I3), and the name in the first field.
    pub fn resource(
        &self,
        ty: usize,
        name: usize,
        class: usize,
        content: Content,
        ttl: Option<Duration>,
    ) -> Arc<Resource> {
        let [a, b, c, d] = content.to_le_bytes();
        let mut bytes = vec![0x12, 7, ty as u8, name as u8, class as u8, a, b, c, d];
        let text = self.names[ty][name].as_str().as_bytes();
        bytes.extend([0x0a, text.len() as u8]);
        bytes.extend(text);
        let has_endpoints = ty == CDS && has_endpoints(content);
        Arc::new(Resource {
            name: self.names[ty][name].clone(),
            version: version(ty, name, class, content),
            body: Any { type_url: self.types[ty].shared(), value: Bytes::from(bytes) },
            aliases: Box::default(),
            ttl,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: has_endpoints.then(|| self.names[EDS][name].clone()),
            constraints: None,
        })
    }
}

pub fn version(ty: usize, name: usize, class: usize, content: Content) -> Version {
    let place = ((ty * NAMES + name) * 8 + class) as u64;
    let low = mix(u64::from(content) << 16 | place);
    Version(u128::from(mix(low)) << 64 | u128::from(low))
}

/// Type, name, class and content, read from the bytes.
pub fn read(resource: &Resource) -> (usize, usize, usize, Content) {
    let bytes = &resource.body.value[2..];
    let content = Content::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
    (usize::from(bytes[0]), usize::from(bytes[1]), usize::from(bytes[2]), content)
}

/// The content of a client that moved from the other class: no source of its class ever had this content.
/// Applied twice, the original.
pub fn of_other_class(content: Content) -> Content {
    if content == 0 { 0 } else { content ^ OTHER_CLASS }
}

/// The class that a client's content comes from, and the content there.
pub fn at_home(class: usize, content: Content) -> (usize, Content) {
    if content & OTHER_CLASS == 0 { (class, content) } else { (1 - class, content ^ OTHER_CLASS) }
}

/// `a b x`
pub fn show(mask: Mask) -> String {
    let letters: Vec<_> = bits(mask).map(|name| &LETTERS[name..=name]).collect();
    letters.join(" ")
}

/// `1:7`: the seventh edition of the second maker.
pub fn show_content(content: Content) -> String {
    if content & OTHER_CLASS != 0 {
        format!("{} of the other class", show_content(content ^ OTHER_CLASS))
    } else if content == 0 {
        "-".to_owned()
    } else {
        format!("{}:{}", maker(content), content & 0xff_ffff)
    }
}
