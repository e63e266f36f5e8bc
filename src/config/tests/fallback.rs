//! Lists of several servers, and how they stand in for each other.

use super::*;
use crate::driver::api::downstream::WhenUnavailable;
use sluice_engine::fallback::{FallbackPolicy, FallbackSettings};

fn server(uri: &str) -> String {
    format!("{{server_uri: '{uri}', channel_creds: [{{type: insecure}}]}}")
}

/// A list of so many servers on this host.
fn list(count: usize) -> String {
    let servers: Vec<_> = (1..=count).map(|port| server(&format!("localhost:{port}"))).collect();
    format!("xds_servers: [{}]", servers.join(", "))
}

fn errors(text: &str) -> Vec<String> {
    messages(&read(text).expect_err(text))
}

fn warned(text: &str) -> Vec<String> {
    let warnings = read(text).expect(text).warnings;
    warnings.into_iter().map(|warning| warning.path).collect()
}

#[test]
fn fed_1_a_list_has_up_to_16_servers_in_order_of_priority() {
    for count in [1, 2, 16] {
        let config = config(&list(count));
        let uris: Vec<_> =
            config.servers.default.servers.into_iter().map(|server| server.server_uri).collect();
        assert_eq!(uris, (1..=count).map(|port| format!("localhost:{port}")).collect::<Vec<_>>());
    }
    assert_eq!(errors(&list(17)), ["xds_servers: found 17 servers; expected a list of 1 to 16 servers"]);
    let of_type = format!("{SERVER}types: {{a.B: {{{}}}}}", list(17));
    assert_eq!(
        errors(&of_type),
        ["types[a.B].xds_servers: found 17 servers; expected a list of 1 to 16 servers"]
    );
}

#[test]
fn fed_1_servers_of_all_kinds_stand_in_one_list() {
    let text = format!(
        "xds_servers: [{}, {{server_uri: 'http://localhost:2', refresh_delay: 5s}}, {{server_uri: 'file:last'}}]",
        server("localhost:1")
    );
    assert_eq!(config(&text).servers.default.servers.len(), 3);
    assert_eq!(warned(&text), [""; 0]);
    // Each of them has its own errors.
    let text = format!("xds_servers: [{}, {{server_uri: 'http://localhost:2'}}, {{}}]", server("localhost"));
    let paths: Vec<_> =
        errors(&text).into_iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    let expected = [
        "xds_servers[0].server_uri",
        "xds_servers[1].refresh_delay",
        "xds_servers[2].server_uri",
        "xds_servers[2].channel_creds",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn fbk_17_the_flag_is_of_its_list_alone() {
    let text = format!(
        "{}
fallback_on_reachability_only: true
authorities:
  inherits.example: {{}}
  flagged.example: {{fallback_on_reachability_only: true, {}}}
  plain.example: {{{}}}
types:
  a.B: {{fallback_on_reachability_only: true, {}}}
  a.C: {{{}}}
",
        list(2),
        list(2),
        list(2),
        list(2),
        list(2)
    );
    let flags: Vec<_> = config(&text)
        .servers
        .lists()
        .map(|(path, list)| (path, list.servers.len(), list.fallback.on_reachability_only))
        .collect();
    let expected = [
        ("xds_servers", 2, true),
        ("authorities[flagged.example]", 2, true),
        ("authorities[inherits.example]", 2, false),
        ("authorities[plain.example]", 2, false),
        ("types[a.B]", 2, true),
        ("types[a.C]", 2, false),
    ];
    assert_eq!(flags, expected.map(|(path, count, flag)| (path.to_owned(), count, flag)));
}

#[test]
fn a_list_overrides_the_fallback_of_the_top_level_key_by_key() {
    assert_eq!(config(&list(2)).servers.default.fallback, FallbackSettings::default());
    let text = format!(
        "{}
fallback: {{resolve_timeout: 1s, hold_down: 0s}}
authorities:
  a.example: {{fallback: {{hold_down: 1h}}}}
types:
  a.B: {{fallback: {{policy: envoy}}, {}}}
  a.C: {{{}}}
",
        list(2),
        list(2),
        list(2)
    );
    let top = FallbackSettings {
        resolve_timeout: Duration::from_secs(1),
        hold_down: Duration::ZERO,
        ..FallbackSettings::default()
    };
    let fallbacks: Vec<_> = config(&text).servers.lists().map(|(_, list)| list.fallback.clone()).collect();
    let expected = [
        top.clone(),
        FallbackSettings { hold_down: Duration::from_secs(3600), ..top.clone() },
        FallbackSettings { policy: FallbackPolicy::Envoy, ..top.clone() },
        top,
    ];
    assert_eq!(fallbacks, expected);
}

#[test]
fn fbk_20_envoys_failover_is_for_two_grpc_servers_that_are_alike() {
    let envoy = "\nfallback: {policy: envoy}";
    assert_eq!(config(&format!("{}{envoy}", list(2))).servers.default.fallback.policy, FallbackPolicy::Envoy);
    let (first, second) = (server("localhost:1"), server("localhost:2"));
    assert_eq!(
        errors(&format!("{}{envoy}", list(3))),
        ["fallback: `policy: envoy` allows at most two servers; the list has 3"]
    );
    assert_eq!(
        errors(&format!("xds_servers: [{first}, {{server_uri: 'file:a'}}]{envoy}")),
        ["fallback: `policy: envoy` allows only gRPC servers; \"file:a\" is not a gRPC server"]
    );
    for (key, value) in [
        ("server_features", "[fail_on_data_errors]"),
        ("api_type", "GRPC"),
        ("wildcard", "legacy"),
        ("resource_timeout", "11s"),
        ("resource_timeouts", "{a.B: 1s}"),
        ("mass_deletion", "{policy: hold_then_honour}"),
        ("backoff", "{max: 9s}"),
    ] {
        let second = second.replace("server_uri", &format!("{key}: {value}, server_uri"));
        let expected = format!(
            "fallback: `policy: envoy` needs servers with equal settings; \"localhost:2\" has another `{key}`"
        );
        assert_eq!(errors(&format!("xds_servers: [{first}, {second}]{envoy}")), [expected]);
    }
    let second = second.replace("server_uri", "connect_timeout: 1s, server_uri");
    assert!(
        read(&format!("xds_servers: [{first}, {second}]{envoy}")).is_ok(),
        "connections are each their own"
    );
    assert_eq!(
        errors(&format!("{}{envoy}\nfallback_on_reachability_only: true", list(2))),
        [
            "fallback_on_reachability_only: does not apply to `policy: envoy`, which uses the second server while the \
             first has never answered"
        ]
    );
    assert_eq!(
        errors(&format!("{}\nfallback: {{policy: envoy, hold_down: 1s}}", list(2))),
        ["fallback.hold_down: does not apply to `policy: envoy`"]
    );
    // Of a list that inherits the policy, and of one that inherits the servers.
    assert_eq!(
        errors(&format!("{}{envoy}\ntypes: {{a.B: {{{}}}}}", list(2), list(3))),
        ["types[a.B].xds_servers: `policy: envoy` allows at most two servers; the list has 3"]
    );
    assert_eq!(
        errors(&format!("{}\nauthorities: {{a: {{fallback: {{policy: envoy}}}}, b: {{}}}}", list(3))),
        ["authorities[a].fallback: `policy: envoy` allows at most two servers; the list has 3"]
    );
    assert_eq!(errors(&format!("{}{envoy}\nauthorities: {{a: {{}}}}", list(3))).len(), 1, "it is told once");
}

#[test]
fn what_a_single_server_makes_useless_is_warned_of() {
    let alone = list(1);
    assert_eq!(warned(&format!("{alone}\nfallback: {{}}")), ["fallback"]);
    assert_eq!(warned(&format!("{alone}\nfallback: {{policy: envoy}}")), ["fallback"]);
    assert_eq!(
        warned(&format!("{alone}\nfallback_on_reachability_only: true")),
        ["fallback_on_reachability_only"]
    );
    assert_eq!(warned(&format!("{alone}\nfallback_on_reachability_only: false")), [""; 0]);
    let text = format!("{alone}\nfallback: {{}}\ntypes: {{a.B: {{{}}}}}", list(2));
    assert_eq!(warned(&text), [""; 0], "it is the default of a list that has use for it");
    let text = format!("{}\ntypes: {{a.B: {{fallback: {{}}, {alone}}}}}", list(2));
    assert_eq!(warned(&text), ["types[a.B].fallback"]);
}

#[test]
fn a_server_that_stands_twice_in_a_list_is_warned_of() {
    let (first, second) = (server("localhost:1"), server("localhost:2"));
    assert_eq!(warned(&format!("xds_servers: [{first}, {second}, {first}]")), ["xds_servers[2]"]);
}

#[test]
fn values_of_fallback_are_checked() {
    assert_eq!(
        errors(&format!(
            "{}\nfallback: {{policy: aws, resolve_timeout: 0s, hold_down: 2h, after: 1s}}",
            list(2)
        )),
        [
            "fallback.policy: found \"aws\"; expected grpc or envoy",
            "fallback.resolve_timeout: found \"0s\"; expected a duration from 100ms to 10m, written like 500ms, 10s, 5m \
             or 1h",
            "fallback.hold_down: found \"2h\"; expected a duration from 0s to 1h, written like 500ms, 10s, 5m or 1h",
            "fallback.after: unknown key; known here: policy, resolve_timeout, hold_down",
        ]
    );
}

#[test]
fn a_list_is_explained_with_its_rules() {
    let text = format!(
        "{}\ntypes: {{a.B: {{fallback: {{policy: envoy}}, {}}}, a.C: {{fallback_on_reachability_only: true, {}}}}}",
        list(2),
        list(2),
        list(2)
    );
    let text = explain_servers(&config(&text).servers);
    let lines: Vec<_> = text.lines().map(|line| line.rsplit_once(": ").unwrap().1).collect();
    let servers = "localhost:1, localhost:2";
    let expected = ["fallback", "Envoy's failover", "fallback on reachability only"];
    assert_eq!(lines, expected.map(|rules| format!("{servers} ({rules})")));
}

#[test]
fn fed_9_dat_2_fail_on_data_errors_is_a_feature_of_a_server() {
    let text = SERVER.replace("server_uri", "server_features: [fail_on_data_errors], server_uri");
    assert!(grpc(&config(&text)).stream.fails_on_data_errors);
    assert!(!grpc(&config(SERVER)).stream.fails_on_data_errors);
    assert_eq!(warned(&text), ["xds_servers[0].server_uri"]);
}

#[test]
fn rly_4_a_listener_holds_or_fails() {
    let when_unavailable = |keys: &str| {
        let text = format!("{SERVER}listeners: [{{name: a, address: 'unix:a'{keys}}}]");
        config(&text).listeners[0].options.when_unavailable
    };
    assert_eq!(when_unavailable(""), WhenUnavailable::Hold);
    assert_eq!(when_unavailable(", when_unavailable: hold"), WhenUnavailable::Hold);
    assert_eq!(when_unavailable(", when_unavailable: fail"), WhenUnavailable::Fail);
}
