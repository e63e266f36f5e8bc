//! The results of a walk over a tree, by the keys of the file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::error::{KeyError, Warning};
use super::form::{Form, MapForm};

/// The errors of a walk. A text has more only if it is none of a configuration, and each error has the keys
/// that are known at its place.
const ERRORS_MAX: usize = 500;

/// The results of a walk so far.
#[derive(Default)]
pub(super) struct KeyReport {
    pub errors: RefCell<Vec<KeyError>>,
    pub warnings: RefCell<Vec<Warning>>,
    /// Every key known to the readers, without list indices and operator-chosen names:
    /// `xds_servers[].server_uri`.
    pub keys: RefCell<BTreeSet<String>>,
    /// The settings among the keys: the default and the range, as the file spells them.
    pub settings: RefCell<BTreeMap<String, Declared>>,
    /// The forms of the values that readers accept, by the paths of `keys` and by those of entries
    /// (`hosts[]`).
    pub forms: RefCell<BTreeMap<String, Vec<Form>>>,
    pub maps: RefCell<BTreeMap<String, MapForm>>,
}

impl KeyReport {
    pub(super) fn add(&self, error: KeyError) {
        if !self.is_full() {
            self.errors.borrow_mut().push(error);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.errors.borrow().len() >= ERRORS_MAX
    }

    pub(super) fn can_be(&self, path: &str, forms: &[Form]) {
        let mut all = self.forms.borrow_mut();
        let path_forms = all.entry(without_indices(path)).or_default();
        for form in forms {
            if !path_forms.contains(form) {
                path_forms.push(*form);
            }
        }
    }

    pub(super) fn map(&self, path: &str, change: impl FnOnce(&mut MapForm)) {
        change(self.maps.borrow_mut().entry(without_indices(path)).or_default());
    }
}

/// A setting for the reader of the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    pub default: String,
    pub least: String,
    pub most: String,
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

pub(super) fn without_indices(path: &str) -> String {
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
