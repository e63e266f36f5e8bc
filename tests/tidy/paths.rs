//! Documents and comments cite files, modules and functions that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use super::words_of_comments::comment;
use super::{READING_ORDER, as_module, code, refuse, relative, sources, tracked, words};

/// Texts in the form of a citation that cite nothing in this repository.
const NO_CITATIONS: &[&str] = &["name/mod.rs", "OrdMap::diff"];

/// Methods that a macro declares.
const BY_MACRO: &[&str] = &["ServerLimits::read"];

/// Folders whose name readers leave out: `xds/name.rs` stands in `crates/xds/src`, which counts as `src/xds`.
const LEFT_OUT: &[&str] = &["", "src/", "src/engine/", "src/driver/"];

/// All files, and the folders with a slash at the end.
static TREE: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut files: Vec<String> = tracked().iter().map(|path| relative(path)).collect();
    let modules: Vec<String> = files.iter().map(|path| as_module(path)).collect();
    files.extend(modules);
    let folders = |file: &String| file.match_indices('/').map(|(at, _)| file[..=at].to_owned()).collect();
    let folders: Vec<String> = files.iter().flat_map::<Vec<_>, _>(folders).collect();
    files.into_iter().chain(folders).collect()
});

/// The names that begin a path, besides those of files with a known ending: folders of the repository, rooms,
/// and folders of large rooms.
static BEGINNINGS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let below = |entry: &'static String, folder: &&str| {
        let (first, rest) = entry.strip_prefix(*folder)?.split_once('/')?;
        rest.is_empty().then_some(first)
    };
    TREE.iter().flat_map(|entry| LEFT_OUT.iter().filter_map(move |folder| below(entry, folder))).collect()
});

/// The words of each type: methods, fields and variants, from the blocks that begin in the first column.
static ITEMS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let mut items = BTreeMap::<String, BTreeSet<String>>::new();
    for (_, text) in sources() {
        let mut block: Option<Vec<String>> = None;
        for (_, line) in code(text) {
            let types = || types_of_block(line).map(|names| names.into_iter().map(str::to_owned).collect());
            match line.starts_with([' ', '}', '#']) || line.is_empty() {
                // A macro may wrap a declaration.
                true if line.trim_start().starts_with("pub struct ") => block = types(),
                true => {}
                false => block = types(),
            }
            for name in block.iter().flatten() {
                items.entry(name.clone()).or_default().extend(words(line).map(str::to_owned));
            }
        }
    }
    items
});

/// Every word of the code.
static WORDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let all = sources().iter().filter(|(path, _)| !path.starts_with("tests/tidy"));
    all.flat_map(|(_, text)| code(text)).flat_map(|(_, line)| words(line)).map(str::to_owned).collect()
});

/// Documents whose every single word in the form of a type is a type.
const OF_THE_CODE: &[&str] = &["CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/adr/"];

/// The types that a block declares or implements; `None` if the line begins no such block.
fn types_of_block(line: &str) -> Option<Vec<&str>> {
    let line = line.split(" where ").next().unwrap_or(line);
    let declares = |word: &str| ["struct", "enum", "trait", "impl", "type"].contains(&word);
    let mut all = words(line).skip_while(|word| !declares(word));
    all.next()?;
    Some(all.filter(|word| word.starts_with(|c: char| c.is_uppercase())).collect())
}

/// The texts in backticks, and the targets of links.
fn citations(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    quoted.chain(links).filter(|cited| !NO_CITATIONS.contains(cited)).collect()
}

fn is_path(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let begins = text.split_once('/').is_some_and(|(first, _)| BEGINNINGS.contains(first));
    let ends = [".rs", ".md", ".py", ".yaml"].iter().any(|ending| text.ends_with(ending));
    text.chars().all(is_plain) && !text.starts_with(['/', '.']) && (begins || ends && text.contains('/'))
}

/// Whether a path exists, seen from the root, from a folder that readers leave out, or from a folder around
/// the citing file.
fn exists(path: &str, from: &str) -> bool {
    let from = as_module(from);
    let around = from.match_indices('/').map(|(at, _)| &from[..=at]);
    around.chain(LEFT_OUT.iter().copied()).any(|folder| {
        let whole = format!("{folder}{}", path.trim_end_matches('/'));
        [whole.clone(), format!("{whole}/"), format!("{whole}.rs")].iter().any(|path| TREE.contains(path))
    })
}

/// Whether a file has the name.
fn is_file_name(name: &str) -> bool {
    TREE.iter().any(|path| path.rsplit('/').next() == Some(name))
}

/// The segments of `a::b::c`, without arguments; `None` if the text is no such path.
fn segments(text: &str) -> Option<Vec<&str>> {
    let path = text.split('(').next()?;
    let segments: Vec<&str> = path.split("::").collect();
    let is_word = |word: &&str| words(word).eq([*word]);
    (segments.len() > 1 && segments.iter().all(is_word)).then_some(segments)
}

/// Whether a word has the form of a type's name: a capital first, and small letters.
fn is_type(word: &str) -> bool {
    words(word).eq([word])
        && word.starts_with(|c: char| c.is_uppercase())
        && word.contains(|c: char| c.is_lowercase())
}

/// Whether the modules of a path exist, and the first item after the modules is a word of the last module.
fn is_declared(path: &[&str]) -> bool {
    let mut place = "src".to_owned();
    for segment in path {
        let deeper = format!("{place}/{segment}");
        if TREE.contains(&format!("{deeper}/")) || TREE.contains(&format!("{deeper}.rs")) {
            place = deeper;
            continue;
        }
        let (folder, file) = (format!("{place}/"), format!("{place}.rs"));
        let mut texts = sources().iter().filter(|(path, _)| {
            let path = as_module(path);
            path.starts_with(&folder) || path == file
        });
        return texts.any(|(_, text)| code(text).any(|(_, line)| words(line).any(|word| word == *segment)));
    }
    true
}

/// The problem of a citation in a file.
fn fault(cited: &str, from: &str) -> Option<&'static str> {
    if is_path(cited) && !exists(cited, from) {
        return Some("no such file or folder");
    }
    if cited.ends_with(".rs") && !cited.contains(['/', ' ']) && !is_file_name(cited) {
        return Some("no such file");
    }
    if OF_THE_CODE.iter().any(|document| from.starts_with(document)) && is_type(cited) {
        return (!WORDS.contains(cited)).then_some("no such type");
    }
    let segments = segments(cited)?;
    let segments = segments.strip_prefix(&["crate"]).unwrap_or(&segments);
    let is_room = segments.first().is_some_and(|first| READING_ORDER.contains(first));
    if is_room && !is_declared(segments) {
        return Some("no such module or item");
    }
    let &[.., type_name, item] = segments else { return None };
    let is_type = is_type(type_name) && type_name != "Self";
    let is_known = || ITEMS.get(type_name).is_some_and(|items| items.contains(item));
    let is_ours = !is_type || BY_MACRO.contains(&&*segments.join("::")) || is_known();
    (!is_ours).then_some("no such method, field or variant")
}

#[test]
fn cited_files_and_functions_exist() {
    let mut faults = Vec::new();
    for path in tracked() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let path = relative(&path);
        let is_code = path.ends_with(".rs");
        if !is_code && (!path.ends_with(".md") || path == "CHANGELOG.md") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let Some(line) = (if is_code { comment(line) } else { Some(line) }) else { continue };
            let wrong = |cited| Some((cited, fault(cited, &path)?));
            for (cited, problem) in citations(line).into_iter().filter_map(wrong) {
                faults.push(format!("{path}:{}: {cited}: {problem}", number + 1));
            }
        }
    }
    refuse(&faults);
}

#[test]
fn the_checks_see_citations() {
    assert_eq!(citations("The `a/b.rs`, and [c](d.md#e)."), ["a/b.rs", "d.md"]);
    assert_eq!(types_of_block("impl<T> Display for Name<T> {"), Some(vec!["T", "Display", "Name", "T"]));
    let wrong = [
        "src/no.rs",
        "engine/no",
        "x/no.rs",
        "no_such.rs",
        "xds::nothing::X",
        "Session::no",
        "No::x",
        "NoSuchType",
    ];
    let right =
        ["crates/xds/src/name.rs", "engine/view/", "xds/name.rs", "lib.rs", "xds::name", "Session::request"];
    for (cited, is_fault) in wrong.map(|cited| (cited, true)).into_iter().chain(right.map(|r| (r, false))) {
        assert_eq!(fault(cited, "docs/ARCHITECTURE.md").is_some(), is_fault, "{cited}");
    }
    assert_eq!(fault("machine/control.rs", "crates/engine/src/upstream/api.rs"), None);
    assert_eq!(fault("application/json", "docs/metrics.md"), None);
}
