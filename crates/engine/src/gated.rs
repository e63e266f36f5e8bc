//! The words of plans about content: gated types, resources that flow, and refused contents.

use imbl::OrdSet;

use sluice_xds::{Kind, Resource, ResourceName, TypeUrl, Version};

/// The types whose changes make pushes.
#[derive(Clone, Debug, PartialEq)]
pub enum Gated {
    /// WAV-3: listeners, routes, clusters, extensions and runtime layers, which belong together.
    Default,
    Types(Vec<TypeUrl>),
}

impl Gated {
    pub fn contains(&self, type_url: &TypeUrl) -> bool {
        match self {
            Gated::Default => is_gated_by_default(type_url.kind()),
            Gated::Types(types) => types.contains(type_url),
        }
    }

    /// Whether all types of another choice are certainly among these.
    pub fn includes(&self, other: &Gated) -> bool {
        match other {
            Gated::Types(types) => types.iter().all(|type_url| self.contains(type_url)),
            Gated::Default => *self == Gated::Default,
        }
    }
}

/// Whether a change from or to a resource reaches all clients at once, also of a gated type. A TTL is the
/// server's own word on time, and content that must not be cached has one client (WAV-3).
pub fn flows(resource: &Resource) -> bool {
    resource.ttl.is_some() || resource.do_not_cache
}

fn is_gated_by_default(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Cluster
            | Kind::ClusterCollection
            | Kind::Listener
            | Kind::ListenerCollection
            | Kind::ScopedRouteConfiguration
            | Kind::RouteConfiguration
            | Kind::Runtime
            | Kind::TypedExtensionConfig
    )
}

/// The condemned contents, and the contents of a halted push. A clone shares all contents with the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    contents: OrdSet<(TypeUrl, ResourceName, Version)>,
    /// Relays are refused the contents, too (TIR-1).
    binds_relays: bool,
}

impl Refused {
    pub fn of(contents: impl Iterator<Item = (TypeUrl, ResourceName, Version)>) -> Refused {
        Refused { contents: contents.collect(), binds_relays: false }
    }

    /// The same contents, refused to relays, too.
    pub fn of_relays(&self) -> Refused {
        Refused { binds_relays: true, ..self.clone() }
    }

    /// Whether a client is refused the contents.
    pub fn binds(&self, is_relay: bool) -> bool {
        !is_relay || self.binds_relays
    }

    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    pub fn has(&self, type_url: &TypeUrl, resource: &Resource) -> bool {
        self.contains(&(type_url.clone(), resource.name.clone(), resource.version))
    }

    pub fn contains(&self, content: &(TypeUrl, ResourceName, Version)) -> bool {
        self.contents.contains(content)
    }

    pub fn iter(&self) -> impl Iterator<Item = &(TypeUrl, ResourceName, Version)> {
        self.contents.iter()
    }
}
