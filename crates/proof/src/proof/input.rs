//! The inputs of the machine.

use std::sync::Arc;
use std::time::Duration;

use crate::node_fields::NodeFields;
use sluice_engine::collection::Collection;
use sluice_xds::{Node, TypeUrl};

/// The digest of a node class, as in the admin API. A server has a shared source for a class.
pub type ClassKey = Arc<str>;

/// A client of a class. The caller chooses the number: the same for the same stream until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// A shadow. The machine chooses the number, and never uses one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShadowId(pub u64);

/// An order of [`Proof::prove`](super::Proof::prove).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// A part of a subscription: a collection of one type.
pub type Wanted = (TypeUrl, Collection);

/// A class towards the server. Told at the begin of the source, and again whenever a value changes.
#[derive(Clone, Debug)]
pub struct ClassFacts {
    /// The rule in words: `node_classes[0]`. Evidence from under another rule does not count (PRF-25).
    pub rule: Arc<str>,
    /// The node of the class towards the server: the representative's.
    pub node: Arc<Node>,
    pub fields: NodeFields,
    /// As [`Member::is_never`], for the node of the class: no control, ever, so the class cannot be
    /// proved.
    pub is_never: bool,
    /// The class was split off from this class by the proof or by an operator (PRF-31).
    pub split_from: Option<ClassKey>,
}

/// A split of before a restart or an upgrade (PRF-32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredSplit {
    /// The class of the members now, and the class that they left.
    pub class: ClassKey,
    pub parent: ClassKey,
    /// The sample that did it: the type, and the id of the node.
    pub type_url: TypeUrl,
    pub member_id: Arc<str>,
    /// The time since the split, and the least time for which the split holds, counted from the split.
    pub age: Duration,
    pub holds: Duration,
}

/// A client of a class. Told when the client comes, and again when the subscription changes.
#[derive(Clone, Debug)]
pub struct Member {
    /// The client's whole node, with the identity as added by the class (PRF-4).
    pub node: Arc<Node>,
    pub fields: NodeFields,
    /// The client's subscription at the source of the class, without the parts that are never
    /// sampled (PRF-2, PRF-6). Empty: nothing to ask.
    pub wants: Arc<[Wanted]>,
    /// The node matches `proof.never`, or the server gives connections of such nodes a meaning (PRF-5): no
    /// shadow of the node, ever.
    pub is_never: bool,
    /// The client may be sampled: a stream with a node, whose names would be granted now (PRF-6).
    pub may_be_sampled: bool,
}

/// The state of the server and of the relay. The caller tells each change, and at least once a second while
/// `waiting` or `memory` changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// The server of the classes is lost, ends its streams, or serves restored content (PRF-20).
    pub is_unwell: bool,
    /// The server takes a shadow for a client that has come and gone (PRF-5).
    pub registers_clients: bool,
    /// Clients of the relay.
    pub clients: u32,
    /// Clients without a first answer so far.
    pub waiting: u32,
    /// The share of the memory bound in use, in percent.
    pub memory_percent: u32,
    /// The relay drains, or hands over to a successor.
    pub is_leaving: bool,
    /// The bytes held by shadows alone.
    pub shadow_bytes: u64,
}

/// The meaning of two unequal bodies (PRF-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Both decode to the same. `ignored`: differing paths under `proof.ignore` (PRF-15).
    Equal { ignored: Vec<Arc<str>> },
    /// The paths of the differing fields, without values; empty for a type without descriptors.
    Differs { paths: Vec<Arc<str>>, ignored: Vec<Arc<str>> },
    /// A body has a secret. From now on the machine compares the type by version only
    /// (PRF-8).
    HasSecret,
}

/// `sluice classes prove` (PRF-19: not bound by `per_minute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProveOrder {
    pub class: ClassKey,
    /// Every member; otherwise a member of each fingerprint.
    pub all: bool,
    /// The class's own node on another connection, and no member (PRF-18).
    pub replicas: bool,
    /// Samples at once, instead of the setting.
    pub streams: u32,
}
