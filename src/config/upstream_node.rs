//! `node_classes[].upstream_node`: the node that the server of a class sees (RLY-15).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::Problem;
use super::form::Form;
use super::node::to_value;
use super::reader::{Item, Map};
use super::tree::{Tree, TreeEntry, TreeNode};
use sluice_engine::class::{NodeTemplate, Projection, TemplateText, TemplateValue, UpstreamNode};

const EXPECTED: &str = "projection, member or {template: {…}}";

pub(super) fn read_upstream_node(item: &Item<'_>) -> Option<UpstreamNode> {
    item.can_be(&[Form::Word("projection"), Form::Word("member"), Form::Map]);
    match item.tree {
        Tree::Text(text) if text == "projection" => Some(UpstreamNode::Projection),
        Tree::Text(text) if text == "member" => Some(UpstreamNode::Member),
        Tree::Map(_) => item.map(|map| {
            let template = map.required("template", "the fields of the node to replace")?;
            let template = template.map(read_template)?;
            Some(UpstreamNode::Template(Arc::new(template)))
        })?,
        _ => {
            item.invalid(EXPECTED);
            None
        }
    }
}

/// Rejects template fields that do not split the class: the server would see one client's value for all
/// members.
pub(super) fn check_upstream_node(item: &Item<'_>, node: &UpstreamNode, projections: &[Projection]) {
    let UpstreamNode::Template(template) = node else { return };
    for (path, text) in template.texts() {
        let missing = projections.iter().find_map(|projection| text.not_kept_by(projection));
        if let Some(field) = missing {
            let reason = format!(
                "`template.{path}` uses {{{field}}}, but `split_by` does not split classes by this field"
            );
            item.error(Problem::Contradiction { reason });
        }
    }
}

fn read_template(map: &mut Map<'_>) -> NodeTemplate {
    if !["id", "cluster", "metadata"].iter().any(|key| map.has(key)) {
        map.invalid("at least one of `id`, `cluster` and `metadata`");
    }
    let text = |item: Item<'_>| {
        let text = TemplateText::parse(item.text()?);
        text.map_err(|reason| item.invalid(format!("a text with fields; this one {}", item.quoting(reason))))
            .ok()
    };
    NodeTemplate {
        id: map.item("id").and_then(text),
        cluster: map.item("cluster").and_then(text),
        metadata: map.item("metadata").and_then(|item| read_fillings(&item)),
    }
}

fn read_fillings(item: &Item<'_>) -> Option<BTreeMap<String, TemplateValue>> {
    item.can_be(&[Form::Fields]);
    if !item.has_all_variables() {
        return None;
    }
    fillings(item.tree).map_err(|expected| item.invalid(item.quoting(expected))).ok()
}

fn fillings(tree: &Tree) -> Result<BTreeMap<String, TemplateValue>, String> {
    let Tree::Map(entries) = tree else { return Err("a map".into()) };
    let read = |TreeEntry { key, node, .. }: &TreeEntry| {
        let filling = filling(node).map_err(|reason| format!("{reason} (at {key})"))?;
        Ok((key.clone(), filling))
    };
    entries.iter().map(read).collect()
}

fn filling(node: &TreeNode) -> Result<TemplateValue, String> {
    let tree = node.free();
    Ok(match tree {
        Tree::Text(text) => TemplateValue::Text(
            TemplateText::parse(text).map_err(|reason| format!("texts with fields; one of them {reason}"))?,
        ),
        Tree::List(list) => TemplateValue::List(list.iter().map(filling).collect::<Result<_, _>>()?),
        Tree::Map(_) => TemplateValue::Struct(fillings(tree)?),
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) | Tree::Unset(_) => {
            TemplateValue::Constant(to_value(node))
        }
    })
}
