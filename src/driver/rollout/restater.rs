//! Rejected pushes: their clients come back with any part, also after the end of the task and of the process
//! (WAV-10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::driver::rollout::fleet::{Fleet, unit_of};
use crate::driver::rollout::state::PlanState;
use crate::driver::rollout::tallier::Tallier;
use crate::driver::source::lane_order::LaneOrder;
use sluice_engine::lanes::Restated;
use sluice_fleet::rollout::UnitId;
use sluice_fleet::rollout::record::{StoredNames, StoredRejected, StoredRestated};
use sluice_xds::{ResourceName, TypeUrl};

/// The bytes of nodes, and those of names, in the record of a plan, at most: the records of all plans have 16
/// MiB together, and are written at each step. Nodes beyond are left out, and so is a unit whose names have
/// no room.
const BYTES_MAX: usize = 512 << 10;

/// Restates the differences of a rejected push to the clients that rejected it.
#[derive(Default)]
pub(super) struct Restater {
    /// The latest push that went back, or that was halted.
    push: Option<u64>,
    /// The names that clients may have of pushes before a restart, of units that are still missing.
    missing: BTreeMap<UnitId, Arc<Restated>>,
    /// The same names, of units that are here. The sources are told next.
    recovered: Vec<(UnitId, Arc<Restated>)>,
}

impl Restater {
    /// The names and the nodes of a record. `number`: the present number of a unit of the record.
    pub(super) fn restore(
        &mut self,
        stored: &StoredRejected,
        number: impl Fn(UnitId) -> Option<UnitId>,
        fleet: &Fleet,
    ) {
        let named = stored.restated.iter();
        self.missing = named.filter_map(|names| Some((number(names.unit)?, Arc::new(read(names))))).collect();
        self.recovered.clear();
        let nodes: BTreeSet<Arc<str>> = stored.nodes.iter().map(|node| node.as_str().into()).collect();
        if !nodes.is_empty() {
            fleet.handle.note_rejecters(stored.push, nodes);
        }
    }

    /// A unit of the record is here, by another number.
    pub(super) fn recover(&mut self, recorded: UnitId, unit: UnitId) {
        let restated = self.missing.remove(&recorded);
        self.recovered.extend(restated.map(|restated| (unit, restated)));
    }

    /// Tells sources the names that clients may have of pushes before a restart.
    pub(super) async fn restate_recovered(&mut self, fleet: &Fleet) {
        if self.recovered.is_empty() {
            return;
        }
        let sources = fleet.all_sources();
        for (unit, restated) in std::mem::take(&mut self.recovered) {
            if let Some(source) = sources.get(&unit) {
                source.order(LaneOrder::Restate(restated)).await;
            }
        }
        let (push, nodes) = fleet.handle.rejecters();
        fleet.restate(push, &nodes).await;
    }

    /// A push went back, or was halted: clients with a rejection are restated its differences from now on.
    pub(super) async fn follow(
        &mut self,
        push: u64,
        tallier: &Tallier,
        state: &mut PlanState,
        fleet: &Fleet,
    ) {
        self.push = Some(push);
        self.restate(tallier, state, fleet).await;
    }

    /// Restates the differences of the push to the clients with a rejection, on present and later streams.
    /// Their nodes stay noted when the clients are not counted any more, until another push takes the place
    /// of this one (WAV-10).
    pub(super) async fn restate(&mut self, tallier: &Tallier, state: &mut PlanState, fleet: &Fleet) {
        let late = fleet.handle.take_late_rejecters();
        let Some(push) = self.push else { return };
        let counted = tallier.rejecting_nodes(push);
        if counted.is_none() && late.is_empty() {
            return;
        }
        let nodes = counted.into_iter().flatten().chain(late).collect();
        let nodes = fleet.handle.note_rejecters(push, nodes);
        if !nodes.is_empty() {
            state.is_unsaved = true;
            fleet.restate(push, &nodes).await;
        }
    }

    /// The nodes with a rejection, and the names that their clients may have, for the record.
    pub(super) fn record(&self, fleet: &Fleet) -> StoredRejected {
        let (push, nodes) = fleet.handle.rejecters();
        if nodes.is_empty() {
            return StoredRejected::default();
        }
        let sources = fleet.sources();
        let present =
            sources.iter().filter_map(|source| Some((unit_of(source), source.published().restated.clone()?)));
        let missing = self.missing.iter().map(|(unit, restated)| (*unit, restated.clone()));
        let mut room = ByteRoom(BYTES_MAX);
        let restated = present.chain(missing).filter(|(_, restated)| room.take(bytes_of(restated)));
        let restated = restated.map(|(unit, restated)| stored(unit, &restated)).collect();
        let mut room = ByteRoom(BYTES_MAX);
        let nodes = nodes.iter().filter(|node| room.take(node.len() + PER_TEXT));
        StoredRejected { push, nodes: nodes.map(|node| node.to_string()).collect(), restated }
    }
}

/// The quotes and the comma of a text in JSON.
const PER_TEXT: usize = 3;

/// A number of bytes that are left.
struct ByteRoom(usize);

impl ByteRoom {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

fn bytes_of(restated: &Restated) -> usize {
    let names = restated.types.values().flat_map(BTreeMap::values).flatten();
    names.map(|name| name.as_str().len() + PER_TEXT).sum()
}

fn stored(unit: UnitId, restated: &Restated) -> StoredRestated {
    let types = restated.types.iter();
    let collections = types.flat_map(|(type_url, kinds)| kinds.iter().map(move |names| (type_url, names)));
    let names = collections.map(|(type_url, (kind, names))| StoredNames {
        type_url: type_url.as_str().to_owned(),
        kind: *kind,
        names: names.iter().map(|name| name.as_str().to_owned()).collect(),
    });
    StoredRestated { unit, push: restated.push, names: names.collect() }
}

fn read(stored: &StoredRestated) -> Restated {
    let mut types: BTreeMap<TypeUrl, BTreeMap<_, _>> = BTreeMap::new();
    for collection in &stored.names {
        let names = collection.names.iter().map(|name| ResourceName::new(name)).collect();
        types.entry(TypeUrl::new(&collection.type_url)).or_default().insert(collection.kind, names);
    }
    Restated { push: stored.push, types }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::collection::CollectionKind;

    #[test]
    fn wav_10_restated_names_are_read_as_they_were_written() {
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
        let types = types.into_iter().map(|(message, names)| (TypeUrl::of_message(message), names)).collect();
        let restated = Restated { push: 7, types };
        assert_eq!(read(&stored(UnitId(3), &restated)), restated);
        let mut room = ByteRoom(bytes_of(&restated));
        assert_eq!([room.take(bytes_of(&restated)), room.take(1)], [true, false]);
    }
}
