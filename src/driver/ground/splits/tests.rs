use super::*;
use sluice_engine::class::UpstreamNode;
use sluice_xds::{Locality, Value};

fn node(team: Option<&str>, zone: &str) -> Node {
    Node {
        id: format!("{zone}-1"),
        metadata: team.map(|team| ("team".to_owned(), Value::String(team.to_owned()))).into_iter().collect(),
        locality: Some(Locality { zone: zone.to_owned(), ..Locality::default() }),
        ..Node::default()
    }
}

fn by_team(class: &NodeClass, teams: &[Option<&str>]) -> NewSplit {
    NewSplit {
        class: class.clone(),
        fields: vec!["metadata.team".into()],
        values: Some(teams.iter().map(|team| vec![team.map(Arc::from)]).collect()),
        cause: SplitCause::Operator,
        holds: None,
    }
}

fn whole() -> NodeClass {
    NodeClass { upstream_node: UpstreamNode::Member, ..NodeClass::of_everybody() }
}

/// The value as the fields of a node have it: metadata is JSON there.
const BLUE: Option<&str> = Some("\"blue\"");

#[test]
fn prf_27_only_clients_with_the_values_leave_each_tuple_for_a_class_of_its_own() {
    let mut splits = Splits::default();
    let (blue, red, none) = (node(Some("blue"), "a"), node(Some("red"), "a"), node(None, "a"));
    assert_eq!(splits.apply(whole(), Some(&blue)), whole());
    splits.add(by_team(&whole(), &[BLUE, None]), UNIX_EPOCH);
    let class = |node: &Node| splits.apply(whole(), Some(node));
    assert_eq!(class(&red), whole());
    assert_eq!(splits.apply(whole(), None), whole());
    assert!(class(&blue) != whole() && class(&none) != whole() && class(&blue) != class(&none));
    assert_eq!(class(&blue).split_from.as_deref(), Some(&whole()));
    let elsewhere = NodeClass { legacy_wildcard: false, node: red.clone(), ..whole() };
    assert_eq!(splits.apply(elsewhere.clone(), Some(&blue)), elsewhere, "another class");
    assert_ne!(class_digest(&class(&blue)), class_digest(&whole()));
}

#[test]
fn prf_27_a_part_of_a_class_can_be_split_again() {
    let mut splits = Splits::default();
    splits.add(by_team(&whole(), &[BLUE]), UNIX_EPOCH);
    let part = splits.apply(whole(), Some(&node(Some("blue"), "a")));
    let by_zone = NewSplit { fields: vec!["locality.zone".into()], values: None, ..by_team(&part, &[]) };
    splits.add(by_zone, UNIX_EPOCH);
    let [a, b] = ["a", "b"].map(|zone| splits.apply(whole(), Some(&node(Some("blue"), zone))));
    assert!(a != b && a.split_from.as_deref() == Some(&part) && b.split_from == a.split_from);
    let by_id = NewSplit { fields: vec!["id".into()], values: None, ..by_team(&a, &[]) };
    splits.add(by_id, UNIX_EPOCH);
    assert_eq!(splits.apply(whole(), Some(&node(Some("blue"), "a"))).split_from.as_deref(), Some(&a));
    // What was split off from a part goes with the part, and does not come back with it.
    assert!(splits.join(&part));
    assert_eq!(splits.apply(whole(), Some(&node(Some("blue"), "a"))), whole());
    assert!(splits.is_empty());
}

#[test]
fn prf_27_of_several_splits_the_narrowest_takes_a_client() {
    let mut splits = Splits::default();
    splits.add(by_team(&whole(), &[BLUE]), UNIX_EPOCH);
    for (fields, values) in
        [(vec!["locality.zone", "metadata.team"], vec!["a", "\"blue\""]), (vec!["id"], vec!["a-1"])]
    {
        let wide = splits.apply(whole(), Some(&node(Some("blue"), "a")));
        let values = vec![values.into_iter().map(|value| Some(Arc::from(value))).collect()];
        let fields: Vec<Box<str>> = fields.into_iter().map(Box::from).collect();
        let name = format!("split by {}", fields.join(","));
        splits.add(NewSplit { fields, values: Some(values), ..by_team(&whole(), &[]) }, UNIX_EPOCH);
        let narrow = splits.apply(whole(), Some(&node(Some("blue"), "a")));
        assert!(narrow != wide && narrow.attributes.contains_key(&*name), "{narrow:?}");
    }
}

#[test]
fn prf_31_a_join_undoes_the_split_of_one_tuple_alone() {
    let mut splits = Splits::default();
    splits.add(by_team(&whole(), &[BLUE]), UNIX_EPOCH);
    assert!(splits.add(by_team(&whole(), &[None]), UNIX_EPOCH), "by the same field");
    assert!(!splits.add(by_team(&whole(), &[None, BLUE]), UNIX_EPOCH), "nothing new");
    let (blue, none) = (node(Some("blue"), "a"), node(None, "a"));
    let part = splits.apply(whole(), Some(&blue));
    assert_eq!(splits.origin(&part).and_then(ClassSplit::tuples), Some(1));
    assert!(splits.join(&part) && !splits.join(&part));
    assert_eq!(splits.apply(whole(), Some(&blue)), whole());
    assert_ne!(splits.apply(whole(), Some(&none)), whole());
    assert!(splits.join_all(&class_digest(&whole())) && splits.is_empty());
}

#[test]
fn prf_31_the_proof_undoes_its_own_splits_and_none_of_an_operator() {
    let found = SplitCause::Proof { client: "a-1".into(), type_name: "Cluster".into() };
    for (cause, is_operators) in [(found, false), (SplitCause::Operator, true)] {
        let store = SplitStore::default();
        store.add(NewSplit { cause, ..by_team(&whole(), &[BLUE]) }, UNIX_EPOCH);
        let part = store.get().apply(whole(), Some(&node(Some("blue"), "a")));
        assert_eq!(store.get().is_operators(&part), is_operators);
        store.undo(&part);
        assert_eq!(store.get().is_empty(), !is_operators);
    }
}

#[test]
fn prf_31_a_later_split_by_the_same_fields_leaves_the_cause_and_the_time_of_the_first() {
    let found = SplitCause::Proof { client: "a-1".into(), type_name: "Cluster".into() };
    let hour = Duration::from_secs(3_600);
    let by_proof = |values| NewSplit { cause: found.clone(), holds: Some(hour), ..by_team(&whole(), values) };
    let [blue, none] = [node(Some("blue"), "a"), node(None, "a")];
    for is_proof_first in [true, false] {
        let mut splits = Splits::default();
        let orders = [by_proof(&[BLUE]), by_team(&whole(), &[BLUE, None])];
        let [first, second] =
            if is_proof_first { orders } else { [by_team(&whole(), &[BLUE]), by_proof(&[BLUE, None])] };
        splits.add(first.clone(), UNIX_EPOCH);
        assert!(splits.add(second.clone(), UNIX_EPOCH + hour));
        for (node, order, at) in [(&blue, &first, Duration::ZERO), (&none, &second, hour)] {
            let part = splits.apply(whole(), Some(node));
            let origin = splits.origin(&part).unwrap();
            assert_eq!((&origin.cause, origin.holds()), (&order.cause, order.holds));
            assert_eq!(origin.made_at(), UNIX_EPOCH + at);
            assert_eq!(splits.is_operators(&part), order.cause == SplitCause::Operator);
        }
        // A part that returns takes no other part along.
        assert!(splits.join(&splits.apply(whole(), Some(&blue))));
        assert_eq!(splits.apply(whole(), Some(&blue)), whole());
        assert_ne!(splits.apply(whole(), Some(&none)), whole());
    }
}

#[test]
fn prf_32_an_operators_split_of_all_values_takes_the_parts_of_the_proof_over() {
    let mut splits = Splits::default();
    let found = SplitCause::Proof { client: "a-1".into(), type_name: "Cluster".into() };
    splits.add(NewSplit { cause: found, ..by_team(&whole(), &[BLUE]) }, UNIX_EPOCH);
    assert!(splits.add(NewSplit { values: None, ..by_team(&whole(), &[]) }, UNIX_EPOCH));
    assert!(!splits.add(by_team(&whole(), &[BLUE]), UNIX_EPOCH), "all values leave already");
    let part = splits.apply(whole(), Some(&node(Some("blue"), "a")));
    assert!(splits.is_operators(&part) && splits.all().count() == 1);
}

#[test]
fn prf_32_the_file_has_all_splits_and_no_value_of_a_node() {
    let mut splits = Splits::default();
    splits.add(by_team(&whole(), &[BLUE]), UNIX_EPOCH);
    let file = encode_splits(&splits);
    assert_eq!(decode_splits(&file).as_ref(), Ok(&splits));
    assert!(!String::from_utf8_lossy(&file).contains("blue"));
    let other = String::from_utf8_lossy(&file).replace("\"format\":1", "\"format\":2");
    assert!(decode_splits(other.as_bytes()).is_err_and(|error| error.contains("format 2")));
}
