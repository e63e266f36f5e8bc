//! A release of the history that clients are given again (HIS-3).

use super::bench::*;
use super::one_release::{glob, listed, shown};

/// A release with `old` in version 2. Clients ask for more after it, and have its first content when a push changes all. They are given
/// the push, and then the release again.
fn served_again(later: &Collection, kind: CollectionKind, name: &str) -> Bench {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["old"]));
    bench.say(CollectionKind::Names, &[("old", 1)], &[]);
    bench.say(CollectionKind::Names, &[("old", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.settle(1));
    bench.watch(2, later);
    bench.state(later, kind, &[(name, 3)]);
    bench.state(later, kind, &[(name, 4)]);
    bench.say(CollectionKind::Names, &[("old", 4)], &[]);
    bench.operate(|lanes| lanes.cut(2));
    bench.operate(|lanes| lanes.give(2));
    assert_eq!(shown(bench.candidate(), later), listed(&[(name, 4)]));
    let release = bench.lanes.released().find(|release| release.push == 1).unwrap().clone();
    bench.operate(|lanes| lanes.serve(&release));
    assert_eq!(versions(view(bench.stable(), &["old"])), [("old".into(), 2)]);
    bench
}

impl Bench {
    /// The server states all of a collection with a single resource.
    fn state(&mut self, collection: &Collection, kind: CollectionKind, present: &[(&str, u128)]) {
        match collection {
            Collection::Globs(_) => self.say_glob(present, true),
            _ => self.say(kind, present, &[]),
        }
    }
}

/// The ways to ask for a resource, each with a name.
fn ways() -> [(Collection, CollectionKind, &'static str); 3] {
    [
        (names(&["new"]), CollectionKind::Names, "new"),
        (Collection::Wildcard, CollectionKind::Wildcard, "new"),
        (glob(), CollectionKind::Globs, super::one_release::ONE),
    ]
}

/// What clients first asked for after the release is not in the release. The source has the push that is taken back.
#[test]
fn his_3_what_a_release_does_not_know_stays_as_clients_have_it() {
    for (later, kind, name) in ways() {
        let mut bench = served_again(&later, kind, name);
        assert_eq!(shown(bench.stable(), &later), listed(&[(name, 3)]), "{kind:?}");
        assert_eq!(shown(bench.live(), &later), listed(&[(name, 4)]), "{kind:?}");
        assert!(bench.lanes.is_holding());
        // The next change of the source is held as well.
        bench.state(&later, kind, &[(name, 5)]);
        assert_eq!(shown(bench.stable(), &later), listed(&[(name, 3)]), "{kind:?}");
        // The hold ends when the source has all of it.
        bench.state(&later, kind, &[(name, 3)]);
        assert!(bench.lanes.is_holding());
        bench.say(CollectionKind::Names, &[("old", 2)], &[]);
        assert!(!bench.lanes.is_holding(), "{kind:?}");
    }
}

/// Nobody had the name when the release was served.
#[test]
fn his_3_a_name_that_is_asked_for_later_is_the_sources() {
    let mut bench = served_again(&names(&["new"]), CollectionKind::Names, "new");
    bench.watch(3, &names(&["newer"]));
    bench.say(CollectionKind::Names, &[("newer", 7)], &[]);
    assert_eq!(versions(view(bench.stable(), &["newer"])), [("newer".into(), 7)]);
}

#[test]
fn his_3_clients_with_what_the_release_does_not_know_are_sent_nothing() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["old"]));
    bench.say(CollectionKind::Names, &[("old", 1)], &[]);
    bench.say(CollectionKind::Names, &[("old", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.settle(1));
    bench.watch(2, &names(&["new"]));
    bench.say(CollectionKind::Names, &[("new", 3)], &[]);
    bench.say(CollectionKind::Names, &[("new", 4)], &[]);
    bench.operate(|lanes| lanes.cut(2));
    bench.operate(|lanes| lanes.give(2));
    bench.operate(|lanes| lanes.go_back(2));
    let before = view(bench.stable(), &["new"]).clone();
    let release = bench.lanes.released().find(|release| release.push == 1).unwrap().clone();
    bench.operate(|lanes| lanes.serve(&release));
    assert!(view(bench.stable(), &["new"]).is_same(&before));
}
