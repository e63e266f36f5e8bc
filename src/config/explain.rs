//! The effect of the class rules on one node, and the server list for each resource, as text for `sluice
//! check --node`.

use std::fmt::Write;

use super::servers::{ServerListSettings, Servers};
use crate::driver::ground::class_identity::class_digest;
use sluice_engine::class::{NodeClass, NodeClasses, UpstreamNode};
use sluice_engine::fallback::{FallbackPolicy, FallbackSettings};
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, TypeUrl, UserAgentVersion};

/// Types shown even if no rule names them.
const COMMON: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];

/// One line per type and kind of names: the matching rule, the class as logs and the admin listener name it,
/// and the values that make the class.
///
/// Two nodes with the same values share upstream answers. Metadata values may be confidential, so only their
/// keys are shown.
pub fn explain_classes(classes: &NodeClasses, node: &Node, identity: &Identity) -> String {
    let mut types: Vec<TypeUrl> = COMMON.iter().map(|message| TypeUrl::of_message(message)).collect();
    types.extend(classes.rules.iter().flat_map(|rule| rule.types.iter().cloned()));
    types.sort();
    types.dedup();
    let mut text = String::new();
    for type_url in types {
        for names in classes.kinds(node, &type_url) {
            let word = names.style.word();
            let Some(rule) = classes.choose(node, &type_url, names).map(|choice| choice.rule) else {
                continue;
            };
            let Ok(class) = classes.classify(Some(node), identity, &type_url, names) else { continue };
            let (digest, values) = (class_digest(&class), values(&class));
            let legacy =
                if rule.legacy_wildcard { "" } else { " (an empty first request subscribes to nothing)" };
            let errors =
                if rule.resource_errors_alone { " (counts resource_errors as an answer)" } else { "" };
            let node_seen = match rule.upstream_node {
                UpstreamNode::Projection => "",
                UpstreamNode::Template(_) => " (the server sees the template)",
                UpstreamNode::Member => " (the server sees the node of one client)",
            };
            let unasked = match (type_url.is_sent_unasked(), class.is_of_one()) {
                (false, _) => "",
                (true, true) => " (takes what the server sends unasked)",
                (true, false) => " (ignores what the server sends unasked)",
            };
            let withheld = classes.withheld_secrets(Some(node), identity, &type_url, names);
            let withheld = withheld
                .map_or(String::new(), |reason| format!(" (refused, except by a directory: {reason})"));
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "{:<28} {word:<6} {:<26} class {digest} {values}{legacy}{errors}{node_seen}{unasked}{withheld}",
                type_url.short(),
                rule.id.to_string()
            );
        }
    }
    text
}

/// The values that make a class, as words. Client features always count.
fn values(class: &NodeClass) -> String {
    let node = &class.node;
    let mut words = Vec::new();
    let mut tell = |name: &str, value: &str| {
        if !value.is_empty() {
            words.push(format!("{name}={value:?}"));
        }
    };
    tell("id", &node.id);
    class.attributes.iter().for_each(|(name, value)| tell(name, value));
    tell("cluster", &node.cluster);
    if let Some(Locality { region, zone, sub_zone }) = &node.locality {
        tell("region", region);
        tell("zone", zone);
        tell("sub_zone", sub_zone);
    }
    tell("user_agent_name", &node.user_agent_name);
    match &node.user_agent_version {
        Some(UserAgentVersion::Build { major, minor, patch }) => {
            tell("user_agent_version", &format!("{major}.{minor}.{patch}"));
        }
        Some(UserAgentVersion::Text(text)) => tell("user_agent_version", text),
        None => {}
    }
    tell("identity", class.identity.as_deref().unwrap_or_default());
    tell("client_features", &node.client_features.join(","));
    let keys: Vec<&str> = node.metadata.keys().map(String::as_str).collect();
    tell("metadata", &keys.join(","));
    if words.is_empty() { "of everybody".to_owned() } else { words.join(" ") }
}

/// One line per server list: the resources that the list is responsible for, and its servers.
pub fn explain_servers(servers: &Servers) -> String {
    let mut text = String::new();
    let mut line = |list: &str, names: &str, servers: &ServerListSettings| {
        let uris: Vec<&str> = servers.servers.iter().map(|server| server.server_uri.as_str()).collect();
        let rules = match (&servers.fallback, uris.len()) {
            (_, 0 | 1) => "",
            (FallbackSettings { policy: FallbackPolicy::Envoy, .. }, _) => " (Envoy's failover)",
            (FallbackSettings { on_reachability_only: true, .. }, _) => " (fallback on reachability only)",
            (FallbackSettings { policy: FallbackPolicy::Grpc, .. }, _) => " (fallback)",
        };
        // Writing to a String can't fail.
        let _ = writeln!(text, "{list}: {names}: {}{rules}", uris.join(", "));
    };
    let rest = if servers.types.is_empty() { "" } else { " of all other types" };
    let xdstp = if servers.authorities.is_empty() { ", and xdstp names of every authority" } else { "" };
    line("xds_servers", &format!("old-style names{rest}{xdstp}"), &servers.default);
    for (name, list) in &servers.authorities {
        line(&format!("authorities[{name}]"), &format!("names beginning with xdstp://{name}/"), list);
    }
    for (type_url, list) in &servers.types {
        let names = format!("old-style names of {}", type_url.short());
        line(&format!("types[{}]", type_url.message()), &names, list);
    }
    if !servers.authorities.is_empty() {
        text.push_str("names of any other authority do not exist\n");
    }
    text
}
