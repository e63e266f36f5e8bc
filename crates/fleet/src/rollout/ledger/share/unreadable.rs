//! The entries of a plan that cannot be read: they are of a later build, or of a stranger. As long as there
//! is one, the ledger counts as away (LDG-6).

use std::collections::BTreeMap;

/// The entries that are known by their keys.
const KNOWN_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct UnreadableEntries {
    /// By key, in words.
    entries: BTreeMap<Box<str>, Box<str>>,
    /// There were more: only the next load of the ledger can tell that none is left.
    has_more: Option<Box<str>>,
}

impl UnreadableEntries {
    pub fn add(&mut self, key: &str, error: &str) {
        let words = format!("the entry {key:?} cannot be read: {error}").into();
        if self.entries.contains_key(key) || self.entries.len() < KNOWN_MAX {
            self.entries.insert(key.into(), words);
        } else {
            self.has_more = Some(words);
        }
    }

    /// The entry has become readable, or is gone.
    pub fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    pub fn first(&self) -> Option<&str> {
        self.entries.values().next().or(self.has_more.as_ref()).map(|words| &**words)
    }
}
