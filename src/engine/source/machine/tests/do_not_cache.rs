//! The cost of resources that the server forbids to cache (CCH-1).

#![allow(clippy::disallowed_methods, reason = "the test compares two durations of one process")]

use std::time::Instant;

use super::*;

/// The time in which so many private names are given up, and a late session is told of all of them.
fn time_to_give_up(count: usize) -> Duration {
    let mut bench = Bench::streams();
    let list: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
    let names = list.join(" ");
    bench.watch(1, EDS, &names);
    let make = |name: &String| {
        let resource = resources(EDS, &format!("{name}=1")).remove(0);
        Arc::new(Resource { do_not_cache: true, ..(*resource).clone() })
    };
    let changes = Changes {
        type_url: url(EDS),
        kind: CollectionKind::Names,
        present: list.iter().map(make).collect(),
        by_alias: Vec::new(),
        absent: Vec::new(),
        refreshed: Vec::new(),
        replaces: false,
        complete: false,
        settled: Vec::new(),
    };
    let begin = Instant::now();
    bench.source.handle_changes(changes, bench.now);
    bench.watch(2, EDS, &names);
    let took = begin.elapsed();
    let outputs = std::iter::from_fn(|| bench.source.poll_output());
    let told = outputs.filter_map(|output| match output {
        Output::DoNotCache { names, sessions, .. } => Some((names.len(), sessions.len())),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(count, 1), (count, 1)], "each session is told once of all names");
    took
}

/// Sixteen times the names take about sixteen times as long, and not 256 times.
#[test]
fn cch_1_the_cost_of_private_names_is_linear() {
    let times: Vec<_> = (0..5).map(|_| (time_to_give_up(500), time_to_give_up(8_000))).collect();
    let (few, many) = (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.1).min());
    assert!(many.unwrap() < few.unwrap() * 64, "500 names take {few:?}, 8,000 names {many:?}");
}
