//! The table of facts, made of Pods and Nodes.

mod contents;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::contents::{FactContents, cost};
use super::object::{Metadata, Node, Pod};
use sluice_engine::class::facts::{FactTable, Fields};
use sluice_xds::Value;

/// The memory of all facts, in bytes by [`cost`] and [`BYTES_OF_POD`]: 100,000 Pods of 1,000 workloads in
/// three zones count as a quarter.
const BYTES_MAX: usize = 256 << 20;
/// The bytes of the labels of one Pod. Nobody selects by as many, and one author of Pods must not take the
/// room of all.
const LABELS_MAX: usize = 64 << 10;
/// The entries of a Pod by name and by address, without the facts.
const BYTES_OF_POD: usize = 500;

/// The labels of a Node's place: the current name before the name in old clusters.
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const SUB_ZONE: [&str; 1] = ["topology.istio.io/subzone"];

/// The place of a Node: `region`, `zone` and `sub_zone`, as far as labels say.
type Place = Vec<(&'static str, String)>;

/// The running Pods, and the facts of each Pod with a known place.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: HashMap<Arc<str>, PodEntry>,
    /// `None`: Nodes are not read, and Pods have no place.
    nodes: Option<HashMap<Box<str>, Place>>,
    /// The names of the Pods on each Node.
    on: HashMap<Box<str>, HashSet<Arc<str>>>,
    /// The names of the Pods at each address. Facts go by the address while one Pod has it.
    at: HashMap<IpAddr, BTreeSet<Arc<str>>>,
    contents: FactContents,
    table: FactTable,
    /// The maximum for the bytes of all facts.
    room: usize,
    /// The Pods without facts for want of room.
    refused: HashSet<Arc<str>>,
    has_changed: bool,
}

#[derive(Debug)]
struct PodEntry {
    /// The facts without the place. `None`: there is no room for the facts, and the Pod takes its addresses
    /// from others.
    unplaced: Option<Arc<Fields>>,
    /// The facts with the place, in the table.
    placed: Option<Arc<Fields>>,
    node: Box<str>,
    addresses: Vec<IpAddr>,
    /// In the host's network: an address is the Node's, and means nobody.
    is_host: bool,
}

impl Pods {
    /// `reads_nodes`: facts have the place of the Node, and a Pod without a known Node has no facts.
    pub fn new(reads_nodes: bool) -> Pods {
        Pods { nodes: reads_nodes.then(HashMap::new), room: BYTES_MAX, ..Pods::default() }
    }

    /// The facts, if they have changed since the last call.
    pub fn take_change(&mut self) -> Option<FactTable> {
        self.has_changed.then(|| self.table())
    }

    /// The number of Pods without facts, because all facts together would take too much room.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether refused Pods may fit by now.
    pub fn has_room(&self) -> bool {
        self.bytes() < self.room / 10 * 9
    }

    fn bytes(&self) -> usize {
        self.contents.bytes() + self.pods.len() * BYTES_OF_POD
    }

    /// The present facts.
    pub fn table(&mut self) -> FactTable {
        self.has_changed = false;
        self.table.clone()
    }

    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Takes the present state of a Pod, and returns the name.
    pub fn put_pod(&mut self, pod: Pod) -> Arc<str> {
        let name = pod.metadata.pod_name();
        let Some((mut entry, fields)) = entry_of(pod) else {
            self.remove_pod(&name);
            return name;
        };
        if let Some(before) = self.pods.get(&name) {
            let is_same = before.unplaced.as_deref() == fields.as_ref() && before.is_at(&entry);
            if is_same && !self.refused.contains(&name) {
                return name;
            }
        }
        self.remove_pod(&name);
        let copies = if self.nodes.is_some() { 2 } else { 1 };
        let fits = |fields: &Fields| {
            let new = if self.contents.has(fields) { 0 } else { copies * cost(fields) };
            self.bytes() + new + BYTES_OF_POD <= self.room
        };
        match fields {
            Some(fields) if fits(&fields) => entry.unplaced = Some(self.contents.keep(fields)),
            Some(_) | None => drop(self.refused.insert(name.clone())),
        }
        let (node, addresses) = (entry.node.clone(), entry.addresses.clone());
        self.pods.insert(name.clone(), entry);
        self.on.entry(node).or_default().insert(name.clone());
        for address in &addresses {
            self.at.entry(*address).or_default().insert(name.clone());
        }
        self.publish(&name);
        name
    }

    pub fn remove_pod(&mut self, name: &str) {
        self.refused.remove(name);
        let Some(entry) = self.pods.remove(name) else { return };
        self.set(name, None);
        entry.unplaced.into_iter().chain(entry.placed).for_each(|fields| self.contents.leave(&fields));
        if let Some(names) = self.on.get_mut(&entry.node) {
            names.remove(name);
            if names.is_empty() {
                self.on.remove(&entry.node);
            }
        }
        for address in &entry.addresses {
            if let Some(names) = self.at.get_mut(address) {
                names.remove(name);
                if names.is_empty() {
                    self.at.remove(address);
                }
            }
            self.publish_address(address);
        }
    }

    /// Removes all other Pods.
    pub fn keep_pods(&mut self, names: &HashSet<Arc<str>>) {
        let gone: Vec<Arc<str>> = self.pods.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_pod(name));
    }

    /// Takes the present state of a Node, and returns the name.
    pub fn put_node(&mut self, node: Node) -> Arc<str> {
        let Metadata { name, labels, .. } = node.metadata;
        let parts = [("region", &REGION[..]), ("zone", &ZONE), ("sub_zone", &SUB_ZONE)];
        let place = parts.into_iter().filter_map(|(part, names)| {
            let value = names.iter().find_map(|name| labels.get(*name)).filter(|value| !value.is_empty());
            Some((part, value?.clone()))
        });
        self.place(&name, Some(place.collect()));
        name.into()
    }

    pub fn remove_node(&mut self, name: &str) {
        self.place(name, None);
    }

    /// Removes all other Nodes.
    pub fn keep_nodes(&mut self, names: &HashSet<Arc<str>>) {
        let nodes = self.nodes.iter().flat_map(|nodes| nodes.keys());
        let gone: Vec<Box<str>> = nodes.filter(|name| !names.contains(&***name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_node(name));
    }

    fn place(&mut self, name: &str, place: Option<Place>) {
        let Some(nodes) = &mut self.nodes else { return };
        if nodes.get(name) == place.as_ref() {
            return;
        }
        match place {
            Some(place) => nodes.insert(name.into(), place),
            None => nodes.remove(name),
        };
        let on_it: Vec<Arc<str>> = self.on.get(name).into_iter().flatten().cloned().collect();
        on_it.iter().for_each(|pod| self.publish(pod));
    }

    /// Brings the entries of a Pod up to date, by name and by address.
    fn publish(&mut self, name: &Arc<str>) {
        let Some(entry) = self.pods.get(name) else { return };
        let place = self.nodes.as_ref().map(|nodes| nodes.get(&entry.node));
        let facts = match (&entry.unplaced, place) {
            (Some(unplaced), Some(Some(place))) => {
                let place =
                    place.iter().map(|(key, value)| ((*key).to_owned(), Value::String(value.clone())));
                Some(unplaced.iter().map(|(key, value)| (key.clone(), value.clone())).chain(place).collect())
            }
            (Some(unplaced), None) => Some(Fields::clone(unplaced)),
            // The place is not known, or there is no room.
            (Some(_), Some(None)) | (None, _) => None,
        };
        let placed = facts.map(|facts| self.contents.keep(facts));
        let addresses = entry.addresses.clone();
        self.set(name, placed.clone());
        let previous = self.pods.get_mut(name).and_then(|entry| std::mem::replace(&mut entry.placed, placed));
        previous.into_iter().for_each(|fields| self.contents.leave(&fields));
        addresses.iter().for_each(|address| self.publish_address(address));
    }

    /// The entry under an address.
    fn publish_address(&mut self, address: &IpAddr) {
        let names = self.at.get(address);
        let only = names.filter(|names| names.len() == 1).and_then(|names| names.first());
        let entry = only.and_then(|name| self.pods.get(name)).filter(|entry| !entry.is_host);
        let facts = entry.and_then(|entry| entry.placed.clone());
        self.set_key(&address.to_string(), facts);
    }

    fn set(&mut self, name: &str, facts: Option<Arc<Fields>>) {
        // A Pod `10.1.1` in a namespace `5` is not the Pod at the address.
        if name.parse::<IpAddr>().is_err() {
            self.set_key(name, facts);
        }
    }

    fn set_key(&mut self, key: &str, facts: Option<Arc<Fields>>) {
        self.has_changed |= match facts {
            Some(facts) => self.table.put(key, facts),
            None => self.table.remove(key),
        };
    }
}

impl PodEntry {
    fn is_at(&self, other: &PodEntry) -> bool {
        (&self.node, &self.addresses, self.is_host) == (&other.node, &other.addresses, other.is_host)
    }
}

/// A Pod and the facts without the place. `None` if no proxy of the Pod can be a client; no facts if there
/// are too many labels.
fn entry_of(pod: Pod) -> Option<(PodEntry, Option<Fields>)> {
    let Pod { metadata, spec, status } = pod;
    let is_over = ["Succeeded", "Failed"].contains(&status.phase.as_str());
    if is_over || spec.node_name.is_empty() {
        return None;
    }
    let texts = status.pod_ips.into_iter().map(|pod_ip| pod_ip.ip).chain([status.pod_ip]);
    let addresses = texts.filter_map(|text| text.parse::<IpAddr>().ok());
    let mut addresses: Vec<IpAddr> = addresses.map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let labels = metadata.labels.into_iter().map(|(key, value)| (key, Value::String(value)));
    let fields = [
        ("namespace", Value::String(metadata.namespace)),
        ("service_account", Value::String(spec.service_account_name)),
        ("labels", Value::Struct(labels.collect())),
    ];
    let fields: Fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let fields = (cost(&fields) <= LABELS_MAX).then_some(fields);
    let (node, is_host) = (spec.node_name.into(), spec.host_network);
    Some((PodEntry { unplaced: None, placed: None, node, addresses, is_host }, fields))
}

impl Metadata {
    /// The name of a Pod, as proxies state the name.
    pub(super) fn pod_name(&self) -> Arc<str> {
        format!("{}.{}", self.name, self.namespace).into()
    }
}

#[cfg(test)]
mod tests;
