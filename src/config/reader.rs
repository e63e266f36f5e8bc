//! A walk over a [`Tree`]. The walk tracks its position, continues after errors, and reports all of them at
//! the end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::error::{KeyError, Problem, Warning};
use super::tree::Tree;
use super::units::{Parsed, TEXT, number, show};
use crate::setting::{Read, Setting, Value};

/// The results of a walk so far.
#[derive(Default)]
pub(super) struct Report {
    pub errors: RefCell<Vec<KeyError>>,
    pub warnings: RefCell<Vec<Warning>>,
    /// Every key known to the readers, without list indices and operator-chosen names:
    /// `xds_servers[].server_uri`.
    pub keys: RefCell<BTreeSet<String>>,
    /// The settings among the keys: the default and the range, as the file spells them.
    pub settings: RefCell<BTreeMap<String, Declared>>,
}

/// A setting for the reader of the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    pub default: String,
    pub least: String,
    pub most: String,
}

/// A value and its path.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub tree: &'a Tree,
    pub path: String,
    report: &'a Report,
}

/// A map, read key by key. Keys left over at the end are unknown.
pub(super) struct Map<'a> {
    pub path: String,
    entries: &'a [(String, Tree)],
    asked: Vec<&'static str>,
    /// Settings to read as their defaults: their keys do not apply here.
    inapplicable: Vec<&'static str>,
    /// Unknown keys are allowed.
    allows_unknown_keys: bool,
    report: &'a Report,
}

/// The least similarity (Jaro-Winkler) at which an unknown key gets a known key as a suggestion.
const SIMILAR: f64 = 0.8;

impl<'a> Item<'a> {
    pub(super) fn root(tree: &'a Tree, report: &'a Report) -> Self {
        Item { tree, path: String::new(), report }
    }

    pub(super) fn error(&self, problem: Problem) {
        self.report.errors.borrow_mut().push(KeyError { path: self.path.clone(), problem });
    }

    /// The number of errors in the whole walk so far.
    pub(super) fn error_count(&self) -> usize {
        self.report.errors.borrow().len()
    }

    pub(super) fn error_at(&self, key: &str, problem: Problem) {
        self.report.errors.borrow_mut().push(KeyError { path: join(&self.path, key), problem });
    }

    pub(super) fn is_empty_map(&self) -> bool {
        matches!(self.tree, Tree::Null) || matches!(self.tree, Tree::Map(entries) if entries.is_empty())
    }

    pub(super) fn invalid(&self, expected: impl Into<String>) {
        self.error(Problem::Invalid { found: self.tree.describe(), expected: expected.into() });
    }

    pub(super) fn unsupported(&self, instead: &'static str) {
        self.error(Problem::Unsupported { what: self.tree.describe(), instead });
    }

    pub(super) fn warn(&self, text: impl Into<String>) {
        self.report.warnings.borrow_mut().push(Warning { path: self.path.clone(), text: text.into() });
    }

    pub(super) fn parse<T>(&self, parser: impl Fn(&Tree) -> Parsed<T>) -> Option<T> {
        parser(self.tree).map_err(|expected| self.invalid(expected)).ok()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.tree {
            Tree::Text(text) if !text.is_empty() => Some(text),
            _ => {
                self.invalid(TEXT);
                None
            }
        }
    }

    /// The entries of a map. A key without a value (`limits:` with nothing below) is an empty map.
    fn pairs(&self) -> Option<&'a [(String, Tree)]> {
        match self.tree {
            Tree::Map(entries) => Some(entries),
            Tree::Null => Some(&[]),
            _ => {
                self.invalid("a map");
                None
            }
        }
    }

    /// Reads a map with known keys.
    pub(super) fn map<T>(&self, read: impl FnOnce(&mut Map<'a>) -> T) -> Option<T> {
        let entries = self.pairs()?;
        let mut map = Map::new(self.path.clone(), entries, self.report);
        let value = read(&mut map);
        map.finish();
        Some(value)
    }

    /// The entries of a map with operator-chosen keys.
    pub(super) fn entries(&self) -> Option<Vec<(&'a str, Item<'a>)>> {
        let entries = self.pairs()?;
        let at = |(key, tree): &'a (String, Tree)| {
            (key.as_str(), Item { tree, path: format!("{}[{key}]", self.path), report: self.report })
        };
        Some(entries.iter().map(at).collect())
    }

    pub(super) fn list(&self) -> Option<Vec<Item<'a>>> {
        let items: &[Tree] = match self.tree {
            Tree::List(items) => items,
            Tree::Null => &[],
            _ => {
                self.invalid("a list");
                return None;
            }
        };
        let at = |(index, tree)| Item { tree, path: format!("{}[{index}]", self.path), report: self.report };
        Some(items.iter().enumerate().map(at).collect())
    }
}

impl Read for Map<'_> {
    fn value<T: Value>(&mut self, setting: &Setting<T>) -> T {
        self.value_or(setting, setting.default)
    }
}

impl<'a> Map<'a> {
    fn new(path: String, entries: &'a [(String, Tree)], report: &'a Report) -> Self {
        Map { path, entries, asked: Vec::new(), inapplicable: Vec::new(), allows_unknown_keys: false, report }
    }

    /// From here on, unknown keys are allowed: the map's format belongs to someone else.
    pub(super) fn allow_unknown_keys(&mut self) {
        self.allows_unknown_keys = true;
    }

    /// An error of the map as a whole.
    pub(super) fn invalid(&self, expected: &str) {
        let problem = Problem::Invalid { found: "none or several".into(), expected: expected.into() };
        self.report.errors.borrow_mut().push(KeyError { path: self.path.clone(), problem });
    }

    /// The value of an optional key.
    pub(super) fn item(&mut self, key: &'static str) -> Option<Item<'a>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        let path = join(&self.path, key);
        self.report.keys.borrow_mut().insert(without_indices(&path));
        let (_, tree) = self.entries.iter().find(|(name, _)| name == key)?;
        Some(Item { tree, path, report: self.report })
    }

    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        parser: impl Fn(&Tree) -> Parsed<T>,
    ) -> Option<T> {
        self.item(key)?.parse(parser)
    }

    /// The value of a key, or the default.
    pub(super) fn or<T>(&mut self, key: &'static str, default: T, parser: impl Fn(&Tree) -> Parsed<T>) -> T {
        self.optional(key, parser).unwrap_or(default)
    }

    /// The value of a setting with another default here.
    pub(super) fn value_or<T: Value>(&mut self, setting: &Setting<T>, default: T) -> T {
        let Setting { key, range, .. } = *setting;
        if self.inapplicable.contains(&key) {
            return default;
        }
        let shown = |number| show(range.unit, number);
        let declared = Declared {
            default: default.number().map_or("off".into(), shown),
            least: shown(range.least),
            most: shown(range.most),
        };
        let path = without_indices(&join(&self.path, key));
        self.report.settings.borrow_mut().insert(path, declared);
        self.or(key, default, number(range))
    }

    pub(super) fn required(&mut self, key: &'static str, expected: &str) -> Option<Item<'a>> {
        let item = self.item(key);
        if item.is_none() {
            self.error(key, Problem::Missing { expected: expected.into() });
        }
        item
    }

    /// Reads the map under a key. A missing key counts as an empty map, so that the reader supplies the
    /// defaults.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Map<'a>) -> T,
    ) -> Option<T> {
        if self.inapplicable.contains(&key) {
            return None;
        }
        match self.item(key) {
            Some(item) => item.map(read),
            None => Some(read(&mut Map::new(join(&self.path, key), &[], self.report))),
        }
    }

    /// The items of the list under a key. A missing list is empty.
    pub(super) fn list(&mut self, key: &'static str) -> Vec<Item<'a>> {
        self.item(key).and_then(|item| item.list()).unwrap_or_default()
    }

    /// Rejects keys that are valid in general, but not supported by this version.
    pub(super) fn unsupported(&mut self, keys: &[(&'static str, &'static str)]) {
        for (key, instead) in keys {
            if self.take_unlisted(key) {
                self.error(key, Problem::Unsupported { what: "this key".into(), instead });
            }
        }
    }

    /// Warns of keys that are meant for other programs that read the same file.
    pub(super) fn warn_unused(&mut self, keys: &[&'static str], text: &str) {
        for key in keys {
            if self.take_unlisted(key) {
                let path = join(&self.path, key);
                self.report.warnings.borrow_mut().push(Warning { path, text: text.into() });
            }
        }
    }

    /// Rejects keys that are valid in general, but not in combination with the others of this map. Settings
    /// and sections with these keys then have their defaults.
    pub(super) fn reject_inapplicable(&mut self, keys: &[&'static str], beside: &str) {
        self.inapplicable.extend(keys);
        for key in keys {
            if self.take_unlisted(key) {
                self.error(key, Problem::Contradiction { reason: format!("does not apply to {beside}") });
            }
        }
    }

    pub(super) fn error(&self, key: &str, problem: Problem) {
        let path = join(&self.path, key);
        self.report.errors.borrow_mut().push(KeyError { path, problem });
    }

    /// A warning about a key below this map.
    pub(super) fn warn_at(&self, key: &str, text: impl Into<String>) {
        let path = join(&self.path, key);
        self.report.warnings.borrow_mut().push(Warning { path, text: text.into() });
    }

    pub(super) fn contradiction(&self, key: &str, reason: impl Into<String>) {
        self.error(key, Problem::Contradiction { reason: reason.into() });
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _)| name == key)
    }

    /// Whether a key is present that is known, but left out of the list of keys.
    fn take_unlisted(&mut self, key: &'static str) -> bool {
        if self.has(key) {
            self.asked.push(key);
            return true;
        }
        false
    }

    fn finish(self) {
        if self.allows_unknown_keys {
            return;
        }
        for (key, _) in self.entries.iter().filter(|(key, _)| !self.asked.contains(&key.as_str())) {
            let similarity = |known: &&'static str| strsim::jaro_winkler(known, key);
            let nearest = self
                .asked
                .iter()
                .copied()
                .filter(|known| similarity(known) >= SIMILAR)
                .max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
            self.error(key, Problem::UnknownKey { nearest, known: self.asked.clone() });
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

fn without_indices(path: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in path.chars() {
        inside &= c != ']';
        if !inside {
            plain.push(c);
        }
        inside |= c == '[';
    }
    plain
}
