//! The place of unit tests: at the end of their file if they are short, else in a file of their own.

use super::{as_module, is_test_file, refuse, sources};

/// The longest module of tests at the end of a file, so that the code keeps most of the file.
const LINES: usize = 160;

/// The longest file that takes tests at its end.
const FILE_LINES: usize = 500;

/// The first line of a module of tests within a file, counted from 0.
fn begin(text: &str) -> Option<usize> {
    text.lines().position(|line| line.trim_start().starts_with("mod tests {"))
}

/// The problem of a file with code.
fn fault_of_code(text: &str) -> Option<String> {
    let is_test = |line: &str| ["#[test]", "#[tokio::test"].iter().any(|mark| line.trim().starts_with(mark));
    let begin = begin(text);
    if text.lines().take(begin.unwrap_or(usize::MAX)).any(is_test) {
        return Some("tests belong into a module `tests`".to_owned());
    }
    let begin = begin?;
    let lines = text.lines().count();
    let end = text.lines().skip(begin).position(|line| line == "}").map(|length| begin + length + 1);
    if end != Some(lines) {
        return Some("the module `tests` belongs at the end of the file".to_owned());
    }
    (lines - begin > LINES).then(|| format!("{} lines of tests belong into tests.rs", lines - begin))
}

/// Whether tests in a file of their own would fit at the end of the file with the code.
fn fit_at_the_end(code: &str, tests: &str) -> bool {
    // The module's first line and its end.
    let lines = tests.lines().count() + 2;
    lines <= LINES && code.lines().count() - 1 + lines <= FILE_LINES
}

#[test]
fn unit_tests_have_one_place() {
    let sources = sources();
    let mut faults = Vec::new();
    let text_of = |path: &str| sources.iter().find(|(other, _)| other == path).map(|(_, text)| text.as_str());
    let houses = ["src/", "loadtest/src/", "tools/"];
    for (path, text) in
        sources.iter().filter(|(path, _)| houses.iter().any(|house| as_module(path).starts_with(house)))
    {
        if !is_test_file(path) {
            faults.extend(fault_of_code(text).map(|fault| format!("{path}: {fault}")));
        }
        let code = path.strip_suffix("tests.rs").and_then(|folder| text_of(&format!("{folder}mod.rs")));
        if code.is_some_and(|code| fit_at_the_end(code, text)) {
            faults.push(format!("{path}: belongs at the end of mod.rs"));
        }
    }
    refuse(&faults);
}

#[test]
fn the_checks_see_places() {
    let module = |lines: usize| format!("mod tests {{\n{}}}\n", "    a();\n".repeat(lines - 2));
    assert_eq!(fault_of_code(&format!("fn a() {{}}\n{}", module(LINES))), None);
    assert!(fault_of_code(&module(LINES + 1)).is_some());
    assert!(fault_of_code(&format!("{}fn a() {{}}\n", module(3))).is_some());
    assert!(fault_of_code("#[test]\nfn a() {}\n").is_some());
    assert!(fit_at_the_end("mod tests;\n", "a\n") && !fit_at_the_end("mod tests;\n", &"a\n".repeat(LINES)));
    assert!(!fit_at_the_end(&"a\n".repeat(FILE_LINES), "a\n"));
}
