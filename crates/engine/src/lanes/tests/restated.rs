//! The names of which a client that rejected a push may have any part (WAV-10).

use super::bench::*;

/// A push that is put off before its first client has been rejected by nobody.
#[test]
fn wav_10_only_what_was_given_is_restated() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    let mut push = |number, is_given| {
        bench.operate(|lanes| lanes.cut(number));
        if is_given {
            bench.operate(|lanes| lanes.give(number));
        }
        bench.operate(|lanes| lanes.go_back(number));
        bench.published.restated.as_ref().map(|of| of.push)
    };
    assert_eq!([push(1, false), push(2, true), push(3, false)], [None, Some(2), Some(2)]);
}

/// What a halted push brought is known while clients keep it, when it goes back, and after another push has taken its place.
#[test]
fn wav_10_what_a_halted_push_brought_is_known_from_the_halt_on() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2), ("b", 1)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    bench.operate(|lanes| lanes.stay(1));
    assert!(bench.published.restated.is_none(), "nobody was given it");
    bench.operate(|lanes| lanes.give(1));
    let restated = |bench: &Bench| {
        let of = bench.published.restated.as_ref()?;
        let names = of.types.values().flat_map(|kinds| kinds.values().flatten());
        Some((of.push, names.map(|name| name.as_str().to_owned()).collect::<Vec<_>>()))
    };
    let of_first = Some((1, vec!["a".to_owned(), "b".to_owned()]));
    bench.operate(|lanes| lanes.stay(1));
    assert_eq!(restated(&bench), of_first);
    bench.say(CollectionKind::Wildcard, &[("a", 3)], &["b"]);
    bench.operate(|lanes| lanes.cut(2));
    assert_eq!(restated(&bench), of_first, "another push has its place");
    bench.operate(|lanes| lanes.give(2));
    bench.operate(|lanes| lanes.stay(1));
    bench.operate(|lanes| lanes.settle(2));
    assert_eq!(restated(&bench), of_first);
}

/// A client that rejected a push may come back after another push went back, with what only the first one brought.
#[test]
fn wav_10_what_earlier_pushes_brought_is_restated_too() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("b", 1)], &[]);
    for (push, next) in [(1, "c"), (2, "d")] {
        bench.operate(|lanes| lanes.cut(push));
        bench.operate(|lanes| lanes.give(push));
        bench.operate(|lanes| lanes.go_back(push));
        bench.say(CollectionKind::Wildcard, &[(next, 1)], &["b"]);
    }
    let of = bench.published.restated.clone().unwrap();
    let names: Vec<_> =
        of.types[&url()][&CollectionKind::Wildcard].iter().map(ResourceName::as_str).collect();
    assert_eq!((of.push, names), (2, vec!["b", "c"]));
}
