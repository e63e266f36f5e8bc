//! The load of clients with a push, beside that of all other clients (LRS-24).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::handle::{LoadFacts, LoadHandle};
use super::table::Loads;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::context::StreamContext;
use sluice_fleet::rollout::UnitId;
use sluice_fleet::rollout::load::{ClusterRequests, LoadEvidence, Requests};
use sluice_load_reports::counters::{Group, Tally};
use sluice_xds::Node;

/// The clusters of a judgement. So many are beyond any mesh, and the list is made each second.
const CLUSTERS_MAX: usize = 100_000;

/// The group of a client at this moment.
pub(super) fn group(context: &StreamContext, load: &LoadFacts, node: &Node) -> Group {
    let plans = &context.shared.plans;
    if plans.is_empty() {
        return Group::Others;
    }
    let Some(handle) = plans.of_source(&load.list, &load.key.class) else { return Group::Others };
    if context.is_relay() {
        return Group::Unjudged;
    }
    let (admission, seat) = (handle.admission(), handle.plan().seat(node));
    match admission.gives(seat) {
        false => Group::Others,
        true if admission.is_by_label(seat) => Group::Unjudged,
        true => Group::Admitted,
    }
}

/// Whether the load is that of a source's class. Reports of a class go to one server of a list, whichever
/// server the clients have (LRS-22).
fn is_of(load: &LoadHandle, source: &SourceHandle) -> bool {
    load.facts.key.class == source.key().class && load.facts.list == source.status().list
}

/// A step begins: the tallies of the classes begin at zero.
pub fn observe(loads: &Loads, sources: &[Arc<SourceHandle>]) {
    let now = loads.now();
    let loads = loads.all().into_iter();
    let is_observed = |load: &Arc<LoadHandle>| sources.iter().any(|source| is_of(load, source));
    loads.filter(is_observed).for_each(|load| load.observe(now));
}

/// The load of the units' clients since the step began. Locks one class at a time, and lets other tasks run
/// in between.
pub async fn gather(loads: &Loads, units: &[(UnitId, Arc<SourceHandle>)]) -> LoadEvidence {
    let mut evidence = LoadEvidence::default();
    let mut clusters = BTreeMap::<Arc<str>, ClusterRequests>::new();
    for load in loads.all() {
        let of_load = units.iter().filter(|entry| is_of(&load, &entry.1)).map(|entry| entry.0);
        let of_load: BTreeSet<UnitId> = of_load.collect();
        if of_load.is_empty() {
            continue;
        }
        let reporters = load.tally(|name, tallies| {
            if !clusters.contains_key(name) && clusters.len() < CLUSTERS_MAX {
                clusters.insert(name.into(), ClusterRequests::default());
            }
            let Some(cluster) = clusters.get_mut(name) else { return };
            add(&mut cluster.admitted, &tallies.admitted);
            add(&mut cluster.others, &tallies.others);
            if tallies.admitted.error > 0 {
                cluster.failing.extend(&of_load);
            }
        });
        evidence.admitted += reporters.admitted;
        evidence.others += reporters.others;
        tokio::task::yield_now().await;
    }
    let named = |(cluster, requests)| ClusterRequests { cluster, ..requests };
    evidence.clusters = clusters.into_iter().map(named).collect();
    evidence
}

fn add(sum: &mut Requests, tally: &Tally) {
    sum.finished = sum.finished.saturating_add(tally.requests());
    sum.errors = sum.errors.saturating_add(tally.error);
}
