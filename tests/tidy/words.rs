//! Comments in plain English, as far as a machine can tell: nouns instead of pronouns.
//!
//! The share is a sign, not the aim. A sentence over the limit is rewritten, never bent.

use std::collections::BTreeMap;

use super::{as_module, is_test_file, refuse, sources};

/// Words that stand for a noun. Comments with many pronouns have to be read twice.
const PRONOUNS: &[&str] = &[
    "it", "its", "that", "what", "which", "who", "whom", "whose", "one", "ones", "they", "them", "their",
    "he", "she", "such", "this", "these", "those",
];

/// The maximum share of [`PRONOUNS`] in the comments of a room, in percent. Comparable projects have 4 %.
const PERCENT_MAX: usize = 6;

/// No line of a comment begins with these words.
const OPENINGS: &[&str] = &["What", "Of", "Who", "That"];

/// The text of a comment on a line, if there is any. A `//` within a string follows no space.
pub fn comment(line: &str) -> Option<&str> {
    let (start, _) = line.match_indices("//").find(|(at, _)| {
        let before = &line[..*at];
        before.trim().is_empty() || before.ends_with(' ')
    })?;
    Some(line[start..].trim_start_matches('/').trim_start_matches('!'))
}

/// The words of a text, without apostrophes at their ends.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_ascii_alphabetic() && c != '\'');
    parts.map(|word| word.trim_matches('\'')).filter(|word| !word.is_empty())
}

/// The lines to check, numbered from 1: under `src` those before the module of unit tests.
fn checked<'a>(path: &str, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let in_src = as_module(path).starts_with("src/");
    let is_tests = |line: &str| line == "mod tests {" || line.ends_with(" mod tests {");
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    numbered.take_while(move |(_, line)| !in_src || !is_tests(line))
}

/// `crates/wire/src/mark.rs`, as a module `src/wire/mark.rs`, belongs to `wire`, and `src/bootstrap.rs` to `bootstrap`. Each folder of `tests` is a room, except
/// the simulator's, and so are `benches` and the load tool.
fn room(path: &str) -> Option<&str> {
    let (top, rest) = path.split_once('/')?;
    let first = rest.split('/').next()?.trim_end_matches(".rs");
    match top {
        "src" => (!is_test_file(path)).then_some(first),
        "tests" => (first != "sim").then_some(&path[..top.len() + 1 + first.len()]),
        "benches" | "loadtest" => Some(top),
        _ => None,
    }
}

fn is_pronoun(word: &str) -> bool {
    PRONOUNS.contains(&word.to_ascii_lowercase().as_str())
}

/// Words and pronouns.
type Counts = (usize, usize);

#[test]
fn comments_use_nouns() {
    let (mut rooms, mut files) = (BTreeMap::<String, Counts>::new(), BTreeMap::<String, Counts>::new());
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let Some(room) = room(&as_module(path)).map(str::to_owned) else { continue };
        for (number, line) in checked(path, text) {
            let Some(comment) = comment(line) else { continue };
            let (all, pronouns) = (words(comment).count(), words(comment).filter(|w| is_pronoun(w)).count());
            for counts in [rooms.entry(room.clone()).or_default(), files.entry(path.clone()).or_default()] {
                *counts = (counts.0 + all, counts.1 + pronouns);
            }
            if words(comment).next().is_some_and(|word| OPENINGS.contains(&word)) {
                faults.push(format!("{path}:{number}: a line of a comment begins with a pronoun:{comment}"));
            }
        }
    }
    let is_over = |(words, pronouns): Counts| pronouns * 100 > words * PERCENT_MAX;
    for (room, (words, pronouns)) in rooms.into_iter().filter(|(_, counts)| is_over(*counts)) {
        faults.push(format!(
            "{room}: {pronouns} of {words} words are pronouns; at most {PERCENT_MAX} % may be"
        ));
        for (path, (words, pronouns)) in files
            .iter()
            .filter(|(path, counts)| self::room(&as_module(path)) == Some(&*room) && is_over(**counts))
        {
            faults.push(format!("    {path}: {pronouns} of {words}"));
        }
    }
    refuse(&faults);
}

#[test]
fn comments_are_told_from_code() {
    assert_eq!(comment("    /// A name."), Some(" A name."));
    assert_eq!(comment("//! A room."), Some(" A room."));
    assert_eq!(comment("let url = \"http://a\"; // A host."), Some(" A host."));
    assert_eq!(comment("let url = \"http://a\";"), None);
    assert_eq!(words("It isn't `Self::one` (A88).").collect::<Vec<_>>(), ["It", "isn't", "Self", "one", "A"]);
    assert_eq!(
        ["src/app.rs", "src/app/servers.rs", "src/app/tests.rs", "tools/descriptors/main.rs"].map(room),
        [Some("app"), Some("app"), None, None]
    );
    assert_eq!(
        ["tests/tidy.rs", "tests/e2e/limits/mod.rs", "tests/sim/run.rs", "loadtest/src/run/mod.rs"].map(room),
        [Some("tests/tidy"), Some("tests/e2e"), None, Some("loadtest")]
    );
}
