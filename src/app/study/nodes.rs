//! Reads a list of nodes, with an account of what was left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::config::parse_client_node;
use sluice_xds::{Node, Value};

/// The nodes of a study. The fields of more take gigabytes.
const NODES_MAX: usize = 100_000;

/// Lists within lists. Config dumps have three.
const DEPTH_MAX: usize = 6;

/// Places that are named for one reason.
const PLACES_MAX: usize = 3;

/// Keys of the metadata of nodes for which a connection is an act: the control plane registers the client,
/// and deregisters it when the connection ends (PRF-5).
const NEVER: [&str; 2] = ["AUTO_REGISTER_GROUP", "dataplane.resource"];

/// Why an entry was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Omission {
    /// The entry is no node.
    Broken,
    /// The node has no id, so no answer could be told from that of another.
    NoId,
    /// Another entry has the id.
    Duplicate,
    /// A connection of the node would register it (PRF-5).
    Registers,
    /// There are too many nodes.
    TooMany,
}

impl Omission {
    pub fn text(self) -> &'static str {
        match self {
            Omission::Broken => "no node can be read",
            Omission::NoId => "the node has no id",
            Omission::Duplicate => "an entry before has the same id",
            Omission::Registers => {
                "a connection would register the client at its control plane (AUTO_REGISTER_GROUP, dataplane.resource)"
            }
            Omission::TooMany => "the list has more than 100,000 nodes",
        }
    }

    /// The word of JSON.
    pub fn name(self) -> &'static str {
        match self {
            Omission::Broken => "broken",
            Omission::NoId => "no_id",
            Omission::Duplicate => "duplicate",
            Omission::Registers => "registers",
            Omission::TooMany => "too_many",
        }
    }
}

/// The entries that were left out for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub count: usize,
    /// The first of them, with the fault of broken ones.
    pub places: Vec<String>,
}

/// The nodes of a file.
#[derive(Clone, Debug, Default)]
pub struct NodeList {
    pub nodes: Vec<Arc<Node>>,
    /// The entries that could have been nodes.
    pub entries: usize,
    pub left_out: BTreeMap<Omission, LeftOut>,
}

impl NodeList {
    /// The account of the entries that were left out, a line for each reason.
    pub fn account(&self) -> Vec<String> {
        let line = |(reason, left_out): (&Omission, &LeftOut)| {
            let more = left_out.count - left_out.places.len();
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            format!(
                "{} left out, because {}: {}{more}",
                left_out.count,
                reason.text(),
                left_out.places.join("; ")
            )
        };
        self.left_out.iter().map(line).collect()
    }
}

/// Reads nodes: a JSON list of them, one on each line, config dumps and bootstraps of Envoy, client status
/// (CSDS), requests, and lists of all these.
///
/// # Errors
/// The text is no JSON at all.
pub fn read_nodes(text: &str) -> Result<NodeList, String> {
    let mut reader = NodeReader::default();
    match serde_json::from_str::<&RawValue>(text) {
        Ok(document) => reader.read(document.get(), "", 0),
        Err(whole) => {
            let mut is_json = false;
            for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
                match serde_json::from_str::<&RawValue>(line) {
                    Ok(document) => {
                        is_json = true;
                        reader.read(document.get(), &format!("line {number}"), 0);
                    }
                    Err(error) => {
                        reader.list.entries += 1;
                        reader.omit(Omission::Broken, &format!("line {number}"), Some(&error.to_string()));
                    }
                }
            }
            if !is_json {
                return Err(format!("neither JSON nor lines of JSON: {whole}"));
            }
        }
    }
    Ok(reader.list)
}

#[derive(Default)]
struct NodeReader {
    list: NodeList,
    ids: BTreeSet<String>,
}

/// Keys with lists of things that have nodes: config dumps, client status, and the lists of this relay.
const LISTS: [&str; 5] = ["configs", "config", "nodes", "clients", "items"];

/// Keys with one thing that has a node.
const PARTS: [&str; 2] = ["bootstrap", "node"];

impl NodeReader {
    /// `place`: for the account.
    fn read(&mut self, text: &str, place: &str, depth: usize) {
        if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
            if depth >= DEPTH_MAX {
                self.list.entries += 1;
                return self.omit(Omission::Broken, place, Some("lists are nested too deep"));
            }
            for (number, item) in items.iter().enumerate() {
                self.read(item.get(), &format!("{place}[{number}]"), depth + 1);
            }
            return;
        }
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            self.list.entries += 1;
            return self.omit(Omission::Broken, place, Some("expected an object with the fields of a node"));
        };
        let inner = |key: &&str| fields.get(*key).filter(|value| value.get().starts_with(['{', '[']));
        let part = PARTS.iter().find(|key| inner(key).is_some_and(|value| value.get().starts_with('{')));
        let lists: Vec<_> =
            LISTS.iter().filter(|key| inner(key).is_some_and(|value| value.get().starts_with('['))).collect();
        // A node may have keys of its own choice in its metadata alone.
        if depth < DEPTH_MAX && !fields.contains_key("id") {
            if let Some((key, value)) = part.and_then(|key| Some((key, fields.get(*key)?))) {
                return self.read(value.get(), &format!("{place}.{key}"), depth + 1);
            }
            if !lists.is_empty() {
                for key in lists {
                    let Some(value) = fields.get(*key) else { continue };
                    self.read(value.get(), &format!("{place}.{key}"), depth + 1);
                }
                return;
            }
            // The other sections of a config dump.
            if fields.contains_key("@type") {
                return;
            }
        }
        self.add(text, place);
    }

    fn add(&mut self, text: &str, place: &str) {
        self.list.entries += 1;
        let node = match parse_client_node(text) {
            Ok(node) => node,
            Err(error) => return self.omit(Omission::Broken, place, Some(&error.to_string())),
        };
        if node.id.is_empty() {
            return self.omit(Omission::NoId, place, None);
        }
        let place = format!("{place} ({})", node.id);
        if NEVER.iter().any(|key| node.metadata.get(*key).is_some_and(is_stated)) {
            return self.omit(Omission::Registers, &place, None);
        }
        if self.ids.contains(&node.id) {
            return self.omit(Omission::Duplicate, &place, None);
        }
        if self.list.nodes.len() >= NODES_MAX {
            return self.omit(Omission::TooMany, &place, None);
        }
        self.ids.insert(node.id.clone());
        self.list.nodes.push(Arc::new(node));
    }

    fn omit(&mut self, reason: Omission, place: &str, fault: Option<&str>) {
        let left_out = self.list.left_out.entry(reason).or_default();
        left_out.count += 1;
        if left_out.places.len() < PLACES_MAX {
            let place = if place.is_empty() { "the document" } else { place.trim_start_matches('.') };
            let fault = fault.map(|fault| format!(": {}", fault.replace('\n', " "))).unwrap_or_default();
            left_out.places.push(sluice_text::shortened(&format!("{place}{fault}"), PLACE_LETTERS_MAX));
        }
    }
}

/// The letters of a place and its fault.
const PLACE_LETTERS_MAX: usize = 200;

fn is_stated(value: &Value) -> bool {
    !matches!(value, Value::Null) && *value != Value::String(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &NodeList) -> Vec<&str> {
        list.nodes.iter().map(|node| node.id.as_str()).collect()
    }

    fn account(list: &NodeList) -> Vec<(Omission, usize)> {
        list.left_out.iter().map(|(reason, left_out)| (*reason, left_out.count)).collect()
    }

    #[test]
    fn lrn_2_nodes_are_read_in_every_form_that_has_them() {
        for text in [
            r#"[{"id": "a"}, {"id": "b", "cluster": "c"}]"#,
            "{\"id\": \"a\"}\n\n{\"node\": {\"id\": \"b\"}, \"resource_names\": []}\n",
            r#"{"config": [{"node": {"id": "a"}, "generic_xds_configs": []}, {"node": {"id": "b"}}]}"#,
            r#"{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump",
                "bootstrap": {"node": {"id": "a"}, "admin": {}}},
                {"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "static_clusters": []},
                {"bootstrap": {"node": {"id": "b"}}}]}"#,
            r#"[[{"id": "a"}], {"nodes": [{"id": "b"}]}]"#,
        ] {
            let list = read_nodes(text).unwrap();
            assert_eq!((ids(&list), list.entries, account(&list)), (vec!["a", "b"], 2, vec![]), "{text}");
        }
    }

    #[test]
    fn lrn_2_broken_entries_and_duplicates_are_left_out_and_named() {
        let text = r#"[{"id": "a"}, 7, {"id": "a"}, {"cluster": "c"}, {"id": 3}, "x", {"id": "b"}]"#;
        let list = read_nodes(text).unwrap();
        assert_eq!((ids(&list), list.entries), (vec!["a", "b"], 7));
        let expected = [(Omission::Broken, 3), (Omission::NoId, 1), (Omission::Duplicate, 1)];
        assert_eq!(account(&list), expected);
        assert_eq!(list.left_out[&Omission::Duplicate].places, ["[2] (a)"]);
        let broken = &list.left_out[&Omission::Broken].places;
        assert!(
            broken[0].starts_with("[1]: expected an object") && broken[1].starts_with("[4]: "),
            "{broken:?}"
        );
        let lines = read_nodes("{\"id\": \"a\"}\n{\"id\": \n{\"id\": \"b\"}").unwrap();
        assert_eq!((ids(&lines), account(&lines)), (vec!["a", "b"], vec![(Omission::Broken, 1)]));
        assert!(lines.left_out[&Omission::Broken].places[0].starts_with("line 2: "));
        assert!(read_nodes("nodes: []").is_err());
    }

    #[test]
    fn prf_5_a_node_whose_connection_registers_it_is_never_shown() {
        let text = r#"[{"id": "vm", "metadata": {"AUTO_REGISTER_GROUP": "g"}},
            {"id": "kuma", "metadata": {"dataplane.resource": "{}"}},
            {"id": "pod", "metadata": {"AUTO_REGISTER_GROUP": ""}}]"#;
        let list = read_nodes(text).unwrap();
        assert_eq!((ids(&list), account(&list)), (vec!["pod"], vec![(Omission::Registers, 2)]));
    }

    #[test]
    fn lrn_2_a_list_without_end_is_cut_and_told() {
        let nodes: Vec<String> =
            (0..NODES_MAX + 5).map(|number| format!("{{\"id\":\"n{number}\"}}")).collect();
        let list = read_nodes(&format!("[{}]", nodes.join(","))).unwrap();
        assert_eq!((list.nodes.len(), account(&list)), (NODES_MAX, vec![(Omission::TooMany, 5)]));
        let deep = format!("{}{}", "[".repeat(50), "]".repeat(50));
        assert_eq!(account(&read_nodes(&deep).unwrap()), [(Omission::Broken, 1)]);
    }
}
