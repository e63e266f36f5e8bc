//! Rejected pushes beyond the end of the task and of the process: their clients come back with any part (WAV-10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::driver::ground::stored_plans::{StoredKind, StoredNames, StoredRejected, StoredRestated};
use crate::driver::rollout::task::{PlanTask, own_sources};
use crate::driver::source::lane_order::LaneOrder;
use crate::engine::collection::CollectionKind;
use crate::engine::lanes::Restated;
use crate::engine::rollout::UnitId;
use crate::xds::{ResourceName, TypeUrl};

/// The bytes of nodes, and those of names, in the record of a plan, at most: the records of all plans have 16 MiB together, and are written
/// at each step. Nodes beyond are left out, and so is a unit whose names have no room.
const BYTES_MAX: usize = 512 << 10;

impl PlanTask {
    /// The nodes with a rejection before a restart.
    pub(super) fn restore_rejecters(&mut self, stored: &StoredRejected) {
        let nodes: BTreeSet<Arc<str>> = stored.nodes.iter().map(|node| node.as_str().into()).collect();
        if !nodes.is_empty() {
            self.handle.note_rejecters(stored.push, nodes);
        }
    }

    /// Tells sources the names that clients may have of pushes before a restart.
    pub(super) async fn restate_recorded(&mut self) {
        if self.recorded.found.is_empty() {
            return;
        }
        let sources = self.sources();
        for (unit, restated) in std::mem::take(&mut self.recorded.found) {
            if let Some(source) = sources.get(&unit) {
                source.order(LaneOrder::Restate(restated)).await;
            }
        }
        let (push, nodes) = self.handle.rejecters();
        self.restate_to(push, &nodes).await;
    }

    pub(super) fn stored_rejections(&self) -> StoredRejected {
        let (push, nodes) = self.handle.rejecters();
        if nodes.is_empty() {
            return StoredRejected::default();
        }
        let own = own_sources(&self.handle, &self.shared, &self.tables);
        let of_sources = own
            .iter()
            .filter_map(|source| Some((UnitId(source.id().0), source.published().restated.clone()?)));
        let lost = self.recorded.restated.iter().map(|(unit, of)| (*unit, of.clone()));
        let mut room = Room(BYTES_MAX);
        let restated = of_sources.chain(lost).filter(|(_, of)| room.take(bytes_of(of)));
        let restated = restated.map(|(unit, of)| stored_of(unit, &of)).collect();
        let mut room = Room(BYTES_MAX);
        let nodes = nodes.iter().filter(|node| room.take(node.len() + PER_TEXT));
        StoredRejected { push, nodes: nodes.map(|node| node.to_string()).collect(), restated }
    }
}

/// The quotes and the comma of a text in JSON.
const PER_TEXT: usize = 3;

/// A number of bytes that are left.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

fn bytes_of(of: &Restated) -> usize {
    let names = of.types.values().flat_map(BTreeMap::values).flatten();
    names.map(|name| name.as_str().len() + PER_TEXT).sum()
}

fn stored_of(unit: UnitId, of: &Restated) -> StoredRestated {
    let kinds = of.types.iter().flat_map(|(type_url, kinds)| kinds.iter().map(move |of| (type_url, of)));
    let names = kinds.map(|(type_url, (kind, names))| StoredNames {
        type_url: type_url.as_str().to_owned(),
        kind: match kind {
            CollectionKind::Wildcard => StoredKind::Wildcard,
            CollectionKind::Globs => StoredKind::Globs,
            CollectionKind::Names => StoredKind::Names,
        },
        names: names.iter().map(|name| name.as_str().to_owned()).collect(),
    });
    StoredRestated { unit: unit.0, push: of.push, names: names.collect() }
}

pub(super) fn restated_of(stored: &StoredRestated) -> Restated {
    let mut types: BTreeMap<TypeUrl, BTreeMap<_, _>> = BTreeMap::new();
    for of in &stored.names {
        let kind = match of.kind {
            StoredKind::Wildcard => CollectionKind::Wildcard,
            StoredKind::Globs => CollectionKind::Globs,
            StoredKind::Names => CollectionKind::Names,
        };
        let names = of.names.iter().map(|name| ResourceName::new(name)).collect();
        types.entry(TypeUrl::new(&of.type_url)).or_default().insert(kind, names);
    }
    Restated { push: stored.push, types }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_10_what_is_restated_is_read_as_it_was_written() {
        let names = |list: &[&str]| list.iter().map(|name| ResourceName::new(name)).collect();
        let cluster = BTreeMap::from([
            (CollectionKind::Wildcard, names(&["a", "b"])),
            (CollectionKind::Globs, names(&["xdstp://x/envoy.config.cluster.v3.Cluster/a"])),
        ]);
        let route = BTreeMap::from([(CollectionKind::Names, names(&["r"]))]);
        let types = [
            ("envoy.config.cluster.v3.Cluster", cluster),
            ("envoy.config.route.v3.RouteConfiguration", route),
        ];
        let types = types.into_iter().map(|(message, of)| (TypeUrl::of_message(message), of)).collect();
        let restated = Restated { push: 7, types };
        assert_eq!(restated_of(&stored_of(UnitId(3), &restated)), restated);
        let mut room = Room(bytes_of(&restated));
        assert_eq!([room.take(bytes_of(&restated)), room.take(1)], [true, false]);
    }
}
