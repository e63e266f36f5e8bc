//! xds-relay's configuration, translated.

use crate::config::xds_relay::{Migrated, Migration};

use super::*;

/// The places and paths of everything that was not translated, and the result.
fn migrate(texts: &[&str]) -> (Vec<String>, Migrated) {
    let mut migration = Migration::default();
    let mut warned = Vec::new();
    for text in texts {
        let warnings = migration.add(text).unwrap();
        warned.extend(warnings.iter().map(|warning| format!("{}: {}", warning.place, warning.path)));
    }
    (warned, migration.finish())
}

/// The translated rules without types: `match` and `split_by` as sluice reads them.
fn rules(fragments: &str) -> (Vec<String>, Vec<(String, String)>) {
    let (warned, migrated) = migrate(&[BOOTSTRAP, fragments]);
    let loaded = read(&migrated.yaml).expect(&migrated.yaml);
    let rules = loaded.config.node_classes.rules.iter().filter(|rule| !rule.id.is_default);
    let node = parse_client_node(r#"{"id": "I", "cluster": "C", "locality": {"region": "R", "zone": "Z", "sub_zone": "S"}, "metadata": {"m": {"n": "v"}}}"#).unwrap();
    let shown = rules
        .map(|rule| {
            (
                rule.describe_match(),
                rule.projection.describe(&node, &sluice_identity::Identity::Anonymous, None),
            )
        })
        .collect();
    (warned.into_iter().chain(migrated.lost).collect(), shown)
}

const BOOTSTRAP: &str = "
server: { address: { address: 0.0.0.0, port_value: 8400 } }
origin_server: { address: { address: cp.internal, port_value: 8401 }, keep_alive_time: 2m }
logging: { path: /dev/stderr, level: WARN }
cache: { ttl: 0s, max_entries: 0 }
admin: { address: { address: localhost, port_value: 8402 } }
";

const ALL: &str = "types: [type.googleapis.com/envoy.config.listener.v3.Listener, \
    type.googleapis.com/envoy.config.cluster.v3.Cluster, \
    type.googleapis.com/envoy.config.route.v3.RouteConfiguration, \
    type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment]";

#[test]
fn a_bootstrap_becomes_addresses_and_the_log() {
    let (warned, migrated) = migrate(&[BOOTSTRAP]);
    assert_eq!((warned, &migrated.lost), (Vec::<String>::new(), &vec![]));
    let config = config(&migrated.yaml);
    assert_eq!(config.listeners[0].address.to_string(), "0.0.0.0:8400");
    assert_eq!(config.admin.address.to_string(), "127.0.0.1:8402");
    assert_eq!(config.servers.default.servers[0].server_uri, "cp.internal:8401");
    assert_eq!(grpc(&config).connection.ping_interval, Duration::from_secs(120));
    assert_eq!(config.log.level, "warn");
}

#[test]
fn what_a_bootstrap_cannot_say_is_named_with_its_place() {
    let text = "server: {address: {address: relay.internal, portValue: 1}}
originServer:
  address: {address: 0.0.0.0, port_value: 2}
  keepAliveTime: 1s
  stream_timeout: 5m
  request_node_metadata: edge
logging: {path: /var/log/relay.log}
cache: {ttl: 60s, max_entries: 9}
metrics_sink: {statsd: {root_prefix: a}}
";
    let (warned, migrated) = migrate(&[text]);
    assert_eq!(
        warned,
        [
            "1:19: server.address",
            "4:18: originServer.keepAliveTime",
            "5:19: originServer.stream_timeout",
            "6:26: originServer.request_node_metadata",
            "7:17: logging.path",
            "8:32: cache.max_entries",
            "9:15: metrics_sink",
        ]
    );
    let config = config(&migrated.yaml);
    assert_eq!(config.servers.default.servers[0].server_uri, "127.0.0.1:2");
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:1");
}

#[test]
fn whole_fields_are_translated_and_names_need_nothing() {
    let text = format!(
        "fragments:
- rules:
  - match: {{ request_type_match: {{ {ALL} }} }}
    result:
      and_result:
        result_predicates:
        - request_node_fragment: {{ cluster_action: {{ exact: true }} }}
        - request_node_fragment: {{ locality_action: {{ region_action: {{ exact: true }}, zone_action: {{ exact: true }} }} }}
        - string_fragment: \"-x\"
- rules:
  - match: {{ requestTypeMatch: {{ types: [type.googleapis.com/envoy.config.route.v3.RouteConfiguration] }} }}
    result: {{ resource_names_fragment: {{ element: 0, action: {{ exact: true }} }} }}
  - match: {{ request_type_match: {{ types: [type.googleapis.com/envoy.config.listener.v3.Listener] }} }}
    result: {{ request_node_fragment: {{ node_metadata_action: {{ path: [{{ key: m }}, {{ key: n }}], action: {{ exact: true }} }} }} }}
"
    );
    let (lost, rules) = rules(&text);
    assert_eq!(lost, Vec::<String>::new());
    let place = "cluster=\"C\" locality=[\"R\", \"Z\"]";
    let expected = [
        ("types=Listener".to_owned(), format!("{place} metadata=m/n")),
        ("types=Cluster,RouteConfiguration,ClusterLoadAssignment".to_owned(), place.to_owned()),
    ];
    assert_eq!(rules, expected);
}

/// A rule for certain nodes becomes an entry of its own before the others; its fields split, so that no other
/// node has the same class.
#[test]
fn exact_conditions_become_entries() {
    let text = format!(
        "fragments:
- rules:
  - match: {{ request_type_match: {{ {ALL} }} }}
    result: {{ request_node_fragment: {{ cluster_action: {{ exact: true }} }} }}
- rules:
  - match:
      and_match:
        rules:
        - request_node_match: {{ id_match: {{ exact_match: canary }} }}
        - request_type_match: {{ {ALL} }}
    result: {{ string_fragment: canary }}
  - match: {{ or_match: {{ rules: [
      {{ request_node_match: {{ node_metadata_match: {{ path: [{{ key: dark }}], match: {{ bool_match: {{ value_match: true }} }} }} }} }},
      {{ request_node_match: {{ locality_match: {{ region: {{ regex_match: '^eu-1$' }} }} }} }} ] }} }}
    result: {{ string_fragment: special }}
"
    );
    let (lost, rules) = rules(&text);
    assert_eq!(lost, Vec::<String>::new());
    let (matched, splits): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
    let types = "types=Listener,Cluster,RouteConfiguration,ClusterLoadAssignment";
    assert_eq!(matched.len(), 8, "{matched:?}");
    assert_eq!(matched[0], format!("{types} id=canary locality.region=eu-1 metadata.dark=a certain value"));
    assert_eq!(matched[7], types);
    assert_eq!(splits[7], "cluster=\"C\"");
    for (matched, split) in matched.iter().zip(&splits) {
        assert_eq!(matched.contains("id=canary"), split.contains("id="), "{matched}: {split}");
        assert_eq!(matched.contains("region"), split.contains("locality"), "{matched}: {split}");
    }
}

#[test]
fn conditions_without_words_split_by_their_fields() {
    let text = format!(
        "fragments:
- rules:
  - match: {{ request_type_match: {{ {ALL} }} }}
    result: {{ request_node_fragment: {{ id_action: {{ regex_action: {{ pattern: '^(.*)-[0-9]+$', replace: '$1' }} }} }} }}
  - match: {{ request_node_match: {{ cluster_match: {{ regex_match: '^prod-.*' }} }} }}
    result: {{ string_fragment: prod }}
  - match: {{ not_match: {{ request_node_match: {{ locality_match: {{ zone: {{ exact_match: z1 }} }} }} }} }}
    result: {{ string_fragment: far }}
"
    );
    let (lost, rules) = rules(&text);
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert_eq!(rules[0].1, "id=\"I\" cluster=\"C\" locality=[\"R\", \"Z\"]");
    let has = |start: &str| lost.iter().any(|text| text.starts_with(start));
    assert!(
        has("4:67: fragments[0].rules[0].result.request_node_fragment.id_action.regex_action"),
        "{lost:?}"
    );
    assert!(
        has("5:66: fragments[0].rules[1].match.request_node_match.cluster_match.regex_match"),
        "{lost:?}"
    );
    assert!(has("some conditions for envoy.config.listener.v3.Listener"), "{lost:?}");
}

#[test]
fn old_types_turn_the_old_version_on_and_unknown_ones_are_named() {
    let text = "fragments: [{ rules: [
  { match: { request_type_match: { types: [type.googleapis.com/envoy.api.v2.Cluster, type.googleapis.com/envoy.api.v2.Route] } },
    result: { string_fragment: a } } ] }]";
    let (_, migrated) = migrate(&[text]);
    assert!(migrated.yaml.contains("v2: true"), "{}", migrated.yaml);
    let names = |part: &str| migrated.lost.iter().filter(|lost| lost.contains(part)).count();
    assert_eq!(names("envoy.api.v2.Route is no type"), 1, "{:?}", migrated.lost);
    assert_eq!(names("xds-relay refuses this type"), 3, "{:?}", migrated.lost);
    assert_eq!((names("API v3"), names("CONTROL_PLANE")), (1, 1), "{:?}", migrated.lost);
    // Only the control plane is missing.
    let missing = read(&migrated.yaml).unwrap_err().only_unset();
    assert_eq!(missing.unwrap(), ["xds_servers[0].server_uri: the environment variable CONTROL_PLANE"]);
}

#[test]
fn a_file_of_another_kind_is_refused_with_a_place() {
    for (text, expected) in [
        ("a: 1", "1:1: found none or several; expected `fragments`"),
        ("[]", "1:1: found a list; expected a map"),
        (
            "fragments: [{ rules: [{ match: {}, result: { string_fragment: a } }] }]",
            "1:32: fragments[0].rules[0].match: ",
        ),
        ("fragments: [{ rulez: [] }]", "1:15: fragments[0].rulez: unknown key; did you mean `rules`?"),
        (
            "fragments: [{ rules: [{ match: { any_match: true }, result: { id: a } }] }]",
            "1:61: fragments[0].rules[0].result: ",
        ),
        ("server: {}", "1:1: found none or several; expected origin_server"),
        ("fragments: [", "1:"),
    ] {
        let error = Migration::default().add(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let deep = format!("fragments: [{{ rules: [{{ match: {}", "{ not_match: ".repeat(20));
    let deep =
        format!("{deep} {{ any_match: true }} {} , result: {{ string_fragment: a }} }}] }}]", "}".repeat(20));
    assert!(Migration::default().add(&deep).unwrap_err().to_string().contains("at most 16 levels"));
}

#[test]
fn texts_of_rules_are_quoted() {
    let text = "fragments: [{ rules: [{ match: { request_node_match: { id_match: { exact_match: '${HOME}: \"a\" #' } } },
        result: { string_fragment: a } }] }]";
    let (_, rules) = rules(text);
    assert!(rules[0].0.ends_with("id=${HOME}: \"a\" #"), "{rules:?}");
}
