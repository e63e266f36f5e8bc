//! Plants each bug, and looks for the first seed that shows it.

use sluice::engine::planted::{Bug, plant};

use super::run::{Batch, Found, run_batch};

/// So many seeds may pass before a bug is found.
pub const SEEDS_MAX: u64 = 10_000;

pub fn find(bug: Bug, threads: usize) -> Option<Found> {
    plant(Some(bug));
    let batch = Batch { first: 0, count: SEEDS_MAX, within: None, threads, shows_progress: false };
    let report = run_batch(&batch);
    plant(None);
    report.found
}

/// The table of `README.md`, and the bugs that were not found.
pub fn table(threads: usize) -> (String, Vec<Bug>) {
    let (mut text, mut missed) = ("| bug | caught by | seeds |\n|---|---|---:|\n".to_owned(), Vec::new());
    for bug in Bug::ALL {
        let line = match find(*bug, threads) {
            Some(found) => format!("| {bug:?} | {} | {} |", found.failure.invariant.id(), found.seed + 1),
            None => {
                missed.push(*bug);
                format!("| {bug:?} | - | > {SEEDS_MAX} |")
            }
        };
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    (text, missed)
}
