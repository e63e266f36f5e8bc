use super::*;
use crate::proof::tests::bench::{fields, member, node};

fn put(population: &mut Population, paths: &mut FieldPaths, id: u64, labels: &[(&str, &str)]) {
    population.put(MemberId(id), member(&node(&format!("n{id}"), labels)), paths);
}

#[test]
fn lrn_4_a_field_with_a_value_for_each_node_splits_no_fingerprint() {
    let (mut population, mut paths) = (Population::default(), FieldPaths::new(1));
    for id in 0..100 {
        put(
            &mut population,
            &mut paths,
            id,
            &[("pod", &format!("p{id}")), ("app", if id % 2 == 0 { "x" } else { "y" })],
        );
    }
    assert_eq!(population.prints_len(), 2);
    let (pod, app) = (paths.numbers["metadata.pod"], paths.numbers["metadata.app"]);
    assert!(population.is_unique(pod) && !population.is_unique(app));
    // The unique field is still part of an explanation.
    let resident = population.get(MemberId(7)).unwrap();
    assert_ne!(value_at(&population.full_row(resident), pod), 0);
    assert_eq!(value_at(&population.common_row(resident), pod), 0);
    (0..100).for_each(|id| drop(population.remove(MemberId(id))));
    assert_eq!((population.len(), population.prints_len(), population.values.len()), (0, 0, 0));
}

#[test]
fn prf_22_values_of_two_members_in_fields_of_few_values_are_to_be_covered() {
    let (mut population, mut paths) = (Population::default(), FieldPaths::new(1));
    for (id, zone) in ["a", "a", "b", "b", "c"].into_iter().enumerate() {
        put(&mut population, &mut paths, id as u64, &[("zone", zone), ("app", "x")]);
    }
    let texts = |population: &Population| {
        population.to_cover().map(|entry| entry.1.to_string()).collect::<BTreeSet<_>>()
    };
    assert_eq!(texts(&population), ["\"a\"".to_owned(), "\"b\"".to_owned()].into(), "not `c`, and not `app`");
    put(&mut population, &mut paths, 4, &[("zone", "b"), ("app", "x")]);
    assert_eq!(texts(&population).len(), 2);
    assert_eq!(
        population.count_with(&[paths.numbers["metadata.zone"]], &[vec![keyed(1, "\"b\"")]].into()),
        3
    );
}

#[test]
fn prf_21_a_client_has_one_key_by_its_id() {
    let paths = FieldPaths::new(1);
    assert_eq!(paths.node_key(&node("a", &[("x", "1")])), paths.node_key(&node("a", &[])));
    assert_ne!(paths.node_key(&node("a", &[])), paths.node_key(&node("b", &[])));
    let fields = fields(&node("a", &[]));
    assert_ne!(FieldPaths::new(1).row(&fields), FieldPaths::new(2).row(&fields), "hashes are keyed");
}
