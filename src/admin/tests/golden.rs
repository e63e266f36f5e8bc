//! The shape of each answer (ADM-1): a golden file for each endpoint. Keys are added, never renamed or removed, within a
//! major version. `SLUICE_GOLDEN=write` writes the files anew.

use super::*;

const TARGETS: [(&str, &str); 11] = [
    ("clients", "/clients?node=node-100"),
    ("client", "/clients/100?names=1"),
    ("diff", "/clients/100/diff?type=Cluster"),
    ("explain", "/clients/100/explain?type=Cluster&name=c"),
    ("who", "/who?type=Cluster&name=c&limit=1"),
    ("versions", "/versions?type=Cluster&name=c"),
    ("classes", "/classes"),
    ("sources", "/sources"),
    ("resources", "/resources?name=r0"),
    ("change", "/changes/c-3-9"),
    ("refused", "/refused?limit=1"),
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
