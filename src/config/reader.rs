//! A walk over a [`Tree`]. The walk tracks its position, continues after errors, and reports all of them at
//! the end.

use super::error::{ConfigError, KeyError, Place, Problem, Warning};
use super::form::{Form, Parser};
use super::key_report::{Declared, KeyReport, join, without_indices};
use super::tree::{Tree, TreeEntry, TreeNode};
use super::units::{TEXT, number, show};
use sluice_setting::{Read, Setting, Value};
use sluice_text::nearest::nearest;

/// A value and its path.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub tree: &'a Tree,
    pub path: String,
    node: &'a TreeNode,
    report: &'a KeyReport,
}

/// A map, read key by key. Keys left over at the end are unknown.
pub(super) struct Map<'a> {
    pub path: String,
    place: Place,
    entries: &'a [TreeEntry],
    asked: Vec<&'static str>,
    required: Vec<&'static str>,
    /// Settings to read as their defaults: their keys do not apply here.
    inapplicable: Vec<&'static str>,
    /// Unknown keys are allowed.
    allows_unknown_keys: bool,
    allows_holders: bool,
    report: &'a KeyReport,
}

/// The beginning of top-level keys that hold anchors.
pub(super) const HOLDER: &str = "x-";

/// Walks over a tree. Returns the value that `read` makes of it, and the warnings.
///
/// # Errors
/// Every error of the walk.
pub(super) fn walk<T>(
    node: &TreeNode,
    read: impl for<'a> FnOnce(&mut Map<'a>) -> Option<T>,
) -> Result<(T, Vec<Warning>), ConfigError> {
    let report = KeyReport::default();
    let value = Item::root(node, &report).map(read).flatten();
    let errors = report.errors.into_inner();
    match value {
        Some(value) if errors.is_empty() => Ok((value, report.warnings.into_inner())),
        _ => Err(ConfigError::Invalid { errors }),
    }
}

impl<'a> Item<'a> {
    pub(super) fn root(node: &'a TreeNode, report: &'a KeyReport) -> Self {
        Item::new(node, String::new(), report)
    }

    fn new(node: &'a TreeNode, path: String, report: &'a KeyReport) -> Self {
        Item { tree: &node.tree, path, node, report }
    }

    /// Reports an error of the value. An unset variable is the error of its value, whatever the reader
    /// expected.
    pub(super) fn error(&self, problem: Problem) {
        let problem = match self.tree {
            Tree::Unset(unset) => (**unset).clone(),
            _ => problem,
        };
        let error = KeyError { place: self.node.place, path: self.path.clone(), problem };
        // A reader may look at a value several times.
        if !matches!(self.tree, Tree::Unset(_)) || !self.report.errors.borrow().contains(&error) {
            self.report.add(error);
        }
    }

    /// The number of errors in the whole walk so far.
    pub(super) fn error_count(&self) -> usize {
        self.report.errors.borrow().len()
    }

    pub(super) fn error_at(&self, key: &str, problem: Problem) {
        let entry = match self.tree {
            Tree::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        };
        let place = entry.map_or(self.node.place, |entry| entry.place);
        self.report.add(KeyError { place, path: join(&self.path, key), problem });
    }

    pub(super) fn is_empty_map(&self) -> bool {
        matches!(self.tree, Tree::Null) || matches!(self.tree, Tree::Map(entries) if entries.is_empty())
    }

    pub(super) fn invalid(&self, expected: impl Into<String>) {
        self.error(Problem::Invalid { value: self.describe(), expected: expected.into() });
    }

    /// The value where any type is fine.
    pub(super) fn free(&self) -> &'a TreeNode {
        self.can_be(&[Form::Any]);
        self.node
    }

    /// The value of a map that belongs to someone else.
    pub(super) fn free_map(&self) -> &'a TreeNode {
        self.can_be(&[Form::Fields]);
        self.node
    }

    /// Declares the forms of a value that the reader looks at by itself.
    pub(super) fn can_be(&self, forms: &[Form]) {
        self.report.can_be(&self.path, forms);
    }

    /// Whether the value is this word, one of several forms.
    pub(super) fn is_word(&self, word: &'static str) -> bool {
        self.can_be(&[Form::Word(word)]);
        matches!(self.tree, Tree::Text(text) if text == word)
    }

    /// The value as shown in messages.
    pub(super) fn describe(&self) -> String {
        self.node.describe()
    }

    /// The reason of an error that quotes parts of the value: withheld if they come from the environment.
    pub(super) fn quoting(&self, reason: String) -> String {
        if self.node.has_variables() {
            "is not valid with the values of its variables".into()
        } else {
            reason
        }
    }

    /// Reports each unset variable of a value that is used as it is.
    pub(super) fn has_all_variables(&self) -> bool {
        match self.tree {
            Tree::Unset(problem) => {
                self.error((**problem).clone());
                false
            }
            Tree::Map(entries) => {
                let item =
                    |entry: &'a TreeEntry| Item::new(&entry.node, join(&self.path, &entry.key), self.report);
                entries.iter().filter(|entry| !item(entry).has_all_variables()).count() == 0
            }
            Tree::List(_) => {
                let items = self.list().unwrap_or_default();
                items.iter().filter(|item| !item.has_all_variables()).count() == 0
            }
            _ => true,
        }
    }

    pub(super) fn unsupported(&self, instead: &'static str) {
        self.error(Problem::Unsupported { what: self.describe(), instead });
    }

    pub(super) fn warn(&self, text: impl Into<String>) {
        let warning = Warning { place: self.node.place, path: self.path.clone(), text: text.into() };
        self.report.warnings.borrow_mut().push(warning);
    }

    pub(super) fn parse<T>(&self, parser: impl Parser<T>) -> Option<T> {
        self.can_be(&parser.forms());
        let plain = || parser.parse(self.node.expansion.as_ref()?.plain.as_ref()?).ok();
        let parsed = parser.parse(self.tree).or_else(|expected| plain().ok_or(expected));
        parsed.map_err(|expected| self.invalid(expected)).ok()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.can_be(&[Form::Text]);
        match self.tree {
            Tree::Text(text) if !text.is_empty() => Some(text),
            _ => {
                self.invalid(TEXT);
                None
            }
        }
    }

    /// The entries of a map. A key without a value (`limits:` with nothing below) is an empty map.
    fn pairs(&self) -> Option<&'a [TreeEntry]> {
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
        self.can_be(&[Form::Map]);
        let entries = self.pairs()?;
        let mut map = Map::new(self.path.clone(), self.node.place, entries, self.report);
        let value = read(&mut map);
        map.finish();
        Some(value)
    }

    /// The entries of a map with operator-chosen keys.
    pub(super) fn entries(&self) -> Option<Vec<(&'a str, Item<'a>)>> {
        self.can_be(&[Form::Entries]);
        let entries = self.pairs()?;
        let at = |TreeEntry { key, node, .. }: &'a TreeEntry| {
            (key.as_str(), Item::new(node, format!("{}[{key}]", self.path), self.report))
        };
        Some(entries.iter().map(at).collect())
    }

    pub(super) fn list(&self) -> Option<Vec<Item<'a>>> {
        self.can_be(&[Form::List]);
        let items: &[TreeNode] = match self.tree {
            Tree::List(items) => items,
            Tree::Null => &[],
            _ => {
                self.invalid("a list");
                return None;
            }
        };
        let at = |(index, node)| Item::new(node, format!("{}[{index}]", self.path), self.report);
        Some(items.iter().enumerate().map(at).collect())
    }
}

impl Read for Map<'_> {
    fn value<T: Value>(&mut self, setting: &Setting<T>) -> T {
        self.value_or(setting, setting.default)
    }
}

impl<'a> Map<'a> {
    fn new(path: String, place: Place, entries: &'a [TreeEntry], report: &'a KeyReport) -> Self {
        Map {
            path,
            place,
            entries,
            asked: Vec::new(),
            required: Vec::new(),
            inapplicable: Vec::new(),
            allows_unknown_keys: false,
            allows_holders: false,
            report,
        }
    }

    /// From here on, keys that begin with `x-` are holders of anchors, and ignored.
    pub(super) fn allow_holders(&mut self) {
        self.allows_holders = true;
    }

    /// From here on, unknown keys are allowed: the map's format belongs to someone else.
    pub(super) fn allow_unknown_keys(&mut self) {
        self.allows_unknown_keys = true;
    }

    /// An error of the map as a whole.
    pub(super) fn invalid(&self, expected: &str) {
        let problem = Problem::Invalid { value: "none or several".into(), expected: expected.into() };
        let error = KeyError { place: self.place, path: self.path.clone(), problem };
        self.report.add(error);
    }

    /// The value of an optional key.
    pub(super) fn item(&mut self, key: &'static str) -> Option<Item<'a>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        let path = join(&self.path, key);
        self.report.keys.borrow_mut().insert(without_indices(&path));
        Some(Item::new(&self.entry(key)?.node, path, self.report))
    }

    pub(super) fn optional<T>(&mut self, key: &'static str, parser: impl Parser<T>) -> Option<T> {
        self.can_be(key, &parser.forms());
        self.item(key)?.parse(parser)
    }

    /// Declares that a key belongs to some words under another key: beside other words, its value is
    /// anything.
    pub(super) fn belongs(&self, key: &'static str, to: &'static str, words: &'static [&'static str]) {
        self.report.map(&self.path, |map| map.belonging.extend([(key, (to, words))]));
    }

    /// Declares the forms of a key's value, if the reader does not get to it in each file.
    pub(super) fn can_be(&self, key: &str, forms: &[Form]) {
        self.report.can_be(&join(&self.path, key), forms);
    }

    /// The value of a key, or the default.
    pub(super) fn or<T>(&mut self, key: &'static str, default: T, parser: impl Parser<T>) -> T {
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
        self.required.push(key);
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
        self.can_be(key, &[Form::Map]);
        self.report.map(&self.path, |map| map.sections.extend([key]));
        match self.item(key) {
            Some(item) => item.map(read),
            None => Some(read(&mut Map::new(join(&self.path, key), self.place, &[], self.report))),
        }
    }

    /// The items of the list under a key. A missing list is empty.
    pub(super) fn list(&mut self, key: &'static str) -> Vec<Item<'a>> {
        self.can_be(key, &[Form::List]);
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
        self.report.map(&self.path, |map| map.unused.extend(keys));
        for key in keys {
            if self.take_unlisted(key) {
                self.warn_at(key, text);
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
        let error = KeyError { place: self.place_of(key), path: join(&self.path, key), problem };
        self.report.add(error);
    }

    /// A warning about a key below this map.
    pub(super) fn warn_at(&self, key: &str, text: impl Into<String>) {
        let warning = Warning { place: self.place_of(key), path: join(&self.path, key), text: text.into() };
        self.report.warnings.borrow_mut().push(warning);
    }

    pub(super) fn contradiction(&self, key: &str, reason: impl Into<String>) {
        self.error(key, Problem::Contradiction { reason: reason.into() });
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    fn entry(&self, key: &str) -> Option<&'a TreeEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The place of a key, or of the value under a path; of the map, if the key is missing.
    fn place_of(&self, key: &str) -> Place {
        let (first, rest) = key.split_at(key.find(['[', '.']).unwrap_or(key.len()));
        match (self.entry(key), self.entry(first)) {
            (Some(entry), _) => entry.place,
            (None, Some(entry)) => entry.node.at(rest).place,
            (None, None) => self.place,
        }
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
        self.report
            .map(&self.path, |map| map.add(&self.required, self.allows_unknown_keys, self.allows_holders));
        if self.allows_unknown_keys {
            return;
        }
        let is_known =
            |key: &str| self.asked.contains(&key) || (self.allows_holders && key.starts_with(HOLDER));
        for TreeEntry { key, .. } in self.entries.iter().filter(|entry| !is_known(&entry.key)) {
            if self.report.is_full() {
                return;
            }
            let nearest = nearest(key, self.asked.iter().copied());
            self.error(key, Problem::UnknownKey { nearest, keys: self.asked.clone() });
        }
    }
}
