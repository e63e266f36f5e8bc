//! `docs/rules` has a line for each rule that code, tests or documents cite, and no line that nothing cites.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use super::{as_module, code, functions, is_test_file, refuse, relative, root, sources, tracked};

/// The id of a rule: its family and its number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Id(String, u32);

/// Ids with the lines that cite them.
type Citations = Vec<(usize, Id)>;

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dash = if self.0.len() == 3 { "-" } else { "" };
        write!(f, "{}{dash}{}", self.0, self.1)
    }
}

/// Three capitals, a dash and a number are an id (`RLY-31`), except with these.
const NO_FAMILIES: &[&str] = &["CVE", "SHA", "UTF"];

/// Families of one or two letters, whose ids have no dash (`FU9`).
const SHORT: &[&str] = &["E", "FD", "FP", "FU", "I"];

/// Scenarios that tests play; other code cites the rule behind a scenario.
const SCENARIOS: &[&str] = &["A", "C", "D", "G", "H", "M", "N", "P", "V"];

/// No scenario has a higher number: `P99` is a percentile.
const SCENARIO_MAX: u32 = 30;

/// A higher number with an `A` is one of gRPC's proposals.
const SCENARIO_A_MAX: u32 = 20;

/// Folders whose files cite rules.
const CITING: &[&str] =
    &["benches/", "crates/", "deploy/", "docs/", "loadtest/", "ops/", "src/", "tests/", "tools/"];

/// Documents for operators: words instead of ids.
const FOR_OPERATORS: &[&str] = &[
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "config/",
    "docs/compatibility.md",
    "docs/configuration.md",
    "docs/failure-modes.md",
    "docs/grpc.md",
    "docs/kubernetes.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/recipes/",
    "docs/scale.md",
    "ops/README.md",
    "src/bin/",
];

const WALL: &str = "docs/rules/";
const NOT_APPLICABLE: &str = "*Not applicable:* ";

/// Families whose every rule must have a place in `tests/conformance/README.md`.
const PLACED: &[&str] = &["STR", "SUB", "NON", "SST", "ACK", "DEL"];

/// An id at the beginning of a token, in any written form.
fn id(token: &str) -> Option<Id> {
    let digits = token.find(|c: char| c.is_ascii_digit())?;
    let (family, number) = token.split_at(digits);
    let (family, is_long) =
        family.strip_suffix('-').map_or((family, false), |family| (family, family.len() == 3));
    if family.is_empty() || !family.bytes().all(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let known = if is_long { !NO_FAMILIES.contains(&family) } else { is_short(family) };
    // A rule may have parts (`I7b`).
    let number = number.strip_suffix('b').filter(|_| !is_long).unwrap_or(number);
    let number = number.parse().ok().filter(|_| known && number.len() < 3)?;
    let max = match family {
        "A" => SCENARIO_A_MAX,
        _ if SCENARIOS.contains(&family) => SCENARIO_MAX,
        _ => u32::MAX,
    };
    (1..=max).contains(&number).then(|| Id(family.to_owned(), number))
}

fn is_short(family: &str) -> bool {
    SHORT.contains(&family) || SCENARIOS.contains(&family)
}

/// The ids in a piece of prose: `SUB-3`, `FU9`, and the range of `SUB-8 to SUB-11`. After gRPC's name an `A`
/// is a proposal.
fn in_prose(text: &str) -> Vec<Id> {
    let mut found: Vec<Id> = Vec::new();
    let (mut before, mut is_range, mut is_of_grpc) = ("", false, false);
    for token in text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')) {
        if token.is_empty() {
            continue;
        }
        is_of_grpc |= token == "gRPC" || token == "gRFC";
        if let Some(id) = id(token).filter(|id| id.0 != "A" || !is_of_grpc) {
            let first = found.last().filter(|last| is_range && last.0 == id.0).map(|last| last.1 + 1);
            found.extend((first.unwrap_or(id.1)..=id.1).map(|number| Id(id.0.clone(), number)));
            before = "id";
        } else {
            is_range = token == "to" && before == "id";
            before = token;
        }
        is_range &= token == "to";
    }
    found
}

/// The ids that begin the name of a test: `sub_10_an_empty_list`, `i14_what_was_restored`, `c_2_to_c_6_a_request`,
/// `rly_57_and_58_one_request`.
fn in_name(name: &str) -> Vec<Id> {
    let parts: Vec<&str> = name.split('_').collect();
    let (mut found, mut rest): (Vec<Id>, &[&str]) = (Vec::new(), &parts);
    let mut is_range = false;
    loop {
        let number = |at: usize| rest.get(at).and_then(|part| part.parse::<u32>().ok());
        let last = found.last().cloned();
        let (family, number, length) = match (rest, number(1), last) {
            (["and", ..], Some(number), Some(last)) => (last.0, number, 2),
            (["to", ..], _, Some(_)) if !is_range => {
                (is_range, rest) = (true, &rest[1..]);
                continue;
            }
            ([family, ..], Some(number), _) => (family.to_ascii_uppercase(), number, 2),
            ([joined, ..], None, _) => {
                let letters = joined.trim_end_matches(|c: char| c.is_ascii_digit());
                let Ok(number) = joined[letters.len()..].parse() else { return found };
                // `v2_` and `v3_` are versions of the API.
                (letters.to_ascii_uppercase().replace('V', ""), number, 1)
            }
            _ => return found,
        };
        let dash = if family.len() == 3 { "-" } else { "" };
        let Some(id) = id(&format!("{family}{dash}{number}")) else { return found };
        let first = found.last().filter(|last| is_range && last.0 == id.0).map(|last| last.1 + 1);
        found.extend((first.unwrap_or(id.1)..=id.1).map(|number| Id(id.0.clone(), number)));
        (is_range, rest) = (false, &rest[length..]);
    }
}

/// The ids of a Rust file with their lines: in the names of functions, in comments, and the long form in
/// strings too.
fn in_code(text: &str) -> Citations {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        found.extend(in_prose(comment).into_iter().map(|id| (number, id)));
        let in_texts = in_prose(code).into_iter().filter(|id| id.0.len() == 3);
        found.extend(in_texts.map(|id| (number, id)));
    }
    for (name, line, _) in functions(text) {
        found.extend(in_name(&name).into_iter().map(|id| (line, id)));
    }
    found
}

/// The citations of a file, line by line.
fn citations(path: &str, text: &str) -> Citations {
    if path.ends_with(".rs") {
        return in_code(text);
    }
    let lines = text.lines().enumerate();
    lines.flat_map(|(number, line)| in_prose(line).into_iter().map(move |id| (number + 1, id))).collect()
}

/// Every file with its citations, except the files of the rules.
static CITED: LazyLock<Vec<(String, Citations)>> = LazyLock::new(|| {
    let read = |path: &PathBuf| Some((relative(path), fs::read_to_string(path).ok()?));
    let texts = tracked();
    let texts = texts.iter().filter_map(read).filter(|(path, _)| {
        let is_here = path.starts_with("tests/tidy/");
        let cites = CITING.iter().chain(FOR_OPERATORS).any(|place| path.starts_with(place));
        cites && !is_here && !path.starts_with(WALL)
    });
    texts.map(|(path, text)| (path.clone(), citations(&path, &text))).collect()
});

/// A line of the rules: its file, and whether the rule is marked as not applicable.
struct Line {
    path: String,
    is_not_applicable: bool,
}

/// The lines of all tables in `docs/rules`, and the faults found there.
fn wall() -> (BTreeMap<Id, Line>, Vec<String>) {
    let (mut lines, mut faults) = (BTreeMap::new(), Vec::new());
    for path in tracked().iter().filter(|path| relative(path).starts_with(WALL)) {
        let (text, path) = (fs::read_to_string(path).unwrap(), relative(path));
        let mut last: Option<Id> = None;
        for row in text.lines().filter_map(|line| line.strip_prefix("| ")) {
            let mut cells = row.trim_end_matches(" |").splitn(2, " | ");
            let (Some(id), Some(rule)) = (cells.next().and_then(id), cells.next()) else { continue };
            if last.as_ref().is_some_and(|last| *last >= id) {
                faults.push(format!("{path}: {id} is not in its place"));
            }
            if rule.trim_start_matches(NOT_APPLICABLE).len() < 20 {
                faults.push(format!("{path}: {id} says too little"));
            }
            last = Some(id.clone());
            let is_not_applicable = rule.starts_with(NOT_APPLICABLE);
            if let Some(other) = lines.insert(id.clone(), Line { path: path.clone(), is_not_applicable }) {
                faults.push(format!("{path}: {id} has a line in {}", other.path));
            }
        }
    }
    (lines, faults)
}

#[test]
fn cited_rules_have_a_line() {
    let (lines, mut faults) = wall();
    for (path, found) in CITED.iter() {
        for (number, id) in found.iter().filter(|(_, id)| !lines.contains_key(id)) {
            faults.push(format!("{path}:{number}: {id} has no line in {WALL}"));
        }
    }
    refuse(&faults);
}

#[test]
fn rules_are_cited() {
    let cited: BTreeSet<Id> = CITED.iter().flat_map(|(_, found)| found).map(|(_, id)| id.clone()).collect();
    let (lines, mut faults) = wall();
    for (id, line) in lines.iter().filter(|(id, line)| !line.is_not_applicable && !cited.contains(id)) {
        faults.push(format!("{}: nothing cites {id}", line.path));
    }
    refuse(&faults);
}

/// A scenario's letters have other meanings elsewhere, and a scenario is no rule.
#[test]
fn scenarios_are_cited_by_tests_alone() {
    let mut faults = Vec::new();
    for (path, found) in CITED.iter() {
        if !as_module(path).starts_with("src/") || is_test_file(path) {
            continue;
        }
        for (number, id) in found.iter().filter(|(_, id)| SCENARIOS.contains(&id.0.as_str())) {
            faults.push(format!("{path}:{number}: {id} is a scenario; cite the rule"));
        }
    }
    refuse(&faults);
}

/// Operators have neither the code nor the rules: their documents, logs, errors and `--help` use words.
#[test]
fn operators_read_words() {
    let is_rule = |id: &Id| !SCENARIOS.contains(&id.0.as_str());
    let mut faults = Vec::new();
    for (path, found) in CITED.iter() {
        let is_for_operators = FOR_OPERATORS.iter().any(|place| path.starts_with(place));
        for (number, id) in found.iter().filter(|(_, id)| is_for_operators && is_rule(id)) {
            faults.push(format!("{path}:{number}: {id} in a document for operators"));
        }
    }
    for (path, text) in
        sources().iter().filter(|(path, _)| as_module(path).starts_with("src/") && !is_test_file(path))
    {
        for (number, line) in code(text) {
            for id in in_prose(line).iter().filter(|id| id.0.len() == 3) {
                faults.push(format!("{path}:{number}: {id} in a text for operators"));
            }
        }
    }
    refuse(&faults);
}

/// The README of the conformance tests places every rule of the stream protocol, and names only existing
/// tests.
#[test]
fn the_conformance_readme_is_complete() {
    let readme = fs::read_to_string(root().join("tests/conformance/README.md")).unwrap();
    let mut faults = Vec::new();
    let placed = in_prose(&readme);
    for id in wall().0.keys().filter(|id| PLACED.contains(&id.0.as_str()) && !placed.contains(id)) {
        faults.push(format!("{id} has no place in the README"));
    }
    let sources = sources();
    let tests: Vec<String> = sources
        .iter()
        .filter(|(path, _)| path.starts_with("tests/conformance/"))
        .flat_map(|(_, text)| functions(text))
        .map(|(name, ..)| name)
        .collect();
    for name in readme.split('`').filter_map(|quoted| quoted.split_once("::")).map(|(_, name)| name) {
        if !tests.iter().any(|test| test == name) {
            faults.push(format!("the README names {name}, which is no test"));
        }
    }
    refuse(&faults);
}

/// The checks find known faults.
#[test]
fn the_checks_see_ids() {
    let ids = |found: Vec<Id>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(ids(in_prose("see RLY-31, UTF-8, ISO-8859, CVE-2024 (A71, I7b)")), ["RLY-31", "I7"]);
    assert_eq!(ids(in_prose("E1 to E3, by FU9, A7; gRFC A8")), ["E1", "E2", "E3", "FU9", "A7"]);
    assert_eq!(ids(in_prose("SUB-8 to SUB-10, then XYZ-1")), ["SUB-8", "SUB-9", "SUB-10", "XYZ-1"]);
    assert_eq!(ids(in_name("sub_10_an_empty_list_after_2_names")), ["SUB-10"]);
    assert_eq!(ids(in_name("rly_37_sst_8_h_24_duplicates")), ["RLY-37", "SST-8", "H24"]);
    assert_eq!(ids(in_name("c_2_to_c_4_a_request")), ["C2", "C3", "C4"]);
    assert_eq!(ids(in_name("sub_11_and_12_of_3")), ["SUB-11", "SUB-12"]);
    assert_eq!(ids(in_name("i14_what_was")), ["I14"]);
    assert!(in_name("v2_clients").is_empty() && in_name("an_utf_8_name").is_empty());
    assert!(in_code("type H2 = V3; // nothing").is_empty());
    assert_eq!(in_code("\nfn fu_9_a() {} // I4").len(), 2);
}
