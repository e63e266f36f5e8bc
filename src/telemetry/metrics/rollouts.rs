//! The plans of `rollouts`, and their pushes (TRU-7).

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

use super::catalogue::{Catalogue, Counters, Gauges};
use sluice_engine::Time;
use sluice_fleet::rollout::hook::HookVerdict;
use sluice_fleet::rollout::load::LoadJudgement;
use sluice_fleet::rollout::report::{Outcome, SharedReport};
use sluice_fleet::rollout::{Counts, RolloutReport, RolloutState};

type CountOf = fn(&Counts) -> u64;

/// The states of clients in the metric, each with its count.
const CLIENTS: [(&str, CountOf); 9] = [
    ("accepted", |counts| counts.accepted),
    ("pending", |counts| counts.pending),
    ("rejected", |counts| counts.rejected + counts.rejected_again),
    ("silent", |counts| counts.silent),
    ("unaffected", |counts| counts.unaffected),
    ("overtaken", |counts| counts.overtaken),
    ("lost", |counts| counts.lost),
    ("departed", |counts| counts.departed),
    ("unjudged", |counts| counts.unjudged),
];

#[derive(Clone, Debug)]
pub struct RolloutMetrics {
    states: Gauges<2>,
    clients: Gauges<2>,
    pushes: Counters<2>,
    behind: Gauges<1>,
    frozen: Gauges<1>,
    held: Gauges<1>,
    hook_answers: Counters<2>,
    load_judgements: Counters<2>,
    condemned_given: Counters<1>,
    shared: SharedMetrics,
}

/// The standing of a plan among the replicas (LDG-7).
#[derive(Clone, Debug)]
struct SharedMetrics {
    fault: Gauges<1>,
    diverged: Gauges<1>,
    replicas: Gauges<2>,
}

impl SharedMetrics {
    fn new(catalogue: &mut Catalogue) -> SharedMetrics {
        SharedMetrics {
            fault: catalogue
                .add("sluice_rollout_ledger_fault", "Whether the plan does not act on its ledger"),
            diverged: catalogue.add(
                "sluice_rollout_diverged",
                "Whether the replica has acted otherwise than the ledger says",
            ),
            replicas: catalogue
                .add("sluice_rollout_replicas", "Live replicas, by their latest count of clients"),
        }
    }

    /// The numbers of an absent ledger are out of date.
    fn show(&self, plan: &Arc<str>, shared: &SharedReport) {
        let is_here = shared.fault.is_none();
        let labels = [("plan", plan.clone())];
        self.fault.get_or_create(&labels).set(i64::from(!is_here));
        self.diverged.get_or_create(&labels).set(i64::from(!shared.diverged.is_empty()));
        for (state, is_behind) in REPLICAS {
            let replicas = shared.replicas.iter().filter(|replica| is_here && replica.is_behind == is_behind);
            let count = i64::try_from(replicas.count()).unwrap_or(i64::MAX);
            self.replicas.get_or_create(&[("plan", plan.clone()), ("state", state.into())]).set(count);
        }
        let silent = i64::try_from(shared.silent.len()).unwrap_or(i64::MAX);
        self.replicas.get_or_create(&[("plan", plan.clone()), ("state", SILENT.into())]).set(silent);
    }

    fn remove(&self, plan: &Arc<str>) {
        let labels = [("plan", plan.clone())];
        self.fault.remove(&labels);
        self.diverged.remove(&labels);
        for state in REPLICAS.map(|(state, _)| state).into_iter().chain([SILENT]) {
            self.replicas.remove(&[("plan", plan.clone()), ("state", state.into())]);
        }
    }
}

/// The state of replicas that were alive a short time ago.
const SILENT: &str = "silent";

/// The states of live replicas, and whether each is behind the step of the ledger.
const REPLICAS: [(&str, bool); 2] = [("counted", false), ("behind", true)];

impl RolloutMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> RolloutMetrics {
        RolloutMetrics {
            shared: SharedMetrics::new(catalogue),
            states: catalogue
                .add("sluice_rollout_state", "1 for the state of the plan, and 0 for all others"),
            clients: catalogue
                .add("sluice_rollout_clients", "Clients by their standing towards the push of the plan"),
            pushes: catalogue.add("sluice_rollout_pushes", "Pushes that are over, by their outcome"),
            hook_answers: catalogue
                .add("sluice_rollout_hook_answers", "Questions to the hook of the plan, by the verdict"),
            load_judgements: catalogue.add(
                "sluice_rollout_load_judgements",
                "Steps that are over, by the last word of load reports about them",
            ),
            condemned_given: catalogue.add(
                "sluice_rollout_condemned_given",
                "Condemned contents that units gave as first answers, because nothing older is known",
            ),
            behind: catalogue.timed(
                "sluice_rollout_behind",
                "Age of the oldest change that the plan holds back from some client",
            ),
            frozen: catalogue.timed(
                "sluice_rollout_frozen",
                "Time until the freeze of the plan ends, and 0 without a freeze",
            ),
            held: catalogue.sized(
                "sluice_rollout_held",
                "Content that clients of the plan may still be served although the server has replaced it",
            ),
        }
    }

    /// The metrics of a plan. Its gauges last as long as the handle: drop the handle of an exchanged plan
    /// before.
    pub fn plan(&self, name: &str) -> PlanMetrics {
        let plan = PlanMetrics { name: name.into(), all: self.clone() };
        for outcome in Outcome::ALL {
            drop(plan.all.pushes.get_or_create(&plan.labels("outcome", outcome.name())));
        }
        drop(plan.all.condemned_given.get_or_create(&[("plan", plan.name.clone())]));
        plan
    }
}

/// The metrics of one plan.
#[derive(Debug)]
pub struct PlanMetrics {
    name: Arc<str>,
    all: RolloutMetrics,
}

impl PlanMetrics {
    /// Shows a state, the clients of the push that the report has, the age of what is held back, and the rest
    /// of a freeze, which no state tells while a push is paused, halted or pinned (HIS-4).
    pub fn show(&self, report: &RolloutReport, now: Time) {
        let behind = report.behind_from.map_or(0, |from| from.age(now).as_secs());
        // Rounded up: above 0 as long as the plan is frozen.
        let frozen = report.frozen_until.map_or(0, |until| until.since(now).as_micros().div_ceil(1_000_000));
        let labels = [("plan", self.name.clone())];
        self.all.behind.get_or_create(&labels).set(i64::try_from(behind).unwrap_or(i64::MAX));
        self.all.frozen.get_or_create(&labels).set(i64::try_from(frozen).unwrap_or(i64::MAX));
        for state in RolloutState::ALL {
            let labels = self.labels("state", state.name());
            self.all.states.get_or_create(&labels).set(i64::from(state == report.state));
        }
        let counts = report.push.as_ref().map(|push| push.admitted + push.others).unwrap_or_default();
        if let Some(shared) = &report.shared {
            self.all.shared.show(&self.name, shared);
        }
        for (state, count) in CLIENTS {
            let count = i64::try_from(count(&counts)).unwrap_or(i64::MAX);
            self.all.clients.get_or_create(&self.labels("state", state)).set(count);
        }
    }

    /// Shows the weight of the lanes.
    pub fn weigh(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.all.held.get_or_create(&[("plan", self.name.clone())]).set(bytes);
    }

    /// The plan has a hook: its counters begin at 0.
    pub fn expect_hook(&self) {
        HookVerdict::ALL.iter().for_each(|verdict| drop(self.hook_answers(*verdict)));
    }

    /// The plan judges by load: its counters begin at 0.
    pub fn expect_load(&self) {
        LoadJudgement::NAMES.iter().for_each(|name| drop(self.load_judgements(name)));
    }

    fn load_judgements(&self, name: &str) -> Counter {
        self.all.load_judgements.get_or_create_owned(&self.labels("result", name))
    }

    /// A step is over, with this last word of load reports (LRS-24).
    pub(in crate::telemetry) fn judged_load(&self, name: &str) {
        self.load_judgements(name).inc();
    }

    /// The questions to the hook that ended so.
    pub fn hook_answers(&self, verdict: HookVerdict) -> Counter {
        self.all.hook_answers.get_or_create_owned(&self.labels("result", verdict.name()))
    }

    /// Counts condemned contents that a unit gave as first answers (QUA-5).
    pub(in crate::telemetry) fn gave_condemned(&self, count: u64) {
        self.all.condemned_given.get_or_create(&[("plan", self.name.clone())]).inc_by(count);
    }

    pub(in crate::telemetry) fn is_over(&self, outcome: Outcome) {
        self.all.pushes.get_or_create(&self.labels("outcome", outcome.name())).inc();
    }

    pub(in crate::telemetry) fn name(&self) -> &str {
        &self.name
    }

    fn labels(&self, key: &'static str, value: &str) -> [(&'static str, Arc<str>); 2] {
        [("plan", self.name.clone()), (key, value.into())]
    }
}

impl Drop for PlanMetrics {
    fn drop(&mut self) {
        for state in RolloutState::ALL {
            self.all.states.remove(&self.labels("state", state.name()));
        }
        self.all.behind.remove(&[("plan", self.name.clone())]);
        self.all.frozen.remove(&[("plan", self.name.clone())]);
        self.all.held.remove(&[("plan", self.name.clone())]);
        self.all.shared.remove(&self.name);
        for (state, _) in CLIENTS {
            self.all.clients.remove(&self.labels("state", state));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;
    use sluice_fleet::rollout::report::ReplicaReport;
    use sluice_fleet::rollout::shared::record::SharedState;

    #[test]
    fn his_4_the_rest_of_a_freeze_is_a_metric_in_each_state() {
        let metrics = Metrics::new();
        let plan = metrics.rollouts.plan("edge");
        let shown = |state, frozen_until| {
            plan.show(
                &RolloutReport { state, frozen_until, ..RolloutReport::default() },
                Time::from_micros(1_000_000),
            );
            let text = metrics.encode().unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("sluice_rollout_frozen_seconds{plan=\"edge\"} "));
            line.unwrap().to_owned()
        };
        let until = Some(Time::from_micros(3_600_000_001));
        assert_eq!(shown(RolloutState::Frozen, until), "3600");
        assert_eq!(shown(RolloutState::Halted, until), "3600", "no state tells of the freeze");
        assert_eq!(shown(RolloutState::Halted, None), "0");
        drop(plan);
        assert!(!metrics.encode().unwrap().contains("sluice_rollout_frozen_seconds{"), "the plan is gone");
    }

    #[test]
    fn ldg_7_the_replicas_of_a_plan_are_metrics_while_there_is_a_ledger() {
        let metrics = Metrics::new();
        let plan = metrics.rollouts.plan("edge");
        let of_ledger = |name: &str| {
            ["ledger_fault", "diverged", "replicas"]
                .iter()
                .any(|kind| name.starts_with(&format!("sluice_rollout_{kind}{{")))
        };
        let shown = |shared| {
            plan.show(&RolloutReport { shared, ..RolloutReport::default() }, Time::ZERO);
            let text = metrics.encode().unwrap();
            let mut lines: Vec<_> = text
                .lines()
                .filter(|line| of_ledger(line))
                .map(|line| line.replace("sluice_rollout_", ""))
                .collect();
            lines.sort();
            lines
        };
        assert!(shown(None).is_empty(), "no ledger");
        let replica = |is_behind| ReplicaReport {
            name: "a".into(),
            push: 1,
            step: 1,
            takes_part: true,
            is_behind,
            is_diverged: false,
            clients: 0,
        };
        let here = SharedReport {
            replica: "a".into(),
            fault: None,
            push: 1,
            state: SharedState::Moving,
            step: 1,
            is_unwritten: false,
            diverged: vec!["it is not frozen".into()],
            waits: None,
            replicas: vec![replica(false), replica(true), replica(true)],
            silent: vec!["b".into()],
        };
        let lines = |diverged, fault, counted, behind| {
            let replicas = |state, count: u8| format!("replicas{{plan=\"edge\",state=\"{state}\"}} {count}");
            let of_plan = |name, value: u8| format!("{name}{{plan=\"edge\"}} {value}");
            vec![
                of_plan("diverged", diverged),
                of_plan("ledger_fault", fault),
                replicas("behind", behind),
                replicas("counted", counted),
                replicas("silent", 1),
            ]
        };
        assert_eq!(shown(Some(here.clone())), lines(1, 0, 1, 2));
        assert_eq!(shown(Some(SharedReport { fault: Some("gone".into()), ..here })), lines(1, 1, 0, 0));
        drop(plan);
        assert!(!metrics.encode().unwrap().lines().any(of_ledger), "the plan is gone");
    }
}
