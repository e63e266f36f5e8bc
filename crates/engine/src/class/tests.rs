//! The rules, and the projections that they have.

#![allow(clippy::unwrap_used)]

use super::*;
use sluice_xds::{Locality, Value};

fn text(text: &str) -> Value {
    Value::String(text.into())
}

#[test]
fn rly_11_every_condition_of_a_match_must_hold() {
    let path = vec!["labels".to_string(), "rev".to_string()];
    let labels = Value::Struct([("rev".to_string(), text("v7-canary"))].into());
    let node = Node {
        id: "envoy-1".into(),
        cluster: "edge".into(),
        locality: Some(Locality { zone: "z1".into(), ..Locality::default() }),
        metadata: [("labels".to_string(), labels)].into(),
        ..Node::default()
    };
    let id = |id| NodeMatch { id: Some(id), ..NodeMatch::default() };
    let metadata = |value| {
        let condition = MetadataMatch { path: path.clone(), value };
        NodeMatch { metadata: vec![condition], ..NodeMatch::default() }
    };
    let cases = [
        (NodeMatch::default(), true),
        (id(TextMatch::Prefix("envoy-".into())), true),
        (id(TextMatch::Exact("envoy-".into())), false),
        (id(TextMatch::Suffix("-1".into())), true),
        (id(TextMatch::Suffix("envoy".into())), false),
        (NodeMatch { zone: Some(TextMatch::Exact("z2".into())), ..NodeMatch::default() }, false),
        (
            NodeMatch { cluster: Some(TextMatch::Exact("x".into())), ..id(TextMatch::Prefix("e".into())) },
            false,
        ),
        (metadata(ValueMatch::Present), true),
        (metadata(ValueMatch::Equal(text("v7-canary"))), true),
        (metadata(ValueMatch::Equal(Value::Null)), false),
        (metadata(ValueMatch::Text(TextMatch::Prefix("v7".into()))), true),
        (metadata(ValueMatch::Text(TextMatch::Suffix("v7".into()))), false),
    ];
    for (nodes, expected) in cases {
        assert_eq!(nodes.matches(&node), expected, "{nodes:?}");
    }
    assert!(!metadata(ValueMatch::Present).matches(&Node::default()));
}

#[test]
fn secrets_split_by_id_unless_stated_otherwise() {
    let secret = TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret");
    let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let mut rule = ClassRule::for_names(NameStyle::Xdstp, Projection::features_only());
    let projection_of = |rule: &ClassRule, url| rule.projection_of(url, &Identity::Anonymous, true);
    assert_eq!(projection_of(&rule, &secret).id, IdPart::Whole);
    assert_eq!(projection_of(&rule, &cluster).id, IdPart::None);
    rule.types = vec![secret.clone()];
    let node = Node::default();
    assert!(rule.matches(&node, &secret, NameStyle::Xdstp));
    assert!(!rule.matches(&node, &cluster, NameStyle::Xdstp));
    assert!(!rule.matches(&node, &secret, NameStyle::Old));
    rule.share_secrets = ShareSecrets::Yes;
    assert_eq!(projection_of(&rule, &secret).id, IdPart::None);
}

fn text_match(text: &str) -> Option<TextMatch> {
    Some(match (text.strip_suffix('*'), text.strip_prefix('*')) {
        (Some(prefix), _) => TextMatch::Prefix(prefix.to_owned()),
        (_, Some(suffix)) => TextMatch::Suffix(suffix.to_owned()),
        _ => TextMatch::Exact(text.to_owned()),
    })
}

fn rule(entry: usize, nodes: NodeMatch, names: Option<NameStyle>) -> ClassRule {
    let rule = ClassRule::for_names(NameStyle::Old, Projection { cluster: true, ..Projection::default() });
    ClassRule { id: RuleId { entry, is_default: false }, nodes, names, ..rule }
}

fn node(id: &str, cluster: &str, zone: &str) -> Node {
    let locality = Some(Locality { zone: zone.into(), ..Locality::default() });
    Node { id: id.into(), cluster: cluster.into(), locality, ..Node::default() }
}

#[test]
fn adm_9_a_rule_is_told_with_its_number_and_the_nearest_that_failed() {
    let matching = |id: &str, cluster: &str, zone: &str| NodeMatch {
        id: text_match(id),
        cluster: text_match(cluster),
        zone: text_match(zone),
        ..NodeMatch::default()
    };
    let classes = NodeClasses::new(vec![
        rule(0, matching("envoy-*", "web", "a"), None),
        rule(1, matching("envoy-*", "*b", "b"), Some(NameStyle::Old)),
        rule(2, NodeMatch { id: text_match("grpc-*"), ..NodeMatch::default() }, None),
    ]);
    let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let table = [
        (("envoy-1", "web", "a"), NameStyle::Old, "node_classes[0]", "-"),
        (("envoy-1", "web", "b"), NameStyle::Old, "node_classes[1]", "node_classes[0] locality.zone a b"),
        (
            ("envoy-1", "api", "b"),
            NameStyle::Old,
            "node_classes[3] (default)",
            "node_classes[2] id grpc-* envoy-1",
        ),
        (("grpc-1", "web", "a"), NameStyle::Old, "node_classes[2]", "node_classes[0] id envoy-* grpc-1"),
        (("other", "", ""), NameStyle::Xdstp, "node_classes[3] (default)", "node_classes[2] id grpc-* other"),
        (
            ("envoy-1", "web", "b"),
            NameStyle::Xdstp,
            "node_classes[3] (default)",
            "node_classes[2] id grpc-* envoy-1",
        ),
    ];
    for ((id, zone_cluster, zone), style, decides, nearest) in table {
        let choice = classes.choose(&node(id, zone_cluster, zone), &cluster, style).unwrap();
        assert_eq!(choice.rule.id.to_string(), decides, "{id} {zone_cluster} {zone}");
        let nearest_text = choice.nearest.as_ref().map_or("-".to_owned(), |near| {
            format!(
                "{} {} {} {}",
                near.id,
                near.field,
                near.condition,
                near.value.clone().unwrap_or_default()
            )
        });
        assert_eq!(nearest_text, nearest, "{id} {zone_cluster} {zone}");
    }
    let first = classes.choose(&node("envoy-1", "web", "a"), &cluster, NameStyle::Old).unwrap();
    let later: Vec<_> = first.not_reached.iter().map(ToString::to_string).collect();
    assert_eq!(later, ["node_classes[1]", "node_classes[2]", "node_classes[3] (default)"]);
    assert_eq!(first.rule.describe_match(), "id=envoy-* cluster=web locality.zone=a");
    assert_eq!(classes.rules[1].describe_match(), "names=old id=envoy-* cluster=*b locality.zone=b");
}

#[test]
fn adm_9_built_in_rules_count() {
    let (classes, cluster) = (NodeClasses::default(), TypeUrl::of_message("envoy.config.cluster.v3.Cluster"));
    for style in [NameStyle::Old, NameStyle::Xdstp] {
        let choice = classes.choose(&Node::default(), &cluster, style).unwrap();
        assert_eq!(
            (choice.rule.id.to_string().as_str(), choice.nearest),
            ("node_classes[0] (default)", None)
        );
        assert_eq!(choice.not_reached, []);
    }
}

/// Values of metadata may be confidential.
#[test]
fn adm_9_a_failed_condition_on_metadata_shows_no_value() {
    let metadata = vec![MetadataMatch {
        path: vec!["labels".into(), "rev".into()],
        value: ValueMatch::Equal(Value::String("canary".into())),
    }];
    let nodes = NodeMatch { metadata, ..NodeMatch::default() };
    let classes = NodeClasses::new(vec![rule(0, nodes, None)]);
    let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let near = classes.choose(&Node::default(), &cluster, NameStyle::Old).unwrap().nearest.unwrap();
    assert_eq!((near.field.as_str(), near.value), ("metadata.labels/rev", None));
    assert!(!near.condition.contains("canary"), "{}", near.condition);
}
