//! Reads a list of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::config::parse_client_node;
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::study::nodes::{NodeList, Omission};
use sluice_identity::Identity;

/// Lists within lists. Config dumps have three.
const DEPTH_MAX: usize = 6;

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
                        reader.omit_broken(&format!("line {number}"), &error.to_string());
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
    rules: ProofRules,
    /// Nobody proves an identity to this command.
    nobody: Arc<Identity>,
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
                return self.omit_broken(place, "lists are nested too deep");
            }
            for (number, item) in items.iter().enumerate() {
                self.read(item.get(), &format!("{place}[{number}]"), depth + 1);
            }
            return;
        }
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            return self.omit_broken(place, "expected an object with the fields of a node");
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
        match parse_client_node(text) {
            Ok(node) => self.list.add(Arc::new(node), self.nobody.clone(), &self.rules, place),
            Err(error) => self.omit_broken(place, &error.to_string()),
        }
    }

    fn omit_broken(&mut self, place: &str, fault: &str) {
        self.list.entries += 1;
        self.list.omit(Omission::Broken, place, Some(fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::study::nodes::NODES_MAX;

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
