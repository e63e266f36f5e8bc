//! Names that clients come to ask for while something is held, and names that the source forgets meanwhile.

use super::bench::*;

#[test]
fn wav_5_stable_forgets_nothing_that_lingers_out_of_the_source() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a"]));
    bench.watch(2, &names(&["b"]));
    bench.say(CollectionKind::Names, &[("a", 1), ("b", 1)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    bench.source.forget(SessionId(1), bench.now);
    bench.settle();
    while let Some(due) = bench.source.poll_timeout().filter(|due| due.since(bench.now).as_secs() < 120) {
        bench.now = due;
        bench.source.handle_timeout(due);
        bench.settle();
        if bench.live().names.entries.get(&ResourceName::new("a")).is_none() {
            break;
        }
    }
    assert!(bench.live().names.entries.get(&ResourceName::new("a")).is_none(), "the source forgot the name");
    assert!(!bench.lanes.is_holding(), "nothing known differs");
    bench.say(CollectionKind::Names, &[("b", 2)], &[]);
    bench.watch(3, &names(&["a", "b"]));
    assert!(matches!(bench.live().names.entries.get(&ResourceName::new("a")), Some(Known::Unknown)));
    assert_eq!(versions(view(bench.stable(), &["a", "b"])), [("b".into(), 1)]);
}

/// WAV-8, HIS-3: a hold that the plan wants kept outlives the names, until the plan rests.
#[test]
fn wav_8_a_hold_that_is_kept_outlives_the_clients() {
    for is_kept in [false, true] {
        let mut bench = Bench::new();
        bench.watch(1, &Collection::Wildcard);
        bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
        if is_kept {
            bench.operate(Lanes::keep);
        }
        bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
        bench.source.forget(SessionId(1), bench.now);
        bench.sleep();
        assert_eq!(bench.lanes.is_holding(), is_kept);
        bench.operate(Lanes::rest);
        assert!(!bench.lanes.is_holding());
    }
}

/// WAV-8: a class without clients forgets its names. That takes no halted content back.
#[test]
fn wav_8_after_a_halt_the_hold_outlives_the_clients() {
    [false, true].into_iter().for_each(outlives);
}

/// `is_put_off`: a push was halted before its first client, and the next one was put off.
fn outlives(is_put_off: bool) {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    match is_put_off {
        true => bench.operate(|lanes| lanes.cut(2)),
        false => bench.operate(|lanes| lanes.go_back(1)),
    }
    bench.operate(|lanes| lanes.put_off(2));
    bench.source.forget(SessionId(1), bench.now);
    bench.sleep();
    assert!(
        bench.published.live.of(&url()).is_none_or(|of| of.wildcard.view.is_none()),
        "the source forgot all"
    );
    assert_eq!(bench.lanes.differs(), Differences::default());
    bench.watch(2, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    assert_eq!(versions(bench.stable().wildcard.view.as_ref().unwrap()), [("a".into(), 1)]);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    assert!(!bench.lanes.is_holding(), "the server took the content back");
}

/// WAV-7: a name that stable has as a member is not unknown to stable.
#[test]
fn wav_7_a_name_is_held_for_those_who_ask_for_it_alone() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1), ("b", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.watch(2, &names(&["a", "b", "new"]));
    bench.say(CollectionKind::Names, &[("a", 2), ("b", 1), ("new", 5)], &[]);
    let [a, b, new] = [("a", 1), ("b", 1), ("new", 5)].map(|(name, version)| (name.to_owned(), version));
    assert_eq!(versions(view(bench.stable(), &["a", "b", "new"])), [a, b, new]);
    bench.watch(3, &names(&["a"]));
    assert_eq!(versions(view(bench.stable(), &["a"])), [("a".into(), 1)], "another set");
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.settle(1));
    assert!(!bench.lanes.is_holding());
}

/// At the cut nobody asked for the type, so that the push lacked it. Those who come back have stable's content, and move to the push.
#[test]
fn wav_9_a_push_that_lacked_a_type_has_the_last_bytes_of_stable() {
    let listeners = || TypeUrl::new("type.googleapis.com/envoy.config.listener.v3.Listener");
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.source.watch(SessionId(2), &listeners(), &Collection::Wildcard, bench.now);
    bench.say(CollectionKind::Wildcard, &[("a", 1), ("b", 1)], &[]);
    for version in [1, 2] {
        bench.say_of(listeners(), CollectionKind::Wildcard, &[("l", version)], &[]);
    }
    bench.source.forget(SessionId(1), bench.now);
    bench.sleep();
    assert!(bench.live.of(&url()).is_none(), "the source forgot the type");
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.give(1));
    bench.watch(3, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    assert_eq!(versions(bench.stable().wildcard.view.as_ref().unwrap()), [("a".into(), 1), ("b".into(), 1)]);
    assert_eq!(versions(bench.candidate().wildcard.view.as_ref().unwrap()), [("a".into(), 2)]);
    let last = bench.candidate().departed_as(CollectionKind::Wildcard, &"b".into(), || None);
    assert_eq!(last.map(|resource| resource.version), Some(Version(1)));
}

/// A class slept while its push came to its end. What stable has stays until the source has answered those who are back.
#[test]
fn wav_5_a_hold_goes_on_until_the_source_knows_again_what_is_asked_for() {
    let all = names(&["a"]);
    for (collection, kind) in
        [(&Collection::Wildcard, CollectionKind::Wildcard), (&all, CollectionKind::Names)]
    {
        for answer in [None, Some(2), Some(3)] {
            let mut bench = Bench::new();
            bench.watch(1, collection);
            bench.say(kind, &[("a", 1)], &[]);
            bench.say(kind, &[("a", 2)], &[]);
            bench.operate(|lanes| lanes.cut(1));
            bench.operate(|lanes| lanes.give(1));
            bench.source.forget(SessionId(1), bench.now);
            bench.sleep();
            if answer.is_some() {
                bench.watch(2, collection);
            }
            bench.operate(|lanes| lanes.settle(1));
            assert_eq!(bench.lanes.is_holding(), answer.is_some(), "nobody is back: nothing is held");
            let Some(answer) = answer else { continue };
            bench.say(kind, &[("a", answer)], &[]);
            assert_eq!(bench.lanes.is_holding(), answer == 3, "{kind:?} {answer}");
            if answer == 3 {
                assert_eq!(versions(bench.stable().view(collection).unwrap()), [("a".into(), 2)]);
            }
        }
    }
}

/// WAV-8: a source begins with content from before, and forgets it before its server has answered.
#[test]
fn wav_8_content_from_before_is_held_until_the_server_has_confirmed_it() {
    let begin = || {
        let mut bench = Bench::new();
        bench.watch(1, &names(&["a"]));
        bench.say(CollectionKind::Names, &[("a", 1)], &[]);
        bench.operate(Lanes::hold);
        bench
    };
    let stable = |bench: &Bench| {
        let stable = bench.published.held();
        let of = stable.and_then(|stable| stable.of(&url()).cloned())?;
        of.names.entries.get(&ResourceName::new("a"))?.resource().map(|resource| resource.version)
    };
    let mut bench = begin();
    assert_eq!(stable(&bench), Some(Version(1)), "nothing differs, and it is held");
    bench.source.forget(SessionId(1), bench.now);
    bench.sleep();
    assert_eq!(stable(&bench), Some(Version(1)));
    bench.watch(2, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    assert_eq!(stable(&bench), Some(Version(1)), "the server's answer is a change");

    let mut bench = begin();
    bench.operate(Lanes::confirm);
    assert!(bench.published.lanes.is_none(), "the server stated the same");
    let mut bench = begin();
    bench.operate(Lanes::rest);
    assert!(bench.published.lanes.is_none(), "no push stands any more");
}
