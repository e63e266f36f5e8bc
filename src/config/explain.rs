//! The effect of the class rules on one node, and the server list for each resource, as text for `sluice
//! check --node`.

use std::fmt::Write;

use super::servers::{ServerList, Servers};
use crate::engine::class::{
    IdentityPart, LocalityDepth, MetadataParts, NameStyle, NodeClasses, Projection, UpstreamNode, VersionPart,
};
use crate::engine::fallback::{FallbackSettings, Policy};
use crate::identity::Identity;
use crate::xds::{Node, TypeUrl};

/// Types shown even if no rule names them.
const COMMON: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];

/// One line per type and style of names: the matching rule, and the values that split the node's class.
///
/// Two nodes with the same values (and the same client features) share upstream answers. Metadata values may
/// be confidential, so only their paths are shown.
pub fn explain_classes(classes: &NodeClasses, node: &Node) -> String {
    let mut types: Vec<TypeUrl> = COMMON.iter().map(|message| TypeUrl::of_message(message)).collect();
    types.extend(classes.rules.iter().flat_map(|rule| rule.types.iter().cloned()));
    types.sort();
    types.dedup();
    let mut text = String::new();
    for type_url in types {
        for (style, word) in [(NameStyle::Old, "old"), (NameStyle::Xdstp, "xdstp")] {
            let Some(index) = classes.rules.iter().position(|rule| rule.matches(node, &type_url, style))
            else {
                continue;
            };
            let Some(rule) = classes.rules.get(index) else { continue };
            let parts = describe(&rule.projection_of(&type_url, &Identity::Anonymous), node);
            let legacy =
                if rule.legacy_wildcard { "" } else { " (an empty first request subscribes to nothing)" };
            let errors =
                if rule.resource_errors_alone { " (counts resource_errors as an answer)" } else { "" };
            let told = match rule.upstream_node {
                UpstreamNode::Projection => "",
                UpstreamNode::Template(_) => " (the server sees the template)",
                UpstreamNode::Member => " (the server sees the node of one client)",
            };
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "{:<28} {word:<6} rule {:<3} client_features {parts}{legacy}{errors}{told}",
                type_url.short(),
                index + 1
            );
        }
    }
    text
}

/// One line per server list: the resources that the list is responsible for, and its servers.
pub fn explain_servers(servers: &Servers) -> String {
    let mut text = String::new();
    let mut line = |list: &str, of: &str, servers: &ServerList| {
        let uris: Vec<&str> = servers.servers.iter().map(|server| server.server_uri.as_str()).collect();
        let rules = match (&servers.fallback, uris.len()) {
            (_, 0 | 1) => "",
            (FallbackSettings { policy: Policy::Envoy, .. }, _) => " (Envoy's failover)",
            (FallbackSettings { on_reachability_only: true, .. }, _) => " (fallback on reachability only)",
            (FallbackSettings { policy: Policy::Grpc, .. }, _) => " (fallback)",
        };
        // Writing to a String can't fail.
        let _ = writeln!(text, "{list}: {of}: {}{rules}", uris.join(", "));
    };
    let rest = if servers.types.is_empty() { "" } else { " of all other types" };
    let xdstp = if servers.authorities.is_empty() { ", and xdstp names of every authority" } else { "" };
    line("xds_servers", &format!("old-style names{rest}{xdstp}"), &servers.default);
    for (name, list) in &servers.authorities {
        line(&format!("authorities[{name}]"), &format!("names beginning with xdstp://{name}/"), list);
    }
    for (type_url, list) in &servers.types {
        let of = format!("old-style names of {}", type_url.short());
        line(&format!("types[{}]", type_url.message()), &of, list);
    }
    if !servers.authorities.is_empty() {
        text.push_str("names of any other authority do not exist\n");
    }
    text
}

fn describe(projection: &Projection, node: &Node) -> String {
    let mut parts = Vec::new();
    if projection.id {
        parts.push(format!("id={:?}", node.id));
    }
    if projection.cluster {
        parts.push(format!("cluster={:?}", node.cluster));
    }
    if let Some(depth) = projection.locality {
        let locality = node.locality.clone().unwrap_or_default();
        let depth = match depth {
            LocalityDepth::Region => 1,
            LocalityDepth::Zone => 2,
            LocalityDepth::SubZone => 3,
        };
        let names = [locality.region, locality.zone, locality.sub_zone];
        parts.push(format!("locality={:?}", names.iter().take(depth).collect::<Vec<_>>()));
    }
    parts.extend(describe_metadata(&projection.metadata, node));
    match projection.identity {
        IdentityPart::None => {}
        IdentityPart::TrustDomain => parts.push("identity=trust_domain".into()),
        IdentityPart::Segments(count) => parts.push(format!("identity={count} segments")),
        IdentityPart::Full => parts.push("identity=full".into()),
    }
    if projection.user_agent_name {
        parts.push(format!("user_agent_name={:?}", node.user_agent_name));
    }
    match projection.user_agent_version {
        VersionPart::None => {}
        VersionPart::Major => parts.push("user_agent_version=major".into()),
        VersionPart::Full => parts.push("user_agent_version=full".into()),
    }
    parts.join(" ")
}

fn describe_metadata(parts: &MetadataParts, node: &Node) -> Option<String> {
    match parts {
        MetadataParts::All => {
            let keys: Vec<&str> = node.metadata.keys().map(String::as_str).collect();
            Some(format!("metadata={}", if keys.is_empty() { "none".into() } else { keys.join(",") }))
        }
        MetadataParts::Paths(paths) if paths.is_empty() => None,
        MetadataParts::Paths(paths) => {
            let is_there = |path: &[String]| if node.metadata_at(path).is_some() { "" } else { " (absent)" };
            let shown: Vec<String> =
                paths.iter().map(|path| format!("{}{}", path.join("/"), is_there(path))).collect();
            Some(format!("metadata={}", shown.join(",")))
        }
    }
}
