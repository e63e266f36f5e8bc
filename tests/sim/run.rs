//! Runs seeds over all cores, and makes a failing one short.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::OPEN;
use super::collections::{self, COLLECTIONS};
use super::loads::{self, LOADS};
use super::schedule::{Act, Plan, WAVES};
use super::shadows::{self, SHADOWS};
use super::waves::{self, WavePlan};
use super::world::{self, Failure, Invariant, Outcome};

/// Seeds, and the time to try them. Of more than one, those that are known as open are left out.
#[derive(Clone, Debug)]
pub struct Batch {
    pub first: u64,
    pub count: u64,
    pub within: Option<Duration>,
    pub threads: usize,
    pub shows_progress: bool,
}

/// A schedule with a violation.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub failure: Failure,
}

#[derive(Clone, Debug)]
pub struct Report {
    /// The number of schedules run.
    pub seeds: u64,
    pub took: Duration,
    /// The lowest failing seed.
    pub found: Option<Found>,
}

impl Report {
    pub fn rate(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// The engine's clock at the start of a schedule; the value must not matter (I18).
pub fn origin_of(seed: u64) -> u64 {
    super::rng::mix(seed) >> 14
}

/// The events of a seed.
pub fn acts_of(seed: u64) -> Vec<Act> {
    match seed {
        LOADS.. => loads::acts(seed),
        SHADOWS.. => shadows::acts(seed),
        COLLECTIONS.. => collections::acts(seed),
        WAVES.. => WavePlan::of_seed(seed).acts(),
        _ => Plan::of_seed(seed).acts(),
    }
}

/// The settings of a seed, printed.
pub fn plan_of(seed: u64) -> String {
    match seed {
        LOADS.. => "a world of load reports".to_owned(),
        SHADOWS.. => "a world of shadows".to_owned(),
        COLLECTIONS.. => "a world of collections".to_owned(),
        WAVES.. => format!("{:#?}", WavePlan::of_seed(seed)),
        _ => format!("{:#?}", Plan::of_seed(seed)),
    }
}

pub fn run_seed(seed: u64) -> Outcome {
    run(seed, &acts_of(seed), origin_of(seed), false)
}

/// A panic of the engine is a violation like any other (I16).
pub fn run(seed: u64, acts: &[Act], origin: u64, tells: bool) -> Outcome {
    let caught = std::panic::catch_unwind(|| match seed {
        LOADS.. => loads::run(seed, acts, origin),
        SHADOWS.. => shadows::run(seed, acts, origin, tells),
        COLLECTIONS.. => collections::run(seed, acts, origin, tells),
        WAVES.. => waves::run(seed, acts, origin, tells),
        _ => world::run(&Plan::of_seed(seed), acts, origin, tells),
    });
    caught.unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let text = format!("panic: {}", text.unwrap_or("?"));
        let failure = Failure { invariant: Invariant::Hygiene, text: text.clone(), at: 0 };
        Outcome { hash: 0, failure: Some(failure), story: vec![text] }
    })
}

pub fn run_batch(batch: &Batch) -> Report {
    let started = Instant::now();
    let (next, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (stop, found) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None::<Found>)));
    std::thread::scope(|scope| {
        for _ in 0..batch.threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let offset = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = batch.within.is_some_and(|within| started.elapsed() > within);
                    if offset >= batch.count || is_late {
                        break;
                    }
                    let seed = batch.first + offset;
                    if batch.count > 1 && OPEN.contains(&seed) {
                        done.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let outcome = run_seed(seed);
                    done.fetch_add(1, Ordering::Relaxed);
                    if let Some(failure) = outcome.failure {
                        stop.store(true, Ordering::Relaxed);
                        let mut found = found.lock().unwrap();
                        if found.as_ref().is_none_or(|found| seed < found.seed) {
                            *found = Some(Found { seed, failure });
                        }
                    }
                }
            });
        }
        if batch.shows_progress {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) && done.load(Ordering::Relaxed) < batch.count {
                    std::thread::sleep(Duration::from_millis(200));
                    let (seconds, seeds) = (started.elapsed().as_secs(), done.load(Ordering::Relaxed));
                    if seconds >= last + 10 {
                        last = seconds;
                        println!("{seeds} of {} schedules, {} a second", batch.count, seeds / seconds.max(1));
                    }
                }
            });
        }
    });
    let found = found.lock().unwrap().take();
    Report { seeds: done.load(Ordering::Relaxed), took: started.elapsed(), found }
}

/// The first of these seeds, in their order, that violates an invariant.
pub fn first_failing(seeds: &[u64], threads: usize) -> Option<Found> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    if let Some(failure) = run_seed(seed).failure {
                        next.store(seeds.len(), Ordering::Relaxed);
                        let at = seeds.iter().position(|other| *other == seed);
                        found.lock().unwrap().insert(at, Found { seed, failure });
                    }
                }
            });
        }
    });
    found.into_inner().unwrap().pop_first().map(|(_, found)| found)
}

/// All schedules of a batch.
#[derive(Debug)]
pub struct Survey {
    pub found: Vec<Found>,
    /// One hash for the events of all schedules, in any order: it tells whether a change of the machines changes a schedule.
    pub hash: u64,
}

/// Continues after failures, prints each, and returns all.
pub fn survey(batch: &Batch) -> Survey {
    let (started, next, hash) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..batch.threads {
            scope.spawn(|| {
                loop {
                    let offset = next.fetch_add(1, Ordering::Relaxed);
                    if offset >= batch.count {
                        break;
                    }
                    let seed = batch.first + offset;
                    if offset > 0 && offset.is_multiple_of(10_000) {
                        let rate = offset / started.elapsed().as_secs().max(1);
                        println!("{offset} of {} schedules, {rate} a second", batch.count);
                    }
                    let outcome = run_seed(seed);
                    hash.fetch_add(super::rng::mix(seed ^ outcome.hash), Ordering::Relaxed);
                    if let Some(failure) = outcome.failure {
                        println!("{} seed {seed}: {}", failure.invariant.id(), failure.text);
                        all.lock().unwrap().push(Found { seed, failure });
                    }
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_by_key(|found| (found.failure.invariant, found.seed));
    Survey { found: all, hash: hash.into_inner() }
}

/// Removes events as long as the same invariant is violated: first many at once, then one by one.
pub fn shrink(seed: u64, failure: &Failure) -> Vec<Act> {
    let fails = |acts: &[Act]| {
        let outcome = run(seed, acts, origin_of(seed), false);
        outcome.failure.is_some_and(|found| found.invariant == failure.invariant)
    };
    let mut acts = acts_of(seed);
    let mut size = acts.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < acts.len() {
            let mut fewer = acts.clone();
            fewer.drain(at..(at + size).min(acts.len()));
            if fails(&fewer) {
                acts = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    acts
}

/// The story of a failing seed, as short as possible.
pub fn tell(found: &Found) -> String {
    let (plan, all) = (plan_of(found.seed), acts_of(found.seed).len());
    let acts = shrink(found.seed, &found.failure);
    let outcome = run(found.seed, &acts, origin_of(found.seed), true);
    let failure = outcome.failure.unwrap_or_else(|| found.failure.clone());
    format!(
        "seed {}: {} is violated after {:.3} s: {}\n{plan}\n{} of {all} events are left:\n{}\n",
        found.seed,
        failure.invariant.id(),
        failure.at as f64 / 1e6,
        failure.text,
        acts.len(),
        outcome.story.join("\n")
    )
}
