//! The stages of `tests/run`: no test is left out of all of them.

use std::collections::BTreeSet;
use std::fs;

use super::{refuse, root};

/// The test targets of a manifest, and those that cargo finds in the folder `tests` beside the manifest.
fn targets(manifest: &str, folder: Option<&std::path::Path>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for section in manifest.split("\n[").filter(|section| section.starts_with("[test]]")) {
        let name = section.lines().find_map(|line| line.strip_prefix("name = "));
        named.extend(name.map(|name| name.trim_matches('"').to_owned()));
    }
    let found = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for path in found.map(|entry| entry.path()) {
        let is_target = path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").exists();
        let name = path.file_stem().filter(|_| is_target);
        named.extend(name.map(|name| name.to_string_lossy().into_owned()));
    }
    named
}

#[test]
fn each_test_is_in_a_stage() {
    let root = root();
    let manifest =
        |folder: &str| fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap_or_default();
    let run = fs::read_to_string(root.join("tests/run")).unwrap();
    let clocked = run.lines().find_map(|line| line.strip_prefix("clocked=(")).unwrap().trim_end_matches(')');
    let words = run.split([' ', '\n', '"']).filter_map(|word| word.strip_prefix("--test="));
    let in_stages: BTreeSet<&str> = words.chain(clocked.split(' ')).collect();

    let mut all = targets(&manifest("."), None);
    for folder in ["tests/sim", "benches/allocator", "loadtest"] {
        all.extend(targets(&manifest(folder), None));
    }
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        all.extend(targets(&manifest, Some(&folder.join("tests"))));
    }
    assert!(all.len() > 10, "{all:?}");
    let left_out = all.iter().filter(|name| !in_stages.contains(name.as_str()));
    refuse(&left_out.map(|name| format!("tests/run: no stage has --test={name}")).collect::<Vec<_>>());
}
