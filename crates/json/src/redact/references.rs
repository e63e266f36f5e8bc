//! The clusters that a content names, and contents that cannot be read: for the guards of plans (GRD-5 to
//! GRD-7).

use std::collections::BTreeSet;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, ReflectMessage, Value as Field};

use super::{Budget, DEPTH_MAX, Refusal, decode, open};
use sluice_xds::TypeUrl;

/// The fields of routes and TCP filters that name a cluster: the message and the field.
const CLUSTERS: [(&str, &str); 5] = [
    ("envoy.config.route.v3.RouteAction", "cluster"),
    ("envoy.config.route.v3.RouteAction.RequestMirrorPolicy", "cluster"),
    ("envoy.config.route.v3.WeightedCluster.ClusterWeight", "name"),
    ("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster"),
    ("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight", "name"),
];

/// The clusters that routes and TCP filters of a resource name. Contents of unknown types name none, nor do
/// contents too large to be decoded.
///
/// # Errors
/// The type URL of the resource, or of an `Any` in it, whose bytes are not those of its type.
pub fn named_clusters(type_url: &TypeUrl, body: &Bytes) -> Result<BTreeSet<String>, String> {
    let (message, budget) = match decode(type_url, body) {
        Ok(decoded) => decoded,
        Err(Refusal::Malformed) => return Err(type_url.as_str().to_owned()),
        Err(_) => return Ok(BTreeSet::new()),
    };
    let mut walk = Walk { budget, depth: 0, clusters: BTreeSet::new(), malformed: None };
    walk.message(&message);
    walk.malformed.map_or(Ok(walk.clusters), Err)
}

struct Walk {
    budget: Budget,
    /// The number of messages around the current one.
    depth: usize,
    clusters: BTreeSet<String>,
    /// The first `Any` that cannot be read.
    malformed: Option<String>,
}

impl Walk {
    fn message(&mut self, message: &DynamicMessage) {
        if self.depth >= DEPTH_MAX {
            return;
        }
        self.depth += 1;
        match message.descriptor().full_name() {
            super::super::ANY => self.any(message),
            name => self.fields(name, message),
        }
        self.depth -= 1;
    }

    fn any(&mut self, any: &DynamicMessage) {
        match open(any, &mut self.budget) {
            Ok((_, message)) => self.message(&message),
            Err(closed) if closed.refusal == Refusal::Malformed => {
                self.malformed.get_or_insert(closed.type_url);
            }
            Err(_) => {}
        }
    }

    fn fields(&mut self, name: &str, message: &DynamicMessage) {
        for (field, value) in message.fields() {
            match value {
                Field::String(text) if CLUSTERS.contains(&(name, field.name())) && !text.is_empty() => {
                    self.clusters.insert(text.clone());
                }
                value => self.value(value),
            }
        }
    }

    fn value(&mut self, value: &Field) {
        match value {
            Field::Message(message) => self.message(message),
            Field::List(values) => values.iter().for_each(|value| self.value(value)),
            Field::Map(entries) => entries.values().for_each(|value| self.value(value)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse_json;

    const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
    const LISTENER: &str = "envoy.config.listener.v3.Listener";
    const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    const TCP: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";

    fn url(message: &str) -> String {
        format!("type.googleapis.com/{message}")
    }

    /// The binary of a resource in JSON.
    fn body(resource: serde_json::Value) -> (TypeUrl, Bytes) {
        let type_url = resource["@type"].as_str().unwrap().to_owned();
        let file = json!({ "type_url": type_url, "resources": [resource] }).to_string();
        let response = parse_json(&file).unwrap();
        (
            TypeUrl::new(&type_url),
            response.resources[0].as_ref().unwrap().resource.as_ref().unwrap().body.value.clone(),
        )
    }

    fn clusters(resource: serde_json::Value) -> Vec<String> {
        let (type_url, body) = body(resource);
        named_clusters(&type_url, &body).unwrap().into_iter().collect()
    }

    #[test]
    fn grd_5_routes_and_tcp_filters_name_their_clusters() {
        let weighted = json!({ "clusters": [{ "name": "b", "weight": 1 }, { "name": "c", "weight": 1 }] });
        let routes = json!([
            { "match": { "prefix": "/" }, "route": { "cluster": "a", "request_mirror_policies": [{ "cluster": "m" }] } },
            { "match": { "prefix": "/w" }, "route": { "weighted_clusters": weighted } },
            { "match": { "prefix": "/h" }, "route": { "cluster_header": "x-cluster" } },
            { "match": { "prefix": "/r" }, "redirect": { "host_redirect": "z" } }
        ]);
        let hosts = json!([{ "name": "h", "domains": ["*"], "routes": routes }]);
        assert_eq!(
            clusters(json!({ "@type": url(ROUTES), "name": "r", "virtual_hosts": hosts })),
            ["a", "b", "c", "m"]
        );
        let inline = json!({ "@type": url(MANAGER), "stat_prefix": "s", "route_config": { "name": "r", "virtual_hosts": hosts } });
        let tcp = json!({ "@type": url(TCP), "stat_prefix": "s", "cluster": "t" });
        let filters =
            json!([{ "name": "http", "typed_config": inline }, { "name": "tcp", "typed_config": tcp }]);
        let listener =
            json!({ "@type": url(LISTENER), "name": "l", "filter_chains": [{ "filters": filters }] });
        assert_eq!(clusters(listener), ["a", "b", "c", "m", "t"]);
    }

    #[test]
    fn grd_6_bytes_that_are_not_of_their_type_are_told_at_any_depth() {
        let routes = TypeUrl::of_message(ROUTES);
        assert_eq!(named_clusters(&routes, &Bytes::from_static(b"\x0a\xff")), Err(url(ROUTES)));
        let unknown = TypeUrl::of_message("a.B");
        assert_eq!(named_clusters(&unknown, &Bytes::from_static(b"\x0a\xff")), Ok(BTreeSet::new()));
        let tcp = json!({ "@type": url(TCP), "stat_prefix": "stat-prefix", "cluster": "t" });
        let filters = json!([{ "name": "tcp", "typed_config": tcp }]);
        let listener =
            json!({ "@type": url(LISTENER), "name": "l", "filter_chains": [{ "filters": filters }] });
        let (type_url, good) = body(listener);
        // The tag of the prefix's text becomes that of a field which is no text.
        let mut bad = good.to_vec();
        let at = bad.windows(11).position(|window| window == b"stat-prefix").unwrap() - 2;
        bad[at] = 0x08;
        assert!(named_clusters(&type_url, &good).is_ok());
        assert_eq!(named_clusters(&type_url, &bad.into()), Err(url(TCP)));
    }
}
