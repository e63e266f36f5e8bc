//! The evidence for and against a push: the clients that are admitted, their count, and the word of the hook.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::driver::ground::plans::PushWatch;
use crate::driver::load::groups::{self, Observation};
use crate::driver::rollout::clients::PushClients;
use crate::driver::rollout::fleet::Fleet;
use crate::driver::rollout::hook::{HookClient, StepAnswer, question};
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::{SourceHandle, Subscriber as _};
use crate::driver::stream::state::StreamState;
use crate::telemetry::metrics::PlanMetrics;
use sluice_engine::downstream::SourceId;
use sluice_fleet::rollout::load::{LoadEvidence, verdict_takes};
use sluice_fleet::rollout::{Admission, Plan, RolloutState, Tally, UnitId};
use sluice_text::span;

/// The time between two tallies.
const TALLY_EVERY: Duration = Duration::from_secs(1);

/// The time between two tallies after a rejection of the push. A tally looks at all streams, and clients that
/// reject all the time must not keep the task busy.
const TALLY_AFTER_REJECTION: Duration = Duration::from_millis(100);

/// Counts the clients of a push, and asks the hook.
pub(super) struct Tallier {
    /// The clients of the push under way, while they are counted.
    clients: Option<PushClients>,
    admission: Admission,
    /// The load of the step's clients, while a push is judged by it.
    observation: Option<Observation>,
    due: Instant,
    latest: Instant,
    /// `None`: the plan has no hook.
    hook: Option<HookClient>,
    /// The lanes weigh too much for another push.
    is_full: bool,
}

impl Tallier {
    pub(super) fn new() -> Tallier {
        let now = Instant::now();
        Tallier {
            clients: None,
            admission: Admission::NOBODY,
            observation: None,
            due: now,
            latest: now,
            hook: None,
            is_full: false,
        }
    }

    /// When the next tally is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Begins a tally if one is due. Returns false if not.
    pub(super) fn begin_tally(&mut self, fleet: &Fleet) -> bool {
        if fleet.handle.is_rejected() {
            self.due = self.due.min(self.latest + TALLY_AFTER_REJECTION);
        }
        let is_due = Instant::now() >= self.due;
        if is_due {
            fleet.handle.begin_tally();
            self.latest = Instant::now();
            self.due = self.latest + TALLY_EVERY;
        }
        is_due
    }

    /// A push begins: its clients are counted from now on.
    pub(super) fn begin(&mut self, number: u64, watched: Arc<PushWatch>, fleet: &Fleet) {
        fleet.handle.watch(Some(watched.clone()));
        self.clients = Some(PushClients::new(number, watched));
        // The first tally tells the step its affected clients.
        self.due = Instant::now();
    }

    /// The clients of a push are counted no longer. Returns false if they were not.
    pub(super) fn release(&mut self, number: u64, fleet: &Fleet) -> bool {
        let is_counted = self.clients_of(number).is_some();
        if is_counted {
            (self.clients, self.observation) = (None, None);
            fleet.handle.watch(None);
        }
        is_counted
    }

    fn clients_of(&self, number: u64) -> Option<&PushClients> {
        self.clients.as_ref().filter(|clients| clients.number == number)
    }

    /// Counts the clients of the push under way. Returns false if there are none to count.
    pub(super) async fn tally(&mut self, state: &mut PlanState, fleet: &Fleet) -> bool {
        let Some(clients) = &mut self.clients else { return false };
        let tally = clients.tally(self.admission, state, fleet).await;
        let load = load_evidence(state, fleet).await;
        state.rollout.tally(Tally { load, ..tally }, fleet.now());
        true
    }

    /// The nodes with a rejection of a push; `None` if its clients are not counted.
    pub(super) fn rejecting_nodes(&self, push: u64) -> Option<BTreeSet<Arc<str>>> {
        self.clients_of(push).map(PushClients::rejecting_nodes)
    }

    /// Tells the machine whether the lanes of all plans weigh too much for another push (WAV-11).
    pub(super) fn weigh(&mut self, state: &mut PlanState, fleet: &Fleet, metrics: &PlanMetrics) {
        if state.enforces() {
            let weight = |sources: &[Arc<SourceHandle>]| {
                sources.iter().map(|source| source.held_bytes() as u64).sum::<u64>()
            };
            metrics.weigh(weight(&fleet.sources()));
            let most = fleet.shared.settings().limits.held_bytes;
            self.is_full = weight(&fleet.tables.sources.all()) > most;
            state.rollout.set_full(self.is_full, fleet.now());
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether clients keep a halted push.
    pub(super) fn has_holders(&self) -> bool {
        self.admission.has_holders()
    }

    /// Whether this is the first admission of clients to the push.
    pub(super) fn is_first_step(&self, admission: &Admission) -> bool {
        let is_begun = admission.push == self.admission.push && self.admission.step > 0;
        admission.state != RolloutState::Halted && admission.step > 0 && !is_begun
    }

    /// Admits clients. The releases are published already.
    pub(super) async fn admit(&mut self, admission: Admission, plan: &Arc<Plan>, fleet: &Fleet) {
        let begun = std::mem::replace(&mut self.admission, admission);
        if plan.enforces() {
            let before = fleet.handle.admit(admission);
            let is_begun = (begun.push, begun.step) == (admission.push, admission.step);
            if plan.halt_on.error_points > 0 && admission.step > 0 && !is_begun {
                self.observation = None;
                let observation = Observation::begin(&fleet.loads, &fleet.sources());
                warn_of_short_step(plan, &admission, observation.interval);
                self.observation = Some(observation);
            }
            wake_moved(&before, &admission, plan, fleet).await;
        }
    }

    /// The configuration may have another hook, or none.
    pub(super) fn follow_hook(&mut self, plan: &Plan, metrics: &PlanMetrics) {
        let hook = plan.hook.as_ref();
        let is_same = |client: &HookClient| hook.is_some_and(|hook| client.asks(hook));
        if !self.hook.as_ref().is_some_and(is_same) {
            let previous = self.hook.take();
            self.hook = hook.map(|hook| HookClient::new(hook, previous));
        }
        if self.hook.is_some() {
            metrics.expect_hook();
        }
        if plan.halt_on.error_points > 0 {
            metrics.expect_load();
        }
    }

    /// Asks the hook about a step of the push under way.
    pub(super) fn ask(&mut self, push: u64, step: u8, state: &PlanState, fleet: &Fleet) {
        let report = state.rollout.under_way().filter(|report| report.number == push);
        let clients = self.clients.as_ref().filter(|clients| clients.number == push);
        if let (Some(hook), Some(report), Some(clients)) = (&mut self.hook, report, clients) {
            let set = &clients.watched.set;
            hook.ask(push, step, question(state.plan(), step, report, set, &fleet.shared));
        }
    }

    /// Resolves with the answer to the question under way; never without one.
    pub(super) async fn hook_answer(&mut self) -> StepAnswer {
        match &mut self.hook {
            Some(hook) => hook.answer().await,
            None => std::future::pending().await,
        }
    }

    /// Tells the machine an answer of the hook.
    pub(super) fn hear(
        &mut self,
        step_answer: StepAnswer,
        state: &mut PlanState,
        fleet: &Fleet,
        metrics: &PlanMetrics,
    ) {
        let StepAnswer { push, step, answer } = step_answer;
        metrics.hook_answers(answer.verdict).inc();
        state.rollout.hook_said(push, step, answer, fleet.now());
        // A push that may go on does so by the next tally.
        self.due = Instant::now();
    }
}

/// The last step has nobody to compare with, so nothing depends on its time.
fn warn_of_short_step(plan: &Plan, admission: &Admission, interval: Duration) {
    let step = usize::from(admission.step).checked_sub(1).and_then(|at| plan.steps.get(at));
    if let Some(step) = step
        && step.bake < verdict_takes(interval)
    {
        let (bake, interval) = (span(step.bake), span(interval));
        warn!(
            plan = &*plan.name,
            push = admission.push,
            step = admission.step,
            bake,
            interval,
            "a step may be over before load reports can judge it: a verdict takes two intervals of the reports, which the control plane asks for"
        );
    }
}

/// The load of the push's clients, if the plan judges by load (LRS-24).
async fn load_evidence(state: &PlanState, fleet: &Fleet) -> Option<LoadEvidence> {
    let is_judged = state.enforces() && state.plan().halt_on.error_points > 0;
    let push = state.rollout.under_way().filter(|_| is_judged)?;
    Some(groups::gather(&fleet.loads, &fleet.sources(), |unit| push.units.contains(&unit)).await)
}

/// Wakes the streams with another release by the new admission.
async fn wake_moved(before: &Admission, after: &Admission, plan: &Arc<Plan>, fleet: &Fleet) {
    let units = fleet.units();
    let is_of_plan = |(id, _): &(SourceId, Arc<SourceHandle>)| units.contains(&UnitId(id.0));
    let is_moved = |stream: &StreamState| {
        stream.look(|_, _, sources| {
            let seat = sources.seat_in(plan).filter(|_| sources.iter().any(is_of_plan));
            seat.is_some_and(|seat| {
                let served = sources.served_push();
                let (had, has) = (before.admits(seat, served), after.admits(seat, served));
                had != has || before.push != after.push && has
            })
        })
    };
    fleet
        .each_stream(|stream| {
            if is_moved(stream) {
                stream.wake();
            }
        })
        .await;
}
