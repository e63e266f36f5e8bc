//! `fragments`: the rules that make up a key, and the fields that each adds.

use super::super::reader::{Item, Map};
use super::super::units::boolean;
use super::predicate::{self, NodeField, Predicate};
use super::{either, one_of};

/// A part of the key.
pub(super) struct Fragment {
    pub rules: Vec<Rule>,
}

pub(super) struct Rule {
    pub predicate: Predicate,
    /// The fields of the node that become a part of the key.
    pub fields: Vec<NodeField>,
}

/// The deepest nesting of `and_result`; people need one level.
const DEPTH_MAX: usize = 16;

pub(super) fn read(map: &mut Map<'_>) -> Vec<Fragment> {
    let fragment = |item: Item<'_>| item.map(read_fragment).map(|rules| Fragment { rules });
    map.list("fragments").into_iter().filter_map(fragment).collect()
}

fn read_fragment(map: &mut Map<'_>) -> Vec<Rule> {
    let rule = |item: Item<'_>| {
        item.map(|map| {
            let predicate = map.required("match", "a predicate").and_then(|item| predicate::read(&item, 0));
            let mut fields = Vec::new();
            if let Some(item) = map.required("result", "a result") {
                read_result(&item, 0, &mut fields);
            }
            Some(Rule { predicate: predicate?, fields })
        })
        .flatten()
    };
    map.list("rules").into_iter().filter_map(rule).collect()
}

const KINDS: &[(&str, &str)] = &[
    ("and_result", "andResult"),
    ("request_node_fragment", "requestNodeFragment"),
    ("resource_names_fragment", "resourceNamesFragment"),
    ("string_fragment", "stringFragment"),
];

fn read_result(item: &Item<'_>, depth: usize, fields: &mut Vec<NodeField>) {
    if depth > DEPTH_MAX {
        return item.invalid(format!("at most {DEPTH_MAX} levels of and_result"));
    }
    let Some(Some((kind, value))) = item.map(|map| one_of(map, KINDS)) else { return };
    match kind {
        "and_result" => {
            let parts =
                value.map(|map| either(map, "result_predicates", "resultPredicates")?.list()).flatten();
            for part in parts.unwrap_or_default() {
                read_result(&part, depth + 1, fields);
            }
        }
        "request_node_fragment" => read_node_fragment(&value, fields),
        "resource_names_fragment" => {
            // Names are cached one by one, so no class needs them.
            value.map(|map| {
                let _ = (map.item("element"), map.item("action"));
            });
        }
        _ => {
            let _ = value.text();
        }
    }
}

const NODE_KINDS: &[(&str, &str)] = &[
    ("id_action", "idAction"),
    ("cluster_action", "clusterAction"),
    ("locality_action", "localityAction"),
    ("node_metadata_action", "nodeMetadataAction"),
];

fn read_node_fragment(item: &Item<'_>, fields: &mut Vec<NodeField>) {
    let Some(Some((kind, value))) = item.map(|map| one_of(map, NODE_KINDS)) else { return };
    match kind {
        "id_action" => read_action(&value, NodeField::Id, fields),
        "cluster_action" => read_action(&value, NodeField::Cluster, fields),
        "locality_action" => {
            value.map(|map| {
                let parts = [
                    (either(map, "region_action", "regionAction"), NodeField::Region),
                    (either(map, "zone_action", "zoneAction"), NodeField::Zone),
                    (either(map, "subzone_action", "subzoneAction"), NodeField::SubZone),
                ];
                for (item, field) in parts {
                    if let Some(item) = item {
                        read_action(&item, field, fields);
                    }
                }
            });
        }
        _ => {
            value.map(|map| {
                let path =
                    map.required("path", "a list of keys").and_then(|item| predicate::read_path(&item));
                let action = map.required("action", "exact or regex_action");
                if let (Some(path), Some(action)) = (path, action) {
                    read_action(&action, NodeField::Metadata(path), fields);
                }
            });
        }
    }
}

fn read_action(item: &Item<'_>, field: NodeField, fields: &mut Vec<NodeField>) {
    let kinds = [("exact", "exact"), ("regex_action", "regexAction")];
    let Some(Some((kind, value))) = item.map(|map| one_of(map, &kinds)) else { return };
    if kind == "regex_action" {
        value.map(|map| {
            let _ = (map.item("pattern"), map.item("replace"));
        });
        value.warn("sluice takes whole fields; the whole field splits classes, so less is shared");
    } else {
        let _ = value.parse(boolean());
    }
    fields.push(field);
}
