//! Contents as the machine of the proof takes them.

use std::sync::Arc;

use sluice_engine::cache::slots::WatchedSet;
use sluice_engine::cache::{CachedResource, Known};
use sluice_engine::collection::{Collection, HashSeed, NameSet};
use sluice_engine::snapshot::{TypeSnapshot, TypeStanding};
use sluice_engine::time::ReceivedAt;
use sluice_engine::upstream::Cause;
use sluice_engine::view::View;
use sluice_proof::node_fields::{FieldRank, NodeField, NodeFields};
use sluice_proof::proof::{Content, TypeContent, Wanted};
use sluice_xds::{Any, Resource, ResourceName, TypeUrl, Value, Version};

use super::super::rng::mix;
use super::plane::{LABELS, MEMBERS, NAMES, Node};

pub fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

pub fn endpoints() -> TypeUrl {
    TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment")
}

pub fn type_of(name: usize) -> TypeUrl {
    if name < MEMBERS { clusters() } else { endpoints() }
}

pub fn name_of(name: usize) -> ResourceName {
    ResourceName::new(&format!("n{name}"))
}

/// The number of a name.
pub fn number_of(name: &ResourceName) -> usize {
    name.as_str()[1..].parse().unwrap()
}

/// The state of a name in a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    Unknown,
    Absent,
    /// The content, and the spelling of its bytes.
    Present(u64, u64),
}

fn cached(name: usize, content: u64, spelling: u64) -> CachedResource {
    let version =
        u128::from(mix(content ^ mix(spelling))) << 64 | u128::from(mix(content.wrapping_add(spelling)));
    let type_url = type_of(name);
    let resource = Resource {
        name: name_of(name),
        version: Version(version),
        body: Any { type_url: type_url.as_str().into(), value: content.to_string().into() },
        body_has_name: true,
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    CachedResource { resource: Arc::new(resource), received_at: ReceivedAt::default() }
}

fn of_snapshot(snapshot: TypeSnapshot) -> TypeContent {
    TypeContent { snapshot, standing: TypeStanding { is_current: true, ..TypeStanding::default() } }
}

/// `is_whole`: the wildcard is known as a whole.
pub fn content(names: &[Stated; NAMES], is_whole: bool) -> Content {
    let (mut wildcard, mut view) = (TypeSnapshot::default(), View::unknown(usize::from(!is_whole)));
    for name in 0..MEMBERS {
        if let Stated::Present(content, spelling) = names[name] {
            let cached = cached(name, content, spelling);
            // As in a source, the first members of an unknown set leave the rest unknown.
            view.add_unknown();
            view.put(None, &cached.resource);
            wildcard.wildcard.members.insert(name_of(name), cached);
        }
    }
    wildcard.wildcard.view = Some(Arc::new(view));
    let (mut named, mut view) = (TypeSnapshot::default(), View::unknown(NAMES - MEMBERS));
    for name in MEMBERS..NAMES {
        let state = match names[name] {
            Stated::Unknown => Known::Unknown,
            Stated::Absent => {
                view.put_absent(&name_of(name), None);
                Known::Absent(Cause::Removed)
            }
            Stated::Present(content, spelling) => {
                let cached = cached(name, content, spelling);
                view.put(None, &cached.resource);
                Known::Present(cached)
            }
        };
        named.names.entries.insert(name_of(name), state);
    }
    let names = names_of(MEMBERS..NAMES);
    named.names.sets.insert(names.id(), WatchedSet { names, view: Arc::new(view) });
    Content { types: [(clusters(), of_snapshot(wildcard)), (endpoints(), of_snapshot(named))].into() }
}

fn names_of(names: std::ops::Range<usize>) -> Arc<NameSet> {
    Arc::new(NameSet::of(names.map(name_of), HashSeed(3)))
}

/// All of the wildcard, and the names from `from` on.
pub fn wants(from: usize) -> Arc<[Wanted]> {
    [(clusters(), Collection::Wildcard), (endpoints(), Collection::Names(names_of(from..NAMES)))].into()
}

/// The node as a server sees it.
pub fn shown(node: Node) -> Arc<sluice_xds::Node> {
    let labels = LABELS.iter().zip(node.labels);
    let metadata = labels.map(|(label, value)| ((*label).to_owned(), Value::String(value.to_string())));
    let id = format!("node-{}", node.number);
    Arc::new(sluice_xds::Node { id, metadata: metadata.collect(), ..sluice_xds::Node::default() })
}

pub fn fields(node: Node) -> NodeFields {
    let field =
        |path: String, value: String, rank| NodeField { path: path.into(), value: value.into(), rank };
    let id = field("id".to_owned(), format!("node-{}", node.number), FieldRank::Unique);
    let labels = LABELS.iter().zip(node.labels);
    let labels =
        labels.map(|(label, value)| field(format!("metadata.{label}"), value.to_string(), FieldRank::Plain));
    NodeFields([id].into_iter().chain(labels).collect())
}
