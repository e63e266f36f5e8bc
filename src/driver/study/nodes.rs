//! The nodes of a study, with an account of what was left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::driver::ground::proof_rules::ProofRules;
use sluice_identity::Identity;
use sluice_text::shortened;
use sluice_xds::Node;

/// The nodes of a study. The fields of more take gigabytes.
pub const NODES_MAX: usize = 100_000;

/// Places that are named for one reason.
const PLACES_MAX: usize = 3;

/// The letters of a place and its fault.
const PLACE_LETTERS_MAX: usize = 200;

/// Why an entry was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Omission {
    /// The entry is no node.
    Broken,
    /// The node has no id, so no answer could be told from that of another.
    NoId,
    /// Another entry has the id.
    Duplicate,
    /// A connection of the node would register it, or the operator excludes it (PRF-5).
    Registers,
    /// The relay shows the node already, and a second stream of it may end the first one.
    Shown,
    /// No rule gives the client a class.
    Unclassified,
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
                "a connection would register the client at its control plane (AUTO_REGISTER_GROUP, dataplane.resource), or \
                 `proof.never` has it"
            }
            Omission::Shown => {
                "the relay shows the node to the server for a class, and the server was not seen to bear two streams of a node"
            }
            Omission::Unclassified => "no rule gives the client a class",
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
            Omission::Shown => "shown",
            Omission::Unclassified => "unclassified",
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

impl LeftOut {
    /// Adds an entry.
    pub fn add(&mut self, place: &str) {
        self.count += 1;
        if self.places.len() < PLACES_MAX {
            self.places.push(shortened(place, PLACE_LETTERS_MAX));
        }
    }
}

/// The nodes to ask as.
#[derive(Clone, Debug, Default)]
pub struct NodeList {
    pub nodes: Vec<Arc<Node>>,
    /// The proved identity of each node's client.
    pub identities: Vec<Arc<Identity>>,
    /// The entries that could have been nodes.
    pub entries: usize,
    pub left_out: BTreeMap<Omission, LeftOut>,
    ids: BTreeSet<String>,
}

impl NodeList {
    /// Takes a node that may be asked as. `rules`: what is never shown. `place`: for the account.
    pub fn add(&mut self, node: Arc<Node>, identity: Arc<Identity>, rules: &ProofRules, place: &str) {
        self.entries += 1;
        if node.id.is_empty() {
            return self.omit(Omission::NoId, place, None);
        }
        let place = format!("{place} ({})", node.id);
        if rules.never_shows(&node) {
            return self.omit(Omission::Registers, &place, None);
        }
        if self.ids.contains(&node.id) {
            return self.omit(Omission::Duplicate, &place, None);
        }
        if self.nodes.len() >= NODES_MAX {
            return self.omit(Omission::TooMany, &place, None);
        }
        self.ids.insert(node.id.clone());
        self.nodes.push(node);
        self.identities.push(identity);
    }

    /// Leaves an entry out. `fault`: of a broken one.
    pub fn omit(&mut self, reason: Omission, place: &str, fault: Option<&str>) {
        let place = match place.trim_start_matches(['.', ' ']) {
            "" => "the document",
            place => place,
        };
        let fault = fault.map(|fault| format!(": {}", fault.replace('\n', " "))).unwrap_or_default();
        self.left_out.entry(reason).or_default().add(&format!("{place}{fault}"));
    }

    /// Whether a node has this id.
    pub fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// The account of the entries that were left out, a line for each reason.
    pub fn account(&self) -> Vec<String> {
        let line = |(reason, left_out): (&Omission, &LeftOut)| {
            let more = match left_out.count - left_out.places.len() {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let places = left_out.places.join("; ");
            format!("{} left out, because {}: {places}{more}", left_out.count, reason.text())
        };
        self.left_out.iter().map(line).collect()
    }
}
