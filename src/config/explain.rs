//! The effect of the class rules on one node, and the server list for each resource, as text for `sluice
//! check --node`.

use std::fmt::Write;

use super::servers::{ServerList, Servers};
use crate::engine::class::{NameStyle, NodeClasses, UpstreamNode};
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
        for style in [NameStyle::Old, NameStyle::Xdstp] {
            let word = style.word();
            let Some(rule) = classes.choose(node, &type_url, style).map(|choice| choice.rule) else {
                continue;
            };
            let parts = rule.projection_of(&type_url, &Identity::Anonymous).describe(node);
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
                "{:<28} {word:<6} {:<26} client_features {parts}{legacy}{errors}{told}",
                type_url.short(),
                rule.id.to_string()
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
