//! Nodes and rules of node classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice::config::{explain_classes, parse_client_node};
use sluice_engine::class::facts::FactTable;
use sluice_engine::class::{
    ClassRule, IdPart, IdentityPart, LocalityDepth, MetadataParts, NameStyle, NodeClasses, NodeKey,
    NodeMatch, Projection, ShareSecrets, TextMatch, VersionPart,
};
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Locality, Node, TypeUrl, UserAgentVersion, Value};

use super::draw::Draw;
use super::{MEMORY, Target};

pub const NODE_CLASSES: Target = Target {
    name: "node_classes",
    run,
    seeds: || {
        let json = br#"{"id":"a","cluster":"b","metadata":{"x":{"y":1}},"locality":{"zone":"z"}}"#;
        vec![vec![0; 64], (0..=255).collect(), (0..=255).rev().collect(), [&[1; 40][..], json].concat()]
    },
    words: &[
        "{",
        "}",
        "\"id\":",
        "\"metadata\":",
        "\"locality\":",
        "\"user_agent_build_version\":",
        "null",
        "[",
        "]",
    ],
    mutations: 8_000,
    memory: MEMORY,
};

const TEXTS: &[&str] = &["", "a", "b", "ab", "ba", "1.1.1.1", "::1"];

fn run(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (style, is_secret) = (draw.one_of(&[NameStyle::Old, NameStyle::Xdstp]), draw.flag());
    let message = ["envoy.config.cluster.v3.Cluster", "envoy.extensions.transport_sockets.tls.v3.Secret"];
    let type_url = TypeUrl::of_message(message[usize::from(is_secret)]);
    let rules: Vec<ClassRule> = (0..draw.below(4)).map(|_| rule(&mut draw, style)).collect();
    let classes = NodeClasses::new(rules).with_facts(table(&mut draw).into());
    let clients = [(node(&mut draw), identity(&mut draw)), (node(&mut draw), identity(&mut draw))];
    let classify =
        |(node, identity): &(Node, Identity)| classes.classify(Some(node), identity, &type_url, style);
    let found = match [classify(&clients[0]), classify(&clients[1])] {
        [Ok(one), Ok(other)] => [one, other],
        refused => {
            let nameless =
                |(node, _): &(Node, Identity)| node.id.is_empty() && classes.facts.of(node).is_none();
            assert!(clients.iter().any(nameless), "{refused:?} {clients:?}");
            return;
        }
    };
    // RLY-10: the first matching rule decides, and the class is the parts that the rule keeps.
    let kept = |(node, identity): &(Node, Identity)| {
        let rule = classes
            .rules
            .iter()
            .find(|rule| matches(rule, node, &type_url, style))
            .expect("the last rules match all");
        naive(rule, node, (identity, is_secret), &classes)
    };
    let equal = (kept(&clients[0]) == kept(&clients[1]), found[0] == found[1]);
    assert_eq!(equal.0, equal.1, "{:?} {:?} {classes:?}", found[0], found[1]);
    // ISO-1: secrets are shared only where a rule says so.
    let may_share = classes.rules.iter().any(|rule| rule.share_secrets == ShareSecrets::Yes);
    if is_secret && !may_share && found[0] == found[1] {
        assert_eq!(clients[0].1, clients[1].1, "two identities share secrets");
    }
    assert!(!explain_classes(&classes, &clients[0].0, &sluice_identity::Identity::Anonymous).is_empty());
    if let Ok(node) = std::str::from_utf8(draw.rest()).map(parse_client_node) {
        let _ = node.map(|node| classes.classify(Some(&node), &Identity::Anonymous, &type_url, style));
    }
}

fn rule(draw: &mut Draw<'_>, style: NameStyle) -> ClassRule {
    let text = |draw: &mut Draw<'_>| {
        let text = draw.one_of(TEXTS).to_owned();
        match draw.below(8) {
            0 => Some(TextMatch::Exact(text)),
            1 => Some(TextMatch::Prefix(text)),
            2 => Some(TextMatch::Suffix(text)),
            _ => None,
        }
    };
    let nodes = NodeMatch { id: text(draw), cluster: text(draw), zone: text(draw), ..NodeMatch::default() };
    let paths = (0..draw.below(3))
        .map(|_| (0..=draw.below(2)).map(|_| draw.one_of(&TEXTS[1..3]).to_owned()).collect());
    let mut paths: Vec<Vec<String>> = paths.collect();
    paths.sort();
    paths.dedup();
    let metadata = if draw.flag() { MetadataParts::AllBut(paths) } else { MetadataParts::Paths(paths) };
    let facts = match draw.below(4) {
        0 => MetadataParts::ALL,
        1 => MetadataParts::Paths(vec![vec!["a".to_owned()]]),
        _ => MetadataParts::default(),
    };
    let projection = Projection {
        id: id_part(draw),
        cluster: draw.flag(),
        locality: draw.one_of(&[
            None,
            Some(LocalityDepth::Region),
            Some(LocalityDepth::Zone),
            Some(LocalityDepth::SubZone),
        ]),
        metadata,
        user_agent_name: draw.flag(),
        user_agent_version: draw.one_of(&[VersionPart::None, VersionPart::Major, VersionPart::Full]),
        identity: draw.one_of(&[
            IdentityPart::None,
            IdentityPart::TrustDomain,
            IdentityPart::Segments(1),
            IdentityPart::Full,
        ]),
        address_family: draw.flag().then_some(NodeKey::Id),
        facts,
    };
    let share_secrets = draw.one_of(&[ShareSecrets::No, ShareSecrets::Identity, ShareSecrets::Yes]);
    let names = draw.flag().then_some(style);
    ClassRule { nodes, names, share_secrets, ..ClassRule::for_names(style, projection) }
}

/// Facts of some clients, by their ids.
fn table(draw: &mut Draw<'_>) -> FactTable {
    let mut table = FactTable::default();
    for _ in 0..draw.below(4) {
        let fields =
            (0..draw.below(3)).map(|_| (draw.one_of(&TEXTS[1..3]).to_owned(), value(draw, 1))).collect();
        table.put(draw.one_of(TEXTS), Arc::new(fields));
    }
    table
}

fn id_part(draw: &mut Draw<'_>) -> IdPart {
    let separator = draw.one_of(&["a", "b", "ab"]).into();
    match draw.below(4) {
        0 => IdPart::None,
        1 => IdPart::Whole,
        2 => IdPart::At { separator, places: vec![0] },
        _ => IdPart::At { separator, places: vec![1, 2] },
    }
}

fn node(draw: &mut Draw<'_>) -> Node {
    let mut text = || draw.one_of(TEXTS).to_owned();
    let (id, cluster, region, zone, sub_zone, user_agent_name) =
        (text(), text(), text(), text(), text(), text());
    let metadata =
        (0..draw.below(3)).map(|_| (draw.one_of(&TEXTS[1..3]).to_owned(), value(draw, 2))).collect();
    let user_agent_version = match draw.below(3) {
        0 => None,
        1 => Some(UserAgentVersion::Text(draw.one_of(&["v1.2", "1.2", "1", "2.0", ""]).to_owned())),
        _ => Some(UserAgentVersion::Build { major: 1, minor: u32::from(draw.byte() & 1), patch: 0 }),
    };
    Node {
        id,
        cluster,
        metadata,
        locality: draw.flag().then_some(Locality { region, zone, sub_zone }),
        user_agent_name,
        user_agent_version,
        client_features: if draw.flag() { vec!["f".into()] } else { Vec::new() },
        dynamic_parameters: Vec::new(),
    }
}

fn value(draw: &mut Draw<'_>, depth: usize) -> Value {
    match draw.below(if depth == 0 { 3 } else { 5 }) {
        0 => Value::Null,
        1 => Value::Number(u64::from(draw.byte() & 1)),
        2 => Value::String(draw.one_of(TEXTS).to_owned()),
        3 => Value::List(vec![value(draw, depth - 1)]),
        _ => Value::Struct(
            (0..draw.below(3))
                .map(|_| (draw.one_of(&TEXTS[1..3]).to_owned(), value(draw, depth - 1)))
                .collect(),
        ),
    }
}

fn identity(draw: &mut Draw<'_>) -> Identity {
    let spiffe = |text| Identity::Spiffe(SpiffeId::parse(text).expect("an ID"));
    match draw.below(6) {
        0 => Identity::Anonymous,
        1 => spiffe("spiffe://a/x/y"),
        2 => spiffe("spiffe://a/x/z"),
        3 => spiffe("spiffe://b/x/y"),
        4 => Identity::Unix { uid: u32::from(draw.byte() & 1) },
        _ => Identity::Dns("a".into()),
    }
}

fn matches(rule: &ClassRule, node: &Node, type_url: &TypeUrl, style: NameStyle) -> bool {
    let holds = |wanted: &Option<TextMatch>, text: &str| match wanted {
        None => true,
        Some(TextMatch::Exact(wanted)) => text == wanted,
        Some(TextMatch::Prefix(wanted)) => text.len() >= wanted.len() && text[..wanted.len()] == *wanted,
        Some(TextMatch::Suffix(wanted)) => {
            text.len() >= wanted.len() && text[text.len() - wanted.len()..] == *wanted
        }
    };
    let zone = node.locality.as_ref().map_or("", |locality| &locality.zone);
    rule.names.is_none_or(|names| names == style)
        && (rule.types.is_empty() || rule.types.contains(type_url))
        && holds(&rule.nodes.id, &node.id)
        && holds(&rule.nodes.cluster, &node.cluster)
        && holds(&rule.nodes.zone, zone)
}

/// The kept parts, as texts by field.
fn naive(
    rule: &ClassRule,
    node: &Node,
    (identity, is_secret): (&Identity, bool),
    classes: &NodeClasses,
) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::from([("features".to_owned(), format!("{:?}", node.client_features))]);
    let mut keep = |key: &str, is_kept: bool, value: String| {
        if is_kept {
            kept.insert(key.to_owned(), value);
        }
    };
    let by = &rule.projection;
    let is_unknown = naive_facts(by, (node, identity), classes, &mut keep);
    let splits_secrets = is_secret && rule.share_secrets != ShareSecrets::Yes;
    let splits_by_id =
        splits_secrets && (rule.share_secrets == ShareSecrets::No || *identity == Identity::Anonymous);
    let id = if splits_by_id || is_unknown { &IdPart::Whole } else { &by.id };
    naive_id(id, &node.id, &mut keep);
    keep("cluster", by.cluster && !node.cluster.is_empty(), node.cluster.clone());
    keep("agent", by.user_agent_name && !node.user_agent_name.is_empty(), node.user_agent_name.clone());
    let depth = by.locality;
    if let (Some(depth), Some(locality)) = (depth, &node.locality) {
        keep("region", true, locality.region.clone());
        keep("zone", depth >= LocalityDepth::Zone && !locality.zone.is_empty(), locality.zone.clone());
        keep(
            "sub_zone",
            depth >= LocalityDepth::SubZone && !locality.sub_zone.is_empty(),
            locality.sub_zone.clone(),
        );
    }
    let version =
        node.user_agent_version.as_ref().and_then(|version| match (by.user_agent_version, version) {
            (VersionPart::None, _) => None,
            (VersionPart::Major, UserAgentVersion::Build { major, .. }) => {
                Some(format!("{:?}", UserAgentVersion::Build { major: *major, minor: 0, patch: 0 }))
            }
            (VersionPart::Major, UserAgentVersion::Text(text)) => {
                let text = text.strip_prefix('v').unwrap_or(text).split('.').next().unwrap_or_default();
                Some(format!("{:?}", UserAgentVersion::Text(text.to_owned())))
            }
            (VersionPart::Full, version) => Some(format!("{version:?}")),
        });
    keep("version", version.is_some(), version.unwrap_or_default());
    match &by.metadata {
        MetadataParts::AllBut(left_out) => {
            for (key, value) in &node.metadata {
                let keys = [key.clone()];
                if !left_out.contains(&keys.to_vec()) {
                    leaves(&keys, value, left_out, &mut keep);
                }
            }
        }
        MetadataParts::Paths(paths) => {
            for path in paths {
                if let Some(value) = node.metadata_at(path) {
                    leaves(path, value, &[], &mut keep);
                }
            }
        }
    }
    // A class of one client is of one identity.
    let is_alone = (is_unknown || by.id == IdPart::Whole) && rule.share_secrets != ShareSecrets::Yes;
    let part = if splits_secrets || is_alone { IdentityPart::Full } else { by.identity };
    let text = naive_identity(part, identity);
    keep("identity", text.is_some(), text.unwrap_or_default());
    // Rules differ in the rest of the class.
    keep("wildcard", true, rule.legacy_wildcard.to_string());
    kept
}

fn naive_identity(part: IdentityPart, identity: &Identity) -> Option<String> {
    match (part, identity) {
        (IdentityPart::None, _) => None,
        (IdentityPart::TrustDomain, Identity::Spiffe(id)) => Some(format!("spiffe {}", id.trust_domain())),
        (IdentityPart::Segments(count), Identity::Spiffe(id)) => {
            let path: Vec<_> = id.segments().take(count).collect();
            Some(format!("spiffe {} {path:?}", id.trust_domain()))
        }
        (_, identity) => Some(format!("{identity:?}")),
    }
}

/// Keeps what is no field of the node. True if the class depends on facts, and there are none.
fn naive_facts(
    by: &Projection,
    (node, identity): (&Node, &Identity),
    classes: &NodeClasses,
    keep: &mut impl FnMut(&str, bool, String),
) -> bool {
    let family = node.id.find([':', '.']).map(|at| node.id[at..=at].to_owned());
    keep("family", by.address_family.is_some(), family.unwrap_or_default());
    let (has_facts, known) = (by.facts != MetadataParts::default(), classes.facts.of(node));
    let is_unknown = has_facts && known.is_none();
    keep("no facts", is_unknown, format!("{identity:?}"));
    for (name, value) in known.filter(|_| has_facts).into_iter().flat_map(|fields| fields.iter()) {
        keep(&format!("fact {name}"), by.facts == MetadataParts::ALL || name == "a", format!("{value:?}"));
    }
    is_unknown
}

fn naive_id(part: &IdPart, id: &str, keep: &mut impl FnMut(&str, bool, String)) {
    match part {
        IdPart::None => {}
        IdPart::Whole => keep("id", !id.is_empty(), id.to_owned()),
        IdPart::At { separator, places } => {
            let count = id.matches(&**separator).count();
            keep("id separators", count > 0, count.to_string());
            for (place, text) in id.split(&**separator).enumerate() {
                keep(&format!("id {place}"), places.contains(&place) && !text.is_empty(), text.to_owned());
            }
        }
    }
}

/// The values without values below them, by path, but for those that are left out.
fn leaves(
    keys: &[String],
    value: &Value,
    left_out: &[Vec<String>],
    keep: &mut impl FnMut(&str, bool, String),
) {
    let mut leaf = |text: String| keep(&format!("metadata/{}", keys.join("/")), true, text);
    let Value::Struct(fields) = value else { return leaf(format!("{value:?}")) };
    let below = fields.iter().map(|(key, value)| ([keys, std::slice::from_ref(key)].concat(), value));
    let below: Vec<_> = below.filter(|(keys, _)| !left_out.contains(keys)).collect();
    if below.is_empty() {
        return leaf("{}".to_owned());
    }
    below.iter().for_each(|(keys, value)| leaves(keys, value, left_out, keep));
}
