//! The fuzz targets on stable: each seed, and mutations of the seeds.
//!
//! The mutations follow from a seed, which a failure prints with the input. `SLUICE_FUZZ_SEED` sets another seed, and
//! `SLUICE_FUZZ_SECONDS` the time of each target in place of its number of mutations. `fuzz/run` runs the same targets by
//! libFuzzer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]
// A longer run is measured in seconds.
#![allow(clippy::disallowed_methods)]

mod mutate;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use mutate::Mutator;
use targets::{TARGETS, Target, find};

/// The number of targets. A new target has a place in each of the lists that the test compares.
const COUNT: usize = 24;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a target's seeds and mutations.
fn fuzz(name: &str) {
    let target = find(name).expect("a target of the table");
    let seed = variable("SLUICE_FUZZ_SEED").unwrap_or(1);
    let until = variable("SLUICE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "a target without seeds");
    seeds.iter().for_each(|input| run(target, seed, input));
    let mut mutator = Mutator::new(seed, target.words);
    let mut count = 0;
    while until.map_or(count < target.mutations, |until| Instant::now() < until) {
        run(target, seed, &mutator.next(&seeds));
        count += 1;
    }
    eprintln!("{name}: {} seeds and {count} mutations, from seed {seed}", seeds.len());
}

fn run(target: &Target, seed: u64, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{} fails with seed {seed} on {:?}\n{hex}", target.name, String::from_utf8_lossy(input));
        resume_unwind(panic);
    }
}

/// A test for each target.
macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                fuzz(stringify!($name));
            }
        )*

        const TESTS: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    leaf_identity spiffe_id identity_pattern authorization_file bundle_map pem_generation revocation_list token_expiry
    tls_records file_events
    request delta_request response delta_response rest_json meaning xdstp_name node_classes checkpoint_file configuration
    admin_query http2_frames stream_script sotw_against_delta
}

/// The same targets are in the table, here, and in the crate of libFuzzer.
#[test]
fn each_target_runs_in_each_way() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, TESTS);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), COUNT);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
    let binaries: Vec<&str> = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|table| table.split_once("name = \"")?.1.split('"').next())
        .collect();
    assert_eq!(binaries, TESTS);
    let file = |name: &&str| fs::read_to_string(root.join(format!("fuzz/targets/{name}.rs"))).unwrap();
    assert!(TESTS.iter().all(|name| file(name).contains("sluice_fuzz::target!")));
    assert_eq!(fs::read_dir(root.join("fuzz/targets")).unwrap().count(), COUNT);
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let known = [(0..60).collect(), b"two \x30\x05".to_vec(), Vec::new()];
    let inputs = |seed| {
        let mut mutator = Mutator::new(seed, &["word"]);
        (0..1000).map(|_| mutator.next(&known)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    assert!(inputs(1).iter().collect::<BTreeSet<_>>().len() > 500, "mutations differ");
}
