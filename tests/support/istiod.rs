//! istiod's view of a node, and its name table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use prost::Message;

use super::client::node;
use super::proto::Node;

#[derive(Clone, PartialEq, Eq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Value {
    #[prost(string, optional, tag = "3")]
    text: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct NameTable {
    #[prost(btree_map = "string, message", tag = "1")]
    table: BTreeMap<String, NameInfo>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct NameInfo {
    #[prost(string, repeated, tag = "1")]
    ips: Vec<String>,
    #[prost(string, tag = "2")]
    registry: String,
}

/// The metadata of a proxy.
pub fn metadata(pairs: &[(&str, &str)]) -> Vec<u8> {
    let value = |text: &str| Value { text: Some(text.to_owned()) };
    Struct { fields: pairs.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect() }
        .encode_to_vec()
}

pub fn metadata_of(node: &Node) -> BTreeMap<String, String> {
    let fields = Struct::decode(node.metadata.as_deref().unwrap_or_default()).expect("a Struct").fields;
    fields.into_iter().filter_map(|(key, value)| Some((key, value.text?))).collect()
}

/// A sidecar, as pilot-agent describes it.
pub fn sidecar(pod: &str, namespace: &str, address: &str) -> Node {
    Node {
        id: format!("sidecar~{address}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(metadata(&[("NAMESPACE", namespace), ("INSTANCE_IPS", address), ("NAME", pod)])),
        ..node("")
    }
}

/// The addresses for the lookup of a node's workload, or the reason for a refusal. The id is
/// `TYPE~IP~NAME~DOMAIN`; the addresses of the metadata come before the id's.
pub fn addresses(node: &Node) -> Result<Vec<IpAddr>, String> {
    let parts: Vec<&str> = node.id.split('~').collect();
    let [kind, address, _, _] = parts[..] else {
        return Err(format!("missing parts in the service node {:?}", node.id));
    };
    if !["sidecar", "router", "waypoint", "ztunnel"].contains(&kind) {
        return Err(format!(
            "invalid node type (valid types: sidecar, router, waypoint, ztunnel) in {:?}",
            node.id
        ));
    }
    let metadata = metadata_of(node);
    let all = metadata.get("INSTANCE_IPS").map_or(address, String::as_str);
    let found: Vec<IpAddr> = all.split(',').filter_map(|text| text.parse().ok()).collect();
    if found.is_empty() {
        Err(format!("no valid IP address in the node id or metadata of {:?}", node.id))
    } else {
        Ok(found)
    }
}

/// A name table with this address of a service.
pub fn name_table(address: &str) -> Vec<u8> {
    let info = NameInfo { ips: vec![address.to_owned()], registry: "Kubernetes".to_owned() };
    NameTable { table: [("web.prod.svc.cluster.local".to_owned(), info)].into() }.encode_to_vec()
}

pub fn first_address(table: &[u8]) -> String {
    let table = NameTable::decode(table).unwrap_or_default().table;
    table.into_values().flat_map(|info| info.ips).next().unwrap_or_default()
}
