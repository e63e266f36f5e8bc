//! Classes of nodes and identities.

#![allow(clippy::unwrap_used)]
use super::super::*;
use super::*;
use crate::class::facts::FactTable;
use sluice_xds::{Locality, UserAgentVersion};

fn node() -> Node {
    let mut metadata = BTreeMap::new();
    metadata.insert("team".to_owned(), Value::String("edge".into()));
    let tier = BTreeMap::from([
        ("name".to_owned(), Value::String("gold".into())),
        ("n".to_owned(), Value::Bool(true)),
    ]);
    metadata.insert("tier".to_owned(), Value::Struct(tier));
    Node {
        id: "client-1".into(),
        cluster: "web".into(),
        metadata,
        locality: Some(Locality { region: "eu".into(), zone: "eu-1".into(), sub_zone: "a".into() }),
        user_agent_name: "envoy".into(),
        user_agent_version: Some(UserAgentVersion::Build { major: 1, minor: 40, patch: 2 }),
        client_features: vec!["f".into()],
        dynamic_parameters: Vec::new(),
    }
}

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

fn secrets() -> TypeUrl {
    TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret")
}

#[test]
fn rly_11_by_default_all_but_the_id_counts_and_only_features_for_xdstp() {
    let classes = NodeClasses::default();
    let mut other = node();
    other.id = "client-2".into();
    let class =
        |node: &Node, style| classes.classify(Some(node), &Identity::Anonymous, &clusters(), style).unwrap();
    assert_eq!(class(&node(), NameStyle::Old), class(&other, NameStyle::Old));
    assert_eq!(class(&node(), NameStyle::Old).node.id, "");
    other.metadata.insert("team".into(), Value::String("core".into()));
    assert_ne!(class(&node(), NameStyle::Old), class(&other, NameStyle::Old));
    assert_eq!(class(&node(), NameStyle::Xdstp), class(&other, NameStyle::Xdstp));
    other.client_features.push("g".into());
    assert_ne!(class(&node(), NameStyle::Xdstp), class(&other, NameStyle::Xdstp));
}

#[test]
fn secrets_split_by_id_unless_the_operator_signed() {
    let mut other = node();
    other.id = "client-2".into();
    let class = |classes: &NodeClasses, node: &Node| {
        classes.classify(Some(node), &Identity::Anonymous, &secrets(), NameStyle::Old).unwrap()
    };
    let classes = NodeClasses::default();
    assert_ne!(class(&classes, &node()), class(&classes, &other));
    let mut rule = ClassRule::for_names(NameStyle::Old, Projection::whole_node_but_id());
    rule.share_secrets = ShareSecrets::Yes;
    let signed = NodeClasses::new(vec![rule]);
    assert_eq!(class(&signed, &node()), class(&signed, &other));
}

#[test]
fn rly_21_nodes_without_an_id_share_secrets_only_where_the_operator_signed() {
    let nameless = Node { id: String::new(), ..node() };
    let mut rule = ClassRule::for_names(NameStyle::Old, Projection::whole_node_but_id());
    rule.share_secrets = ShareSecrets::Yes;
    let (strict, signed) = (NodeClasses::default(), NodeClasses::new(vec![rule]));
    let named = node();
    let lacks = |classes: &NodeClasses, node, type_url: &TypeUrl| {
        let withheld = classes.withheld_secrets(node, &Identity::Anonymous, type_url, NameStyle::Old);
        assert!(matches!(withheld, None | Some(SecretsWithheld::NoId)));
        withheld.is_some()
    };
    assert!(lacks(&strict, Some(&nameless), &secrets()));
    assert!(lacks(&strict, None, &secrets()));
    assert!(!lacks(&strict, Some(&named), &secrets()));
    assert!(!lacks(&strict, Some(&nameless), &clusters()));
    assert!(!lacks(&signed, Some(&nameless), &secrets()));
    let xdstp = signed.withheld_secrets(Some(&nameless), &Identity::Anonymous, &secrets(), NameStyle::Xdstp);
    assert_eq!(xdstp, Some(SecretsWithheld::NoId), "no rule was signed for these");
}

#[test]
fn a_projection_keeps_what_it_names() {
    let projection = Projection {
        locality: Some(LocalityDepth::Region),
        metadata: MetadataParts::Paths(vec![vec!["tier".into(), "name".into()], vec!["nothing".into()]]),
        user_agent_version: VersionPart::Major,
        ..Projection::default()
    };
    let kept = projection.apply(&node());
    assert_eq!(kept.locality.unwrap(), Locality { region: "eu".into(), ..Locality::default() });
    assert_eq!(kept.user_agent_version.unwrap(), UserAgentVersion::Build { major: 1, minor: 0, patch: 0 });
    let name = BTreeMap::from([("name".to_owned(), Value::String("gold".into()))]);
    assert_eq!(kept.metadata, BTreeMap::from([("tier".to_owned(), Value::Struct(name))]));
    assert_eq!((kept.cluster.as_str(), kept.client_features.len()), ("", 1));
}

/// The parts of an id that say where the client runs are its own; the others it shares.
#[test]
fn a_projection_keeps_parts_of_the_id() {
    let places = |separator: &str, places: &[usize]| IdPart::At {
        separator: separator.into(),
        places: places.to_vec(),
    };
    let id = "sidecar~10.1.1.1~web-1.prod~prod.svc";
    let node = Node { id: id.into(), ..Node::default() };
    for (part, shown) in [
        (IdPart::None, String::new()),
        (IdPart::Whole, format!("id={id:?}")),
        (places("~", &[0, 3]), r#"id.parts="sidecar~~~prod.svc""#.to_owned()),
        (places("~", &[2, 9]), r#"id.parts="~~web-1.prod~""#.to_owned()),
        (places("1.1~", &[1]), r#"id.parts="1.1~web-1.prod~prod.svc""#.to_owned()),
        (places("|", &[0]), format!("id.parts={id:?}")),
        (places("|", &[1]), r#"id.parts="""#.to_owned()),
    ] {
        let projection = Projection { id: part, ..Projection::default() };
        assert_eq!(projection.describe(&node, &Identity::Anonymous, None), shown);
        // A part is no id that a server could look up.
        let is_whole = projection.id == IdPart::Whole;
        assert_eq!(projection.apply(&node).id, if is_whole { id } else { "" });
    }
}

/// A new key splits classes.
#[test]
fn a_projection_keeps_all_but_what_it_leaves_out() {
    let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let metadata =
        MetadataParts::AllBut(vec![path(&["team"]), path(&["tier", "name"]), path(&["tier", "x", "y"])]);
    let projection = Projection { metadata, ..Projection::default() };
    let with = |name: &str, more: Option<&str>| {
        let tier = [("name".to_owned(), Value::String(name.into()))];
        let mut node = Node { metadata: node().metadata, ..Node::default() };
        node.metadata.insert("tier".to_owned(), Value::Struct(tier.into()));
        node.metadata.extend(more.map(|key| (key.to_owned(), Value::Null)));
        projection.apply(&node).metadata
    };
    assert_eq!(with("gold", None), BTreeMap::from([("tier".to_owned(), Value::Struct(BTreeMap::new()))]));
    assert_eq!(with("gold", None), with("iron", None));
    assert_ne!(with("gold", None), with("gold", Some("made-up")));
    assert_ne!(with("gold", None), projection.apply(&Node::default()).metadata, "a node without the map");
    let text = projection.describe(&node(), &Identity::Anonymous, None);
    assert_eq!(text, "metadata=tier (all but team,tier/name,tier/x/y)");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let mut by_team =
        ClassRule::for_names(NameStyle::Old, Projection { cluster: true, ..Projection::default() });
    by_team.nodes.metadata = vec![MetadataMatch {
        path: vec!["team".into()],
        value: ValueMatch::Text(TextMatch::Prefix("ed".into())),
    }];
    by_team.types = vec![clusters()];
    by_team.legacy_wildcard = false;
    let classes = NodeClasses::new(vec![by_team]);
    let class = classes.classify(Some(&node()), &Identity::Anonymous, &clusters(), NameStyle::Old).unwrap();
    assert_eq!(
        (class.node.cluster.as_str(), class.node.metadata.len(), class.legacy_wildcard),
        ("web", 0, false)
    );
    let other_type = TypeUrl::of_message("envoy.config.listener.v3.Listener");
    assert_eq!(
        classes
            .classify(Some(&node()), &Identity::Anonymous, &other_type, NameStyle::Old)
            .unwrap()
            .node
            .metadata
            .len(),
        2
    );
}

#[test]
fn str_4_a_node_is_required_only_where_it_decides() {
    let classes = NodeClasses::default();
    assert_eq!(
        classes.classify(None, &Identity::Anonymous, &clusters(), NameStyle::Old),
        Err(Unclassified::NoNode)
    );
    assert!(classes.classify(None, &Identity::Anonymous, &clusters(), NameStyle::Xdstp).is_ok());
}

#[test]
fn the_hint_names_what_splits() {
    let nodes: Vec<_> = (0..5)
        .map(|n| {
            let mut node = node();
            node.metadata.insert("pod".into(), Value::String(format!("pod-{n}")));
            node.locality = Some(Locality { zone: format!("z{}", n % 2), ..Locality::default() });
            NodeClass { node, ..NodeClass::of_everybody() }
        })
        .collect();
    assert_eq!(splitting_field(nodes.iter()), Some(("metadata.pod".into(), 5)));
    assert_eq!(splitting_field(nodes[..1].iter()), None);
    let of_id = |n: u8| {
        let attributes = [("id.parts".into(), format!("~{n}").into())].into();
        NodeClass { attributes, ..NodeClass::of_everybody() }
    };
    assert_eq!(splitting_field([of_id(1), of_id(2)].iter()), Some(("id.parts".into(), 2)));
}

fn web(namespace: &str) -> Identity {
    let id = format!("spiffe://prod.example/ns/{namespace}/sa/web");
    Identity::Spiffe(sluice_identity::SpiffeId::parse(&id).unwrap())
}

#[test]
fn iso_1_identities_with_equal_nodes_never_share_a_secret() {
    let classes = NodeClasses::default();
    let class = |identity: &Identity, url: &TypeUrl| {
        classes.classify(Some(&node()), identity, url, NameStyle::Old).unwrap()
    };
    let dns = Identity::Dns("spiffe://prod.example/ns/a/sa/web".into());
    let all = [
        web("a"),
        web("b"),
        dns,
        Identity::Dns("anonymous".into()),
        Identity::Unix { uid: 0 },
        Identity::Anonymous,
        Identity::TrustDomain("prod.example".into()),
        Identity::TrustDomain("gateway".into()),
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(class(one, &secrets()), class(other, &secrets()), "{one} {other}");
            assert_eq!(
                class(one, &clusters()),
                class(other, &clusters()),
                "configuration is shared by default"
            );
        }
    }
}

#[test]
fn iso_1_a_rule_splits_by_a_part_of_the_identity() {
    let part = |part: IdentityPart, identity: &Identity| part.of(identity).map(String::from);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(part(IdentityPart::None, &web("a")), None);
    assert_eq!(part(IdentityPart::TrustDomain, &web("a")), some("spiffe://prod.example"));
    assert_eq!(part(IdentityPart::Segments(2), &web("a")), some("spiffe://prod.example/ns/a"));
    assert_eq!(part(IdentityPart::Segments(9), &web("a")), some("spiffe://prod.example/ns/a/sa/web"));
    assert_eq!(part(IdentityPart::Full, &web("a")), some("spiffe://prod.example/ns/a/sa/web"));
    assert_eq!(part(IdentityPart::TrustDomain, &Identity::Anonymous), some("anonymous"));
    assert_eq!(part(IdentityPart::TrustDomain, &Identity::Unix { uid: 7 }), some("unix:7"));
}

/// ADR 61: a class that is one client's by its id and its identity has the secrets of the client, and nobody
/// else can join.
#[test]
fn rly_21_a_class_split_by_id_is_the_class_of_its_secrets() {
    let by_id = Projection { id: IdPart::Whole, cluster: true, ..Projection::default() };
    let rule = |change: fn(&mut ClassRule)| {
        let mut rule = ClassRule::for_names(NameStyle::Old, by_id.clone());
        change(&mut rule);
        NodeClasses::new(vec![rule])
    };
    let class = |classes: &NodeClasses, id: &str, identity: &Identity, url: &TypeUrl| {
        let node = Node { id: id.into(), ..node() };
        classes.classify(Some(&node), identity, url, NameStyle::Old).unwrap()
    };
    let key = |classes: &NodeClasses, url: &TypeUrl| class(classes, "one", &web("a"), url);
    for classes in [rule(|_| {}), rule(|rule| rule.share_secrets = ShareSecrets::Identity)] {
        assert_eq!(key(&classes, &secrets()), key(&classes, &clusters()));
        for (id, identity) in [("two", web("a")), ("one", web("b")), ("one", Identity::Anonymous)] {
            for url in [secrets(), clusters()] {
                assert_ne!(
                    class(&classes, id, &identity, &url),
                    key(&classes, &secrets()),
                    "{id} {identity}"
                );
            }
        }
    }
    let shared = rule(|rule| rule.share_secrets = ShareSecrets::Yes);
    assert_eq!(key(&shared, &secrets()), key(&shared, &clusters()));
    assert_eq!(key(&shared, &clusters()), class(&shared, "one", &web("b"), &clusters()), "as stated");
    // The server is told no more of the identity than the operator states.
    let named = rule(|rule| rule.identity_metadata = Some("who".into()));
    assert_eq!(key(&named, &clusters()).identity, None);
    assert_ne!(key(&named, &secrets()), key(&named, &clusters()));
    let named = rule(|rule| {
        rule.identity_metadata = Some("who".into());
        rule.projection.identity = IdentityPart::Full;
    });
    assert_eq!(key(&named, &secrets()), key(&named, &clusters()));
    // Without the id, others may join the class of the clusters.
    let fleet = NodeClasses::default();
    assert_eq!(class(&fleet, "one", &web("a"), &clusters()), class(&fleet, "two", &web("b"), &clusters()));
    assert_ne!(key(&fleet, &secrets()), key(&fleet, &clusters()));
}

#[test]
fn iso_2_secrets_are_shared_among_the_clients_of_one_identity() {
    let mut rule = ClassRule::for_names(NameStyle::Old, Projection::features_only());
    rule.share_secrets = ShareSecrets::Identity;
    let classes = NodeClasses::new(vec![rule]);
    let class = |id: &str, identity: &Identity| {
        let node = Node { id: id.into(), ..Node::default() };
        classes.classify(Some(&node), identity, &secrets(), NameStyle::Old).unwrap()
    };
    assert_eq!(class("one", &web("a")), class("other", &web("a")));
    assert_ne!(class("one", &web("a")), class("one", &web("b")));
    // Clients that proved nothing are not one client.
    assert_ne!(class("one", &Identity::Anonymous), class("other", &Identity::Anonymous));
    let withheld =
        |identity| classes.withheld_secrets(Some(&Node::default()), identity, &secrets(), NameStyle::Old);
    assert_eq!(withheld(&Identity::Anonymous), Some(SecretsWithheld::NoId));
    assert_eq!(withheld(&web("a")), None);
}

/// Clients that share a certificate: each could state the id of another.
#[test]
fn idn_5_a_trust_domain_has_secrets_only_where_the_operator_signed() {
    let gateway = Identity::TrustDomain("gateway".into());
    let other = Identity::TrustDomain("other".into());
    let shared = |share_secrets| {
        let mut rule = ClassRule::for_names(NameStyle::Old, Projection::features_only());
        rule.share_secrets = share_secrets;
        NodeClasses::new(vec![rule])
    };
    let withheld = |classes: &NodeClasses, type_url: &TypeUrl| {
        classes.withheld_secrets(Some(&node()), &gateway, type_url, NameStyle::Old)
    };
    let (no, identity, yes) =
        (shared(ShareSecrets::No), shared(ShareSecrets::Identity), shared(ShareSecrets::Yes));
    assert_eq!(withheld(&no, &secrets()), Some(SecretsWithheld::SharedProof("gateway".into())));
    assert_eq!(withheld(&no, &clusters()), None);
    assert_eq!((withheld(&identity, &secrets()), withheld(&yes, &secrets())), (None, None));

    let class = |classes: &NodeClasses, id: &str, identity: &Identity| {
        let node = Node { id: id.into(), ..node() };
        classes.classify(Some(&node), identity, &secrets(), NameStyle::Old).unwrap()
    };
    assert_eq!(class(&identity, "one", &gateway), class(&identity, "two", &gateway));
    assert_ne!(class(&identity, "one", &gateway), class(&identity, "one", &other));
    assert_ne!(class(&identity, "one", &gateway), class(&identity, "one", &Identity::Anonymous));
    assert_eq!(class(&yes, "one", &gateway), class(&yes, "two", &other));
}

#[test]
fn iso_4_the_verified_identity_replaces_every_claim_in_the_upstream_node() {
    let mut rule = ClassRule::for_names(
        NameStyle::Old,
        Projection { identity: IdentityPart::Full, ..Projection::whole_node_but_id() },
    );
    rule.identity_metadata = Some("team".into());
    let classes = NodeClasses::new(vec![rule]);
    let class = classes.classify(Some(&node()), &web("a"), &clusters(), NameStyle::Old).unwrap();
    let node = class.with_identity(class.node.clone());
    assert_eq!(node.metadata["team"], Value::String("spiffe://prod.example/ns/a/sa/web".into()));
    assert_eq!(classes.reserved_keys().collect::<Vec<_>>(), ["team"]);
}

/// Two identities that state one id are two clients, whatever a rule shares.
#[test]
fn rly_11_a_client_without_facts_shares_with_no_other_identity() {
    let facts = MetadataParts::ALL;
    let rule = ClassRule::for_names(NameStyle::Old, Projection { facts, ..Projection::default() });
    let sharing = ClassRule { share_secrets: ShareSecrets::Yes, ..rule.clone() };
    let telling = ClassRule { identity_metadata: Some("WHO".into()), ..rule.clone() };
    let node = node();
    for rule in [rule, sharing, telling] {
        let classes = NodeClasses::new(vec![rule]);
        for type_url in [clusters(), secrets()] {
            let class = |identity: &Identity, node: &Node| {
                classes.classify(Some(node), identity, &type_url, NameStyle::Old).unwrap()
            };
            let one = class(&web("prod"), &node);
            assert!(one.lacks_facts());
            assert_ne!(one, class(&web("test"), &node));
            assert_ne!(one, class(&Identity::Anonymous, &node));
            assert_ne!(one, class(&web("prod"), &Node { id: "client-2".into(), ..node.clone() }));
        }
    }
}

/// A counter in the table moves nobody.
#[test]
fn rly_11_facts_are_alike_for_a_client_whose_kept_fields_are() {
    let facts = |version: &str, count: &str| {
        let fields = [
            ("version".to_owned(), Value::String(version.into())),
            ("count".to_owned(), Value::String(count.into())),
        ];
        let mut table = FactTable::default();
        table.put("client-1", std::sync::Arc::new(fields.into()));
        let parts = MetadataParts::Paths(vec![vec!["version".to_owned()]]);
        let rule = ClassRule::for_names(NameStyle::Old, Projection { facts: parts, ..Projection::default() });
        NodeClasses::new(vec![rule]).with_facts(table.into())
    };
    let (before, stranger) = (facts("1", "1"), Node { id: "client-2".into(), ..node() });
    assert!(before.know_alike(&facts("1", "2"), &node()));
    assert!(!before.know_alike(&facts("2", "1"), &node()));
    assert!(before.know_alike(&facts("2", "1"), &stranger));
    let nobody = before.clone().with_facts(FactTable::default().into());
    assert!(!before.know_alike(&nobody, &node()) && !nobody.know_alike(&before, &node()));
}
