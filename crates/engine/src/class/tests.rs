//! The rules, and the projections that they have.

use super::*;

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
