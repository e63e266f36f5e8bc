#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deletion;
mod fallback;
mod upstream_node;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::reader::{Item, Report};
use super::tree::Tree;
use super::*;
use crate::engine::class::{
    ClassRule, LocalityDepth, MetadataMatch, MetadataParts, NameStyle, NodeMatch, Projection, TextMatch,
    UpstreamNode, ValueMatch, VersionPart,
};
use crate::xds::{Locality, TypeUrl, Value};

const EXAMPLE: &str = include_str!("../../config/example.yaml");
const DOCS: &str = include_str!("../../docs/configuration.md");
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// A file with a server and nothing else.
const SERVER: &str = "xds_servers: [{server_uri: 'cp.example:15010', channel_creds: [{type: insecure}]}]\n";

/// The keys that hold every key: what the example can't show at its default.
const EVERYTHING: &str = "
node: {locality: {}}
xds_servers: [{server_uri: 'localhost:1', channel_creds: [{type: insecure, config: {}}]}]
node_classes:
  - match:
      id: {prefix: a}
      metadata: [{path: a, exact: 1}]
    split_by: {}
    upstream_node: {template: {id: a}}
listeners: [{name: a, address: 'unix:/run/a', mode: '0600'}]
admin: {address: 'unix:/run/b'}
authorities: {a: {fallback: {}, fallback_on_reachability_only: false, xds_servers: [{server_uri: 'file:a'}]}}
types: {a.B: {fallback: {}, xds_servers: [{server_uri: 'file:a'}]}}
checkpoint: {directory: a}
";

/// The keys of a server that only REST has.
const REST: &str = "xds_servers: [{server_uri: 'http://localhost:1', refresh_delay: 5s, \
                    mass_deletion: {policy: hold_then_honour}}]";

fn read(text: &str) -> Result<Loaded, ConfigError> {
    parse(text, Format::Yaml, Path::new("/etc/sluice"), "host-1")
}

fn config(text: &str) -> Config {
    read(text).unwrap().config
}

fn with_server(text: &str) -> Config {
    config(&format!("{SERVER}{text}"))
}

fn grpc(config: &Config) -> &GrpcServer {
    match &config.servers.default.servers[0].kind {
        ServerKind::Grpc(server) => server,
        other => panic!("not gRPC: {other:?}"),
    }
}

/// A configuration as it is when only its server is stated.
fn defaults() -> Config {
    let endpoint = Endpoint::Tcp { host: "cp.example".into(), port: 15010 };
    let kind = ServerKind::Grpc(GrpcServer::new(endpoint));
    Config::new("host-1", UpstreamServer { server_uri: "cp.example:15010".into(), kind })
}

#[test]
fn a_server_is_enough() {
    assert_eq!(with_server(""), defaults());
    assert_eq!(defaults().node.id, "sluice-host-1");
}

#[test]
fn the_example_has_every_default() {
    let example = config(EXAMPLE);
    assert_eq!(example, Config { servers: example.servers.clone(), ..defaults() });
    assert_eq!(*grpc(&example), GrpcServer::new(grpc(&example).endpoint.clone()));
}

/// The keys that readers ask for, over files that together visit every map.
fn known_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for text in [EXAMPLE, EVERYTHING, REST] {
        let tree = Tree::parse(text, Format::Yaml).unwrap();
        let report = Report::default();
        Item::root(&tree, &report).map(|map| read::read_config(map, Path::new(""), ""));
        assert_eq!(report.errors.into_inner(), []);
        keys.extend(report.keys.into_inner());
    }
    keys
}

#[test]
fn the_documentation_and_the_reader_know_the_same_keys() {
    let row = |line: &'static str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_string());
    let documented: BTreeSet<String> = DOCS.lines().filter_map(row).collect();
    let is_section = |key: &&String| !documented.iter().any(|other| other.starts_with(&format!("{key}.")));
    let known = known_keys();
    let known: BTreeSet<&String> = known.iter().collect();
    let undocumented: Vec<_> =
        known.iter().copied().filter(is_section).filter(|key| !documented.contains(*key)).collect();
    let unknown: Vec<_> = documented.iter().filter(|key| !known.contains(key)).collect();
    assert_eq!((undocumented, unknown), (vec![], vec![]));
}

#[test]
fn the_example_shows_every_key() {
    for key in known_keys() {
        let name = key.rsplit('.').next().unwrap().trim_end_matches("[]").to_string();
        let is_condition = key.contains(".match.") || key.contains("channel_creds[].config");
        assert!(is_condition || EXAMPLE.contains(&format!("{name}:")), "{key}");
    }
}

#[test]
fn the_quickstart_loads() {
    let text = include_str!("../../config/sluice.yaml");
    let loaded = parse(text, Format::Yaml, Path::new("config"), "host-1").unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        loaded.config.servers.default.servers[0].kind,
        ServerKind::Directory("config/quickstart".into())
    );
}

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
    let loaded = parse(bootstrap, Format::Json, Path::new("."), "host-1").unwrap();
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warned, ["server_listener_resource_name_template", "certificate_providers"]);
    let node = &loaded.config.node;
    assert_eq!(node.id, "relay-1");
    assert_eq!(node.locality, Some(Locality { region: "eu".into(), ..Locality::default() }));
    assert_eq!(node.metadata["WEIGHT"], Value::Number(2_f64.to_bits()));
    assert_eq!(node.user_agent_name, "sluice");
    assert_eq!(grpc(&loaded.config).endpoint, Endpoint::Unix("/etc/istio/proxy/XDS".into()));
    assert_eq!(grpc(&loaded.config).tcp_keepalive, None);
}

/// That the port is the error, not the form.
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

/// Of several spellings one would be a list that nobody asks for.
#[test]
fn nam_7_an_authority_is_written_as_it_is() {
    for (name, is_fine) in [("a.b", true), ("a%2Eb", false), ("a%2eb", false)] {
        let text = format!("{SERVER}authorities: {{'{name}': {{}}}}");
        assert_eq!(read(&text).is_ok(), is_fine, "{name}");
    }
}

#[test]
fn load_reports_are_dropped_or_refused() {
    let of = |text: &str| {
        config(&format!("{SERVER}listeners: [{{name: a, address: '127.0.0.1:1'{text}}}]")).listeners[0]
            .load_reports
    };
    assert_eq!(of(""), LoadReports::Drop);
    assert_eq!(of(", load_reports: drop"), LoadReports::Drop);
    assert_eq!(of(", load_reports: refuse"), LoadReports::Refuse);
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
        ("https://cp.example:443", None),
    ];
    for (uri, expected) in cases {
        let text = format!("xds_servers: [{{server_uri: '{uri}', channel_creds: [{{type: insecure}}]}}]");
        let found = read(&text).ok().map(|loaded| grpc(&loaded.config).endpoint.clone());
        assert_eq!(found, expected, "{uri}");
    }
    for (uri, expected) in [
        ("http://cp.example:8080", Some(("cp.example", 8080, ""))),
        ("http://cp.example", Some(("cp.example", 80, ""))),
        ("http://[::1]", Some(("::1", 80, ""))),
        ("http://[::1]:8080/", Some(("::1", 8080, ""))),
        ("http://cp.example:1/a/b%20c/", Some(("cp.example", 1, "/a/b%20c"))),
        ("http://cp.example:1?a", None),
        ("http://cp.example:1/a?b=c", None),
        ("http://me@cp.example:1/", None),
        ("http://", None),
        ("http:///a", None),
    ] {
        let text = format!("xds_servers: [{{server_uri: '{uri}', refresh_delay: 1s}}]");
        let found =
            read(&text).ok().map(|loaded| match loaded.config.servers.default.servers[0].kind.clone() {
                ServerKind::Rest(rest) => (rest.host, rest.port, rest.prefix),
                other => panic!("{other:?}"),
            });
        let expected = expected.map(|(host, port, prefix)| (host.to_owned(), port, prefix.to_owned()));
        assert_eq!(found, expected, "{uri}");
    }
    let files = config("xds_servers: [{server_uri: 'file:snapshot'}]");
    assert_eq!(files.servers.default.servers[0].kind, ServerKind::Directory("/etc/sluice/snapshot".into()));
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
    let uris =
        |list: &ServerList| list.servers.iter().map(|server| server.server_uri.clone()).collect::<Vec<_>>();
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
    let template = "authorities[other.example].client_listener_resource_name_template";
    assert_eq!(warned, ["xds_servers[0].server_uri", template]);
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
    let plain = RestServer::new("localhost".into(), 1, "/x".into(), Duration::from_secs(5));
    assert_eq!(rest(""), plain);
    assert_eq!(rest(", api_type: REST, channel_creds: [{type: insecure}]"), plain);
    let stated = rest(
        ", request_timeout: 2s, connect_timeout: 1s, tcp_keepalive: {probes: 5}, backoff: {max: 5s}, \
          max_response_bytes: 1MiB",
    );
    let expected = RestServer {
        request_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(1),
        tcp_keepalive: TcpKeepalive { probes: 5, ..TcpKeepalive::default() },
        backoff: Backoff { max: Duration::from_secs(5), ..Backoff::default() },
        max_response_bytes: 1 << 20,
        ..plain
    };
    assert_eq!(stated, expected);
}

#[test]
fn rpc_2_every_api_type_of_grpc_is_taken() {
    for (word, expected) in [
        ("AGGREGATED_DELTA_GRPC", ApiType::AggregatedDeltaGrpc),
        ("AGGREGATED_GRPC", ApiType::AggregatedGrpc),
        ("DELTA_GRPC", ApiType::DeltaGrpc),
        ("GRPC", ApiType::Grpc),
    ] {
        let text = format!(
            "xds_servers: [{{server_uri: 'unix:/a', channel_creds: [{{type: insecure}}], api_type: {word}}}]"
        );
        assert_eq!(grpc(&config(&text)).api_type, expected);
    }
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
            assert!(grpc(&config).resource_timer_is_transient_error);
            assert_eq!(grpc(&config).resource_timeout, Duration::from_secs(seconds));
        }
    }
}

#[test]
fn what_is_taken_but_has_no_effect_or_is_open_is_warned_of() {
    let text = "
xds_servers:
  - server_uri: cp.example:1
    channel_creds: [{type: insecure}, {type: tls}]
    server_features: [xds_v3, trusted_xds_server, ignore_resource_deletion, colour]
listeners:
  - {name: a, address: '0.0.0.0:1'}
  - {name: b, address: '127.0.0.1:2'}
  - {name: c, address: '[::1]:3'}
  - {name: d, address: 'unix:d'}
";
    let warned: Vec<_> = read(text).unwrap().warnings.into_iter().map(|warning| warning.path).collect();
    let expected = [
        "xds_servers[0].server_uri",
        "xds_servers[0].channel_creds[1].type",
        "xds_servers[0].server_features[1]",
        "xds_servers[0].server_features[2]",
        "xds_servers[0].server_features[3]",
        "listeners[0].address",
    ];
    assert_eq!(warned, expected);
}

#[test]
fn values_are_read_in_their_units() {
    let config = with_server(
        "
linger: 1m
coalescing: 0s
drain: 1h
cache: {encoded_bytes: 1GiB, unwatched_bytes: 0}
limits: {connections_per_ip: 7, connection_age: off, name_bytes: 65}
log: {format: json, level: 'info, sluice::driver=TRACE'}
listeners: [{name: a, address: 'unix:a.sock'}, {name: b, address: 'unix:/b', mode: '600'}]
admin: {address: 'unix:admin'}
",
    );
    assert_eq!(config.linger, Duration::from_secs(60));
    assert_eq!(config.coalescing, Duration::ZERO);
    assert_eq!(config.drain, Duration::from_secs(3600));
    assert_eq!(config.cache, Cache { encoded_bytes: 1 << 30, unwatched_bytes: 0 });
    assert_eq!(config.limits.connections_per_ip, Some(7));
    assert_eq!(config.limits.connection_age, None);
    assert_eq!(config.limits.name_bytes, 65);
    assert_eq!(config.log.format, LogFormat::Json);
    let unix = |path: &str, mode| Address::Unix { path: path.into(), mode };
    let addresses: Vec<_> = config.listeners.into_iter().map(|listener| listener.address).collect();
    assert_eq!(addresses, [unix("/etc/sluice/a.sock", 0o660), unix("/b", 0o600)]);
    assert_eq!(config.admin.address, unix("/etc/sluice/admin", 0o600));
}

#[test]
fn rly_11_rules_are_read_in_order_and_completed() {
    let config = with_server(&format!(
        "
node_classes:
  - match:
      user_agent_name: {{prefix: gRPC}}
      names: old
    legacy_wildcard: false
    resource_errors_alone: true
  - match:
      locality: {{zone: z}}
      metadata: [{{path: [labels, rev.a], exact: 2}}, {{path: owner, suffix: -x}}]
      types: [{SECRET}, type.googleapis.com/istio.workload.Address]
    split_by: {{locality: zone, metadata: [b, [a, c], b], user_agent_version: major}}
    share_secrets: true
"
    ));
    let rules = config.node_classes.rules;
    let grpc = ClassRule {
        nodes: NodeMatch { user_agent_name: Some(TextMatch::Prefix("gRPC".into())), ..NodeMatch::default() },
        legacy_wildcard: false,
        resource_errors_alone: true,
        ..ClassRule::for_names(NameStyle::Old, Projection::whole_node_but_id())
    };
    let path = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let conditions = vec![
        MetadataMatch {
            path: path(&["labels", "rev.a"]),
            value: ValueMatch::Equal(Value::Number(2_f64.to_bits())),
        },
        MetadataMatch { path: path(&["owner"]), value: ValueMatch::Text(TextMatch::Suffix("-x".into())) },
    ];
    let secrets = ClassRule {
        nodes: NodeMatch {
            zone: Some(TextMatch::Exact("z".into())),
            metadata: conditions,
            ..NodeMatch::default()
        },
        types: vec![TypeUrl::of_message(SECRET), TypeUrl::of_message("istio.workload.Address")],
        names: None,
        projection: Projection {
            locality: Some(LocalityDepth::Zone),
            metadata: MetadataParts::Paths(vec![path(&["a", "c"]), path(&["b"])]),
            user_agent_version: VersionPart::Major,
            ..Projection::default()
        },
        share_secrets: true,
        upstream_node: UpstreamNode::Projection,
        legacy_wildcard: true,
        resource_errors_alone: false,
    };
    assert_eq!(rules, [vec![grpc, secrets], NodeClasses::default().rules].concat());
}

#[test]
fn rly_11_a_rule_without_a_projection_keeps_the_default_of_each_style() {
    let rules = with_server("node_classes: [{match: {id: a}}]").node_classes.rules;
    let projections: Vec<_> = rules.iter().map(|rule| (rule.names, rule.projection.clone())).collect();
    let defaults = [
        (Some(NameStyle::Xdstp), Projection::features_only()),
        (Some(NameStyle::Old), Projection::whole_node_but_id()),
    ];
    assert_eq!(projections, [defaults.clone(), defaults].concat());
}

#[test]
fn a_client_node_is_read_in_either_spelling_of_its_fields() {
    let snake = r#"{"id": "a", "user_agent_name": "envoy", "locality": {"sub_zone": "s"},
        "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40}, "metadata": {}},
        "client_features": ["b", "a", "b"], "extensions": [{"name": "x"}], "metadata": {"k": [true]}}"#;
    let camel = snake
        .replace("user_agent_name", "userAgentName")
        .replace("sub_zone", "subZone")
        .replace("user_agent_build_version", "userAgentBuildVersion")
        .replace("major_number", "majorNumber")
        .replace("minor_number", "minorNumber")
        .replace("client_features", "clientFeatures");
    let node = parse_client_node(snake).unwrap();
    assert_eq!(node, parse_client_node(&camel).unwrap());
    assert_eq!(node.user_agent_version, Some(UserAgentVersion::Build { major: 1, minor: 40, patch: 0 }));
    assert_eq!(node.client_features, ["a", "b"]);
    assert_eq!(node.locality.unwrap().sub_zone, "s");
    assert!(parse_client_node(r#"{"id": 7}"#).is_err());
}

#[test]
fn an_explanation_names_the_rule_and_what_splits() {
    let classes =
        with_server("node_classes: [{match: {id: a, names: old}, split_by: {cluster: true}}]").node_classes;
    let node = parse_client_node(r#"{"id": "a", "cluster": "edge"}"#).unwrap();
    let text = explain_classes(&classes, &node);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_string();
    assert!(line("Cluster ").contains("rule 1 "), "{text}");
    assert!(line("Cluster ").ends_with("client_features cluster=\"edge\""), "{text}");
    assert!(line("Secret ").ends_with("client_features id=\"a\" cluster=\"edge\""), "{text}");
}

/// Each wrong file beside everything that is said of it.
mod errors {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let Err(error) = read(text) else { panic!("taken: {text}") };
        let found = error.to_string();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{text}");
    }

    /// Errors of a file with a valid server.
    fn check_rest(text: &str, expected: &[&str]) {
        check(&format!("{SERVER}{text}"), expected);
    }

    /// Errors of an entry with a valid address.
    fn check_server(rest: &str, expected: &[&str]) {
        let expected: Vec<_> = expected.iter().map(|line| format!("xds_servers[0].{line}")).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check(&format!("xds_servers: [{{server_uri: 'cp.example:1', {rest}}}]"), &expected);
    }

    #[test]
    fn all_of_a_file_are_named_at_once() {
        check(
            "
node: {id: 7}
xds_servers:
  - server_uri: https://cp.example
    channel_creds: [{type: tls}, {type: insecure}]
    api_type: REST
listeners:
  - {adress: '127.0.0.1:1', name: a}
linger: 10 seconds
limits: {connections: 0}
",
            &[
                "node.id: found 7; expected text (in quotes if it looks like a number)",
                "xds_servers[0].server_uri: \"https://cp.example\" is not supported by this version; \
                 use http:// if plaintext is acceptable",
                "xds_servers[0].refresh_delay: missing; expected how long to wait between two polls, e.g. 5s",
                "xds_servers[0].channel_creds[0].type: \"tls\" is not supported by this version; \
                 use `insecure` as the first entry if plaintext is acceptable",
                "listeners[0].address: missing; expected IP:port or unix:PATH",
                "listeners[0].adress: unknown key; did you mean `address`?",
                "limits.connections: found 0; expected an integer from 1 to 1000000000",
                "linger: found \"10 seconds\"; expected a duration from 0s to 1h, written like 500ms, 10s, 5m or 1h",
            ],
        );
    }

    #[test]
    fn of_syntax_have_a_place() {
        for (text, format, place) in [
            ("a: 1\nb: [1\n", Format::Yaml, "line "),
            ("linger: 1s\nlinger: 2s\n", Format::Yaml, "line 2, column 1: the key \"linger\" is repeated"),
            ("{\"a\": 1,\n \"a\": 2}", Format::Json, "line 2, column "),
            ("{\"a\": 1,\n \"b\" 2}", Format::Json, "line 2, column 6: "),
        ] {
            let error = parse(text, format, Path::new(""), "").unwrap_err();
            assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
            assert!(error.to_string().starts_with(place), "{error}");
            assert_eq!(error.to_string().matches("line").count(), 1, "{error}");
        }
    }

    #[test]
    fn of_the_top_level() {
        check("", &["xds_servers: missing; expected a list of 1 to 16 servers"]);
        check("[]", &["found a list; expected a map"]);
        check("xds_servers: []", &["xds_servers: found a list; expected a list of 1 to 16 servers"]);
        check_rest("lingr: 1s", &["lingr: unknown key; did you mean `linger`?"]);
        check_rest(
            "types: {}\ncheckpoint: {}\nauthorities: {a.example: {}}",
            &["checkpoint.directory: missing; expected the path of a directory for this relay alone"],
        );
        check_rest(
            "checkpoint: {directory: a, interval: 2h, max_age: 1h, keep: 3}",
            &[
                "checkpoint.interval: found \"2h\"; expected a duration from 100ms to 1h, written like 500ms, 10s, 5m \
                 or 1h",
                "checkpoint.keep: unknown key; known here: directory, interval, max_age",
            ],
        );
        check_rest(
            "checkpoint: {directory: a, interval: 2m, max_age: 1m}",
            &["checkpoint.max_age: shorter than `interval`: every file would be too old at once"],
        );
        check_rest(
            "coalescing: 201ms",
            &["coalescing: found \"201ms\"; expected a duration from 0s to 200ms, written like 500ms, 10s, \
               5m or 1h"],
        );
        check_rest("log: {format: xml}", &["log.format: found \"xml\"; expected text or json"]);
        for level in ["inf", "sluice", "sluice=loud", "info,,debug", ""] {
            assert!(read(&format!("{SERVER}log: {{level: '{level}'}}")).is_err(), "{level}");
        }
    }

    #[test]
    fn of_authorities_and_types() {
        check_rest(
            "
authorities:
  a.example: {xds_server: []}
  b.example: {xds_servers: [{server_uri: 'b'}], fallback_on_reachability_only: maybe}
  c/d: {}
types:
  Cluster: {xds_servers: [{server_uri: 'file:a'}]}
  envoy.config.cluster.v3.Cluster: {}
  envoy.config.listener.v3.Listener: {xds_servers: [], authority: a}
",
            &[
                "authorities[a.example].xds_server: unknown key; did you mean `xds_servers`?",
                "authorities[b.example].xds_servers[0].server_uri: found \"b\"; expected host:port, \
                 dns:///host:port, unix:PATH, http://host:port[/prefix] or file:DIRECTORY",
                "authorities[b.example].xds_servers[0].channel_creds: missing; expected \
                 [{type: insecure}]; plaintext must be explicit",
                "authorities[b.example].fallback_on_reachability_only: found \"maybe\"; expected true or false",
                "authorities[c/d]: \"c/d\" is not a valid authority; an authority contains no `/`, \
                 `?` or `#`",
                "types[Cluster]: \"Cluster\" is not a full message name, such as \
                 envoy.config.endpoint.v3.ClusterLoadAssignment",
                "types[envoy.config.cluster.v3.Cluster].xds_servers: missing; expected a list of 1 to 16 servers",
                "types[envoy.config.listener.v3.Listener].xds_servers: found a list; expected a list of 1 to 16 servers",
                "types[envoy.config.listener.v3.Listener].authority: unknown key; known here: xds_servers, \
                 fallback, fallback_on_reachability_only",
            ],
        );
        check_rest("authorities: [a]", &["authorities: found a list; expected a map"]);
    }

    #[test]
    fn of_a_server() {
        check_server(
            "api_type: XDS",
            &[
                "channel_creds: missing; expected [{type: insecure}]; plaintext must be explicit",
                "api_type: found \"XDS\"; expected AGGREGATED_DELTA_GRPC, AGGREGATED_GRPC, DELTA_GRPC or GRPC",
            ],
        );
        check_server(
            "channel_creds: [], call_creds: [], refresh_delay: 1s",
            &[
                "call_creds: this key is not supported by this version; no tokens are sent upstream yet",
                "channel_creds: found a list; expected [{type: insecure}]; plaintext must be explicit",
                "refresh_delay: does not apply to a gRPC server",
            ],
        );
        check_server(
            "channel_creds: [{type: insecure}], api_type: REST",
            &["api_type: found \"REST\"; expected a gRPC type; for REST, use a server_uri of the form \
                 http://host:port[/prefix]"],
        );
        check(
            "xds_servers: [{server_uri: 'http://localhost:1', api_type: GRPC, wildcard: legacy, \
             channel_creds: [{type: tls}]}]",
            &[
                "xds_servers[0].refresh_delay: missing; expected how long to wait between two polls, e.g. 5s",
                "xds_servers[0].wildcard: does not apply to a REST server",
                "xds_servers[0].channel_creds[0].type: \"tls\" is not supported by this version; \
                 use `insecure` as the first entry if plaintext is acceptable",
                "xds_servers[0].api_type: found \"GRPC\"; expected REST, for a server with an http:// address",
            ],
        );
        check_server(
            "channel_creds: [{type: insecure}], resource_timeout: 999ms, wildcard: maybe, \
             backoff: {initial: 40s}",
            &[
                "wildcard: found \"maybe\"; expected explicit or legacy",
                "resource_timeout: found \"999ms\"; expected a duration from 1s to 10m, written like 500ms, 10s, \
                 5m or 1h",
                "backoff.initial: longer than `max`",
            ],
        );
        check(
            "xds_servers: [{server_uri: 'file:a', ping_interval: 1m}]",
            &["xds_servers[0].ping_interval: does not apply to a file: server"],
        );
        check(
            "xds_servers: [{server_uri: 'unix:a', channel_creds: [{type: insecure}], tcp_keepalive: {}}]",
            &["xds_servers[0].tcp_keepalive: does not apply to a unix socket"],
        );
    }

    #[test]
    fn of_listeners() {
        check_rest("listeners: []", &["listeners: found a list; expected at least one listener"]);
        check_rest(
            "
listeners:
  - {name: a, address: '0.0.0.0:1'}
  - {name: a, address: '127.0.0.1:1'}
  - {name: b, address: 'localhost:2', tls: {}, when_unavailable: wait}
  - {name: c, address: 'unix:/c', mode: 0660}
  - {name: d, address: '127.0.0.1:4', mode: '0660'}
  - {name: e, address: '127.0.0.1:0'}
  - {name: f, address: '127.0.0.1:0'}
admin: {address: '127.0.0.1:4'}
",
            &[
                "listeners[1].name: \"a\" is also listeners[0].name",
                "listeners[1].address: 127.0.0.1:1 is already used by listeners[0].address",
                "listeners[2].address: found \"localhost:2\"; expected IP:port (0.0.0.0 or [::] for every \
                 interface) or unix:PATH",
                "listeners[2].when_unavailable: found \"wait\"; expected hold or fail",
                "listeners[2].tls: this key is not supported by this version; listen on loopback or a unix \
                 socket, beside the clients",
                "listeners[3].mode: found 660; expected permissions in octal and in quotes, such as \"0660\"",
                "listeners[4].mode: does not apply to a TCP address",
                "admin.address: 127.0.0.1:4 is already used by the address of listener \"d\"",
            ],
        );
    }

    #[test]
    fn of_limits() {
        check_rest(
            "limits: {names_per_request: 300000, node_bytes: 9MiB, request_bytes: 8 MiB, memory_bytes: 1MiB}",
            &[
                "limits.request_bytes: found \"8 MiB\"; expected bytes from 1KiB to 1GiB, as an integer or \
                 written like 64KiB, 256MiB or 2GiB",
                "limits.memory_bytes: found \"1MiB\"; expected bytes from 8MiB to 1048576GiB, as an integer or \
                 written like 64KiB, 256MiB or 2GiB; or off",
                "limits.names_per_request: 300000 is more than limits.names_per_stream, 200000",
                "limits.node_bytes: 9437184 is more than limits.request_bytes, 8388608",
            ],
        );
        check_rest(
            "limits: {connections_per_ip: none, connection_age: 18446744073709551615h, name_bytes: -1}",
            &[
                "limits.connections_per_ip: found \"none\"; expected an integer from 1 to 1000000000; or off",
                "limits.name_bytes: found -1; expected bytes from 64 to 1MiB, as an integer or written like \
                 64KiB, 256MiB or 2GiB",
                "limits.connection_age: found \"18446744073709551615h\"; expected a duration from 1s to 720h, \
                 written like 500ms, 10s, 5m or 1h; or off",
            ],
        );
    }

    #[test]
    fn of_node_classes() {
        check_rest(
            "
node_classes:
  - match: {names: new, id: {prefix: a, suffix: b}, metadata: [{path: []}]}
  - match: {types: [Cluster], names: xdstp}
    legacy_wildcard: false
    split_by: {locality: city, metadata: some}
",
            &[
                "node_classes[0].match.id: found none or several; expected one of `prefix` and `suffix`",
                "node_classes[0].match.metadata[0].path: found a list; expected at least one key",
                "node_classes[0].match.metadata[0]: found none or several; expected one of `exact`, \
                 `prefix`, `suffix` and `present`",
                "node_classes[0].match.names: found \"new\"; expected old or xdstp",
                "node_classes[1].match.types[0]: found \"Cluster\"; expected a full message name, such as \
                 envoy.config.cluster.v3.Cluster",
                "node_classes[1].split_by.locality: found \"city\"; expected none, region, zone or sub_zone",
                "node_classes[1].split_by.metadata: found \"some\"; expected all, none or a list of paths, each \
                 a key or a list of keys",
                "node_classes[1].legacy_wildcard: does not apply to `names: xdstp`: the wildcard is an old-style name",
            ],
        );
        check_rest(
            "node_classes: [{split_by: {}}, {match: {id: a}}]",
            &["node_classes[1]: never reached: earlier rules match all of its nodes and types"],
        );
        check_rest(
            "node_classes: [{match: {id: a}, share_secrets: true}]",
            &[
                "node_classes[0].share_secrets: needs the Secret type in `match.types`: sharing Secrets must be explicit",
                "node_classes[0].share_secrets: needs a `split_by` without `id`; classes split by `id` share nothing",
            ],
        );
    }
}
