//! Planted groups are found, and nothing else.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::learning::evidence::TypeAnswer;
use crate::learning::partition::REFINED;
use crate::learning::yaml;
use sluice_xds::{Locality, Node, ResourceName, Value, Version};

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

fn listeners() -> TypeUrl {
    TypeUrl::of_message("envoy.config.listener.v3.Listener")
}

fn endpoints() -> TypeUrl {
    TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment")
}

fn text(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

/// Pods of 8 apps in 3 zones and 4 versions. The account follows from the app, and the pods have names and addresses.
fn pods(count: usize, seed: u64) -> Fleet {
    let mut numbers = Numbers(seed);
    let pod = |number: usize| {
        let (app, zone, version) = (numbers.next(8), numbers.next(3), numbers.next(4));
        let team = app % 3;
        let labels = [
            ("app".to_owned(), text(format!("app-{app}"))),
            ("team".to_owned(), text(format!("team-{team}"))),
            ("version".to_owned(), text(format!("v{version}"))),
            ("tier".to_owned(), text(format!("tier-{}", numbers.next(2)))),
        ];
        let metadata = [
            ("LABELS".to_owned(), Value::Struct(labels.into())),
            ("SERVICE_ACCOUNT".to_owned(), text(format!("sa-{app}"))),
            ("CLUSTER_ID".to_owned(), text("east")),
            ("NAME".to_owned(), text(format!("pod-{number}"))),
            (
                "INSTANCE_IPS".to_owned(),
                text(format!("10.0.{}.{}", zone * 4 + numbers.next(4), number % 250)),
            ),
        ];
        let locality = Locality { zone: format!("z{zone}"), ..Locality::default() };
        let kind = ["sidecar", "router"][usize::from(numbers.next(5) == 0)];
        Arc::new(Node {
            id: format!("{kind}~pod-{number}~ns{}", numbers.next(2)),
            cluster: format!("app-{app}"),
            locality: Some(locality),
            metadata: metadata.into(),
            ..Node::default()
        })
    };
    Fleet::new((0..count).map(pod).collect())
}

fn path(keys: &[&str]) -> Field {
    Field::Metadata(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// The version of a content, by some values.
fn version(values: &[String]) -> Version {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in values.join("\n").bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_01b3_0000_0000_0000_013b);
    }
    Version(hash)
}

fn values(node: &Node, fields: &[Field]) -> Vec<String> {
    fields.iter().map(|field| field.value(node).unwrap_or_default()).collect()
}

/// The whole set of a type with two resources, of which one depends on these fields.
fn answer(node: &Node, fields: &[Field]) -> TypeAnswer {
    let name = |name: &str, version| (ResourceName::from(name.to_owned()), Some(version));
    let names = vec![name("main", version(&values(node, fields))), name("same", Version(1))];
    TypeAnswer { is_whole: true, names }
}

/// The answers of a server to all nodes: for each type the fields that it looks at.
fn ask(fleet: &Fleet, types: &[(TypeUrl, Vec<Field>)]) -> StudyEvidence {
    let mut evidence = StudyEvidence::default();
    for (number, node) in fleet.nodes.iter().enumerate() {
        for (type_url, fields) in types {
            evidence.add(number, type_url, answer(node, fields));
        }
    }
    evidence
}

/// The endpoints that a node asks for follow its app, and their content these fields.
fn ask_endpoints(evidence: &mut StudyEvidence, fleet: &Fleet, fields: &[Field]) {
    for (number, node) in fleet.nodes.iter().enumerate() {
        let own = format!("out|{}", node.cluster);
        let mut names = Vec::new();
        for name in [own, "shared".to_owned()] {
            let content = [vec![name.clone()], values(node, fields)].concat();
            names.push((ResourceName::from(name), Some(version(&content))));
        }
        evidence.add(number, &endpoints(), TypeAnswer { is_whole: false, names });
    }
}

fn shown<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Vec<String> {
    fields.into_iter().map(Field::to_string).collect()
}

fn minimum(grouping: &Grouping) -> Vec<String> {
    shown(grouping.minimum.iter().map(|decisive| &decisive.field))
}

#[test]
fn lrn_6_planted_groups_are_found_in_random_fleets() {
    let plain = [
        path(&["LABELS", "app"]),
        path(&["LABELS", "team"]),
        path(&["LABELS", "version"]),
        path(&["LABELS", "tier"]),
        path(&["SERVICE_ACCOUNT"]),
        Field::Zone,
        Field::Cluster,
    ];
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let fleet = pods(150 + 10 * usize::try_from(seed).unwrap(), seed);
        let mut planted: Vec<Field> = plain.iter().filter(|_| numbers.next(4) == 0).cloned().collect();
        planted.truncate(3);
        let evidence = ask(&fleet, &[(clusters(), planted.clone()), (listeners(), Vec::new())]);
        let proposal = propose(&fleet, &evidence);
        assert_eq!(propose(&fleet, &evidence), proposal, "seed {seed}");
        assert!(is_lossless(&fleet, &evidence, &proposal.rules), "seed {seed}");
        let distinct: BTreeSet<Vec<String>> = fleet.nodes.iter().map(|node| values(node, &planted)).collect();
        let shared = proposal.shared.as_ref().unwrap();
        assert_eq!(shared.groups, distinct.len(), "seed {seed}: {planted:?}");
        assert_eq!(proposal.classes[0].count, distinct.len(), "seed {seed}: {planted:?}");
        assert!(planted.iter().all(|field| shared.split.contains(field)), "seed {seed}: {shared:?}");
        assert!(shared.minimum.len() <= planted.len(), "seed {seed}: {shared:?}");
        assert!(shared.minimum.iter().all(|decisive| decisive.counterexamples > 0), "seed {seed}");
    }
}

/// Some answers are equal although the fields differ: no set of fields is as coarse as the answers.
#[test]
fn lrn_6_where_no_fields_fit_the_rules_are_lossless_and_finer() {
    let fleet = pods(400, 7);
    let mut evidence = StudyEvidence::default();
    for (number, node) in fleet.nodes.iter().enumerate() {
        let is_special = node.cluster == "app-1" && Field::Zone.value(node).as_deref() == Some("z1");
        let names = vec![(ResourceName::from("main".to_owned()), Some(Version(u128::from(is_special))))];
        evidence.add(number, &clusters(), TypeAnswer { is_whole: true, names });
    }
    let proposal = propose(&fleet, &evidence);
    let shared = proposal.shared.as_ref().unwrap();
    assert!(is_lossless(&fleet, &evidence, &proposal.rules));
    assert_eq!((shared.groups, minimum(shared)), (2, vec!["cluster".to_owned(), "locality.zone".to_owned()]));
    assert!(
        proposal.classes[0].count > 2 && proposal.classes[0].count <= 24,
        "{:?}",
        proposal.classes[0].count
    );
}

#[test]
fn lrn_8_the_split_has_the_fields_that_follow_and_the_constant_ones() {
    let fleet = pods(300, 3);
    let evidence = ask(&fleet, &[(clusters(), vec![path(&["LABELS", "app"])])]);
    let shared = propose(&fleet, &evidence).shared.unwrap();
    // Few values before many, and then by name: `cluster` says the same as the app.
    assert_eq!(minimum(&shared), ["cluster"]);
    for field in
        ["metadata.SERVICE_ACCOUNT", "metadata.LABELS.app", "metadata.LABELS.team", "metadata.CLUSTER_ID"]
    {
        assert!(shown(&shared.split).contains(&field.to_owned()), "{field}");
    }
    for field in ["metadata.LABELS.version", "locality.zone", "metadata.NAME", "id"] {
        assert!(!shown(&shared.split).contains(&field.to_owned()), "{field}");
    }
}

#[test]
fn lrn_7_a_decisive_pair_differs_in_one_field_alone() {
    let fleet = pods(600, 5);
    let evidence = ask(&fleet, &[(clusters(), vec![path(&["LABELS", "version"])])]);
    let shared = propose(&fleet, &evidence).shared.unwrap();
    let [decisive] = shared.minimum.as_slice() else { panic!("{:?}", shared.minimum) };
    let (one, other) = decisive.example.unwrap();
    assert!(decisive.is_alone);
    assert_eq!(shown(&fleet.differences((one, other))), ["metadata.LABELS.version"]);
}

#[test]
fn lrn_5_endpoints_that_depend_on_more_have_a_rule_of_their_own() {
    let fleet = pods(500, 11);
    let mut evidence =
        ask(&fleet, &[(clusters(), vec![Field::Cluster]), (listeners(), vec![Field::Cluster])]);
    ask_endpoints(&mut evidence, &fleet, &[Field::Zone]);
    let proposal = propose(&fleet, &evidence);
    assert!(is_lossless(&fleet, &evidence, &proposal.rules));
    assert_eq!(minimum(proposal.shared.as_ref().unwrap()), ["cluster"]);
    let Some(Endpoints::Finer(finer)) = &proposal.endpoints else { panic!("{:?}", proposal.endpoints) };
    assert_eq!(minimum(finer), ["locality.zone"]);
    let counts: Vec<usize> = proposal.classes.iter().map(|classes| classes.count).collect();
    assert_eq!(counts, [24, 8]);
    assert_eq!(proposal.rules[0].types, [endpoints()]);
}

/// Nodes of different apps ask for different endpoints, and both for some: only the zone decides about those.
#[test]
fn lrn_10_endpoints_that_depend_on_less_are_told_and_not_proposed() {
    let fleet = pods(500, 13);
    let mut evidence = ask(&fleet, &[(clusters(), vec![Field::Cluster, Field::Zone])]);
    ask_endpoints(&mut evidence, &fleet, &[Field::Zone]);
    let proposal = propose(&fleet, &evidence);
    let Some(Endpoints::Coarser { minimum, classes, .. }) = &proposal.endpoints else {
        panic!("{:?}", proposal.endpoints)
    };
    assert_eq!((shown(minimum), *classes), (vec!["locality.zone".to_owned()], 3));
    assert_eq!(proposal.rules.len(), 1);
}

#[test]
fn lrn_3_a_derived_field_explains_only_where_no_plain_field_does() {
    let fleet = pods(300, 17);
    let kind = Field::Derived(crate::learning::field::Derived::IdPart { separator: '~', place: 0 });
    let evidence = ask(&fleet, &[(clusters(), vec![kind.clone(), Field::Zone])]);
    let proposal = propose(&fleet, &evidence);
    let shared = proposal.shared.as_ref().unwrap();
    assert!(is_lossless(&fleet, &evidence, &proposal.rules));
    assert_eq!(minimum(shared), ["locality.zone", "part 0 of id at '~'"]);
    assert_eq!((shared.groups, proposal.classes[0].count), (6, 6));
    let written = yaml(&proposal, &[]);
    assert!(written.contains("id: { separator: \"~\", parts: [0] }"), "{written}");
    let evidence = ask(&fleet, &[(clusters(), vec![Field::Zone])]);
    assert!(
        !shown(&propose(&fleet, &evidence).shared.unwrap().split).iter().any(|field| field.contains("id"))
    );
}

#[test]
fn lrn_4_a_type_that_only_unique_fields_explain_is_personal() {
    let fleet = pods(200, 19);
    let evidence = ask(&fleet, &[(clusters(), vec![Field::Cluster]), (listeners(), vec![Field::Id])]);
    let proposal = propose(&fleet, &evidence);
    assert!(is_lossless(&fleet, &evidence, &proposal.rules));
    let personal: Vec<_> =
        proposal.personal.iter().map(|personal| (&personal.type_url, &personal.explained_by)).collect();
    assert_eq!(personal, [(&listeners(), &None)]);
    assert_eq!(proposal.classes.iter().map(|classes| classes.count).collect::<Vec<_>>(), [200, 8]);
    // An address hangs on the pod's node: a rule has no word for its network.
    let network = crate::learning::field::Derived::Network {
        base: crate::learning::field::AddressField::Metadata(vec!["INSTANCE_IPS".into()]),
        v4: 24,
        v6: 64,
    };
    let evidence = ask(&fleet, &[(clusters(), vec![Field::Derived(network)])]);
    let proposal = propose(&fleet, &evidence);
    let explained: Vec<String> =
        proposal.personal.iter().flat_map(|personal| &personal.explained_by).map(Field::to_string).collect();
    assert_eq!(explained, ["network /24 (/64) of metadata.INSTANCE_IPS"]);
    assert!(proposal.shared.is_none() && proposal.rules[0].is_personal());
}

#[test]
fn lrn_21_the_rules_are_written_with_the_evidence_of_each_field() {
    let fleet = pods(300, 23);
    let evidence = ask(&fleet, &[(clusters(), vec![path(&["LABELS", "version"]), Field::Zone])]);
    let written = yaml(&propose(&fleet, &evidence), &["first".to_owned(), "second\nline".to_owned()]);
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines[..4], ["# first", "# second line", "node_classes:", "  # 12 classes for 300 nodes."]);
    assert_eq!(lines[4], "  - split_by:");
    for line in [
        "      locality: sub_zone",
        "          - [LABELS, app]",
        "          - NAME",
        "          # metadata.NAME: 300 values, unique: never splits",
        "          # metadata.SERVICE_ACCOUNT: 8 values, makes no difference",
        "    upstream_node: member",
    ] {
        assert!(lines.contains(&line), "{line}\n{written}");
    }
    let decides = |line: &&&str| line.contains("metadata.LABELS.version: 4 values, ");
    let line = lines.iter().find(decides).unwrap();
    assert!(line.ends_with("counterexamples without it"), "{line}");
}

/// 5,000 fingerprints with 60 fields: below a second with optimization.
#[test]
fn lrn_6_a_large_fleet_takes_no_time() {
    let mut numbers = Numbers(1);
    let node = |number: usize| {
        let mut labels: BTreeMap<String, Value> = (0..57)
            .map(|field| (format!("f{field:02}"), text(numbers.next(2 + field % 9).to_string())))
            .collect();
        labels.insert("same".into(), text("x"));
        Arc::new(Node {
            id: format!("n{number}"),
            cluster: numbers.next(40).to_string(),
            metadata: [("LABELS".to_owned(), Value::Struct(labels))].into(),
            ..Node::default()
        })
    };
    let fleet = Fleet::new((0..5_000).map(node).collect());
    assert_eq!(fleet.fingerprints().count(), 5_000);
    let planted = vec![Field::Cluster, path(&["LABELS", "f03"])];
    let evidence = ask(&fleet, &[(clusters(), planted)]);
    let proposal = propose(&fleet, &evidence);
    assert_eq!(minimum(proposal.shared.as_ref().unwrap()), ["cluster", "metadata.LABELS.f03"]);
}

/// 5,000 fingerprints with 60 fields, in the two forms of a server: few answers, and an answer for each second node. The
/// work is counted in rows that are split by a field; 20 million take less than half a second.
#[test]
fn lrn_6_the_work_of_a_proposal_is_bounded() {
    let mut numbers = Numbers(7);
    let node = |number: usize| {
        let fields = (0..50_u64).map(|field| {
            let value = if field < 4 { numbers.next(9) } else { numbers.next(2 + field % 7) };
            (format!("f{field}"), text(format!("v{value}")))
        });
        let metadata = fields.chain([("NAME".to_owned(), text(format!("pod-{number}")))]).collect();
        Arc::new(Node { id: format!("pod-{number}"), metadata, ..Node::default() })
    };
    let fleet = Fleet::new((0..5_000).map(node).collect());
    assert_eq!(fleet.fingerprints().count(), 5_000);
    let field = |number: usize| path(&[&format!("f{number}")]);
    let few = vec![field(0), field(1)];
    let many: Vec<Field> = (0..4).map(field).collect();
    for fields in [few, many] {
        let evidence = ask(&fleet, &[(clusters(), fields.clone()), (listeners(), fields.clone())]);
        REFINED.set(0);
        let proposal = propose(&fleet, &evidence);
        assert_eq!(minimum(proposal.shared.as_ref().unwrap()), shown(&fields));
        let refined = REFINED.get();
        assert!(refined < 20_000_000, "{refined} rows for {fields:?}");
    }
}
