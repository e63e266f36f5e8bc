//! `node_classes`, and the effect of the rules on a node.

use super::*;
use sluice_engine::class::{
    ClassRule, IdPart, LocalityDepth, MetadataMatch, MetadataParts, NameStyle, NodeMatch, Projection,
    Resources, RuleId, ShareSecrets, TextMatch, UpstreamNode, ValueMatch, VersionPart,
};
use sluice_identity::Identity;
use sluice_xds::{Node, TypeUrl, Value};

const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

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
    let id = |entry, is_default| RuleId { entry, is_default };
    let grpc = ClassRule {
        id: id(0, false),
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
        id: id(1, false),
        nodes: NodeMatch {
            zone: Some(TextMatch::Exact("z".into())),
            metadata: conditions,
            ..NodeMatch::default()
        },
        types: vec![TypeUrl::of_message(SECRET), TypeUrl::of_message("istio.workload.Address")],
        names: None,
        resources: Resources::default(),
        projection: Projection {
            locality: Some(LocalityDepth::Zone),
            metadata: MetadataParts::Paths(vec![path(&["a", "c"]), path(&["b"])]),
            user_agent_version: VersionPart::Major,
            ..Projection::default()
        },
        share_secrets: ShareSecrets::Yes,
        identity_metadata: None,
        upstream_node: UpstreamNode::Projection,
        legacy_wildcard: true,
        resource_errors_alone: false,
    };
    let mut defaults = NodeClasses::default().rules;
    defaults.iter_mut().for_each(|rule| rule.id = id(2, true));
    assert_eq!(rules, [vec![grpc, secrets], defaults].concat());
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

/// What a later version states, too, splits classes.
#[test]
fn rly_11_all_metadata_but_some_paths_can_split() {
    let classes =
        with_server("node_classes: [{match: {names: old}, split_by: {metadata: {all_but: [b, [a, c], b]}}}]")
            .node_classes;
    let path = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let left_out = MetadataParts::AllBut(vec![path(&["a", "c"]), path(&["b"])]);
    assert_eq!(classes.rules[0].projection, Projection { metadata: left_out, ..Projection::default() });
    let class = |metadata: &str| {
        let node = parse_client_node(&format!("{{\"id\": \"x\", \"metadata\": {metadata}}}")).unwrap();
        let text = explain_classes(&classes, &node, &Identity::Anonymous);
        text.lines().find(|line| line.starts_with("Cluster ")).unwrap().to_owned()
    };
    assert!(class(r#"{"a": {"c": 1, "d": 1}, "b": 1}"#).ends_with(" metadata=\"a\""));
    assert_eq!(class(r#"{"a": {"c": 1}, "b": 1}"#), class(r#"{"a": {"c": 2}, "b": [2]}"#));
    assert_ne!(class(r#"{"b": 1}"#), class(r#"{"b": 1, "of_a_later_version": 1}"#));
}

/// The other parts of the id are of one client.
#[test]
fn rly_11_parts_of_the_id_can_split() {
    let rule = "{match: {names: old}, split_by: {id: {separator: '~', parts: [3, 0, 3]}}}";
    let classes = with_server(&format!("node_classes: [{rule}]")).node_classes;
    let id = IdPart::At { separator: "~".into(), places: vec![0, 3] };
    assert_eq!(classes.rules[0].projection, Projection { id, ..Projection::default() });
    let class = |id: &str| {
        let node = parse_client_node(&format!("{{\"id\": \"{id}\"}}")).unwrap();
        let text = explain_classes(&classes, &node, &Identity::Anonymous);
        text.lines().find(|line| line.starts_with("Cluster ")).unwrap().to_owned()
    };
    let one = class("sidecar~10.1.1.1~web-1.prod~prod.svc");
    assert!(one.ends_with(" id.parts=\"sidecar~~~prod.svc\""), "{one}");
    assert_eq!(one, class("sidecar~10.1.1.2~web-2.prod~prod.svc"));
    assert_ne!(one, class("sidecar~10.1.1.1~web-1.prod~test.svc"));
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
    let text = explain_classes(&classes, &node, &Identity::Anonymous);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_string();
    assert!(line("Cluster ").contains(" node_classes[0] "), "{text}");
    let built_in =
        text.lines().find(|line| line.starts_with("Cluster ") && line.contains(" xdstp ")).unwrap();
    assert!(built_in.contains(" node_classes[1] (default) "), "{text}");
    let digest = |line: &str| line.split_once(" class ").unwrap().1.split(' ').next().unwrap().to_owned();
    assert!(line("Cluster ").ends_with(" cluster=\"edge\""), "{text}");
    assert!(line("Secret ").ends_with(" id=\"a\" cluster=\"edge\" identity=\"anonymous\""), "{text}");
    assert_eq!(digest(&line("Cluster ")), digest(&line("Listener ")), "{text}");
    assert_ne!(digest(&line("Cluster ")), digest(&line("Secret ")), "{text}");
    assert!(built_in.ends_with(" of everybody"), "{text}");
}

const ISTIO: &str = include_str!("../../../config/istio.yaml");

/// A sidecar, as pilot-agent describes it, with one property changed.
fn sidecar(from: &str, to: &str) -> Node {
    let json = r#"{"id": "sidecar~10.0.0.7~web-1.prod~prod.svc.cluster.local", "cluster": "web.prod",
        "locality": {"region": "r1", "zone": "z1"}, "user_agent_name": "envoy",
        "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40, "patch": 0}},
        "metadata": {"NAMESPACE": "prod", "LABELS": {"app": "web"}, "SERVICE_ACCOUNT": "web", "ISTIO_VERSION": "1.31",
        "NETWORK": "n", "CLUSTER_ID": "c", "INTERCEPTION_MODE": "REDIRECT", "INSTANCE_IPS": "10.0.0.7",
        "PROXY_CONFIG": {"concurrency": 2}, "NODE_NAME": "host-1", "TEAM": "a"}}"#;
    assert!(json.contains(from), "{from}");
    parse_client_node(&json.replace(from, to)).unwrap()
}

/// istiod answers by each of these properties: by some directly, and by some that the registry has for the
/// address and the name.
#[test]
fn rly_10_the_shipped_file_for_istiod_has_a_class_for_each_proxy() {
    let shipped = config(ISTIO).node_classes;
    let types =
        ["envoy.config.cluster.v3.Cluster", "istio.workload.Address", SECRET].map(TypeUrl::of_message);
    let class = |node: &Node, type_url, style| {
        shipped.classify(Some(node), &Identity::Anonymous, type_url, style).unwrap()
    };
    for (property, from, to) in [
        ("the zone, labels and host in the registry", "10.0.0.7~web-1", "10.0.0.8~web-2"),
        ("the stated zone", "z1", "z2"),
        ("a label", r#""app": "web""#, r#""app": "web", "version": "v2""#),
        ("proxyMetadata and annotations of a rollout", r#""concurrency": 2"#, r#""concurrency": 4"#),
        ("a key that an EnvoyFilter matches", r#""TEAM": "a""#, r#""TEAM": "b""#),
        ("a key that is new", r#""TEAM": "a""#, r#""TEAM": "a", "HTTP10": "1""#),
        ("the cluster", "web.prod\"", "api.prod\""),
        ("its own addresses", r#""INSTANCE_IPS": "10.0.0.7""#, r#""INSTANCE_IPS": "10.0.0.7,fd00::7""#),
        ("the host", "host-1", "host-2"),
        ("the kind of proxy", "sidecar~", "waypoint~"),
        ("the DNS domain", "prod.svc.cluster.local", "prod.svc.other.local"),
        ("the version", r#""minor_number": 40"#, r#""minor_number": 41"#),
    ] {
        let (one, other) = (sidecar("", ""), sidecar(from, to));
        for type_url in &types {
            for style in [NameStyle::Old, NameStyle::Xdstp] {
                assert_ne!(class(&one, type_url, style), class(&other, type_url, style), "{property}");
                assert_eq!(class(&one, type_url, style).upstream_node, UpstreamNode::Member);
            }
        }
    }
}

/// The form in the comments is a valid one, and shares what its conditions say.
#[test]
fn rly_10_the_shared_form_for_istiod_stands_in_comments() {
    let lines = ISTIO.lines().skip_while(|line| *line != "# node_classes:");
    let lines = lines.map_while(|line| line.strip_prefix("# "));
    let shared = with_server(&lines.collect::<Vec<_>>().join("\n")).node_classes;
    let clusters = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let class =
        |node: &Node| shared.classify(Some(node), &Identity::Anonymous, &clusters, NameStyle::Old).unwrap();
    let one = sidecar("", "");
    assert_eq!(class(&one), class(&sidecar("10.0.0.7~web-1", "10.0.0.8~web-2")));
    assert_ne!(class(&one), class(&sidecar(r#""app": "web""#, r#""app": "api""#)));
    assert_eq!(class(&one).upstream_node, UpstreamNode::Member);
}
