#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admin;
mod authorization;
mod calls;
mod classes;
mod deletion;
mod ledger;
mod load;
mod documents;
mod errors;
mod expand;
mod facts;
mod fallback;
mod places;
mod proof;
mod rollouts;
mod schema;
mod server_tls;
mod servers;
mod tls;
mod upstream_node;
mod values;
mod xds_relay;
mod xds_relay_keys;

use std::path::Path;
use std::time::Duration;

use super::*;

const EXAMPLE: &str = include_str!("../../../config/example.yaml");

/// A file with a server and nothing else.
const SERVER: &str = "xds_servers: [{server_uri: 'cp.example:15010', channel_creds: [{type: insecure}]}]\n";

/// The keys of a server that only REST has.
const REST: &str = "xds_servers: [{server_uri: 'http://localhost:1', refresh_delay: 5s, \
                    mass_deletion: {policy: hold_then_honour}}]";

fn read(text: &str) -> Result<Loaded, ConfigError> {
    let loaded = parse(text, Format::Yaml, context("/etc/sluice"));
    schema::agrees(text, loaded.as_ref().map(|_| ()));
    loaded
}

/// A host without variables.
fn context(directory: &str) -> FileContext<'_> {
    FileContext { directory: Path::new(directory), hostname: "host-1", variables: &|_| None, policy: None }
}

/// The errors of keys without the line and the column, with which each begins.
fn messages(error: &ConfigError) -> Vec<String> {
    let ConfigError::Invalid { errors } = error else { panic!("{error}") };
    let message = |error: &KeyError| {
        assert!(error.place >= Place::START, "{error}");
        let place = format!("{}:{}: ", error.place.line, error.place.column);
        error.to_string().strip_prefix(&place).expect("a place").to_owned()
    };
    errors.iter().map(message).collect()
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
    Config::new("host-1", UpstreamServer { server_uri: "cp.example:15010".into(), kind, load: None })
}

#[test]
fn a_server_is_enough() {
    assert_eq!(with_server(""), defaults());
    assert_eq!(defaults().node.id, "sluice-host-1");
}

#[test]
fn the_example_has_every_default() {
    let mut example = config(EXAMPLE);
    // The example writes the built-in rules out, so they have other places.
    for (rule, default) in example.node_classes.rules.iter_mut().zip(defaults().node_classes.rules) {
        rule.id = default.id;
    }
    assert_eq!(example, Config { servers: example.servers.clone(), ..defaults() });
    let mut server = GrpcServer::new(grpc(&example).endpoint.clone());
    // Written out, `api_type` is an order.
    server.stream.fall_back_to_sotw = false;
    assert_eq!(*grpc(&example), server);
}

#[test]
fn the_quickstart_loads() {
    let text = include_str!("../../../config/sluice.yaml");
    let loaded = parse(text, Format::Yaml, context("config")).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        loaded.config.servers.default.servers[0].kind,
        ServerKind::Directory { path: "config/quickstart".into(), mass_deletion_hold: None }
    );
}
