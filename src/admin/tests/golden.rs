//! The shape of each answer (ADM-1): a golden file for each endpoint. Keys are added, never renamed or removed, within a
//! major version: `golden/released.txt` has the keys of the last release. `SLUICE_GOLDEN=write` writes the files anew, and
//! `SLUICE_GOLDEN=release` the keys, as a step of a release.

use std::collections::BTreeSet;

use super::*;

const TARGETS: [(&str, &str); 16] = [
    ("clients", "/clients?node=node-100"),
    ("client", "/clients/100?names=1"),
    ("diff", "/clients/100/diff?type=Cluster"),
    ("explain", "/clients/100/explain?type=Cluster&name=c"),
    ("who", "/who?type=Cluster&name=c&limit=1"),
    ("versions", "/versions?type=Cluster&name=c"),
    ("standings", "/versions?type=Cluster"),
    ("classes", "/classes"),
    ("sources", "/sources"),
    ("resources", "/resources?name=r0"),
    ("change", "/changes/c-3-9"),
    ("refused", "/refused?limit=1"),
    ("rollouts", "/rollouts"),
    ("rollout", "/rollouts/edge"),
    ("pushes", "/rollouts/edge/pushes"),
    ("push", "/rollouts/edge/pushes/40"),
];

#[tokio::test]
async fn adm_1_answers_have_the_shape_of_their_golden_files() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    for (name, target) in TARGETS {
        compare(name, &admin.get(target).await.json());
    }
}

/// Compares an answer with its golden file.
pub(super) fn compare(name: &str, found: &Value) {
    let text = serde_json::to_string_pretty(found).unwrap() + "\n";
    let path = format!("{}/src/admin/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("SLUICE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{name}");
}

/// The keys of an answer, each with the way to it. All items of a list count as one.
fn keys(value: &Value, way: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(of) => {
            for (key, value) in of {
                let way = format!("{way}.{key}");
                keys(value, &way, found);
                found.insert(way);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{way}[]"), found)),
        _ => {}
    }
}

/// The released keys that the answers of today lack.
fn lost(released: &str, today: &BTreeSet<String>) -> Vec<String> {
    let lines = released.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|key| !today.contains(*key)).map(str::to_owned).collect()
}

#[test]
fn adm_1_no_key_of_the_last_release_is_lost() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/tests/golden");
    let mut today = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let answer = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            keys(&answer, path.file_stem().unwrap().to_str().unwrap(), &mut today);
        }
    }
    let released = folder.join("released.txt");
    if std::env::var("SLUICE_GOLDEN").is_ok_and(|value| value == "release") {
        let head =
            "# The keys of the answers of the last release. None may be lost within a major version.\n";
        let keys: Vec<_> = today.iter().map(String::as_str).collect();
        std::fs::write(&released, head.to_owned() + &keys.join("\n") + "\n").unwrap();
    }
    let released = std::fs::read_to_string(released).unwrap();
    assert!(released.lines().count() > 100, "{released}");
    assert_eq!(lost(&released, &today), Vec::<String>::new());
    // A key that is gone, or has another name, is seen.
    let renamed = today.iter().filter(|key| *key != "overview.clients.streams").cloned().collect();
    assert_eq!(lost(&released, &renamed), ["overview.clients.streams"]);
}
