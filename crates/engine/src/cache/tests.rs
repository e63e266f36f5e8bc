//! The cache of names against a simpler model, and the cache's reports to the source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::slots::{NamesAfter, WatchEffect, WatchedInSets};
use super::watchers::SlotId;
use super::*;
use crate::annotations::ErrorKind;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::time::ReceivedAt;
use crate::upstream::Cause;
use crate::view::View;
use sluice_xds::{Any, Code, Resource, ResourceName, Status, Version};

const POOL: [&str; 5] = ["a", "b", "c", "d", "e"];

fn set(names: impl IntoIterator<Item = &'static str>) -> Arc<NameSet> {
    Arc::new(NameSet::of(names.into_iter().map(ResourceName::new), HashSeed(7)))
}

fn resource(name: &str, version: u128) -> Arc<Resource> {
    Arc::new(Resource {
        name: name.into(),
        version: Version(version),
        body: Any { type_url: Arc::from("t"), value: Bytes::from(vec![0; 10]) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    })
}

fn texts(names: &[ResourceName]) -> Vec<&str> {
    names.iter().map(ResourceName::as_str).collect()
}

struct Bench {
    cache: NamedCache,
    stamp: Stamp,
    at: BTreeMap<SessionId, SlotId>,
    sets: BTreeMap<SessionId, Arc<NameSet>>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            cache: NamedCache::default(),
            stamp: Stamp::new(1),
            at: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    fn watch(&mut self, session: u64, names: &[&'static str]) -> WatchEffect {
        let session = SessionId(session);
        let from = self.at.get(&session).copied();
        let names = set(names.iter().copied());
        let previous = self.sets.insert(session, names.clone());
        let names = NamesAfter { names: &names, previous: previous.as_deref() };
        let moved = self.cache.watch(session, from, names, &mut self.stamp);
        match moved.slot {
            Some(slot) => self.at.insert(session, slot),
            None => self.at.remove(&session),
        };
        self.cache.check_invariants();
        moved
    }

    fn settle(&mut self) -> Vec<u64> {
        let mut news = News::default();
        self.cache.settle(&mut self.stamp, &mut news);
        self.cache.check_invariants();
        news.first.into_iter().chain(news.update).map(|session| session.0).collect()
    }

    fn view(&self, names: &[&'static str]) -> Option<Arc<View>> {
        Some(self.cache.sets().get(&set(names.iter().copied()).id())?.view.clone())
    }
}

/// A text of its own for each absent name would double the memory of long names (ADR 74).
#[test]
fn an_absent_name_keeps_its_text() {
    let mut bench = Bench::new();
    bench.watch(1, &["a"]);
    let text = bench.cache.entries().keys().next().unwrap().clone();
    bench.cache.put_absent(&ResourceName::new("a"), Cause::Omitted);
    assert!(bench.cache.entries().keys().all(|name| name.is_same_text(&text)));
}

#[test]
fn rly_57_and_58_names_are_counted_over_all_sets() {
    let mut bench = Bench::new();
    assert_eq!(texts(&bench.watch(1, &["a", "b"]).new), ["a", "b"]);
    let moved = bench.watch(2, &["b", "c"]);
    assert_eq!((texts(&moved.new), texts(&moved.revived)), (vec!["c"], vec![]), "b is there");
    let moved = bench.watch(1, &["b"]);
    assert_eq!((texts(&moved.new), texts(&moved.unwatched)), (vec![], vec!["a"]));
    // One of two sessions leaves b; the last session leaves c.
    let moved = bench.watch(2, &["d"]);
    assert_eq!((texts(&moved.new), texts(&moved.unwatched)), (vec!["d"], vec!["c"]));
    let moved = bench.watch(1, &["a", "c"]);
    assert_eq!(
        (texts(&moved.new), texts(&moved.revived), texts(&moved.unwatched)),
        (vec![], vec!["a", "c"], vec!["b"])
    );
    assert!(!bench.cache.free(&"a".into()), "it is watched");
    assert!(bench.cache.free(&"b".into()));
    assert!(!bench.cache.free(&"b".into()));
    assert_eq!(
        bench.watch(1, &[]),
        WatchEffect { unwatched: vec!["a".into(), "c".into()], ..WatchEffect::default() }
    );
}

#[test]
fn the_cost_of_an_update_is_that_of_the_sets_that_want_it() {
    let mut bench = Bench::new();
    for session in 0..10 {
        bench.watch(session, if session < 3 { &["a"] } else { &["b"] });
    }
    bench.settle();
    bench.cache.put(&resource("a", 1), ReceivedAt::default());
    assert_eq!(bench.settle(), [0, 1, 2]);
    bench.cache.put(&resource("a", 1), ReceivedAt::default());
    bench.cache.put(&resource("zzz", 1), ReceivedAt::default());
    bench.cache.put_absent(&"zzz".into(), Cause::Removed);
    assert_eq!(
        bench.settle(),
        [] as [u64; 0],
        "neither equal content nor names that nobody asked for are news"
    );
    bench.cache.put_absent(&"b".into(), Cause::Timeout);
    bench.cache.put_absent(&"b".into(), Cause::Removed);
    assert_eq!(bench.settle(), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn views_of_one_place_have_one_id_and_of_two_places_two() {
    let mut bench = Bench::new();
    let mut ids = BTreeSet::new();
    bench.watch(1, &["a"]);
    for version in [1, 2, 1] {
        bench.cache.put(&resource("a", version), ReceivedAt::default());
        bench.settle();
        assert!(ids.insert(bench.view(&["a"]).unwrap().id()));
        bench.watch(2, &["a"]);
        assert!(!ids.insert(bench.view(&["a"]).unwrap().id()));
    }
    bench.watch(2, &["a", "b"]);
    assert!(ids.insert(bench.view(&["a", "b"]).unwrap().id()));
    assert!(!ids.insert(bench.view(&["a"]).unwrap().id()));
    assert_eq!(Collection::Names(set(["a"])).kind(), CollectionKind::Names);
}

#[derive(Clone, Copy, Debug)]
enum NameState {
    Unknown,
    Present(u128),
    Absent,
}

/// The expected content of the cache, in the simplest form.
#[derive(Default)]
struct Model {
    states: BTreeMap<&'static str, NameState>,
    watched: BTreeMap<u64, Vec<&'static str>>,
}

impl Model {
    fn is_watched(&self, name: &str) -> bool {
        self.watched.values().flatten().any(|watched| *watched == name)
    }

    fn judge(&self, bench: &Bench) {
        for names in self.watched.values().filter(|names| !names.is_empty()) {
            let view = bench.view(names).unwrap();
            let (mut unknown, mut sum, mut bytes) = (0, Version::default(), 0);
            for name in names {
                let (name, state) = (ResourceName::new(name), self.states[name]);
                let expected =
                    if let NameState::Present(version) = state { Some(Version(version)) } else { None };
                assert_eq!(view.version_of(&name), expected);
                assert_eq!(view.knows_absent(&name), matches!(state, NameState::Absent));
                unknown += usize::from(matches!(state, NameState::Unknown));
                if let Some(version) = expected {
                    sum = sum.plus(version);
                    bytes += resource(name.as_str(), 0).size();
                }
            }
            assert_eq!((view.unknown_len(), view.digest(), view.bytes()), (unknown, sum, bytes));
        }
        let sets: BTreeSet<_> = self.watched.values().filter(|names| !names.is_empty()).collect();
        assert_eq!(bench.cache.sets().len(), sets.len(), "a set is held once, and only while it is watched");
        assert_eq!(bench.cache.entries().len(), self.states.len());
    }
}

fn step(bench: &mut Bench, model: &mut Model, (what, x, y): (u8, u8, u8)) {
    let name = POOL[usize::from(x) % POOL.len()];
    match what % 6 {
        0..=2 => {
            let session = u64::from(x % 4);
            let names: Vec<_> =
                (0..POOL.len()).filter(|bit| y & (1 << bit) != 0).map(|bit| POOL[bit]).collect();
            let before: Vec<_> = POOL.into_iter().filter(|name| model.is_watched(name)).collect();
            model.watched.insert(session, names.clone());
            let moved = bench.watch(session, &names);
            let is_new = |name: &&str| !model.states.contains_key(*name);
            let new: Vec<_> = names.iter().copied().filter(|name| is_new(name)).collect();
            let revived = names.iter().copied().filter(|name| !is_new(name) && !before.contains(name));
            let left = before.iter().copied().filter(|name| !model.is_watched(name));
            assert_eq!(texts(&moved.revived), revived.collect::<Vec<_>>());
            assert_eq!(texts(&moved.unwatched), left.collect::<Vec<_>>());
            assert_eq!(texts(&moved.new), new);
            model.states.extend(new.into_iter().map(|name| (name, NameState::Unknown)));
        }
        3 => {
            bench.cache.put(&resource(name, u128::from(y % 3 + 1)), ReceivedAt::default());
            model.states.entry(name).and_modify(|state| *state = NameState::Present(u128::from(y % 3 + 1)));
        }
        4 => {
            bench.cache.put_absent(&name.into(), Cause::Removed);
            model.states.entry(name).and_modify(|state| *state = NameState::Absent);
        }
        _ => {
            let free = !model.is_watched(name) && model.states.remove(name).is_some();
            assert_eq!(bench.cache.free(&name.into()), free);
        }
    }
    bench.settle();
    model.judge(bench);
}

fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let rng_seed = match given.rng_seed {
        RngSeed::Random => RngSeed::Fixed(7),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { 64 };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..given }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sets_that_are_joined_left_and_taken_along_are_what_they_should_be(
        steps in vec(any::<(u8, u8, u8)>(), 1..80)
    ) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for each in steps {
            step(&mut bench, &mut model, each);
        }
    }
}

/// DAT-5, DAT-8: each state is reached as gRFC A88 says, and the counts follow.
#[test]
fn dat_5_dat_8_a_name_is_in_the_state_that_was_heard_of_it_last() {
    let mut bench = Bench::new();
    let status = |code| Arc::new(Status::new(code, "why"));
    let name = ResourceName::new("a");
    let state = |bench: &Bench| {
        bench.cache.check_invariants();
        let states = bench.cache.counts().states;
        let reached: Vec<_> = EntryState::ALL.into_iter().filter(|state| states.get(*state) > 0).collect();
        assert_eq!(reached.len(), 1, "one name is in one state");
        reached[0].label()
    };
    bench.watch(1, &["a"]);
    assert_eq!(state(&bench), "requested");
    bench.cache.fail(&name, &status(Code::Unavailable), ErrorKind::Unreachable);
    assert_eq!(state(&bench), "requested", "that says nothing about the resource");
    bench.cache.fail(&name, &status(Code::Unavailable), ErrorKind::Timeout);
    assert_eq!(state(&bench), "timeout", "TMR-5");
    bench.cache.fail(&name, &status(Code::Internal), ErrorKind::Reported);
    assert_eq!(state(&bench), "received_error");
    bench.cache.fail(&name, &status(Code::InvalidArgument), ErrorKind::Malformed);
    assert_eq!(state(&bench), "nacked");
    bench.cache.put(&resource("a", 1), ReceivedAt::default());
    assert_eq!(state(&bench), "acked", "DAT-7");
    bench.cache.fail(&name, &status(Code::InvalidArgument), ErrorKind::Malformed);
    assert_eq!(state(&bench), "nacked_but_cached");
    bench.cache.fail(&name, &status(Code::PermissionDenied), ErrorKind::Reported);
    assert_eq!(state(&bench), "received_error_but_cached");
    bench.cache.put_absent(&name, Cause::DataError);
    assert_eq!(state(&bench), "received_error", "the reason stays");
    bench.cache.fail(&name, &status(Code::NotFound), ErrorKind::Reported);
    assert_eq!(state(&bench), "does_not_exist");
    bench.cache.put(&resource("a", 1), ReceivedAt::default());
    bench.cache.put_absent(&name, Cause::Timeout);
    assert_eq!(state(&bench), "does_not_exist", "TMR-5");
    bench.cache.put(&resource("a", 1), ReceivedAt::default());
    bench.cache.fail(&name, &status(Code::InvalidArgument), ErrorKind::Malformed);
    bench.watch(1, &[]);
    assert!(bench.cache.free(&name));
    assert_eq!(bench.cache.counts().states, StateCounts::default());
}
