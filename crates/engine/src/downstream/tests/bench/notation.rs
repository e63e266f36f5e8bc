//! The notation of the tests for names, resources and versions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use sluice_xds::{Any, Resource, ResourceName, TypeUrl, Version};

pub const CDS: &str = "envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "envoy.config.listener.v3.Listener";
pub const RDS: &str = "envoy.config.route.v3.RouteConfiguration";
pub const SRDS: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
pub const VHDS: &str = "envoy.config.route.v3.VirtualHost";
pub const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

pub fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

/// `xdstp:a` is the name `a` of the `xdstp:` scheme and of this type (NAM-5).
pub fn name_of(message: &str, name: &str) -> ResourceName {
    match name.strip_prefix("xdstp:").filter(|rest| !rest.starts_with("//")) {
        Some(rest) => ResourceName::from(format!("xdstp://-/{message}/{rest}")),
        None => ResourceName::new(if name == "''" { "" } else { name }),
    }
}

/// A name in the notation of the tests.
pub fn short(message: &str, name: &ResourceName) -> String {
    name.as_str().replace(&format!("xdstp://-/{message}/"), "xdstp:")
}

pub fn names(list: &str) -> Vec<ResourceName> {
    names_of("", list)
}

pub fn names_of(message: &str, list: &str) -> Vec<ResourceName> {
    list.split_whitespace().map(|name| name_of(message, name)).collect()
}

/// `a|x|y` has the name `a` and the aliases `x` and `y`. `content~1000` is 1000 bytes larger. `content@30`
/// has a TTL of 30 seconds. A cluster with a content that begins with `e` is an EDS cluster.
pub fn resource(message: &str, name: &str, content: &str) -> Arc<Resource> {
    let (content, ttl) = content.split_once('@').map_or((content, None), |(text, ttl)| (text, Some(ttl)));
    let (text, padding) = content.split_once('~').unwrap_or((content, "0"));
    let mut value = text.as_bytes().to_vec();
    let padding: usize = padding.parse().unwrap();
    if padding > 0 {
        value.resize(value.len() + padding, b'~');
    }
    let mut hasher = std::hash::DefaultHasher::new();
    let mut names = name.split('|').map(|name| name_of(message, name));
    let name = names.next().unwrap();
    let aliases: Box<[ResourceName]> = names.collect();
    (message, name.as_str(), text).hash(&mut hasher);
    Arc::new(Resource {
        name: name.clone(),
        version: Version(u128::from(hasher.finish()) << 32 | 1),
        body: Any { type_url: url(message).shared(), value: Bytes::from(value) },
        aliases,
        ttl: ttl.map(|seconds| Duration::from_secs(seconds.parse().unwrap())),
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: (message == CDS && content.starts_with('e')).then(|| name_of(EDS, &short(CDS, &name))),
        constraints: None,
    })
}

pub fn version_of(message: &str, list: &str) -> Version {
    resources(message, list).iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// `a=1 b=2`
pub fn resources(message: &str, list: &str) -> Vec<Arc<Resource>> {
    let words = list.split_whitespace().filter_map(|word| word.rsplit_once('='));
    words.map(|(name, content)| resource(message, name, content)).collect()
}
