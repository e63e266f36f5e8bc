//! The task of one plan.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tokio::time::{Instant, sleep_until};

use crate::driver::ground::plans::Decider;
use crate::driver::rollout::announcer::Announcer;
use crate::driver::rollout::condemner::Condemner;
use crate::driver::rollout::display::{Display, ShownPlan};
use crate::driver::rollout::fleet::{Fleet, send};
use crate::driver::rollout::gatherer::{Gatherer, adopt};
use crate::driver::rollout::hook::StepAnswer;
use crate::driver::rollout::hub::{LedgerNews, PlanLedger};
use crate::driver::rollout::keeper::PlanKeeper;
use crate::driver::rollout::newcomers::Newcoming;
use crate::driver::rollout::orders::{Reply, obey};
use crate::driver::rollout::refuser::Refuser;
use crate::driver::rollout::restater::Restater;
use crate::driver::rollout::state::PlanState;
use crate::driver::rollout::tallier::Tallier;
use crate::driver::source::lane_order::LaneOrder;
use crate::telemetry::{rollouts, wall_now};
use sluice_fleet::rollout::ledger::{LedgerEvent, Share};
use sluice_fleet::rollout::{Admission, Output, RolloutState};

/// A plan at work: the machine, and the parts that supply its inputs and carry out its outputs.
pub(super) struct PlanTask {
    fleet: Fleet,
    state: PlanState,
    gatherer: Gatherer,
    tallier: Tallier,
    restater: Restater,
    refuser: Refuser,
    condemner: Condemner,
    newcoming: Newcoming,
    keeper: PlanKeeper,
    display: Display,
    announcer: Announcer,
}

impl PlanTask {
    pub(super) fn new(fleet: Fleet, shown: Arc<ShownPlan>) -> PlanTask {
        let plan = fleet.handle.plan();
        fleet.handle.watch(None);
        let metrics = fleet.shared.metrics.rollouts.plan(&plan.name);
        PlanTask {
            fleet,
            state: PlanState::new(plan),
            gatherer: Gatherer::new(),
            tallier: Tallier::new(),
            restater: Restater::default(),
            refuser: Refuser::default(),
            condemner: Condemner::default(),
            newcoming: Newcoming::default(),
            keeper: PlanKeeper::default(),
            display: Display::new(shown, metrics),
            announcer: Announcer::default(),
        }
    }

    /// Runs until the configuration has no such plan. Each turn tells the machine the news, and carries out
    /// the machine's word before clients are counted: so a tally counts by the latest admission. Operators
    /// are answered last, when readers see the state and the disk has it. No turn waits for the disk (FP3).
    pub(super) async fn run(mut self) {
        self.begin().await;
        while !self.fleet.handle.is_over() {
            let answer = self.wait().await;
            let replies = self.gather(answer).await;
            self.carry_out().await;
            // An operator's word that was answered is not lost with the process.
            let mut is_kept = !replies.is_empty();
            if self.tallier.begin_tally(&self.fleet) {
                self.tally().await;
                self.carry_out().await;
                is_kept |= self.state.is_unsaved;
            }
            if is_kept {
                self.keep().await;
            }
            self.tell(replies, is_kept);
        }
        self.end().await;
    }

    async fn begin(&mut self) {
        self.restore();
        self.share();
        adopt(&self.fleet);
        self.tallier.follow_hook(self.state.plan(), &self.display.metrics);
        self.refuse().await;
        self.tell(Vec::new(), false);
    }

    async fn end(mut self) {
        self.state.rollout.end(self.fleet.now());
        self.poll_outputs().await;
        self.fleet.shared.durable.plans.forget(&self.state.plan().name);
        self.announcer.finish();
    }

    /// Waits for a note to the plan, for the next time that is due, for an answer of the hook, or for the
    /// disk.
    async fn wait(&mut self) -> Option<StepAnswer> {
        let due = self.due();
        tokio::select! {
            () = self.fleet.handle.noted() => None,
            () = wait_until(due) => None,
            answer = self.tallier.hook_answer() => Some(answer),
            () = news_of(self.fleet.ledger.as_ref()) => None,
            is_over = self.announcer.written() => {
                self.state.is_unsaved |= !is_over;
                None
            }
        }
    }

    /// When the task has something to do, whatever happens.
    fn due(&self) -> Option<Instant> {
        let rollout = &self.state.rollout;
        let is_watched = rollout.wants_tally() || rollout.poll_timeout().is_some();
        let looks = is_watched
            || self.state.is_unsaved
            || self.tallier.is_full()
            || self.display.is_behind()
            // Holds of before a restart are recalled until their servers have answered.
            || PlanKeeper::awaits_servers(&self.state);
        let tally = looks.then(|| self.tallier.due());
        let timeout = self.state.poll_timeout().map(|due| self.fleet.shared.clock.instant(due));
        tally.into_iter().chain(timeout).min()
    }

    /// Tells the machine all news: of the configuration, of units, of the clock, of the hook, and of
    /// operators.
    async fn gather(&mut self, answer: Option<StepAnswer>) -> Vec<Reply> {
        let (state, fleet) = (&mut self.state, &self.fleet);
        fleet.shared.plans.until_turn().await;
        if fleet.handle.take_stored() {
            self.keeper.restore(state, &mut self.gatherer, &mut self.restater, fleet);
            self.share();
        }
        self.follow_configuration();
        let (state, fleet) = (&mut self.state, &self.fleet);
        state.rollout.set_succeeded(fleet.shared.plans.turn() == Decider::Successor, fleet.now());
        self.keeper.find(state, &mut self.gatherer, &mut self.restater, fleet);
        self.gatherer.take_changes(state, fleet);
        self.hear_ledger();
        self.take_given();
        let (state, fleet) = (&mut self.state, &self.fleet);
        state.handle_timeout(fleet.now());
        if let Some(answer) = answer {
            self.tallier.hear(answer, state, fleet, &self.display.metrics);
        }
        obey(state, &self.gatherer.contents, fleet)
    }

    /// Carries out the word of the machine, at all sources and streams.
    async fn carry_out(&mut self) {
        self.restater.restate_recovered(&self.fleet).await;
        self.condemner.follow(&mut self.state, &self.fleet).await;
        self.poll_outputs().await;
        if self.fleet.handle.has_late_rejecters() {
            self.restater.restate(&self.tallier, &mut self.state, &self.fleet).await;
        }
        self.keeper.keep_holds(&self.state.rollout, &self.fleet).await;
        self.newcoming.follow(&mut self.state, &self.fleet).await;
    }

    /// Tells the machine how the servers and the clients of the push are.
    async fn tally(&mut self) {
        let (state, fleet) = (&mut self.state, &self.fleet);
        self.gatherer.follow_servers(state, fleet);
        self.gatherer.look_at_awaited(state, fleet);
        self.tallier.weigh(state, fleet, &self.display.metrics);
        if !state.rollout.wants_tally() {
            return;
        }
        self.gatherer.forget_latest_cut();
        if self.tallier.tally(state, fleet).await {
            // A rejection of a push that went back, or that was halted, may come late.
            self.restater.restate(&self.tallier, state, fleet).await;
        }
    }

    async fn keep(&mut self) {
        self.keeper.put(&mut self.state, &mut self.gatherer, &self.restater, &self.fleet).await;
    }

    /// Shows the state to readers, and answers operators. `is_kept`: the answers wait until the disk has it.
    fn tell(&mut self, replies: Vec<Reply>, is_kept: bool) {
        let (state, fleet) = (&mut self.state, &self.fleet);
        self.announcer.add(replies, is_kept);
        let is_halted = state.rollout.state() == RolloutState::Halted;
        let keeps_halted = is_halted && (!state.enforces() || self.tallier.has_holders());
        self.display.show(keeps_halted, self.announcer.is_unsaved(), state, fleet);
        self.announcer.go_on(|write| PlanKeeper::write(write, state, fleet));
    }

    /// Lets the plan share its decisions with other replicas (LDG-1).
    fn share(&mut self) {
        let Some(ledger) = &self.fleet.ledger else { return };
        let share = Share::new(&self.state.plan().name, ledger.replica().clone());
        self.state.rollout.share(share, &self.keeper.keys(&self.fleet), self.fleet.now());
        self.condemner = Condemner::default();
        ledger.begin();
    }

    fn hear_ledger(&mut self) {
        for news in self.fleet.ledger.iter().flat_map(PlanLedger::take) {
            let (rollout, now) = (&mut self.state.rollout, self.fleet.now());
            match news {
                LedgerNews::Event(event) => {
                    // The orders of all replicas stand over a restart, also while the ledger is away.
                    self.state.is_unsaved |= match &event {
                        LedgerEvent::Loaded(_) => true,
                        LedgerEvent::Changed(entry) => entry.key.starts_with("plan/"),
                        LedgerEvent::Gone { .. } | LedgerEvent::Lost(_) => false,
                    };
                    rollout.hear_ledger(event, wall_micros(), now);
                }
                LedgerNews::Wrote(ticket, result) => rollout.wrote(ticket, result, now),
            }
        }
    }

    fn restore(&mut self) {
        self.keeper.restore(&mut self.state, &mut self.gatherer, &mut self.restater, &self.fleet);
    }

    fn follow_configuration(&mut self) {
        let plan = self.fleet.handle.plan();
        if plan != *self.state.plan() {
            let leads_as_before = plan.leads_as(self.state.plan());
            self.state.rollout.configure(plan, self.fleet.now());
            self.tallier.follow_hook(self.state.plan(), &self.display.metrics);
            if !leads_as_before {
                self.gatherer.begin_anew(&self.fleet);
            }
        }
    }

    /// Counts the refused contents that units gave because nothing older is known (QUA-5).
    fn take_given(&mut self) {
        let shared = &self.fleet.shared;
        for (unit, contents) in self.fleet.handle.take_given() {
            self.state.is_unsaved = true;
            self.state.rollout.gave_condemned(unit);
            rollouts::tell_given(
                &shared.metrics.events,
                &shared.throttle,
                &self.display.metrics,
                self.state.rollout.last_push(),
                &contents,
            );
        }
    }

    async fn poll_outputs(&mut self) {
        while let Some(output) = self.state.rollout.poll_output() {
            self.state.is_unsaved = true;
            self.perform(output).await;
        }
        self.refuse().await;
    }

    async fn perform(&mut self, output: Output) {
        let (state, fleet, tallier) = (&mut self.state, &self.fleet, &mut self.tallier);
        match output {
            Output::Cut { push, units } => self.gatherer.cut(push, &units, state, fleet).await,
            Output::Admit(admission) => self.admit(admission).await,
            Output::Ask { push, step } => tallier.ask(push, step, state, fleet),
            Output::Event(event) => {
                let report = state.rollout.report();
                rollouts::tell(&fleet.shared.metrics.events, &self.display.metrics, &event, &report);
            }
            Output::Write(write) => fleet.ledger.iter().for_each(|ledger| ledger.write(write.clone())),
            Output::Release { push } => {
                let is_counted = tallier.release(push, fleet);
                self.gatherer.release(push, is_counted);
            }
            Output::Back { push } => {
                self.gatherer.take_back(push, state, fleet).await;
                self.restater.follow(push, tallier, state, fleet).await;
            }
            Output::Stay { push } => {
                send(&fleet.sources(), LaneOrder::Stay(push)).await;
                self.restater.follow(push, tallier, state, fleet).await;
            }
            Output::Settle { push } => self.gatherer.settle(push, state, fleet).await,
            Output::Serve { release } => self.gatherer.serve(release, state, fleet).await,
            Output::Open => self.gatherer.open(fleet).await,
        }
    }

    /// Admits clients to the push under way. The first admission of a push makes the latest cut the push.
    async fn admit(&mut self, admission: Admission) {
        let (state, fleet) = (&mut self.state, &self.fleet);
        if let Some(watched) = self.gatherer.begin(admission.push, state.enforces()) {
            state.rejecters.next_push();
            self.tallier.begin(admission.push, watched, fleet);
        }
        if state.enforces() && self.tallier.is_first_step(&admission) {
            send(&fleet.sources(), LaneOrder::Give(admission.push)).await;
        }
        self.tallier.admit(admission, state.plan(), fleet).await;
    }

    async fn refuse(&mut self) {
        self.refuser.refuse(&self.gatherer.contents, &self.state, &self.fleet).await;
    }
}

async fn news_of(ledger: Option<&PlanLedger>) {
    match ledger {
        Some(ledger) => ledger.news().await,
        None => std::future::pending().await,
    }
}

/// Microseconds since 1970.
fn wall_micros() -> u64 {
    let since_1970 = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
