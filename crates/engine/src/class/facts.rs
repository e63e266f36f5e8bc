//! Facts: fields of clients that their nodes lack, such as the labels that a control plane reads in its
//! registry.
//!
//! A class without facts would give a client the answers for another client's registry entry, in silence. A
//! client without an entry shares with nobody.

use core::net::IpAddr;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::HashMap;

use super::node_key::NodeKey;
use sluice_xds::{Node, Value};

/// Fields by name, like the metadata of a node.
pub type Fields = BTreeMap<String, Value>;

/// The facts of all clients, and the way from a node to an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub key: NodeKey,
    pub table: Arc<FactTable>,
}

/// Entries by key. Addresses have one spelling. A clone shares all entries with its original, and each may
/// change for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactTable(HashMap<Arc<str>, Arc<Fields>>);

impl FactTable {
    /// Puts an entry. Returns whether the entry differs from the previous one.
    pub fn put(&mut self, key: &str, fields: Arc<Fields>) -> bool {
        let key = canonical(key);
        let is_other = self.0.get(&*key) != Some(&fields);
        if is_other {
            self.0.insert(key.into(), fields);
        }
        is_other
    }

    /// Removes an entry. Returns whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        self.0.remove(&*canonical(key)).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Fields>> {
        self.0.get(&*canonical(key))
    }

    /// Whether the key has an entry, in this or in another spelling.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of different entries in memory. Nodes with equal facts share an entry.
    pub fn distinct(&self) -> usize {
        let all: std::collections::HashSet<_> = self.0.values().map(Arc::as_ptr).collect();
        all.len()
    }

    /// Whether some entry has a value under a path.
    pub fn has_field(&self, path: &[String]) -> bool {
        self.0.values().any(|fields| Value::at(fields, path).is_some())
    }
}

impl Facts {
    /// The facts of the client with this node: of its first key with an entry. `None`: nothing is known.
    pub fn of(&self, node: &Node) -> Option<&Arc<Fields>> {
        self.key.texts(node).into_iter().find_map(|key| self.table.get(key))
    }
}

/// The one spelling of a key. An address has many.
fn canonical(key: &str) -> Cow<'_, str> {
    let key = key.trim();
    let (address, zone) = key.split_once('%').map_or((key, None), |(address, zone)| (address, Some(zone)));
    match (address.parse::<IpAddr>(), zone) {
        (Ok(address), None) => Cow::Owned(address.to_canonical().to_string()),
        (Ok(address), Some(zone)) => Cow::Owned(format!("{}%{zone}", address.to_canonical())),
        (Err(_), _) => Cow::Borrowed(key),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    fn zone(zone: &str) -> Arc<Fields> {
        Arc::new([("zone".to_owned(), text(zone))].into())
    }

    fn facts(key: NodeKey, entries: &[(&str, &str)]) -> Facts {
        let mut table = FactTable::default();
        entries.iter().for_each(|(key, value)| {
            table.put(key, zone(value));
        });
        Facts { key, table: Arc::new(table) }
    }

    fn node(id: &str, addresses: Option<Value>) -> Node {
        let metadata = addresses.map(|value| ("INSTANCE_IPS".to_owned(), value)).into_iter().collect();
        Node { id: id.into(), metadata, ..Node::default() }
    }

    #[test]
    fn rly_11_an_entry_is_found_by_each_kind_of_key() {
        let by_ip = || NodeKey::Metadata(vec!["INSTANCE_IPS".into()]);
        let part = |place| NodeKey::IdPart { separator: "~".into(), place };
        let entries =
            [("10.1.1.1", "a"), ("2001:DB8:0::1", "b"), ("web-1.prod", "c"), ("sidecar~10.1.1.9~x~y", "d")];
        let list = |texts: &[&str]| Some(Value::List(texts.iter().map(|each| text(each)).collect()));
        let cases = [
            (by_ip(), node("", Some(text("10.1.1.1"))), Some("a")),
            (by_ip(), node("", Some(text("10.9.9.9, 2001:db8::1"))), Some("b")),
            (by_ip(), node("", Some(text("::ffff:10.1.1.1"))), Some("a")),
            (by_ip(), node("", list(&["10.9.9.9", "10.1.1.1"])), Some("a")),
            (by_ip(), node("", list(&["10.9.9.9"])), None),
            (by_ip(), node("", Some(Value::Bool(true))), None),
            (by_ip(), node("10.1.1.1", None), None),
            (part(1), node("sidecar~10.1.1.1~web-1.prod~prod.svc", None), Some("a")),
            (part(2), node("sidecar~10.1.1.1~web-1.prod~prod.svc", None), Some("c")),
            (part(7), node("sidecar~10.1.1.1~web-1.prod~prod.svc", None), None),
            (NodeKey::Id, node("sidecar~10.1.1.9~x~y", None), Some("d")),
            (NodeKey::Id, node("", None), None),
        ];
        for (key, node, expected) in cases {
            let facts = facts(key, &entries);
            assert_eq!(facts.of(&node), expected.map(zone).as_ref(), "{:?} {node:?}", facts.key);
        }
    }

    #[test]
    fn rly_11_two_spellings_of_an_address_are_one_key() {
        let mut table = FactTable::default();
        assert!(["::1", "fe80::1%eth0", "web"].into_iter().all(|key| table.put(key, zone("a"))));
        assert_eq!((table.len(), table.is_empty()), (3, false));
        for (key, is_known) in [
            ("0:0::1", true),
            (" ::1 ", true),
            ("FE80::1%eth0", true),
            ("fe80::1%eth1", false),
            ("fe80::1", false),
            ("Web", false),
            ("", false),
        ] {
            assert_eq!(table.has(key), is_known, "{key}");
        }
    }

    /// Nobody without a key is the one without a key in the table.
    #[test]
    fn rly_11_an_empty_key_finds_nothing() {
        let node = |addresses: &str| node("", Some(text(addresses)));
        for key in [NodeKey::Id, NodeKey::Metadata(vec!["INSTANCE_IPS".into()])] {
            let facts = facts(key, &[("", "a"), ("10.1.1.1", "b")]);
            assert_eq!(facts.of(&node("10.9.9.9,")), None);
            assert_eq!(facts.of(&node(" ")), None);
        }
    }
}
