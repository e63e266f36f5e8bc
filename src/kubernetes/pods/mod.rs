//! The table of facts, made of Pods and Nodes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::object::{Metadata, Node, Pod};
use crate::engine::class::facts::{FactTable, Fields};
use crate::xds::Value;

/// The bytes of text in all Pods: as much as a file of facts may have. 100,000 Pods with ten labels take half as much.
const TEXT_MAX: usize = 64 << 20;

/// The labels of a Node's place: the current name before the name in old clusters.
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const SUB_ZONE: [&str; 1] = ["topology.istio.io/subzone"];

/// The place of a Node: `region`, `zone` and `sub_zone`, as far as labels say.
type Place = Vec<(&'static str, String)>;

/// The running Pods, and the facts of each Pod with a known place.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: HashMap<Arc<str>, Entry>,
    /// `None`: Nodes are not read, and Pods have no place.
    nodes: Option<HashMap<Box<str>, Place>>,
    /// The names of the Pods at each address. Facts go by the address while one Pod has it.
    at: HashMap<IpAddr, BTreeSet<Arc<str>>>,
    /// Each content once: the Pods of a workload have mostly the same.
    contents: HashSet<Arc<Fields>>,
    table: FactTable,
    text: usize,
    /// The Pods without room.
    refused: HashSet<Arc<str>>,
    has_changed: bool,
}

#[derive(Debug)]
struct Entry {
    /// The facts without the place.
    own: Arc<Fields>,
    node: Box<str>,
    addresses: Vec<IpAddr>,
    text: usize,
}

impl Pods {
    /// `reads_nodes`: facts have the place of the Node, and a Pod without a known Node has no facts.
    pub fn new(reads_nodes: bool) -> Pods {
        Pods { nodes: reads_nodes.then(HashMap::new), ..Pods::default() }
    }

    /// The facts, if the last call gave others.
    pub fn take_change(&mut self) -> Option<FactTable> {
        // Contents without a Pod, once there are as many as with Pods.
        if self.contents.len() > 2 * self.pods.len() + 64 {
            self.contents.retain(|content| Arc::strong_count(content) > 1);
        }
        self.has_changed.then(|| self.table())
    }

    /// The number of Pods without facts, because all facts together would take too much room.
    pub fn refused(&self) -> usize {
        self.refused.len()
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
        let Some(entry) = self.entry(pod) else {
            self.remove_pod(&name);
            return name;
        };
        if self.pods.get(&name).is_some_and(|known| known.is_same(&entry)) {
            return name;
        }
        self.remove_pod(&name);
        if self.text + entry.text > TEXT_MAX {
            self.refused.insert(name.clone());
            return name;
        }
        self.text += entry.text;
        let addresses = entry.addresses.clone();
        self.pods.insert(name.clone(), entry);
        for address in &addresses {
            self.at.entry(*address).or_default().insert(name.clone());
        }
        self.publish(&name);
        // Two Pods at an address take the entry from each other.
        addresses.iter().for_each(|address| self.publish_address(address));
        name
    }

    pub fn remove_pod(&mut self, name: &str) {
        self.refused.remove(name);
        let Some(entry) = self.pods.remove(name) else { return };
        self.text -= entry.text;
        self.withdraw(name);
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
        self.refused.retain(|name| names.contains(name));
    }

    /// Takes the present state of a Node, and returns the name.
    pub fn put_node(&mut self, node: Node) -> Arc<str> {
        let Metadata { name, labels, .. } = node.metadata;
        let parts = [("region", &REGION[..]), ("zone", &ZONE), ("sub_zone", &SUB_ZONE)];
        let found = parts.into_iter().filter_map(|(part, names)| {
            let value = names.iter().find_map(|name| labels.get(*name)).filter(|value| !value.is_empty());
            Some((part, value?.clone()))
        });
        self.place(&name, Some(found.collect()));
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
        let on_it = self.pods.iter().filter(|(_, entry)| *entry.node == *name);
        let on_it: Vec<Arc<str>> = on_it.map(|(pod, _)| pod.clone()).collect();
        for pod in on_it {
            self.publish(&pod);
            let addresses = self.pods.get(&pod).map(|entry| entry.addresses.clone()).unwrap_or_default();
            addresses.iter().for_each(|address| self.publish_address(address));
        }
    }

    /// `None`: no proxy of the Pod can be a client.
    fn entry(&mut self, pod: Pod) -> Option<Entry> {
        let Pod { metadata, spec, status } = pod;
        let is_over = ["Succeeded", "Failed"].contains(&status.phase.as_str());
        if is_over || spec.node_name.is_empty() {
            return None;
        }
        // In the host's network, the address is the Node's.
        let of_its_own = if spec.host_network { Vec::new() } else { status.pod_ips };
        let texts =
            of_its_own.into_iter().map(|of| of.ip).chain((!spec.host_network).then_some(status.pod_ip));
        let mut addresses: Vec<IpAddr> = texts
            .filter_map(|text| text.parse::<IpAddr>().ok())
            .map(|address| address.to_canonical())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        let text = metadata.name.len() + metadata.namespace.len();
        let labels = metadata.labels;
        let text = text + labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let labels = labels.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
        let own = [
            ("namespace", Value::String(metadata.namespace)),
            ("service_account", Value::String(spec.service_account_name)),
            ("labels", Value::Struct(labels)),
        ];
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Some(Entry { own: self.once(own), node: spec.node_name.into(), addresses, text })
    }

    /// The facts of a Pod. `None`: the place is not known.
    fn facts(&mut self, name: &str) -> Option<Arc<Fields>> {
        let entry = self.pods.get(name)?;
        let Some(nodes) = &self.nodes else { return Some(entry.own.clone()) };
        let place = nodes.get(&entry.node)?;
        let mut facts = Fields::clone(&entry.own);
        facts.extend(place.iter().map(|(key, value)| ((*key).to_owned(), Value::String(value.clone()))));
        Some(self.once(facts))
    }

    fn once(&mut self, fields: Fields) -> Arc<Fields> {
        match self.contents.get(&fields) {
            Some(known) => known.clone(),
            None => {
                let fields = Arc::new(fields);
                self.contents.insert(fields.clone());
                fields
            }
        }
    }

    /// The entry under the Pod's name.
    fn publish(&mut self, name: &Arc<str>) {
        let facts = self.facts(name);
        self.set(name, facts);
    }

    fn withdraw(&mut self, name: &str) {
        self.set(name, None);
    }

    /// The entry under an address.
    fn publish_address(&mut self, address: &IpAddr) {
        let names = self.at.get(address);
        let only = names.filter(|names| names.len() == 1).and_then(|names| names.first().cloned());
        let facts = only.and_then(|name| self.facts(&name));
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

impl Entry {
    fn is_same(&self, other: &Entry) -> bool {
        Arc::ptr_eq(&self.own, &other.own) && self.node == other.node && self.addresses == other.addresses
    }
}

impl Metadata {
    /// The name of a Pod, as proxies state the name.
    pub(super) fn pod_name(&self) -> Arc<str> {
        format!("{}.{}", self.name, self.namespace).into()
    }
}

#[cfg(test)]
mod tests;
