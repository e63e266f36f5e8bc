#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod classes;
mod deletion;
mod errors;
mod fallback;
mod servers;
mod upstream_node;
mod values;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::reader::{Item, Report};
use super::tree::Tree;
use super::*;

const EXAMPLE: &str = include_str!("../../../config/example.yaml");
const DOCS: &str = include_str!("../../../docs/configuration.md");

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
    let text = include_str!("../../../config/sluice.yaml");
    let loaded = parse(text, Format::Yaml, Path::new("config"), "host-1").unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        loaded.config.servers.default.servers[0].kind,
        ServerKind::Directory("config/quickstart".into())
    );
}
