//! One release for all ways to ask: names, the wildcard, globs and aliases that clients first ask for while something is held (WAV-7).

use super::bench::*;

pub(super) const ONE: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/left/one";

pub(super) fn glob() -> Collection {
    Collection::Globs(Arc::new(NameSet::of([ResourceName::new(GLOB)], HashSeed(7))))
}

pub(super) fn shown(of: &TypeSnapshot, collection: &Collection) -> Vec<(String, u128)> {
    versions(of.view(collection).unwrap())
}

pub(super) fn listed(list: &[(&str, u128)]) -> Vec<(String, u128)> {
    list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

/// A resource with an alias.
fn aliased(name: &str, version: u128, alias: &str) -> Arc<Resource> {
    Arc::new(Resource { aliases: Box::new([alias.into()]), ..(*resource(name, version)).clone() })
}

#[test]
fn wav_7_a_name_that_is_held_is_held_in_a_wildcard_that_is_first_asked_for() {
    let (new, old) = (
        listed(&[("changed", 2), ("comes", 2), ("other", 5), ("stays", 1)]),
        listed(&[("changed", 1), ("other", 5), ("stays", 1)]),
    );
    for is_halted in [false, true] {
        let mut bench = held_by_name();
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.give(1));
        if is_halted {
            bench.operate(|lanes| lanes.go_back(1));
        }
        bench.watch(2, &Collection::Wildcard);
        // Delta clients are sent members before all are known.
        bench.say_members(&[("changed", 2), ("other", 5)], false);
        assert_eq!(shown(bench.stable(), &Collection::Wildcard), listed(&[("changed", 1), ("other", 5)]));
        assert!(!bench.stable().wildcard.is_whole());
        bench.say_members(&[("comes", 2), ("stays", 1)], true);
        assert!(bench.stable().wildcard.is_whole());
        assert_eq!(shown(bench.stable(), &Collection::Wildcard), old, "halted: {is_halted}");
        assert_eq!(shown(bench.live(), &Collection::Wildcard), new);
        if !is_halted {
            assert_eq!(shown(bench.candidate(), &Collection::Wildcard), new);
            bench.operate(|lanes| lanes.settle(1));
            assert!(!bench.lanes.is_holding());
            continue;
        }
        // The server takes the names back, and then the members.
        bench.say(CollectionKind::Names, &[("changed", 1), ("goes", 1)], &["comes"]);
        assert!(bench.lanes.is_holding(), "the wildcard has the content");
        bench.say(CollectionKind::Wildcard, &[("changed", 1)], &["comes"]);
        assert!(!bench.lanes.is_holding());
    }
}

/// WAV-11: what waits behind a push is in no wildcard of the push either.
#[test]
fn wav_7_the_candidate_has_its_own_content_in_a_first_wildcard() {
    let mut bench = held_by_name();
    bench.operate(|lanes| lanes.cut(1));
    bench.say(CollectionKind::Names, &[("changed", 3)], &[]);
    bench.watch(2, &Collection::Wildcard);
    bench.say_members(&[("changed", 3), ("comes", 2), ("stays", 1)], true);
    let candidate = listed(&[("changed", 2), ("comes", 2), ("stays", 1)]);
    assert_eq!(shown(bench.candidate(), &Collection::Wildcard), candidate);
    assert_eq!(shown(bench.stable(), &Collection::Wildcard), listed(&[("changed", 1), ("stays", 1)]));
    // From now on the lanes have a membership of their own.
    bench.say(CollectionKind::Wildcard, &[("changed", 4), ("later", 1)], &["stays"]);
    assert_eq!(shown(bench.candidate(), &Collection::Wildcard), candidate);
}

#[test]
fn wav_7_a_wildcard_has_the_release_before_the_name_changes_too() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a", "b"]));
    bench.say(CollectionKind::Names, &[("a", 1), ("b", 1)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    bench.watch(2, &Collection::Wildcard);
    // The answer for the wildcard comes before the one for the name.
    bench.say_members(&[("a", 2), ("b", 2)], true);
    assert_eq!(shown(bench.stable(), &Collection::Wildcard), listed(&[("a", 1), ("b", 1)]));
    bench.say(CollectionKind::Names, &[("b", 2)], &[]);
    assert_eq!(shown(bench.stable(), &names(&["a", "b"])), listed(&[("a", 1), ("b", 1)]));
}

#[test]
fn wav_7_a_name_that_is_held_is_held_in_a_glob_that_is_first_asked_for() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&[ONE]));
    bench.say(CollectionKind::Names, &[(ONE, 1)], &[]);
    bench.say(CollectionKind::Names, &[(ONE, 2)], &[]);
    bench.watch(2, &glob());
    for is_whole in [false, true] {
        bench.say_glob(&[(ONE, 2)], is_whole);
        assert_eq!(shown(bench.stable(), &glob()), listed(&[(ONE, 1)]), "{is_whole}");
        assert_eq!(shown(bench.live(), &glob()), listed(&[(ONE, 2)]));
    }
    bench.say(CollectionKind::Names, &[(ONE, 1)], &[]);
    assert!(bench.lanes.is_holding(), "the glob has the content");
    assert_eq!(shown(bench.stable(), &glob()), listed(&[(ONE, 1)]));
    bench.say_glob(&[(ONE, 1)], false);
    assert!(!bench.lanes.is_holding());
}

#[test]
fn wav_7_a_member_of_a_glob_is_held_for_those_who_ask_for_it_by_name() {
    let mut bench = Bench::new();
    bench.watch(1, &glob());
    bench.say_glob(&[(ONE, 1)], true);
    bench.say_glob(&[(ONE, 2)], false);
    bench.watch(2, &names(&[ONE]));
    bench.say(CollectionKind::Names, &[(ONE, 2)], &[]);
    assert_eq!(shown(bench.stable(), &names(&[ONE])), listed(&[(ONE, 1)]));
}

/// The server answers for a name of which it has just withdrawn the member.
#[test]
fn wav_7_a_removal_that_is_held_is_held_for_those_who_ask_by_name() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("goes", 1), ("stays", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[], &["goes"]);
    bench.watch(2, &names(&["goes", "stays"]));
    bench.say(CollectionKind::Names, &[], &["goes", "stays"]);
    let of = view(bench.stable(), &["goes", "stays"]);
    assert_eq!(versions(of), listed(&[("goes", 1)]), "the server has the other one in the wildcard only");
    assert!(of.knows_absent(&"stays".into()));
    bench.say(CollectionKind::Wildcard, &[("goes", 1)], &[]);
    bench.say(CollectionKind::Names, &[("goes", 1)], &[]);
    assert!(!bench.lanes.is_holding());
}

/// ALI-1: one resource has one content, whatever its aliases.
#[test]
fn wav_7_an_alias_of_a_resource_that_is_held_is_held() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["own"]));
    bench.say_resources(url(), CollectionKind::Names, vec![aliased("own", 1, "alias")], &[]);
    bench.say_resources(url(), CollectionKind::Names, vec![aliased("own", 2, "alias")], &[]);
    bench.watch(2, &names(&["alias"]));
    bench
        .say_changes(|none| Changes { by_alias: vec![("alias".into(), aliased("own", 2, "alias"))], ..none });
    let of = view(bench.stable(), &["alias"]);
    assert_eq!(of.version_of(&"alias".into()), Some(Version(1)));
    assert_eq!(view(bench.live(), &["alias"]).version_of(&"alias".into()), Some(Version(2)));
    assert_eq!(
        bench.stable().names.aliases.get(&ResourceName::new("alias")).map(|aliased| aliased.name().clone()),
        Some("own".into())
    );
}

#[test]
fn wav_7_a_resource_that_is_held_under_an_alias_is_held_under_its_name_and_as_a_member() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["alias"]));
    for version in [1, 2] {
        bench.say_changes(|none| Changes {
            by_alias: vec![("alias".into(), aliased("own", version, "alias"))],
            ..none
        });
    }
    bench.watch(2, &names(&["own"]));
    bench.say_resources(url(), CollectionKind::Names, vec![aliased("own", 2, "alias")], &[]);
    assert_eq!(shown(bench.stable(), &names(&["own"])), listed(&[("own", 1)]));
    let mut bench = Bench::new();
    bench.watch(1, &names(&["alias"]));
    for version in [1, 2] {
        bench.say_changes(|none| Changes {
            by_alias: vec![("alias".into(), aliased("own", version, "alias"))],
            ..none
        });
    }
    bench.watch(2, &Collection::Wildcard);
    bench.say_members(&[("own", 2)], true);
    assert_eq!(shown(bench.stable(), &Collection::Wildcard), listed(&[("own", 1)]));
}
