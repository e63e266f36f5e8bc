//! The promise of the translation: clients with different keys of xds-relay never share a class.

use proptest::prelude::*;

use super::*;
use crate::config::xds_relay::Migration;
use sluice_engine::class::NameStyle;
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, TypeUrl};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

#[derive(Clone, Debug)]
enum Test {
    Any,
    Type(&'static str),
    Exact(usize, &'static str),
    /// The field begins with `a`.
    Regex(usize),
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
}

/// The fields of a node: id, cluster, region, zone.
type Fields = [&'static str; 4];

impl Test {
    fn holds(&self, type_name: &str, node: &Fields) -> bool {
        match self {
            Test::Any => true,
            Test::Type(name) => *name == type_name,
            Test::Exact(field, text) => node[*field] == *text,
            Test::Regex(field) => node[*field].starts_with('a'),
            Test::And(all) => all.iter().all(|test| test.holds(type_name, node)),
            Test::Or(all) => all.iter().any(|test| test.holds(type_name, node)),
            Test::Not(test) => !test.holds(type_name, node),
        }
    }

    fn yaml(&self) -> String {
        let set = |all: &[Test]| all.iter().map(Test::yaml).collect::<Vec<_>>().join(", ");
        let field_match = |field: usize, matched: String| match field {
            0 => format!("{{ request_node_match: {{ id_match: {matched} }} }}"),
            1 => format!("{{ request_node_match: {{ cluster_match: {matched} }} }}"),
            2 => format!("{{ request_node_match: {{ locality_match: {{ region: {matched} }} }} }}"),
            _ => format!("{{ request_node_match: {{ locality_match: {{ zone: {matched} }} }} }}"),
        };
        match self {
            Test::Any => "{ any_match: true }".to_owned(),
            Test::Type(name) => {
                format!("{{ request_type_match: {{ types: [type.googleapis.com/{name}] }} }}")
            }
            Test::Exact(field, text) => field_match(*field, format!("{{ exact_match: {text} }}")),
            Test::Regex(field) => field_match(*field, "{ regex_match: '^a' }".to_owned()),
            Test::And(all) => format!("{{ and_match: {{ rules: [{}] }} }}", set(all)),
            Test::Or(all) => format!("{{ or_match: {{ rules: [{}] }} }}", set(all)),
            Test::Not(test) => format!("{{ not_match: {} }}", test.yaml()),
        }
    }
}

/// A rule: its test, and a part of the key: a field, or a text.
type Rule = (Test, Option<usize>);

fn rule_yaml((test, field): &Rule) -> String {
    let action = |name: &str| format!("{{ request_node_fragment: {{ {name}: {{ exact: true }} }} }}");
    let part = |name: &str| {
        format!("{{ request_node_fragment: {{ locality_action: {{ {name}: {{ exact: true }} }} }} }}")
    };
    let result = match field {
        None => "{ string_fragment: text }".to_owned(),
        Some(0) => action("id_action"),
        Some(1) => action("cluster_action"),
        Some(2) => part("region_action"),
        Some(_) => part("zone_action"),
    };
    format!("  - {{ match: {}, result: {result} }}\n", test.yaml())
}

/// The parts of a key, with the numbers of their rules.
fn key(rules: &[Rule], type_name: &str, node: &Fields) -> Vec<(usize, &'static str)> {
    let holding = rules.iter().enumerate().filter(|(_, (test, _))| test.holds(type_name, node));
    holding.map(|(index, (_, field))| (index, field.map_or("text", |field| node[field]))).collect()
}

fn node([id, cluster, region, zone]: Fields) -> Node {
    let locality = Locality { region: region.into(), zone: zone.into(), ..Locality::default() };
    Node { id: id.into(), cluster: cluster.into(), locality: Some(locality), ..Node::default() }
}

fn test() -> impl Strategy<Value = Test> {
    let leaf = prop_oneof![
        1 => Just(Test::Any),
        2 => prop_oneof![Just(CLUSTER), Just(LISTENER)].prop_map(Test::Type),
        4 => (0..4_usize, prop_oneof![Just("a"), Just("b")]).prop_map(|(field, text)| Test::Exact(field, text)),
        1 => (0..4_usize).prop_map(Test::Regex),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        let set = || proptest::collection::vec(inner.clone(), 2..4);
        let not = inner.clone().prop_map(|test| Test::Not(Box::new(test)));
        prop_oneof![set().prop_map(Test::And), set().prop_map(Test::Or), not]
    })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    proptest::collection::vec((test(), proptest::option::of(0..4_usize)), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn different_keys_never_share_a_class(rules in rules()) {
        let yaml: String = rules.iter().map(rule_yaml).collect();
        let mut migration = Migration::default();
        migration.add(&format!("fragments:\n- rules:\n{yaml}")).unwrap();
        let migrated = migration.finish().yaml.replace("\"${CONTROL_PLANE}\"", "cp.example:1");
        let classes = config(&migrated).node_classes;
        let values = ["a", "b", "ab"];
        let mut nodes: Vec<Fields> = Vec::new();
        for id in values {
            for cluster in values {
                nodes.extend([["a", "b"], ["b", "a"], ["a", "ab"]].map(|[region, zone]| [id, cluster, region, zone]));
            }
        }
        for name in [CLUSTER, LISTENER] {
            let type_url = TypeUrl::of_message(name);
            let key_and_class = |fields: &Fields| {
                let class =
                    classes.classify(Some(&node(*fields)), &Identity::Anonymous, &type_url, NameStyle::Old);
                (key(&rules, name, fields), class.unwrap())
            };
            let pairs: Vec<_> = nodes.iter().map(key_and_class).collect();
            for (a, (key, class)) in pairs.iter().enumerate() {
                for (b, (other_key, other)) in pairs.iter().enumerate().skip(a) {
                    prop_assert!(
                        key == other_key || class != other,
                        "{}\n{:?} {:?}\n{migrated}", yaml, nodes[a], nodes[b]
                    );
                }
            }
        }
    }
}
