//! Several replicas with one plan, and a ledger between them (LDG-3 to LDG-5).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod contents;
mod judge;
mod ledger;
mod operator;
mod replica;
mod world;

use operator::ORDERS_FROM;
use sluice_fleet::rollout::ledger::JoinPolicy;
use world::World;

/// The stage "sim" of `tests/run` plays more, optimized.
const SCHEDULES: u64 = if cfg!(debug_assertions) { 30 } else { 100_000 };

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The failures of schedules, and the sums of the counts of the others. Ends with the `failures_max`th failure.
fn play(first: u64, count: u64, join: JoinPolicy, failures_max: u64) -> (Vec<String>, [u64; 6]) {
    let (mut failed, mut sums) = (Vec::new(), [0u64; 6]);
    for seed in first..first + count {
        let mut world = World::new(seed, join, count == 1);
        match world.run() {
            Ok(()) => world.counts.iter().zip(&mut sums).for_each(|(count, sum)| *sum += count),
            Err((invariant, words)) => {
                let story = world.story.take().join("\n");
                failed.push(format!("{story}\n{invariant} seed {seed}: {words}"));
            }
        }
        if failed.len() as u64 >= failures_max {
            break;
        }
    }
    (failed, sums)
}

/// As [`play`], on some cores.
fn play_on(cores: u64, first: u64, count: u64, failures_max: u64) -> (Vec<String>, [u64; 6]) {
    std::thread::scope(|scope| {
        let begin = |core: u64| first + count * core / cores;
        let part = |core| {
            scope.spawn(move || {
                play(begin(core), begin(core + 1) - begin(core), JoinPolicy::Wait, failures_max)
            })
        };
        let parts: Vec<_> = (0..cores).map(part).collect();
        let (mut failed, mut sums) = (Vec::new(), [0; 6]);
        for (more, counts) in parts.into_iter().map(|part| part.join().unwrap()) {
            failed.extend(more);
            counts.iter().zip(&mut sums).for_each(|(count, sum)| *sum += count);
        }
        (failed, sums)
    })
}

/// I30 over all replicas. `SLUICE_FIRST` and `SLUICE_SCHEDULES` choose others; with one schedule, a failure
/// tells its story. `SLUICE_FAILURES`: the failures that end a search, on one core, as the mutants do it.
#[test]
fn i30_no_schedule_of_replicas_breaks_a_promise() {
    let (first, count) = (number("SLUICE_FIRST", 0), number("SLUICE_SCHEDULES", SCHEDULES));
    let failures_max = number("SLUICE_FAILURES", u64::MAX);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let cores = if failures_max < u64::MAX { 1 } else { cores };
    let (failed, sums) = play_on(cores, first, count, failures_max);
    failed.iter().take(10).for_each(|failure| println!("{failure}"));
    println!("\n{} seeds fail", failed.len());
    assert!(failed.is_empty(), "{} of {count} schedules fail", failed.len());
    // As `World::counts`.
    let is_lively = sums.iter().all(|sum| *sum >= count / 20);
    assert!(is_lively, "too little happens: {sums:?}");
}

/// As above, with operators at the replicas, changes that are taken back, and names that few replicas know.
#[test]
fn i30_no_order_of_an_operator_breaks_a_promise() {
    let (first, count) = (number("SLUICE_FIRST", 0) + ORDERS_FROM, number("SLUICE_SCHEDULES", SCHEDULES));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (failed, sums) = play_on(cores, first, count, number("SLUICE_FAILURES", u64::MAX));
    failed.iter().take(10).for_each(|failure| println!("{failure}"));
    println!("\n{} seeds fail; {sums:?}", failed.len());
    assert!(failed.is_empty(), "{} of {count} schedules fail", failed.len());
    assert!(sums.iter().all(|sum| *sum >= count / 20), "too little happens: {sums:?}");
}

/// Nothing else keeps a newcomer from giving a push to all of its clients.
#[test]
fn ldg_3_with_join_live_a_newcomer_gives_a_push_beyond_its_steps() {
    let (failed, _) = play(0, 60, JoinPolicy::Live, u64::MAX);
    let is_beyond = |failure: &&String| failure.contains("which no step admitted");
    assert!(failed.iter().filter(is_beyond).count() > 0, "{failed:?}");
}
