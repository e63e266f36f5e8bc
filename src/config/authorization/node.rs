//! `authorization.rules[].node`: conditions on the node of a stream's first request (AUT-4).

use super::super::classes::read_path;
use super::super::error::Problem;
use super::super::form::Form;
use super::super::node::to_value;
use super::super::reader::{Item, Map};
use super::super::tree::Tree;
use super::super::units::boolean;
use super::{Captures, read_pattern, read_template, read_text};
use sluice_engine::authorization::{Condition, Field, Match, NodeCondition};

pub(super) fn read_conditions(map: &mut Map<'_>, captures: Captures<'_>) -> Vec<NodeCondition> {
    let mut conditions = Vec::new();
    let mut read = |map: &mut Map<'_>, key, field| {
        let condition = map.item(key).and_then(|item| read_text(&item, captures));
        conditions.extend(
            condition
                .map(|(how, template)| NodeCondition { field, condition: Condition::Text(how, template) }),
        );
    };
    read(map, "id", Field::Id);
    read(map, "cluster", Field::Cluster);
    read(map, "user_agent_name", Field::UserAgentName);
    map.section("locality", |map| {
        read(map, "region", Field::Region);
        read(map, "zone", Field::Zone);
        read(map, "sub_zone", Field::SubZone);
    });
    for item in map.list("metadata") {
        conditions.extend(item.map(|map| read_metadata(map, captures)).flatten());
    }
    conditions
}

fn read_metadata(map: &mut Map<'_>, captures: Captures<'_>) -> Option<NodeCondition> {
    let path = map.required("path", "a list of keys").and_then(|item| read_path(&item));
    let present = map.optional("present", boolean());
    if present == Some(false) {
        map.contradiction("present", "must be true; omit the condition to match any node");
    }
    let stated = ["exact", "prefix", "suffix", "present"].iter().filter(|key| map.has(key)).count();
    if stated != 1 {
        map.invalid("one of `exact`, `prefix`, `suffix` and `present`");
        return None;
    }
    let condition = match (present, map.item("exact")) {
        (Some(_), _) => Condition::Present,
        (None, Some(item)) => read_exact(&item, captures)?,
        (None, None) => {
            let (how, template) = read_pattern(map, captures)?;
            Condition::Text(how, template)
        }
    };
    Some(NodeCondition { field: Field::Metadata(path?), condition })
}

fn read_exact(item: &Item<'_>, captures: Captures<'_>) -> Option<Condition> {
    item.can_be(&[Form::Any]);
    match item.tree {
        Tree::Text(text) if !text.is_empty() => {
            Some(Condition::Text(Match::Exact, read_template(item, Match::Exact, captures)?))
        }
        Tree::Null | Tree::Text(_) => {
            item.error(Problem::Contradiction { reason: "a missing or empty field never passes".into() });
            None
        }
        _ => item.has_all_variables().then(|| Condition::Equal(to_value(item.free()))),
    }
}
