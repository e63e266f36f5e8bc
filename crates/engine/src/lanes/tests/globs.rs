//! The members of globs (NAM-14), in a hold, a push and the way back.

use super::bench::*;

const LEFT: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/left/*";
const RIGHT: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/right/*";

fn globs(list: &[&str]) -> Collection {
    let names = list.iter().map(|name| ResourceName::new(name));
    Collection::Globs(Arc::new(NameSet::of(names, HashSeed(7))))
}

/// A member of a glob.
fn member(glob: &str, name: &str) -> String {
    glob.replace('*', name)
}

impl Bench {
    /// The server states members, removes others, and has stated all of the settled globs.
    fn say_globs(&mut self, present: &[(&str, &str, u128)], absent: &[(&str, &str)], settled: &[&str]) {
        let present = present.iter().map(|(glob, name, version)| resource(&member(glob, name), *version));
        let absent = absent.iter().map(|(glob, name)| ResourceName::new(&member(glob, name)));
        let changes = Changes {
            type_url: url(),
            kind: CollectionKind::Globs,
            present: present.collect(),
            by_alias: Vec::new(),
            unasked: Vec::new(),
            absent: absent.map(|name| (name, Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: false,
            complete: false,
            settled: settled.iter().map(|glob| ResourceName::new(glob)).collect(),
        };
        self.source.handle_changes(changes, self.now);
        self.settle();
    }
}

/// The last segments of the members that a client of these globs is shown, with their versions.
fn shown(of: &TypeSnapshot, list: &[&str]) -> Vec<(String, u128)> {
    let last = |name: String| name.rsplit('/').next().unwrap().to_owned();
    versions(of.view(&globs(list)).unwrap())
        .into_iter()
        .map(|(name, version)| (last(name), version))
        .collect()
}

fn listed(list: &[(&str, u128)]) -> Vec<(String, u128)> {
    list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

/// A hold on the globs' members: one is to change, one to go, and one to come.
fn held() -> Bench {
    let mut bench = Bench::new();
    bench.watch(1, &globs(&[LEFT]));
    bench.say_globs(&[(LEFT, "changed", 1), (LEFT, "gone", 1), (LEFT, "same", 1)], &[], &[LEFT]);
    assert!(!bench.lanes.is_holding(), "WAV-7: a first answer");
    bench.say_globs(&[(LEFT, "changed", 2), (LEFT, "new", 1)], &[(LEFT, "gone")], &[]);
    bench
}

#[test]
fn wav_4_a_push_of_members_of_a_glob_waits_settles_and_goes_back() {
    let old = listed(&[("changed", 1), ("gone", 1), ("same", 1)]);
    let new = listed(&[("changed", 2), ("new", 1), ("same", 1)]);
    for is_good in [false, true] {
        let mut bench = held();
        assert_eq!(shown(bench.stable(), &[LEFT]), old);
        assert_eq!(shown(bench.live(), &[LEFT]), new);
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.give(1));
        assert_eq!(shown(bench.candidate(), &[LEFT]), new);
        bench.say_globs(&[(LEFT, "same", 2)], &[], &[]);
        assert_eq!(shown(bench.candidate(), &[LEFT]), new, "WAV-11: the next change waits");
        assert_eq!(shown(bench.stable(), &[LEFT]), old);
        match is_good {
            true => bench.operate(|lanes| lanes.settle(1)),
            false => bench.operate(|lanes| lanes.go_back(1)),
        }
        let kept = if is_good { &new } else { &old };
        assert_eq!(&shown(bench.stable(), &[LEFT]), kept);
    }
}

/// The server takes the change of the members back.
#[test]
fn wav_4_a_hold_of_a_glob_ends_once_its_members_are_as_before() {
    let mut bench = held();
    bench.say_globs(&[(LEFT, "changed", 1), (LEFT, "gone", 1)], &[], &[]);
    assert!(bench.lanes.is_holding(), "the new member is there");
    bench.say_globs(&[], &[(LEFT, "new")], &[]);
    assert!(!bench.lanes.is_holding());
}

/// WAV-7: a glob that nobody asked for before the hold has the newest members, and their later changes wait.
#[test]
fn wav_7_a_glob_that_stable_never_had_is_answered_and_then_held() {
    let mut bench = held();
    bench.operate(|lanes| lanes.cut(1));
    bench.watch(2, &globs(&[LEFT, RIGHT]));
    bench.say_globs(&[(RIGHT, "first", 1)], &[], &[RIGHT]);
    let old = listed(&[("changed", 1), ("gone", 1), ("same", 1), ("first", 1)]);
    assert_eq!(shown(bench.stable(), &[LEFT, RIGHT]), old);
    bench.say_globs(&[(RIGHT, "first", 2), (RIGHT, "second", 1)], &[], &[]);
    assert_eq!(shown(bench.stable(), &[LEFT, RIGHT]), old);
    let new = listed(&[("changed", 2), ("new", 1), ("same", 1), ("first", 1)]);
    assert_eq!(shown(bench.candidate(), &[LEFT, RIGHT]), new, "no part of the push either");
}

/// Members that arrive before all are known are told to everybody at once; an empty glob is one whose members are known.
#[test]
fn wav_7_members_of_a_glob_wait_from_its_first_completeness_on() {
    let mut bench = held();
    bench.watch(2, &globs(&[RIGHT]));
    bench.say_globs(&[(RIGHT, "first", 1)], &[], &[]);
    assert_eq!(shown(bench.stable(), &[RIGHT]), listed(&[("first", 1)]));
    bench.say_globs(&[(RIGHT, "first", 2)], &[], &[]);
    assert_eq!(shown(bench.stable(), &[RIGHT]), listed(&[("first", 2)]), "still no whole membership");
    bench.say_globs(&[], &[(RIGHT, "first")], &[RIGHT]);
    bench.say_globs(&[(RIGHT, "second", 1)], &[], &[]);
    assert_eq!(shown(bench.stable(), &[RIGHT]), listed(&[]), "stable has an empty glob");
    assert_eq!(shown(bench.live(), &[RIGHT]), listed(&[("second", 1)]));
}

/// WAV-8: stable keeps the members while the source has forgotten the glob, and until it knows all of them again.
#[test]
fn wav_8_stable_keeps_members_of_a_glob_that_the_source_forgot() {
    let mut bench = held();
    bench.watch(2, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.go_back(1));
    bench.source.forget(SessionId(1), bench.now);
    bench.sleep();
    assert!(bench.live().globs.complete.is_empty(), "the source forgot the glob");
    bench.watch(3, &globs(&[LEFT]));
    let old = listed(&[("changed", 1), ("gone", 1), ("same", 1)]);
    assert_eq!(shown(bench.stable(), &[LEFT]), old, "nobody waits for the source");
    bench.say_globs(&[(LEFT, "changed", 2)], &[], &[]);
    assert_eq!(shown(bench.stable(), &[LEFT]), old, "the source knows some members");
    bench.say_globs(&[(LEFT, "new", 1), (LEFT, "same", 1)], &[], &[LEFT]);
    assert_eq!(shown(bench.stable(), &[LEFT]), old);
    assert_eq!(shown(bench.live(), &[LEFT]), listed(&[("changed", 2), ("new", 1), ("same", 1)]));
}
