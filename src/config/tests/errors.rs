//! Each wrong file beside its error messages.

use super::*;

fn check(text: &str, expected: &[&str]) {
    let Err(error) = read(text) else { panic!("taken: {text}") };
    assert_eq!(messages(&error), expected, "{text}");
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
    channel_creds: [{type: alts}, {type: insecure}]
    api_type: REST
listeners:
  - {adress: '127.0.0.1:1', name: a}
linger: 10 seconds
limits: {connections: 0}
",
        &[
            "node.id: found 7; expected text (in quotes if it looks like a number)",
            "xds_servers[0].refresh_delay: missing; expected how long to wait between two polls, e.g. 5s",
            "xds_servers[0].channel_creds[0].type: \"alts\" is not supported by this version; \
             use `tls`, or `insecure` as the first entry if plaintext is acceptable",
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
        ("a: 1\nb: [1\n", Format::Yaml, "2:4: "),
        ("linger: 1s\nlinger: 2s\n", Format::Yaml, "2:1: the key \"linger\" is repeated"),
        ("{\"a\": 1,\n \"a\": 2}", Format::Json, "2:"),
        ("{\"a\": 1,\n \"b\" 2}", Format::Json, "2:6: "),
    ] {
        let error = parse(text, format, context("")).unwrap_err();
        assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
        assert!(error.to_string().starts_with(place), "{error}");
        assert_eq!(error.to_string().matches("line").count(), 0, "{error}");
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
    let collector = "expected http://HOST:PORT of an OpenTelemetry collector (OTLP over gRPC)";
    check_rest("traces: {slow: 1s}", &[&format!("traces.endpoint: missing; {collector}")]);
    for endpoint in
        ["https://a:1", "a:1", "http://a", "http://:1", "http://a:1/v1/traces", "http://a:0", "http://u@a:1"]
    {
        check_rest(
            &format!("traces: {{endpoint: '{endpoint}'}}"),
            &[&format!("traces.endpoint: found \"{endpoint}\"; {collector}")],
        );
    }
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
             dns:///host:port, unix:PATH, http[s]://host:port[/prefix] or file:DIRECTORY",
            "authorities[b.example].xds_servers[0].channel_creds: missing; expected \
             [{type: tls}], or [{type: insecure}]; plaintext must be explicit",
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
            "channel_creds: missing; expected [{type: tls}], or [{type: insecure}]; plaintext must be explicit",
            "api_type: found \"XDS\"; expected AGGREGATED_DELTA_GRPC, AGGREGATED_GRPC, DELTA_GRPC or GRPC",
        ],
    );
    check_server(
        "channel_creds: [], refresh_delay: 1s",
        &[
            "channel_creds: found a list; expected [{type: tls}], or [{type: insecure}]; plaintext must be explicit",
            "refresh_delay: does not apply to a gRPC server",
        ],
    );
    check_server(
        "channel_creds: [{type: insecure}], api_type: REST",
        &["api_type: found \"REST\"; expected a gRPC type; for REST, use a server_uri of the form \
             http[s]://host:port[/prefix]"],
    );
    check(
        "xds_servers: [{server_uri: 'http://localhost:1', api_type: GRPC, wildcard: legacy, \
         channel_creds: [{type: alts}]}]",
        &[
            "xds_servers[0].refresh_delay: missing; expected how long to wait between two polls, e.g. 5s",
            "xds_servers[0].wildcard: does not apply to a REST server",
            "xds_servers[0].channel_creds[0].type: \"alts\" is not supported by this version; \
             use `tls`, or `insecure` as the first entry if plaintext is acceptable",
            "xds_servers[0].api_type: found \"GRPC\"; expected REST, for a server with an http:// or https:// address",
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
  - {name: b, address: 'localhost:2', when_unavailable: wait}
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
            "limits.connection_age: found \"18446744073709551615h\"; expected a duration from 1s to 720h, \
             written like 500ms, 10s, 5m or 1h; or off",
            "limits.name_bytes: found -1; expected bytes from 64 to 1MiB, as an integer or written like \
             64KiB, 256MiB or 2GiB",
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
  - match: {id: a}
    split_by: {metadata: {all_but: []}}
  - match: {id: b}
    split_by: {metadata: {all_but: [[]], but: []}}
  - match: {id: c}
    split_by: {metadata: {}}
  - match: {id: d}
    split_by: {id: {parts: []}}
  - match: {id: e}
    split_by: {id: {separator: '', parts: [64, -1]}}
  - match: {id: f}
    split_by: {id: some}
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
            "node_classes[1].split_by.metadata: found \"some\"; expected all, none, a list of paths, each \
             a key or a list of keys, or { all_but: PATHS }",
            "node_classes[1].legacy_wildcard: does not apply to `names: xdstp`: the wildcard is an old-style name",
            "node_classes[2].split_by.metadata.all_but: found a list; expected at least one path; `all` \
             leaves nothing out",
            "node_classes[3].split_by.metadata.all_but[0]: found a list; expected at least one key",
            "node_classes[3].split_by.metadata.but: unknown key; known here: all_but",
            "node_classes[4].split_by.metadata.all_but: missing; expected a list of paths",
            "node_classes[5].split_by.id.separator: missing; expected a text",
            "node_classes[5].split_by.id.parts: found a list; expected at least one number; `id: false` keeps nothing \
             of the id",
            "node_classes[6].split_by.id.separator: found \"\"; expected text (in quotes if it looks like a number)",
            "node_classes[6].split_by.id.parts[0]: found 64; expected the number of a part, from 0 to 63",
            "node_classes[7].split_by.id: found \"some\"; expected true, false, or { separator: TEXT, parts: \
             [NUMBER, …] }",
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
            "node_classes[0].share_secrets: needs a `split_by` without the whole `id`; classes split by `id` share nothing",
        ],
    );
}

/// ADM-6: each error names the keys that are known at its place, so a text of nothing else would be answered
/// a hundredfold.
#[test]
fn adm_6_a_text_of_errors_is_answered_in_some() {
    let keys: String = (0..40_000).map(|number| format!("xds_server{number}: 1\n")).collect();
    let variables: String = (0..20_000).map(|number| format!("- ${{V{number}}}\n")).collect();
    for text in [format!("{SERVER}{keys}"), format!("{SERVER}node_classes:\n{variables}")] {
        let error = parse(&text, Format::Yaml, context("/")).unwrap_err();
        assert_eq!(messages(&error).len(), 500);
    }
}
