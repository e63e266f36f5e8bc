//! The cost of resources that the server forbids to cache (CCH-1).

use super::*;

/// The time for which this thread has run: a busy machine does not count. `None` where the system does not tell.
#[allow(clippy::disallowed_methods, reason = "no test waits for anything: the sleep makes the system count")]
fn cpu_time() -> Option<Duration> {
    // The system counts when a thread leaves its core, and else at ticks of some milliseconds.
    std::thread::sleep(Duration::from_micros(1));
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The time in which so many private names are given up, and a late session is told of all of them.
fn time_to_give_up(count: usize) -> Option<Duration> {
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
        unasked: Vec::new(),
        absent: Vec::new(),
        refreshed: Vec::new(),
        replaces: false,
        complete: false,
        settled: Vec::new(),
    };
    let begin = cpu_time();
    bench.source.handle_changes(changes, bench.now);
    bench.watch(2, EDS, &names);
    let took = cpu_time().zip(begin).map(|(end, begin)| end.saturating_sub(begin));
    let outputs = std::iter::from_fn(|| bench.source.poll_output());
    let told = outputs.filter_map(|output| match output {
        SourceOutput::DoNotCache { names, sessions, .. } => Some((names.len(), sessions.len())),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(count, 1), (count, 1)], "each session is told once of all names");
    took
}

/// 8,000 names in one response take about as long as eight responses of 1,000 names, and not eight times as long.
#[test]
fn cch_1_the_cost_of_private_names_is_linear() {
    let quickest = |responses: usize, count| {
        let take = |_| (0..responses).map(|_| time_to_give_up(count)).sum::<Option<Duration>>();
        (0..3).filter_map(take).min()
    };
    let (Some(many), Some(one)) = (quickest(8, 1_000), quickest(1, 8_000)) else { return };
    assert!(one < many * 4, "8 responses of 1,000 names take {many:?}, one of 8,000 names {one:?}");
}
