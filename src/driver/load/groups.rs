//! The load of clients with a push, beside that of all other clients (LRS-24).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::handle::{LoadFacts, LoadHandle};
use super::table::Loads;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::LoadUse;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::context::StreamContext;
use sluice_engine::class::NodeClass;
use sluice_fleet::rollout::UnitId;
use sluice_fleet::rollout::load::{ClusterRequests, Deaf, LoadEvidence, Requests};
use sluice_load_reports::counters::{Group, Tally};
use sluice_xds::Node;

/// The known causes for missing reports to name.
const DEAF_MAX: usize = 4;

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

/// The units of a plan by list and class. Reports of a class go to one server of a list, whichever server the
/// clients have (LRS-22).
struct UnitsByClass(HashMap<(Arc<str>, NodeClass), BTreeSet<UnitId>>);

impl UnitsByClass {
    fn new(sources: &[Arc<SourceHandle>]) -> UnitsByClass {
        let mut units = HashMap::<_, BTreeSet<UnitId>>::new();
        for source in sources {
            let key = (source.status().list.clone(), source.key().class.clone());
            units.entry(key).or_default().insert(UnitId(source.id().0));
        }
        UnitsByClass(units)
    }

    /// The loads of the units, each with its units.
    fn loads(&self, loads: &Loads) -> Vec<(Arc<LoadHandle>, BTreeSet<UnitId>)> {
        let units_of =
            |load: &LoadHandle| self.0.get(&(load.facts.list.clone(), load.facts.key.class.clone())).cloned();
        loads.all().into_iter().filter_map(|load| units_of(&load).map(|units| (load, units))).collect()
    }
}

/// The loads whose tallies are evidence about a push, until this is dropped.
pub struct Observation {
    loads: Vec<Weak<LoadHandle>>,
    /// The longest interval in which clients report.
    pub interval: Duration,
}

impl Observation {
    /// A step begins: the tallies of the classes begin at zero.
    pub fn begin(loads: &Loads, sources: &[Arc<SourceHandle>]) -> Observation {
        let (now, by_class) = (loads.now(), UnitsByClass::new(sources).loads(loads));
        let begin = |(load, _): &(Arc<LoadHandle>, _)| {
            load.observe(now);
            Arc::downgrade(load)
        };
        let interval = by_class.iter().filter_map(|(load, _)| load.interval()).max().unwrap_or_default();
        Observation { loads: by_class.iter().map(begin).collect(), interval }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.loads.iter().filter_map(Weak::upgrade).for_each(|load| load.end_observation());
    }
}

/// The load of the plan's clients since the step began. A push may reach them by a type whose classes differ
/// from those of clusters, so all classes of the plan count. `is_of_push`: whether a unit can be blamed.
/// Locks one class at a time, and lets other tasks run in between.
pub async fn gather(
    loads: &Loads,
    sources: &[Arc<SourceHandle>],
    is_of_push: impl Fn(UnitId) -> bool,
) -> LoadEvidence {
    let mut evidence =
        LoadEvidence { deaf: deaf(&loads.shared().settings(), sources), ..LoadEvidence::default() };
    let mut clusters = BTreeMap::<Arc<str>, ClusterRequests>::new();
    let loads = UnitsByClass::new(sources).loads(loads);
    // A class with very many names takes no room from the others.
    let new_max = CLUSTERS_MAX / loads.len().max(1);
    for (load, of_load) in loads {
        let mut new = 0;
        let hearing = load.voices(|name, tallies| {
            if !clusters.contains_key(name) && new < new_max {
                clusters.insert(name.into(), ClusterRequests::default());
                new += 1;
            }
            let Some(cluster) = clusters.get_mut(name) else { return };
            add(&mut cluster.admitted, &tallies.admitted);
            add(&mut cluster.others, &tallies.others);
            if tallies.admitted.error > 0 {
                let mut of_unit = Requests::default();
                add(&mut of_unit, &tallies.admitted);
                let blamable = of_load.iter().filter(|unit| is_of_push(**unit));
                cluster.by_unit.extend(blamable.map(|unit| (*unit, of_unit)));
            }
        });
        evidence.admitted += hearing.reporters.admitted;
        evidence.others += hearing.reporters.others;
        evidence.streams += hearing.streams as u64;
        evidence.interval = evidence.interval.max(hearing.interval);
        let server = Deaf::Server(load.facts.server.clone());
        if hearing.lacks_service && evidence.deaf.len() < DEAF_MAX && !evidence.deaf.contains(&server) {
            evidence.deaf.push(server);
        }
        tokio::task::yield_now().await;
    }
    let named = |(cluster, requests)| ClusterRequests { cluster, ..requests };
    evidence.clusters = clusters.into_iter().map(named).collect();
    evidence
}

/// The places where the plan's load reports end by the configuration.
fn deaf(settings: &DriverSettings, sources: &[Arc<SourceHandle>]) -> Vec<Deaf> {
    let listeners = settings.load_listeners.iter().filter(|(_, takes)| !**takes);
    let lists: BTreeSet<_> = sources.iter().map(|source| source.status().list.clone()).collect();
    let listeners = listeners.map(|(name, _)| Deaf::Listener(name.clone()));
    let lists = lists.into_iter().filter(|list| !takes_load(settings, list)).map(Deaf::List);
    listeners.chain(lists).take(DEAF_MAX).collect()
}

/// Whether a server of the list sums load reports.
pub fn takes_load(settings: &DriverSettings, list: &str) -> bool {
    let mut lists = settings.lists.all_lists().filter(|other| *other.label == *list);
    let sums = |load: LoadUse| load != LoadUse::Forward;
    lists.any(|list| list.servers().iter().any(|server| server.load.is_some_and(sums)))
}

fn add(sum: &mut Requests, tally: &Tally) {
    sum.finished = sum.finished.saturating_add(tally.requests());
    sum.errors = sum.errors.saturating_add(tally.error);
}
