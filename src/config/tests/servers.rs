//! Server lists and their servers.

use super::*;
use crate::client::{ClientSettings, TcpKeepalive};
use sluice_engine::upstream::{Transport, UpstreamSettings};
use sluice_setting::Backoff;
use sluice_xds::{Locality, Value, Variant};

#[test]
fn fed_1_a_grpc_bootstrap_loads_as_it_is() {
    let bootstrap = r#"{
        "xds_servers": [{
            "server_uri": "unix:///etc/istio/proxy/XDS",
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"]
        }],
        "node": {"id": "relay-1", "metadata": {"WEIGHT": 2}, "locality": {"region": "eu"}},
        "certificate_providers": {"default": {"plugin_name": "file_watcher", "config": {}}},
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s"
    }"#;
    let loaded = parse(bootstrap, Format::Json, context(".")).unwrap();
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warned, ["certificate_providers"]);
    let template = loaded.config.servers.templates.server.as_deref();
    assert_eq!(template, Some("xds.istio.io/grpc/lds/inbound/%s"));
    let node = &loaded.config.node;
    assert_eq!(node.id, "relay-1");
    assert_eq!(node.locality, Some(Locality { region: "eu".into(), ..Locality::default() }));
    assert_eq!(node.metadata["WEIGHT"], Value::Number(2_f64.to_bits()));
    assert_eq!(node.user_agent_name, "sluice");
    assert_eq!(grpc(&loaded.config).endpoint, Endpoint::Unix("/etc/istio/proxy/XDS".into()));
}

/// The port is the error, not the form.
#[test]
fn a_port_that_does_not_exist_is_named() {
    for (uri, port) in [
        ("host:99999", true),
        ("dns:///host:65536", true),
        ("http://host:0/v3", true),
        ("[::1]:123456789012", true),
        ("host:port", false),
        ("host", false),
    ] {
        let text = format!("xds_servers: [{{server_uri: '{uri}', channel_creds: [{{type: insecure}}]}}]");
        let errors = read(&text).unwrap_err().to_string();
        assert_eq!(errors.contains("expected a port from 1 to 65535"), port, "{uri}: {errors}");
    }
    let listener = read(&format!("{SERVER}listeners: [{{name: a, address: '127.0.0.1:70000'}}]"))
        .unwrap_err()
        .to_string();
    assert!(
        listener.contains("listeners[0].address: found \"127.0.0.1:70000\"; expected a port"),
        "{listener}"
    );
}

/// One of several spellings would be a list that nobody asks for.
#[test]
fn nam_7_an_authority_is_written_as_it_is() {
    for (name, is_fine) in [("a.b", true), ("a%2Eb", false), ("a%2eb", false)] {
        let text = format!("{SERVER}authorities: {{'{name}': {{}}}}");
        assert_eq!(read(&text).is_ok(), is_fine, "{name}");
    }
}

#[test]
fn fed_2_a_server_uri_is_one_of_five_forms() {
    let tcp = |host: &str, port| Some(Endpoint::Tcp { host: host.into(), port });
    let cases = [
        ("cp.example:15010", tcp("cp.example", 15010)),
        ("dns:///cp.example:15010", tcp("cp.example", 15010)),
        ("dns:cp.example:15010", tcp("cp.example", 15010)),
        ("[::1]:80", tcp("::1", 80)),
        ("unix:/run/cp", Some(Endpoint::Unix("/run/cp".into()))),
        ("unix:///run/cp", Some(Endpoint::Unix("/run/cp".into()))),
        ("unix:cp.sock", Some(Endpoint::Unix("/etc/sluice/cp.sock".into()))),
        ("unix://host/run/cp", None),
        ("dns://8.8.8.8/cp.example:1", None),
        ("cp.example", None),
        ("cp.example:0", None),
        ("cp.example:65536", None),
        (":15010", None),
        ("[::g]:80", None),
        ("xds:///a:1", None),
    ];
    for (uri, expected) in cases {
        let text = format!("xds_servers: [{{server_uri: '{uri}', channel_creds: [{{type: insecure}}]}}]");
        let endpoint = read(&text).ok().map(|loaded| grpc(&loaded.config).endpoint.clone());
        assert_eq!(endpoint, expected, "{uri}");
    }
    for (uri, expected) in [
        ("http://cp.example:8080", Some(("cp.example", 8080, ""))),
        ("http://cp.example", Some(("cp.example", 80, ""))),
        ("http://[::1]", Some(("::1", 80, ""))),
        ("http://[::1]:8080/", Some(("::1", 8080, ""))),
        ("http://cp.example:1/a/b%20c/", Some(("cp.example", 1, "/a/b%20c"))),
        ("https://cp.example", Some(("cp.example", 443, ""))),
        ("https://cp.example:8443/a", Some(("cp.example", 8443, "/a"))),
        ("http://cp.example:1?a", None),
        ("http://cp.example:1/a?b=c", None),
        ("http://me@cp.example:1/", None),
        ("http://", None),
        ("http:///a", None),
    ] {
        let text = format!("xds_servers: [{{server_uri: '{uri}', refresh_delay: 1s}}]");
        let address =
            read(&text).ok().map(|loaded| match loaded.config.servers.default.servers[0].kind.clone() {
                ServerKind::Rest(rest) => (rest.host, rest.port, rest.prefix),
                other => panic!("{other:?}"),
            });
        let expected = expected.map(|(host, port, prefix)| (host.to_owned(), port, prefix.to_owned()));
        assert_eq!(address, expected, "{uri}");
    }
    let files = config("xds_servers: [{server_uri: 'file:snapshot'}]");
    let directory = ServerKind::Directory { path: "/etc/sluice/snapshot".into(), mass_deletion_hold: None };
    assert_eq!(files.servers.default.servers[0].kind, directory);
}

#[test]
fn fed_1_fed_3_nam_4_an_authority_has_a_list_of_its_own_or_the_default_one() {
    let loaded = read(&format!(
        "{SERVER}authorities:
  endpoints.example: {{xds_servers: [{{server_uri: 'file:endpoints'}}]}}
  other.example: {{client_listener_resource_name_template: 'xdstp://other.example/l/%s'}}
  '':
types:
  envoy.config.endpoint.v3.ClusterLoadAssignment: {{xds_servers: [{{server_uri: 'file:eds'}}]}}
"
    ))
    .unwrap();
    let uris = |list: &ServerListSettings| {
        list.servers.iter().map(|server| server.server_uri.clone()).collect::<Vec<_>>()
    };
    let lists: Vec<_> =
        loaded.config.servers.lists().map(|(path, list)| (path, uris(list).join(" "))).collect();
    let expected = [
        ("xds_servers", "cp.example:15010"),
        ("authorities[]", "cp.example:15010"),
        ("authorities[endpoints.example]", "file:endpoints"),
        ("authorities[other.example]", "cp.example:15010"),
        ("types[envoy.config.endpoint.v3.ClusterLoadAssignment]", "file:eds"),
    ];
    assert_eq!(lists, expected.map(|(path, uris)| (path.to_owned(), uris.to_owned())));
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warned, ["xds_servers[0].server_uri"]);
    let templates = &loaded.config.servers.templates.authorities;
    assert_eq!(templates.get("other.example").map(String::as_str), Some("xdstp://other.example/l/%s"));
    let foreign = "authorities: {a: {client_listener_resource_name_template: 'xdstp://b/%s'}}";
    let refused = messages(&read(&format!("{SERVER}{foreign}")).unwrap_err()).join("\n");
    let expected = "authorities[a].client_listener_resource_name_template: found \"xdstp://b/%s\"; expected a name that begins with xdstp://a/";
    assert!(refused.starts_with(expected), "{refused}");
    let text = explain_servers(&loaded.config.servers);
    assert_eq!(
        text,
        "xds_servers: old-style names of all other types: cp.example:15010
authorities[]: names beginning with xdstp:///: cp.example:15010
authorities[endpoints.example]: names beginning with xdstp://endpoints.example/: file:endpoints
authorities[other.example]: names beginning with xdstp://other.example/: cp.example:15010
types[envoy.config.endpoint.v3.ClusterLoadAssignment]: old-style names of ClusterLoadAssignment: file:eds
names of any other authority do not exist
"
    );
    let alone = explain_servers(&defaults().servers);
    let everything = "old-style names, and xdstp names of every authority";
    assert_eq!(alone, format!("xds_servers: {everything}: cp.example:15010\n"));
}

#[test]
fn rst_10_a_rest_server_has_its_own_keys() {
    let rest = |keys: &str| {
        let text = format!("xds_servers: [{{server_uri: 'http://localhost:1/x', refresh_delay: 5s{keys}}}]");
        match config(&text).servers.default.servers[0].kind.clone() {
            ServerKind::Rest(rest) => rest,
            other => panic!("{other:?}"),
        }
    };
    let plain = RestServerSettings::new("localhost".into(), 1, "/x".into(), Duration::from_secs(5));
    assert_eq!(rest(""), plain);
    assert_eq!(rest(", api_type: REST, channel_creds: [{type: insecure}]"), plain);
    let stated = rest(
        ", request_timeout: 2s, connect_timeout: 1s, tcp_keepalive: {probes: 5}, backoff: {max: 5s}, \
          max_response_bytes: 1MiB",
    );
    let backoff = Backoff { max: Duration::from_secs(5), ..Backoff::default() };
    let connection = ClientSettings {
        request_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(1),
        tcp_keepalive: TcpKeepalive { probes: 5, ..TcpKeepalive::default() },
        backoff,
        max_response_bytes: 1 << 20,
        ..ClientSettings::default()
    };
    let stream = UpstreamSettings { backoff: backoff.into(), ..plain.stream.clone() };
    let expected = RestServerSettings { connection, stream, ..plain };
    assert_eq!(stated, expected);
}

#[test]
fn rpc_2_every_api_type_of_grpc_is_taken() {
    for (word, expected) in [
        ("AGGREGATED_DELTA_GRPC", (Transport::Aggregated, Variant::Delta)),
        ("AGGREGATED_GRPC", (Transport::Aggregated, Variant::Sotw)),
        ("DELTA_GRPC", (Transport::PerType, Variant::Delta)),
        ("GRPC", (Transport::PerType, Variant::Sotw)),
    ] {
        let text = format!(
            "xds_servers: [{{server_uri: 'unix:/a', channel_creds: [{{type: insecure}}], api_type: {word}}}]"
        );
        let stream = grpc(&config(&text)).stream.clone();
        assert_eq!((stream.transport, stream.variant), expected);
        assert!(!stream.fall_back_to_sotw, "an order");
    }
    let text = "xds_servers: [{server_uri: 'unix:/a', channel_creds: [{type: insecure}]}]";
    assert!(grpc(&config(text)).stream.fall_back_to_sotw, "a guess");
}

#[test]
fn fed_9_the_timer_feature_goes_by_both_names() {
    for feature in ["resource_timer_is_transient_error", "resource_timer_is_transient_failure"] {
        for (timeout, seconds) in [("", 30), (", resource_timeout: 12s", 12)] {
            let text = format!(
                "xds_servers: [{{server_uri: 'unix:/a', channel_creds: [{{type: insecure}}], \
                 server_features: [{feature}]{timeout}}}]"
            );
            let config = config(&text);
            assert!(grpc(&config).stream.timeout_is_transient);
            assert_eq!(grpc(&config).stream.resource_timeout, Duration::from_secs(seconds));
        }
    }
}

#[test]
fn fed_6_what_concerns_streams_only_opens_no_second_channel() {
    let server = |keys: &str| {
        let text = "xds_servers: [{server_uri: 'unix:/a', channel_creds: [{type: insecure}]";
        grpc(&config(&format!("{text}{keys}}}]"))).clone()
    };
    let of_streams = ", api_type: GRPC, wildcard: legacy, resource_timeout: 1s, resource_timeouts: {acme.T: 1s}, \
                      mass_deletion: {policy: hold_then_honour, hold: 1s}";
    for (keys, shares) in [
        (of_streams, true),
        (", connect_timeout: 1s", false),
        (", backoff: {max: 5s}", false),
        (", server_features: [fail_on_data_errors]", false),
    ] {
        assert_eq!(server(keys).shares_connections_with(&server("")), shares, "{keys}");
    }
}
