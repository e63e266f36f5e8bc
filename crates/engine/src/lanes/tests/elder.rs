//! First answers of a source whose clients come from another server (WAV-22).

use super::bench::*;
use crate::gated::Refused;
use crate::lanes::Elder;

/// Another unit of the plan with these clusters, by name and as members.
fn elder(clusters: &[(&str, u128)], holds_all: bool) -> Elder {
    let mut bench = Bench::new();
    let all: Vec<_> = clusters.iter().map(|(name, _)| *name).collect();
    bench.watch(1, &names(&all));
    bench.watch(2, &Collection::Wildcard);
    bench.say(CollectionKind::Names, clusters, &[]);
    bench.say(CollectionKind::Wildcard, clusters, &[]);
    Elder { content: bench.published.stable().clone(), holds_all }
}

impl Bench {
    /// The server's first answer, for a source that knows the elder.
    fn say_first(&mut self, elder: &Elder, kind: CollectionKind, present: &[(&str, u128)], absent: &[&str]) {
        self.lanes.look_at(Some(elder.clone()));
        self.say(kind, present, absent);
    }

    fn refuse(&mut self, refused: &[(&str, u128)]) {
        let contents = refused.iter().map(|(name, version)| (url(), (*name).into(), Version(*version)));
        self.lanes.refuse(&Refused::of(contents));
    }
}

fn listed(list: &[(&str, u128)]) -> Vec<(String, u128)> {
    list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

#[test]
fn wav_22_a_refused_content_is_held_where_another_unit_knows_an_older_one() {
    let older = elder(&[("bad", 1), ("other", 1)], false);
    for (collection, kind) in [
        (names(&["bad", "new", "other"]), CollectionKind::Names),
        (Collection::Wildcard, CollectionKind::Wildcard),
    ] {
        let mut bench = Bench::new();
        bench.refuse(&[("bad", 2), ("new", 2)]);
        bench.watch(1, &collection);
        bench.say_first(&older, kind, &[("bad", 2), ("new", 2), ("other", 2)], &[]);
        let stable = versions(bench.stable().view(&collection).unwrap());
        let new = match kind {
            // Nothing older is known of a name; the other unit's wildcard lacks it.
            CollectionKind::Names => listed(&[("bad", 1), ("new", 2), ("other", 2)]),
            _ => listed(&[("bad", 1), ("other", 2)]),
        };
        assert_eq!(stable, new, "{kind:?}: fallback holds nothing else back");
        bench.say(kind, &[("bad", 3)], &[]);
        assert_eq!(versions(bench.stable().view(&collection).unwrap()), new, "the next push");
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.settle(1));
        assert!(!bench.lanes.is_holding());
    }
}

#[test]
fn wav_22_a_server_that_takes_over_brings_a_push() {
    let former = elder(&[("changed", 1), ("goes", 1), ("stays", 1)], true);
    for (collection, kind) in [
        (names(&["changed", "goes", "stays", "new"]), CollectionKind::Names),
        (Collection::Wildcard, CollectionKind::Wildcard),
    ] {
        let mut bench = Bench::new();
        bench.watch(1, &collection);
        let absent: &[_] = if kind == CollectionKind::Names { &["goes"] } else { &[] };
        bench.say_first(&former, kind, &[("changed", 2), ("new", 2), ("stays", 1)], absent);
        let stable = versions(bench.stable().view(&collection).unwrap());
        let new: &[_] = if kind == CollectionKind::Names { &[("new", 2)] } else { &[] };
        let kept = [&[("changed", 1), ("goes", 1)], new, &[("stays", 1)]].concat();
        assert_eq!(stable, listed(&kept), "{kind:?}");
        assert!(bench.lanes.differs().from_stable, "a push");
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.settle(1));
        assert!(!bench.lanes.is_holding());
    }
}

#[test]
fn wav_22_an_equal_content_at_another_server_holds_nothing() {
    let former = elder(&[("a", 1), ("b", 1)], true);
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say_first(&former, CollectionKind::Wildcard, &[("a", 1), ("b", 1)], &[]);
    assert!(!bench.lanes.is_holding() && bench.published.lanes.is_none());
    assert!(Arc::ptr_eq(&bench.published.live, &bench.live), "nothing was held");
}

/// A refused content of the other unit is nothing better.
#[test]
fn wav_22_one_refused_content_is_no_better_than_another() {
    let other = elder(&[("a", 2)], false);
    let mut bench = Bench::new();
    bench.refuse(&[("a", 2), ("a", 3)]);
    bench.watch(1, &names(&["a"]));
    bench.say_first(&other, CollectionKind::Names, &[("a", 3)], &[]);
    assert!(!bench.lanes.is_holding());
}

/// Members arrive in pieces, and the plan refuses one of them.
#[test]
fn wav_22_members_are_held_before_all_are_known() {
    let older = elder(&[("bad", 1)], false);
    let mut bench = Bench::new();
    bench.refuse(&[("bad", 2)]);
    bench.watch(1, &Collection::Wildcard);
    let piece = |version, complete| Changes {
        type_url: url(),
        kind: CollectionKind::Wildcard,
        present: vec![resource("bad", version)],
        by_alias: Vec::new(),
        unasked: Vec::new(),
        absent: Vec::new(),
        refreshed: Vec::new(),
        replaces: false,
        complete,
        settled: Vec::new(),
    };
    for complete in [false, true] {
        bench.lanes.look_at(Some(older.clone()));
        bench.source.handle_changes(piece(2, complete), bench.now);
        bench.settle();
        assert_eq!(versions(bench.stable().wildcard.view.as_ref().unwrap()), listed(&[("bad", 1)]));
        assert_eq!(bench.stable().wildcard.is_whole(), complete);
    }
}

#[test]
fn wav_22_only_first_answers_need_another_unit() {
    let mut bench = Bench::new();
    let before = bench.live.clone();
    bench.watch(1, &names(&["a"]));
    assert!(!bench.lanes.answers_first(&before, &bench.live), "unknown");
    let asked = bench.live.clone();
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    let answered = bench.live.clone();
    assert!(bench.lanes.answers_first(&asked, &answered));
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    assert!(!bench.lanes.answers_first(&answered, &bench.live), "a change");
}
