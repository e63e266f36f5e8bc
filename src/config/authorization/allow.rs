//! `authorization.rules[].allow`: types, names, authorities and the wildcard (AUT-7).

use super::super::classes::read_type;
use super::super::error::Problem;
use super::super::form::Form;
use super::super::reader::{Item, Map};
use super::super::tree::Tree;
use super::super::units::boolean;
use super::{Captures, read_text};
use sluice_engine::authorization::{Allow, NamePattern, Types};
use sluice_xds::xdstp::spell_authority;

pub(super) fn read_allow(item: &Item<'_>, captures: Captures<'_>) -> Option<Vec<Allow>> {
    let items = item.list()?;
    if items.is_empty() {
        item.invalid("at least one grant; `deny: true` denies");
    }
    Some(items.iter().filter_map(|item| item.map(|map| read_entry(map, captures)).flatten()).collect())
}

fn read_entry(map: &mut Map<'_>, captures: Captures<'_>) -> Option<Allow> {
    let types = map.required("types", TYPES).and_then(|item| read_types(&item));
    let names = map.item("names").and_then(|item| {
        let items = item.list()?;
        if items.is_empty() {
            item.invalid("at least one name; without the key, every name is allowed");
        }
        let pattern = |item| read_text(item, captures).map(|(how, text)| NamePattern { how, text });
        Some(items.iter().filter_map(pattern).collect())
    });
    let authorities = map.item("authorities").and_then(|item| {
        let names = item.list()?;
        Some(names.iter().filter_map(|item| Some(read_authority(item)?.into())).collect())
    });
    let wildcard = map.or("wildcard", false, boolean());
    if wildcard && map.has("names") {
        map.contradiction(
            "wildcard",
            "true, but names are restricted; wildcards are answered whole: leave out one of the two",
        );
    }
    Some(Allow { types: types?, names, authorities, wildcard })
}

/// The empty authority of `xdstp:///` is an authority, too.
fn read_authority(item: &Item<'_>) -> Option<String> {
    item.can_be(&[Form::AnyText]);
    match item.tree {
        Tree::Text(text) => Some(spell_authority(text)),
        _ => {
            item.invalid("the name of an authority");
            None
        }
    }
}

const TYPES: &str = "all, or a list of full message names; `all` leaves Secrets out";

fn read_types(item: &Item<'_>) -> Option<Types> {
    item.can_be(&[Form::Word("all"), Form::List]);
    match item.tree {
        Tree::Text(text) if text == "all" => Some(Types::All),
        Tree::List(items) if !items.is_empty() => {
            Some(Types::Listed(item.list()?.iter().filter_map(read_type).collect()))
        }
        _ => {
            item.error(Problem::Invalid { value: item.describe(), expected: TYPES.into() });
            None
        }
    }
}
