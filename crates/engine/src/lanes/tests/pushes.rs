//! Lanes from push to push.

use super::bench::*;

#[test]
fn wav_4_nobody_has_to_look_for_a_change_that_is_held_back() {
    let mut bench = Bench::new();
    let is_same_after = |bench: &mut Bench, event: &dyn Fn(&mut Bench)| {
        let former = bench.published.clone();
        event(bench);
        bench.published.reads_the_same(&former)
    };
    let says =
        |name, version| move |bench: &mut Bench| bench.say(CollectionKind::Names, &[(name, version)], &[]);
    bench.watch(1, &names(&["a", "b"]));
    assert!(!is_same_after(&mut bench, &says("a", 1)), "WAV-7: a first answer");
    assert!(is_same_after(&mut bench, &says("a", 2)), "the change that begins the hold");
    assert!(is_same_after(&mut bench, &says("a", 3)));
    assert!(!is_same_after(&mut bench, &says("b", 1)), "WAV-7: a first answer within a hold");
    assert!(is_same_after(&mut bench, &says("b", 2)));
    assert!(!is_same_after(&mut bench, &|bench| bench.watch(2, &names(&["a", "c"]))), "a set of its own");
    assert!(!is_same_after(&mut bench, &|bench| bench.operate(|lanes| lanes.cut(1))), "a candidate");
    assert!(is_same_after(&mut bench, &says("a", 4)), "a change behind a push");
    assert!(!is_same_after(&mut bench, &|bench| bench.operate(|lanes| lanes.go_back(1))), "the way back");
    assert!(is_same_after(&mut bench, &says("a", 5)));
    assert!(!is_same_after(&mut bench, &|bench| bench.operate(|lanes| lanes.release())), "no lanes any more");
    assert!(!is_same_after(&mut bench, &|bench| bench.operate(|lanes| lanes.release())), "without a hold");
}

/// No change of the source tells clients of endpoints that only stable kept.
#[test]
fn wav_5_the_end_of_a_hold_tells_of_endpoints_that_the_source_withdrew_meanwhile() {
    let endpoints = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
    for is_withdrawn in [false, true] {
        let mut bench = Bench::new();
        bench.watch(1, &names(&["a"]));
        bench.source.watch(SessionId(2), &endpoints, &names(&["a"]), bench.now);
        bench.say(CollectionKind::Names, &[("a", 1)], &[]);
        bench.say_of(endpoints.clone(), CollectionKind::Names, &[("a", 1)], &[]);
        bench.say(CollectionKind::Names, &[("a", 2)], &[]);
        if is_withdrawn {
            bench.say_of(endpoints.clone(), CollectionKind::Names, &[], &["a"]);
        }
        assert!(bench.lanes.is_holding() && !bench.lanes.take_let_go());
        bench.say(CollectionKind::Names, &[("a", 1)], &[]);
        assert!(!bench.lanes.is_holding());
        assert_eq!(bench.lanes.take_let_go(), is_withdrawn);
        assert!(!bench.lanes.take_let_go(), "once");
    }
}

#[test]
fn wav_5_views_that_do_not_differ_are_one_view_with_one_id() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a", "b"]));
    bench.watch(2, &names(&["c"]));
    bench.say(CollectionKind::Names, &[("a", 1), ("b", 1), ("c", 1)], &[]);
    assert!(bench.published.lanes.is_none(), "WAV-7: the first content is stable at once");
    let before = view(bench.live(), &["a", "b"]).clone();
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    assert_eq!(view(bench.stable(), &["a", "b"]).id(), before.id(), "WAV-4: held before the change");
    assert_eq!(versions(view(bench.live(), &["a", "b"])), [("a".into(), 2), ("b".into(), 1)]);
    assert!(Arc::ptr_eq(view(bench.stable(), &["c"]), view(bench.live(), &["c"])));
    bench.operate(|lanes| lanes.cut(1));
    assert!(Arc::ptr_eq(view(bench.candidate(), &["a", "b"]), view(bench.live(), &["a", "b"])));
    // A new set with a held name is the source's view but for that name, and one view for both lanes if it is the same.
    bench.watch(3, &names(&["a", "c"]));
    assert_eq!(versions(view(bench.stable(), &["a", "c"])), [("a".into(), 1), ("c".into(), 1)]);
    assert!(Arc::ptr_eq(view(bench.candidate(), &["a", "c"]), view(bench.live(), &["a", "c"])));
    bench.say(CollectionKind::Names, &[("c", 2)], &[]);
    assert!(
        Arc::ptr_eq(view(bench.candidate(), &["c"]), view(bench.stable(), &["c"])),
        "one encoding for both"
    );
    // The source returns.
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    assert!(Arc::ptr_eq(view(bench.stable(), &["a", "b"]), view(bench.live(), &["a", "b"])));
}

#[test]
fn wav_10_a_view_that_a_lane_keeps_loses_what_only_the_newer_view_has() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 1), ("b", 1)], &[]);
    let newer = bench.live().view(&Collection::Wildcard).unwrap();
    let stable = bench.stable().view(&Collection::Wildcard).unwrap();
    assert_eq!(versions(stable), [("a".into(), 1)]);
    assert!(newer.may_lose(stable));
}

#[test]
fn wav_9_a_lane_has_the_last_bytes_of_the_others_until_half_a_minute_after_them() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("b", 1)], &["a"]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    let lasts = |of: &TypeSnapshot| {
        let lacking = of.wildcard.departed.keys().filter(|name| !of.wildcard.members.contains_key(*name));
        lacking.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((lasts(bench.stable()), lasts(bench.candidate())), (vec!["b".into()], vec!["a".into()]));
    assert_ne!(bench.stable().last_bytes(), bench.candidate().last_bytes(), "WAV-6");
    bench.operate(|lanes| lanes.go_back(1));
    assert_eq!(lasts(bench.stable()), ["b"]);
    let due = bench.lanes.poll_timeout().unwrap();
    bench.now = due;
    bench.operate(|_| {});
    assert_eq!((lasts(bench.stable()), bench.lanes.poll_timeout()), (vec![], None));
}

/// A push that was halted before its first client: nobody may be sent its content, not even in the place of other bytes.
#[test]
fn wav_9_the_content_of_a_push_that_nobody_was_given_is_nobodys_last_bytes() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("b", 1)], &["a"]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    bench.operate(|lanes| lanes.go_back(1));
    bench.say(CollectionKind::Wildcard, &[("b", 2), ("c", 1)], &[]);
    bench.operate(|lanes| lanes.cut(2));
    let last = |of: &TypeSnapshot, name: &str, held: u128| {
        let found = of.departed_as(CollectionKind::Wildcard, &name.into(), || Some(Version(held)));
        found.map(|resource| resource.version.0)
    };
    let of_b = |bench: &Bench| [1, 2, 7].map(|held| last(bench.stable(), "b", held));
    assert_eq!(of_b(&bench), [Some(1), Some(2), None], "a client may have had the content anyway");
    bench.operate(|lanes| lanes.go_back(2));
    assert_eq!(of_b(&bench), [Some(1), None, None], "nobody was given it");
    bench.operate(|lanes| lanes.cut(3));
    bench.operate(|lanes| lanes.give(3));
    bench.operate(|lanes| lanes.go_back(3));
    assert_eq!(of_b(&bench), [Some(1), Some(2), None]);
    assert_eq!([1, 2].map(|held| last(bench.stable(), "c", held)), [Some(1), None]);
}

/// Bytes that everybody may have stand for content that the client has, in whatever version.
#[test]
fn wav_10_who_may_have_a_resource_is_told_that_it_is_gone_and_not_sent_it() {
    let mut types = TypeSnapshot { lasts: Some(Arc::default()), ..TypeSnapshot::default() };
    let last = LastVersion { resource: resource("d", 1), is_open: true };
    types.keep_last(CollectionKind::Wildcard, vec![("d".into(), last)], 0);
    let found =
        |held| types.departed_as(CollectionKind::Wildcard, &"d".into(), || Some(held)).map(|of| of.version);
    for held in [Version(1), Version(7), Version::default(), FORCED] {
        assert_eq!(found(held), Some(Version(1)), "{held:?}");
    }
    assert_eq!(found(PERHAPS), None);
}

/// A hold ends with its push, and another one begins before all clients have heard of the end.
#[test]
fn wav_9_a_new_hold_has_the_last_bytes_of_the_releases_before() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("b", 1)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    bench.say(CollectionKind::Wildcard, &[("b", 2)], &[]);
    bench.say(CollectionKind::Wildcard, &[], &["b"]);
    bench.operate(|lanes| lanes.go_back(1));
    bench.operate(Lanes::rest);
    assert!(bench.published.lanes.is_none());
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    let last = |held| {
        let found = bench.stable().departed_as(CollectionKind::Wildcard, &"b".into(), || Some(Version(held)));
        found.map(|resource| resource.version.0)
    };
    assert_eq!(
        [1, 7].map(last),
        [Some(1), None],
        "what the client has, and not what the source had for a moment"
    );
}

/// What came and went while it was held is not the last bytes of a client that has others, also once the hold is over.
#[test]
fn wav_9_content_of_no_release_is_nobodys_last_bytes_after_a_hold() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    let last = |bench: &Bench, name: &str| {
        assert!(bench.published.lanes.is_none());
        [1, 7].map(|held| {
            let held = || Some(Version(held));
            let found = bench.live().departed_as(CollectionKind::Wildcard, &name.into(), held);
            found.map(|resource| resource.version.0)
        })
    };
    bench.say(CollectionKind::Wildcard, &[("b", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[], &["b"]);
    assert_eq!(last(&bench, "b"), [Some(1), None], "nothing was released");
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.say(CollectionKind::Wildcard, &[("c", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[], &["c"]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    bench.operate(|lanes| lanes.settle(1));
    assert_eq!(last(&bench, "c"), [Some(1), None]);
}

/// A cut that is put off leaves the lanes as they were, whatever becomes of its number.
#[test]
fn wav_4_a_cut_that_is_put_off_is_part_of_no_later_push() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2), ("b", 1)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.put_off(1));
    let candidate = |bench: &Bench| bench.published.lanes.as_ref().unwrap().candidate.is_some();
    assert!(!candidate(&bench) && bench.published.restated.is_none());
    // Another unit's push takes the number.
    bench.operate(|lanes| lanes.give(1));
    bench.operate(|lanes| lanes.settle(1));
    let stable = bench.stable().view(&Collection::Wildcard).unwrap();
    assert_eq!(versions(stable), [("a".into(), 1)]);
    assert!(!bench.stable().wildcard.departed.contains_key(&ResourceName::new("b")), "nobody was given it");
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &["b"]);
    assert!(bench.published.lanes.is_none(), "nothing went back");
}

/// A client that goes back is sent what it has, and what everybody may have, but nothing of another push.
#[test]
fn wav_9_last_bytes_are_those_that_the_client_has_or_that_everybody_may_have() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    for (push, version) in [(1, 1), (2, 2)] {
        bench.say(CollectionKind::Wildcard, &[("b", version)], &["a"]);
        bench.operate(|lanes| lanes.cut(push));
        bench.operate(|lanes| lanes.give(push));
        bench.operate(|lanes| lanes.go_back(push));
    }
    let last = |of: &TypeSnapshot, name: &str, held: Option<u128>| {
        let found = of.departed_as(CollectionKind::Wildcard, &name.into(), || held.map(Version));
        found.map(|resource| resource.version.0)
    };
    let of_b = [Some(1), Some(2), Some(0), None].map(|held| last(bench.stable(), "b", held));
    assert_eq!(of_b, [Some(1), Some(2), None, None]);
    bench.operate(|lanes| lanes.cut(3));
    assert_eq!([Some(1), Some(7), None].map(|held| last(bench.candidate(), "a", held)), [Some(1); 3]);
}

#[test]
fn wav_4_a_push_settles_and_joins_the_history_and_the_hold_goes_on_against_it() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    assert_eq!(bench.lanes.differs(), Differences { from_stable: true, from_candidate: false });
    bench.operate(|lanes| lanes.cut(1));
    bench.say(CollectionKind::Names, &[("a", 3)], &[]);
    assert_eq!(bench.lanes.differs(), Differences { from_stable: true, from_candidate: true });
    let held: Vec<_> = [bench.stable(), bench.candidate(), bench.live()]
        .map(|of| view(of, &["a"]).version_of(&"a".into()).unwrap().0)
        .into();
    assert_eq!(held, [1, 2, 3], "WAV-11: three contents at most");
    assert_eq!(bench.lanes.held_bytes(), 2 * resource("a", 1).size());
    bench.operate(|lanes| lanes.settle(1));
    assert!(bench.lanes.is_holding());
    assert_eq!(versions(view(bench.stable(), &["a"])), [("a".into(), 2)]);
    assert_eq!(bench.lanes.released().map(|release| release.push).collect::<Vec<_>>(), [0, 1]);
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    bench.operate(|lanes| lanes.settle(7));
    assert!(bench.lanes.is_holding(), "another push");
    bench.operate(Lanes::release);
    assert!(bench.published.lanes.is_none());
}

#[test]
fn his_1_the_oldest_releases_beyond_the_bound_go() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    let mut push = |number: u64| {
        bench.say(CollectionKind::Names, &[("a", u128::from(number) + 1)], &[]);
        bench.operate(|lanes| lanes.cut(number));
        bench.operate(|lanes| lanes.settle(number));
        bench.lanes.released().map(|release| release.push).collect::<Vec<_>>()
    };
    assert_eq!((push(1), push(2), push(3)), (vec![0, 1], vec![1, 2], vec![2, 3]));
    bench.lanes.configure(&Gated::Default, 3);
    bench.say(CollectionKind::Names, &[("a", 5)], &[]);
    bench.operate(|lanes| lanes.cut(4));
    bench.operate(|lanes| lanes.settle(4));
    assert_eq!(bench.lanes.released().count(), 3, "the bound of another configuration");
}

/// HIS-3: the release 0 of a plan is the content before its own first push.
#[test]
fn his_3_another_plan_has_no_release_of_the_former_plan() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    for version in [2, 3] {
        bench.say(CollectionKind::Names, &[("a", version)], &[]);
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.settle(1));
        if version == 2 {
            bench.operate(Lanes::change_hands);
        }
    }
    let released = |release: &crate::lanes::Release| {
        let known = release.types[&url()]
            .names
            .entries
            .get(&ResourceName::new("a"))
            .and_then(Known::resource)
            .cloned();
        (release.push, known.unwrap().version.0)
    };
    assert_eq!(bench.lanes.released().map(released).collect::<Vec<_>>(), [(0, 2), (1, 3)]);
}

#[test]
fn wav_4_another_plan_gives_nothing_of_a_push_of_the_former_plan() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    bench.operate(Lanes::change_hands);
    assert!(bench.published.lanes.as_ref().unwrap().candidate.is_none());
    bench.operate(|lanes| lanes.settle(1));
    assert_eq!(versions(bench.stable().wildcard.view.as_ref().unwrap()), [("a".into(), 1)]);
}
