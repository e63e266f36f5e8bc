//! Comments in plain English, as far as a machine can tell: nouns instead of pronouns.
//!
//! The share is a sign, not the aim. A sentence over the limit is rewritten, never bent.

use std::collections::BTreeMap;

use super::{is_test_file, refuse, sources};

/// Words that stand in for a noun. Comments with many of them have to be read twice.
const PRONOUNS: &[&str] = &[
    "it", "its", "that", "what", "which", "who", "whom", "whose", "one", "ones", "they", "them", "their",
    "he", "she", "such", "this", "these", "those",
];

/// The maximum share of [`PRONOUNS`] in the comments of a room, in percent. Comparable projects have 4 %.
const PERCENT_MAX: usize = 6;

/// No line of a comment begins with these words.
const OPENINGS: &[&str] = &["What", "Of", "Who", "That"];

/// The text of a comment on a line, if there is any. A `//` within a string follows no space.
fn comment(line: &str) -> Option<&str> {
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

/// The lines before the module of unit tests, numbered from 1.
fn production(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_tests = |line: &str| line == "mod tests {" || line.ends_with(" mod tests {");
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    numbered.take_while(move |(_, line)| !is_tests(line))
}

/// `src/wire/frame/mod.rs` belongs to `wire`, and `src/app.rs` to `app`.
fn room(path: &str) -> Option<&str> {
    let first = path.strip_prefix("src/")?.split('/').next()?;
    Some(first.trim_end_matches(".rs"))
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
        let Some(room) = room(&path).filter(|_| !is_test_file(&path)) else { continue };
        for (number, line) in production(&text) {
            let Some(comment) = comment(line) else { continue };
            let (all, pronouns) = (words(comment).count(), words(comment).filter(|w| is_pronoun(w)).count());
            for counts in [rooms.entry(room.to_owned()).or_default(), files.entry(path.clone()).or_default()]
            {
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
        for (path, (words, pronouns)) in
            files.iter().filter(|(path, counts)| self::room(path) == Some(&*room) && is_over(**counts))
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
        (room("src/app.rs"), room("src/app/servers.rs"), room("tests/x.rs")),
        (Some("app"), Some("app"), None)
    );
}
