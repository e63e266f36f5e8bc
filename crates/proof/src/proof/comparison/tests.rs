use super::*;
use crate::proof::tests::bench::{all_clusters, clusters, endpoints, name_set, named, wildcard};
use std::sync::Arc;
use std::time::Duration;

fn names(compared: &Compared) -> Vec<&str> {
    compared.differing.iter().map(|differing| differing.key.name.as_str()).collect()
}

#[test]
fn prf_11_wildcards_are_compared_by_members_and_versions() {
    let class = wildcard(&clusters(), &[("a", 1), ("b", 1), ("c", 1)]);
    let compared = compare(&all_clusters(), &class, &wildcard(&clusters(), &[("a", 1), ("b", 2), ("d", 1)]));
    assert_eq!(names(&compared), ["b", "c", "d"]);
    assert_eq!((compared.names[&clusters()], compared.without_word), (4, 0));
    let equal = compare(&all_clusters(), &class, &wildcard(&clusters(), &[("a", 1), ("b", 1), ("c", 1)]));
    assert_eq!((equal.differing.len(), equal.names[&clusters()]), (0, 3));
}

#[test]
fn prf_11_absent_names_are_compared_and_unknown_ones_have_no_word() {
    let wants = [(endpoints(), Collection::Names(Arc::new(name_set(&["a", "b", "c"]))))];
    let class = named(&endpoints(), &[("a", Some(1)), ("b", None), ("c", Some(1))]);
    let mut shadow = named(&endpoints(), &[("a", None), ("b", None), ("c", Some(1))]);
    let compared = compare(&wants, &class, &shadow);
    assert_eq!((names(&compared), compared.without_word), (vec!["a"], 0));
    let entries = &mut shadow.types.get_mut(&endpoints()).unwrap().snapshot.names.entries;
    entries.insert("a".into(), Known::Unknown);
    let compared = compare(&wants, &class, &shadow);
    assert_eq!((names(&compared), compared.without_word), (vec![], 1), "unknown is not absent");
    assert_eq!(compared.names[&endpoints()], 2);
}

#[test]
fn prf_11_nothing_restored_and_nothing_partial_counts() {
    let class = wildcard(&clusters(), &[("a", 1)]);
    let mut shadow = wildcard(&clusters(), &[("a", 2)]);
    shadow.types.get_mut(&clusters()).unwrap().standing.restored = true;
    assert_eq!(compare(&all_clusters(), &class, &shadow).without_word, 1);
    let mut shadow = wildcard(&clusters(), &[("a", 2)]);
    shadow.types.get_mut(&clusters()).unwrap().snapshot.wildcard.view = None;
    assert_eq!(compare(&all_clusters(), &class, &shadow).without_word, 1);
    assert_eq!(compare(&all_clusters(), &class, &Content::default()).without_word, 1);
}

#[test]
fn prf_11_a_time_to_live_counts_and_its_length_does_not() {
    let content = |ttl: Option<u64>| {
        let mut content = wildcard(&clusters(), &[("a", 1), ("b", 1)]);
        let members = &mut content.types.get_mut(&clusters()).unwrap().snapshot.wildcard.members;
        let cached = members.get_mut(&ResourceName::new("a")).unwrap();
        Arc::make_mut(&mut cached.resource).ttl = ttl.map(Duration::from_secs);
        content
    };
    let side = |ttl| {
        // Leases are annotations of the view, so the digests do not decide.
        let mut content = content(ttl);
        let wildcard = &mut content.types.get_mut(&clusters()).unwrap().snapshot.wildcard;
        let lease = sluice_engine::annotations::Lease {
            beat: 1,
            expires: sluice_engine::Time::ZERO,
            ttl: Duration::ZERO,
        };
        Arc::make_mut(wildcard.view.as_mut().unwrap()).set_lease(&"a".into(), ttl.map(|_| lease));
        content
    };
    assert_eq!(names(&compare(&all_clusters(), &side(Some(1)), &side(None))), ["a"]);
    assert!(compare(&all_clusters(), &side(Some(1)), &side(Some(9))).differing.is_empty());
}
