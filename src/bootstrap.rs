//! Bootstraps for clients of the relay: the configuration with which Envoy and gRPC find it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::json;

use crate::config::{Address, Endpoint};

/// The identity that the client will state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNode {
    pub id: String,
    pub cluster: String,
}

/// Options of an Envoy bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyOptions {
    pub node: ClientNode,
    /// SotW instead of delta.
    pub is_sotw: bool,
    /// The port of Envoy's own admin listener on loopback.
    pub admin_port: u16,
}

/// The address of a listener for a client on the same host. A listener on every interface is reachable over
/// loopback.
pub fn local_endpoint(address: &Address) -> Endpoint {
    match address {
        Address::Unix { path, .. } => Endpoint::Unix(path.clone()),
        Address::Tcp(address) => {
            let ip = match address.ip() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            Endpoint::Tcp { host: ip.to_string(), port: address.port() }
        }
    }
}

/// A bootstrap for Envoy: YAML.
pub fn envoy(relay: &Endpoint, options: &EnvoyOptions) -> String {
    let api_type = if options.is_sotw { "GRPC" } else { "DELTA_GRPC" };
    let id = quoted(&options.node.id);
    let cluster = quoted(&options.node.cluster);
    let mut yaml = format!(
        "\
node:
  id: {id}
  cluster: {cluster}
dynamic_resources:
  ads_config:
    api_type: {api_type}
    transport_api_version: V3
    # Otherwise every request, ACKs included, repeats the node: some 60 KB.
    set_node_on_first_message_only: true
    grpc_services:
      - envoy_grpc: {{ cluster_name: sluice }}
  cds_config: {{ resource_api_version: V3, ads: {{}} }}
  lds_config: {{ resource_api_version: V3, ads: {{}} }}
static_resources:
  clusters:
    - name: sluice
"
    );
    yaml.push_str(&envoy_cluster(relay));
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, options.admin_port));
    // Writing to a String can't fail.
    let _ = write!(
        yaml,
        "\
admin:
  address:
    socket_address: {{ address: {}, port_value: {} }}
",
        admin.ip(),
        admin.port()
    );
    yaml
}

/// The definition of the cluster, after its name.
fn envoy_cluster(relay: &Endpoint) -> String {
    let (discovery, address) = match relay {
        Endpoint::Tcp { host, port } => {
            let discovery = if host.parse::<IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
            (discovery, format!("socket_address: {{ address: {}, port_value: {port} }}", quoted(host)))
        }
        Endpoint::Unix(path) => ("STATIC", format!("pipe: {{ path: {} }}", quoted(&path.to_string_lossy()))),
    };
    // A pipe has no TCP, and no peer that could vanish silently.
    let keepalive = match relay {
        Endpoint::Tcp { .. } => {
            "      upstream_connection_options:
        tcp_keepalive: { keepalive_time: 5, keepalive_interval: 3, keepalive_probes: 3 }
"
        }
        Endpoint::Unix(_) => "",
    };
    format!(
        "      type: {discovery}
      connect_timeout: 3s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config:
            http2_protocol_options: {{}}
{keepalive}      load_assignment:
        cluster_name: sluice
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    {address}
"
    )
}

/// A bootstrap for gRPC (`GRPC_XDS_BOOTSTRAP`): JSON.
pub fn grpc(relay: &Endpoint, node: &ClientNode) -> String {
    let bootstrap = json!({
        "xds_servers": [{
            "server_uri": relay.to_string(),
            "channel_creds": [{ "type": "insecure" }],
            "server_features": ["xds_v3"],
        }],
        // grpc-js refuses a node without a locality.
        "node": { "id": node.id, "cluster": node.cluster, "locality": {} },
    });
    format!("{bootstrap:#}\n")
}

/// A JSON string, which is always valid YAML, too.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn node() -> ClientNode {
        ClientNode { id: "a: \"b\"".into(), cluster: "c".into() }
    }

    fn envoy_of(address: &str, is_sotw: bool) -> serde_json::Value {
        let relay = local_endpoint(&Address::Tcp(address.parse().unwrap()));
        read(&envoy(&relay, &EnvoyOptions { node: node(), is_sotw, admin_port: 9901 }))
    }

    fn read(yaml: &str) -> serde_json::Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn envoy_gets_everything_over_ads() {
        let yaml = envoy_of("0.0.0.0:18000", false);
        let ads = &yaml["dynamic_resources"]["ads_config"];
        assert_eq!(ads["api_type"], "DELTA_GRPC");
        assert_eq!(ads["set_node_on_first_message_only"], true);
        assert_eq!(envoy_of("0.0.0.0:18000", true)["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
        for config in ["cds_config", "lds_config"] {
            let expected = json!({ "resource_api_version": "V3", "ads": {} });
            assert_eq!(yaml["dynamic_resources"][config], expected);
        }
        assert_eq!(yaml["node"], json!({ "id": "a: \"b\"", "cluster": "c" }));
        assert_eq!(yaml["admin"]["address"]["socket_address"]["port_value"], 9901);
    }

    #[test]
    fn envoy_reaches_the_listener_from_its_own_host() {
        let address = |yaml: serde_json::Value| {
            let cluster = &yaml["static_resources"]["clusters"][0];
            assert_eq!(cluster["type"], "STATIC");
            cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"].clone()
        };
        for (listener, host) in [("0.0.0.0:1", "127.0.0.1"), ("[::]:1", "::1"), ("10.0.0.1:1", "10.0.0.1")] {
            let expected = json!({ "socket_address": { "address": host, "port_value": 1 } });
            assert_eq!(address(envoy_of(listener, false)), expected);
        }
        let relay = local_endpoint(&Address::Unix { path: "/run/sluice".into(), mode: 0o660 });
        let yaml = read(&envoy(&relay, &EnvoyOptions { node: node(), is_sotw: false, admin_port: 1 }));
        assert_eq!(yaml["static_resources"]["clusters"][0].get("upstream_connection_options"), None);
        assert_eq!(address(yaml), json!({ "pipe": { "path": "/run/sluice" } }));
    }

    #[test]
    fn fed_1_grpc_gets_a_bootstrap() {
        let read =
            |relay: &Endpoint| -> serde_json::Value { serde_json::from_str(&grpc(relay, &node())).unwrap() };
        let expected = |uri: &str| {
            json!({
                "xds_servers": [{
                    "server_uri": uri,
                    "channel_creds": [{ "type": "insecure" }],
                    "server_features": ["xds_v3"],
                }],
                "node": { "id": "a: \"b\"", "cluster": "c", "locality": {} },
            })
        };
        let tcp = Endpoint::Tcp { host: "::1".into(), port: 18000 };
        assert_eq!(read(&tcp), expected("[::1]:18000"));
        assert_eq!(read(&Endpoint::Unix("/run/sluice".into())), expected("unix:/run/sluice"));
    }
}
