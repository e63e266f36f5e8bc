//! Plants each bug, and looks for the first seed that shows it.

use std::collections::BTreeMap;

use sluice::engine::planted::{Bug, plant};

use super::run::{Batch, Found, run_batch};
use super::schedule::GROWN_AGAIN;
use super::world::Invariant;

/// So many seeds may pass before a bug is found.
pub const SEEDS_MAX: u64 = 10_000;

/// Invariants that are hard to violate without violating another one first: each has to be the first to show so many bugs.
const HARD: &[(Invariant, usize)] = &[
    (Invariant::NoGoingBack, 3),
    (Invariant::Isolation, 3),
    (Invariant::AtomicResponses, 3),
    (Invariant::BoundedMemory, 3),
    (Invariant::NackContainment, 3),
    (Invariant::HonestStaleness, 3),
];

/// Where to look first: some bugs show in later worlds only.
fn first_of(bug: Bug) -> u64 {
    match bug {
        Bug::SettledWhileReceiving
        | Bug::ErrorIsNoAnswer
        | Bug::MassDeletionNotHeld
        | Bug::WithdrawnStillHeld
        | Bug::HeldForever
        | Bug::RemovalsDoNotRest
        | Bug::RemovalsDoNotWait => GROWN_AGAIN,
        _ => 0,
    }
}

pub fn find(bug: Bug, threads: usize) -> Option<Found> {
    plant(Some(bug));
    let batch =
        Batch { first: first_of(bug), count: SEEDS_MAX, within: None, threads, shows_progress: false };
    let report = run_batch(&batch);
    plant(None);
    report.found
}

/// Prints the table of `README.md`, of these bugs or of all, and gives what is amiss.
pub fn table(threads: usize, only: &[String]) -> Vec<String> {
    println!("| bug | caught by | seeds |\n|---|---|---:|");
    let (mut amiss, mut caught) = (Vec::new(), BTreeMap::<Invariant, usize>::new());
    for bug in Bug::ALL.iter().filter(|bug| only.is_empty() || only.contains(&format!("{bug:?}"))) {
        match find(*bug, threads) {
            Some(found) => {
                *caught.entry(found.failure.invariant).or_default() += 1;
                println!(
                    "| {bug:?} | {} | {} |",
                    found.failure.invariant.id(),
                    found.seed - first_of(*bug) + 1
                );
            }
            None => {
                amiss.push(format!("{bug:?} is not found"));
                println!("| {bug:?} | - | > {SEEDS_MAX} |");
            }
        }
    }
    for (invariant, least) in HARD.iter().filter(|_| only.is_empty()) {
        let count = caught.get(invariant).copied().unwrap_or_default();
        if count < *least {
            amiss.push(format!("{} shows {count} bugs first, of at least {least}", invariant.id()));
        }
    }
    amiss
}
