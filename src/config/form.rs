//! The forms of values. Each reader declares them by its calls, and the schema of the configuration is made
//! of them (PKG-8).

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;
use sluice_setting::Range;

/// A form of a value; a value may have several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Any,
    Boolean,
    Number(Range),
    /// A user id or another number, in plain digits.
    Integer {
        least: u64,
        most: u64,
    },
    /// Text that is not empty.
    Text,
    /// Text that may be empty.
    AnyText,
    /// Text of this regular expression.
    Pattern(&'static str),
    Word(&'static str),
    /// A number of this spelling, which people forget to quote.
    Unquoted(&'static str),
    List,
    /// A map with known keys.
    Map,
    /// A map with names of the operator's choice.
    Entries,
    /// A map that belongs to someone else.
    Fields,
}

/// The keys of a map, beside those that readers ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MapForm {
    /// The keys that every such map needs; `None` before the first map was read.
    pub required: Option<BTreeSet<&'static str>>,
    /// Keys whose maps have defaults for everything that is not required.
    pub sections: BTreeSet<&'static str>,
    /// Keys whose form depends on another key of the map: the form holds only for these words there.
    pub belonging: BTreeMap<&'static str, (&'static str, &'static [&'static str])>,
    /// Keys without effect on the relay.
    pub unused: BTreeSet<&'static str>,
    pub allows_unknown_keys: bool,
    pub allows_holders: bool,
}

impl MapForm {
    /// Adds a map. A key is required if all maps with this path require it.
    pub(super) fn add(&mut self, required: &[&'static str], allows_unknown_keys: bool, allows_holders: bool) {
        let required: BTreeSet<_> = required.iter().copied().collect();
        self.required = Some(match self.required.take() {
            Some(before) => before.intersection(&required).copied().collect(),
            None => required,
        });
        self.allows_unknown_keys |= allows_unknown_keys;
        self.allows_holders |= allows_holders;
    }
}

/// The result of a parser for one value. The error describes the expected value.
pub(super) type Parsed<T> = Result<T, String>;

/// A parser of single values. A function is a parser of text.
pub(super) trait Parser<T> {
    fn forms(&self) -> Vec<Form>;

    fn parse(&self, tree: &Tree) -> Parsed<T>;
}

impl<T, F: Fn(&Tree) -> Parsed<T>> Parser<T> for F {
    fn forms(&self) -> Vec<Form> {
        vec![Form::Text]
    }

    fn parse(&self, tree: &Tree) -> Parsed<T> {
        self(tree)
    }
}

/// A parser of other forms than plain text.
pub(super) struct Shaped<P>(pub &'static [Form], pub P);

impl<T, P: Fn(&Tree) -> Parsed<T>> Parser<T> for Shaped<P> {
    fn forms(&self) -> Vec<Form> {
        self.0.to_vec()
    }

    fn parse(&self, tree: &Tree) -> Parsed<T> {
        self.1(tree)
    }
}
