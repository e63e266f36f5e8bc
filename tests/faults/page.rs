//! `docs/failure-modes.md` names only metrics and log lines that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// All source code, with strings that span lines joined.
fn code(directory: PathBuf, all: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let mut pieces = text.split("\\\n");
            all.push_str(pieces.next().unwrap());
            pieces.for_each(|piece| all.push_str(piece.trim_start()));
        }
    }
}

#[test]
fn the_metrics_exist() {
    let catalogue = read("docs/metrics.md");
    let page = read("docs/failure-modes.md");
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = page.split(|c| !is_name(c)).filter(|w| w.starts_with("sluice_") || w.starts_with("process_"));
    let unknown: BTreeSet<_> = names.filter(|name| !catalogue.contains(&format!("| `{name}` |"))).collect();
    assert_eq!(unknown, BTreeSet::new());
}

#[test]
fn the_log_lines_exist() {
    let page = read("docs/failure-modes.md").replace("\n  ", " ").replace('\n', " ");
    let mut all = String::new();
    code(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    let mut lines = 0;
    for span in page.split('`').skip(1).step_by(2) {
        let Some(line) = span.strip_prefix("WARN ... ").or_else(|| span.strip_prefix("INFO ... ")) else {
            continue;
        };
        // Up to the fields, or to the omission.
        let end = line.find('=').map_or(line.len(), |at| line[..at].rfind(' ').unwrap_or(0));
        let text = line[..end].split("...").next().unwrap_or_default().trim();
        // The code builds these sentences from two.
        let text =
            text.replace("were rejected (NACK)", "were {action}").replace("certificate files", "{files}");
        let text =
            text.replace("ends the stream; serving cached configuration", "ends the stream; {meanwhile}");
        let text = text.trim_end_matches("; retrying");
        // `tell!` has the text that the event shares, and the rest of the line apart.
        let mut places = text.match_indices([' ', ';', ',', ':']).map(|(place, _)| text.split_at(place));
        let is_split = |(event, rest): (&str, &str)| {
            all.contains(&format!("+ \"{rest}")) && all.contains(&format!("\"{event}\""))
        };
        let is_told = all.contains(text) || places.any(is_split);
        assert!(text.len() > 10 && is_told, "no such line in the code: {text:?}");
        lines += 1;
    }
    assert!(lines > 15, "{lines} lines were found");
}
