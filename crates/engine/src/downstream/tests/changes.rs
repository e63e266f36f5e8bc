//! The way of published changes to clients: each client settles each change that it wants once (ADM-10).

use super::bench::{Bench, CDS, EDS, url};
use crate::collection::CollectionKind;

/// The sessions of each change, by number.
fn wanted(bench: &mut Bench) -> Vec<(u64, usize)> {
    let changes = bench.sources[0].take_changes();
    changes.iter().map(|change| (change.number, change.sessions)).collect()
}

#[test]
fn adm_10_a_change_tells_its_names_its_size_and_its_sessions() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.says(EDS, "a=1 b=1");
    bench.says(EDS, "a=2 -b");
    let changes = bench.sources[0].take_changes();
    let [first, second] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((first.number, first.altered.added.count, first.sessions), (1, 2, 1));
    assert_eq!((second.number, &second.type_url), (2, &url(EDS)));
    let lists = [&second.altered.added, &second.altered.changed, &second.altered.removed];
    assert_eq!(
        lists.map(|list| list.names.iter().map(|name| name.as_str()).collect::<Vec<_>>()),
        [vec![], vec!["a"], vec!["b"]]
    );
    assert!(second.altered.bytes > 0 && second.altered.bytes < first.altered.bytes);
    let view = bench.snapshots[0].of(&url(EDS)).unwrap().names.sets.values().next().unwrap().view.clone();
    assert_eq!(second.version, view.digest());
}

#[test]
fn adm_10_equal_content_an_error_and_an_absence_of_nothing_are_no_changes() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.says(EDS, "a=1");
    bench.says(EDS, "a=1");
    bench.says(EDS, "-b");
    bench.fails(EDS, "a", sluice_xds::Code::Internal);
    assert_eq!(wanted(&mut bench), [(1, 1)]);
}

#[test]
fn adm_10_a_change_is_wanted_by_the_sessions_that_watch_changed_content() {
    let mut bench = Bench::cold();
    let [one, both, other] = [bench.delta(), bench.sotw(), bench.delta()];
    bench.change(one, EDS, "+a");
    bench.ask(both, EDS, "a b");
    bench.change(other, EDS, "+b");
    bench.says(EDS, "a=1 b=1");
    bench.says(EDS, "a=2");
    assert_eq!(wanted(&mut bench), [(1, 3), (2, 2)]);
    for client in [one, both, other] {
        bench.drain(client);
    }
    // Nothing was sent in between: the second change has overtaken the first, where it has content.
    assert_eq!(bench.changes_of(one, 0), "1 superseded, 2 acked");
    assert_eq!(bench.changes_of(both, 0), "1 superseded, 2 acked");
    assert_eq!(bench.changes_of(other, 0), "1 acked");
}

#[test]
fn adm_10_a_rejected_change_stays_rejected_and_a_later_one_is_another() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.says_of_all(CDS, "a=1", true);
    bench.poll(client);
    assert_eq!(bench.changes_of(client, 0), "1 waiting");
    bench.nack(client, CDS);
    assert_eq!(bench.changes_of(client, 0), "1 rejected");
    bench.says_of_all(CDS, "a=2", true);
    bench.says_of_all(CDS, "a=3", true);
    assert_eq!(bench.changes_of(client, 0), "1 rejected, 2 overtaken, 3 waiting");
    bench.drain(client);
    assert_eq!(bench.changes_of(client, 0), "1 rejected, 2 superseded, 3 acked");
}

#[test]
fn adm_10_content_from_before_the_subscription_is_no_change_for_the_client() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    let [early, late] = [bench.delta(), bench.delta()];
    bench.change(early, CDS, "");
    bench.drain(early);
    bench.state(0, &[(CDS, "a=2")]);
    bench.change(late, CDS, "");
    assert_eq!(bench.drain(late), "Cluster a=2");
    assert_eq!(bench.changes_of(late, 0), "");
    bench.state(0, &[(CDS, "a=3")]);
    bench.drain(late);
    assert_eq!(bench.drain(early), "Cluster a=3");
    assert!(bench.changes_of(late, 0).ends_with(" acked") && !bench.changes_of(late, 0).contains(','));
    assert!(bench.changes_of(early, 0).ends_with("superseded, 3 acked"), "{}", bench.changes_of(early, 0));
}

#[test]
fn adm_10_a_delta_client_that_has_the_content_settles_without_an_answer() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change_with(client, EDS, "+a", "", &[("a", super::bench::version_of(EDS, "a=1"))], None);
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(client), "");
    assert_eq!(bench.changes_of(client, 0), "1 unneeded");
}

#[test]
fn adm_10_a_change_that_goes_back_before_it_is_sent_needs_no_answer() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.drain(client);
    bench.says(EDS, "a=2");
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(client), "");
    assert_eq!(bench.changes_of(client, 0), "1 acked, 2 unneeded, 3 unneeded");
}

#[test]
fn adm_10_a_move_to_another_source_leaves_the_changes_behind() {
    let mut bench = Bench::new(vec![super::bench::streams(), super::bench::streams()]);
    let client = bench.delta();
    bench.clients[client].routes.xdstp = 0;
    bench.change(client, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.drain(client);
    bench.says(EDS, "a=2");
    bench.reroute(client, 1);
    assert_eq!((bench.changes_of(client, 0), bench.changes_of(client, 1)), ("1 acked".into(), String::new()));
    bench.changes(1, EDS, CollectionKind::Names, "a=3", false);
    bench.drain(client);
    assert_eq!(
        (bench.changes_of(client, 0), bench.changes_of(client, 1)),
        ("1 acked".into(), "1 acked".into())
    );
    assert_eq!(wanted(&mut bench), [(1, 1), (2, 1)]);
}
