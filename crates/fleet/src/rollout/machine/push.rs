//! The push under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use super::api::{Output, RolloutEvent, What};
use super::gather::{GatheredPush, PushStart};
use super::guards::{self, Findings};
use super::judge::{self, Evidence, clients_asked, take_late_rejections, voiceless};
use super::record::{PushRecord, UnitRecord};
use crate::rollout::admission::Admission;
use crate::rollout::hook::{HookAnswer, HookReport, HookVerdict};
use crate::rollout::ledger::{Bid, Consent, LocalPush, Others};
use crate::rollout::load::{self, LoadJudgement, Missing};
use crate::rollout::plan::{Mode, OnHalt, Plan, Step};
use crate::rollout::push::{ReleaseDigest, UnitId, UnitPush};
use crate::rollout::report::{
    End, Note, Outcome, PushReport, Reason, RolloutState, StepReport, Verdict, merged,
};
use crate::rollout::seat::LAST_BUCKET;
use crate::rollout::shared::ContentSet;
use crate::rollout::shared::record::SharedHalt;
use crate::rollout::tally::{Counts, REJECTIONS_MAX, Rejection, Tally};
use sluice_engine::Time;

/// The clients of a halted push are counted for this time, so that the report tells how many had the push.
const WATCHED_AFTER_HALT: Duration = Duration::from_secs(60);

/// A reconnecting client is back within this time, and keeps the place.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// The time from an answer that does not open the gate to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The condemned contents and the notes that a report lists.
const LISTED_MAX: usize = 100;

pub(super) type Outputs = VecDeque<Output>;

#[derive(Debug)]
pub(super) struct Push {
    pub report: PushReport,
    current: CurrentStep,
    /// Since when the clocks stand: the server of a unit is lost, or an operator wants it.
    stands_since: Option<Time>,
    pub(super) is_watched: bool,
    /// Clients spoke for the push in some step.
    is_judged: bool,
    /// All clients stood with the push for the final bake.
    pub(super) is_finished: bool,
    on_halt: OnHalt,
    /// The push before, if clients kept the push although halted.
    holders_of: Option<u64>,
    /// Clients keep the push, although it is halted.
    pub(super) has_holders: bool,
    /// An operator wants the clocks to stand.
    pub(super) is_paused: bool,
    /// The halted push in whose place an operator let this one begin, whatever was known against it.
    pub(super) promoted_of: Option<u64>,
    /// `None`: this replica decides alone.
    pub(super) consent: Option<Consent>,
}

/// The step under way.
#[derive(Debug)]
struct CurrentStep {
    /// The begin of the step, moved on by the time that the clocks stood.
    from: Time,
    /// All steps of the plan are over, and everybody is admitted.
    is_last: bool,
    /// The step knows the buckets of the affected clients, and has admitted as many as it asks for (WAV-14).
    is_open: bool,
    /// Since when fewer of its clients are connected than the step asks for, and others are there.
    short_since: Option<Time>,
    /// The labels of the step have named an affected client, so the step bakes.
    has_named: bool,
    gate: HookGate,
}

impl CurrentStep {
    fn new(from: Time, is_last: bool) -> CurrentStep {
        let gate = HookGate::default();
        CurrentStep { from, is_last, is_open: is_last, short_since: None, has_named: false, gate }
    }
}

/// The gate of the step under way.
#[derive(Debug, Default)]
struct HookGate {
    /// The hook let the push go on.
    is_open: bool,
    /// The hook was asked, and has not answered.
    is_asked: bool,
    /// The clients of the step have changed since the question: its answer does not open the gate.
    is_late: bool,
    /// No question before.
    not_before: Option<Time>,
}

impl Push {
    pub(super) fn begin(plan: &Plan, gathered: GatheredPush, outputs: &mut Outputs, now: Time) -> Push {
        let GatheredPush { number, from, units, holders_of, start, consent } = gathered;
        let mut push = Push { holders_of, consent, ..Push::new(plan, number, &units, now) };
        push.report.gathered_from = from;
        if let PushStart::Promoted { halted, .. } = start {
            push.promoted_of = Some(halted);
        }
        let resources = push.report.resources();
        push.tell(What::Gathered { units: units.len(), resources }, outputs);
        let Findings { reason, blamed, notes } = match start {
            PushStart::Judged => guards::check(plan, &units),
            PushStart::Promoted { .. } => Findings::default(),
            PushStart::Restored => guards::condemned(&units),
        };
        for note in notes {
            push.note(note, outputs);
        }
        push.report.blamed = blamed;
        match (reason, start) {
            (Some(reason), _) => push.halt(reason, outputs, now),
            (None, PushStart::Judged) if plan.hook.is_some() => push.admit(outputs),
            (None, PushStart::Judged) => push.ask_for_step(plan, 1, outputs, now),
            (None, PushStart::Promoted { step, .. }) => push.ask_for_step(plan, step, outputs, now),
            (None, PushStart::Restored) => match &mut push.consent {
                Some(consent) => {
                    consent.bid = Some(Bid::finish(plan.step_count()));
                    push.admit(outputs);
                }
                None => push.begin_step(plan, plan.step_count(), outputs, now),
            },
        }
        push
    }

    /// A push before its first step.
    pub(super) fn new(plan: &Plan, number: u64, units: &[UnitPush], now: Time) -> Push {
        let report = PushReport {
            number,
            mode: plan.mode,
            step_count: plan.step_count(),
            gathered_from: now,
            began: now,
            state: RolloutState::Waving,
            units: units.iter().map(|unit| unit.unit).collect(),
            types: merged(units),
            ..PushReport::default()
        };
        Push {
            report,
            current: CurrentStep::new(now, false),
            stands_since: None,
            is_watched: true,
            is_judged: false,
            is_finished: false,
            on_halt: plan.on_halt,
            holders_of: None,
            has_holders: false,
            is_paused: false,
            promoted_of: None,
            consent: None,
        }
    }

    /// The outcome, if the push ended now.
    pub(super) fn outcome(&self) -> Outcome {
        match self.report.state {
            RolloutState::Halted => Outcome::Halted,
            RolloutState::Paused => Outcome::Paused,
            _ if self.is_judged => Outcome::Finished,
            _ => Outcome::Unjudged,
        }
    }

    /// The outcome of a push that all clients of all replicas have.
    pub(super) fn outcome_everywhere(&self) -> Outcome {
        if self.is_judged { Outcome::Finished } else { Outcome::Unjudged }
    }

    pub(super) fn close(mut self, outcome: Outcome, outputs: &mut Outputs, now: Time) -> PushReport {
        self.end_step(now);
        self.report.end = Some(End { at: now, outcome });
        self.tell(What::Over(outcome), outputs);
        self.release(outputs);
        self.report
    }

    /// `others`: the tallies of the other replicas, if there are any.
    pub(super) fn tally(
        &mut self,
        plan: &Plan,
        tally: Tally,
        others: Option<&Others>,
        outputs: &mut Outputs,
        now: Time,
    ) {
        if self.is_halted() {
            self.note_late(tally, outputs);
            return self.watch_on(outputs, now);
        }
        self.note_tally(&tally, outputs);
        let tally = match others {
            Some(others) => others.with(&tally, plan.at_least_max().max(1)),
            None => tally,
        };
        self.take_back_bid();
        self.current.has_named |= self.named(&tally) > 0;
        // Before the threshold rises: no other client takes the place of clients whose losses are evidence.
        if let Some(reason) = judge::against(&plan.halt_on, &tally) {
            return self.halt(reason, outputs, now);
        }
        if let Some(reason) = self.judge_load(plan, &tally) {
            return self.halt(reason, outputs, now);
        }
        if self.number_of_step() > 0 && others.is_some_and(|others| !others.are_all_there) {
            // The evidence of a replica is missing (LDG-4).
            return;
        }
        // The tally was made with the former threshold, so its silence does not count.
        let is_raised = self.raise(plan, &tally, outputs, now);
        if self.number_of_step() == 0 {
            // The guards did not know of rejections during the wait for the hook.
            if let Some(condemned) = tally.condemned.first() {
                if self.report.blamed.is_empty() {
                    self.report.blamed.clone_from(&self.report.units);
                }
                return self.halt(Reason::Condemned(condemned.clone()), outputs, now);
            }
            return self.leave_gate(plan, outputs, now);
        }
        if self.stands_since.is_some() || is_raised && !self.is_deserted(plan) {
            return;
        }
        self.go_on(plan, &tally, outputs, now);
    }

    /// Compares the load of the step's clients with that of all others. A reason halts the push: load reports
    /// never hold a step back (LRS-24).
    fn judge_load(&mut self, plan: &Plan, tally: &Tally) -> Option<Reason> {
        let evidence = tally.load.as_ref()?;
        // After the last step of the plan nobody is left to compare with, and before its first tally a step
        // may not know its clients.
        let is_compared = self.current.is_open && !self.current.is_last;
        let bake = self.step(plan).map(|step| step.bake).unwrap_or_default();
        let step = self.report.steps.last_mut().filter(|_| is_compared)?;
        let (judgement, units) = match plan.bucket_by.is_of_place() || step.threshold == 0 {
            true => (LoadJudgement::CannotTell(vec![Missing::Control]), Vec::new()),
            false => load::judge(evidence, plan.halt_on.error_points, bake),
        };
        step.load = Some(judgement.clone());
        let LoadJudgement::Worse(worse) = judgement else { return None };
        // An operator who promotes a push has the last word about its load.
        let is_promoted = self.promoted_of.is_some();
        (!is_promoted).then(|| {
            self.blame(&units);
            // The clients report by another class than that of the push.
            if self.report.blamed.is_empty() {
                self.report.blamed.clone_from(&self.report.units);
            }
            Reason::Errors(worse)
        })
    }

    /// Raises the threshold of the step, so that some affected clients are admitted: of a new step at once,
    /// and again when clients have been gone for [`BACK_WITHIN`]. The losses are no evidence against the
    /// push: else it is halted. Returns whether the step has other clients than the tally.
    fn raise(&mut self, plan: &Plan, tally: &Tally, outputs: &mut Outputs, now: Time) -> bool {
        let is_new = !mem::replace(&mut self.current.is_open, true);
        let short_since = self.current.short_since.take();
        // A step of an operator for this replica alone admits what the operator said, and no more.
        let asked = self.threshold_for(plan, tally).filter(|_| !self.is_ahead());
        let Some(threshold) = asked else { return is_new };
        if !is_new {
            if self.stands_since.is_some() {
                return false;
            }
            let since = short_since.unwrap_or(now);
            if now < since + BACK_WITHIN {
                self.current.short_since = Some(since);
                return false;
            }
            if tally.admitted.accepted + tally.admitted.departed == 0 {
                // Nobody has stood with the push so far.
                self.current.from = now;
            }
        }
        let step = self.number_of_step();
        match &mut self.consent {
            Some(consent) => consent.bid = Some(Bid { step, threshold, is_finish: false }),
            None => self.raise_to(threshold, outputs),
        }
        true
    }

    fn raise_to(&mut self, threshold: u16, outputs: &mut Outputs) {
        if let Some(step) = self.report.steps.last_mut() {
            step.threshold = threshold;
        }
        self.renew_gate();
        self.admit(outputs);
    }

    /// The threshold that admits as many connected and affected clients as the step asks for; `None` if they
    /// are admitted.
    fn threshold_for(&self, plan: &Plan, tally: &Tally) -> Option<u16> {
        let asked = clients_asked(self.step(plan)?, tally).saturating_sub(tally.voices as usize);
        // Clients without a text for their seat all have the last bucket, and are never first.
        let seated = tally.smallest.iter().filter(|bucket| **bucket < LAST_BUCKET);
        let threshold = seated.take(asked).last().map_or(0, |bucket| bucket + 1);
        self.report.steps.last().filter(|step| step.threshold < threshold).map(|_| threshold)
    }

    /// Stops the clocks, or lets them go on.
    pub(super) fn stand_or_go(&mut self, reason: Option<Reason>, outputs: &mut Outputs, now: Time) {
        if self.is_halted() {
            self.stands_since = None;
            return;
        }
        let verdict = self.report.verdict.as_ref().map(|verdict| &verdict.reason);
        let stops = verdict.is_some_and(Reason::stops_clocks);
        match (reason, self.stands_since) {
            (Some(reason), since) => {
                self.stands_since = Some(since.unwrap_or(now));
                // An operator's word is the better reason than missing evidence.
                let is_word = matches!(reason, Reason::Operator | Reason::Frozen);
                if verdict.is_none() || (stops || is_word) && verdict != Some(&reason) {
                    self.pause(reason, outputs, now);
                }
            }
            (None, Some(since)) => {
                self.stands_since = None;
                self.current.from = self.current.from + now.since(since);
                if stops {
                    self.resume(outputs);
                }
            }
            (None, None) => {}
        }
    }

    /// The step under way; `None` after the last step of the plan.
    pub(super) fn step<'a>(&self, plan: &'a Plan) -> Option<&'a Step> {
        plan.step(self.number_of_step())
    }

    /// The clients of a halted push. Clients of an enforcing plan go back, so only rejections count.
    fn note_late(&mut self, tally: Tally, outputs: &mut Outputs) {
        if self.report.mode == Mode::Observe {
            return self.note_tally(&tally, outputs);
        }
        take_late_rejections(&mut self.report.admitted, &tally.admitted);
        take_late_rejections(&mut self.report.others, &tally.others);
        let mut rejections = mem::take(&mut self.report.rejections);
        for rejection in &mut rejections {
            // Other clients may have accepted some suspects meanwhile (TRU-6).
            if let Some(later) = tally.rejections.iter().find(|later| later.stream == rejection.stream) {
                rejection.suspects.clone_from(&later.suspects);
            }
        }
        let is_new =
            |rejection: &&Rejection| !rejections.iter().any(|present| present.stream == rejection.stream);
        let more: Vec<_> = tally.rejections.iter().filter(is_new).cloned().collect();
        self.report.rejections = rejections.into_iter().chain(more).take(REJECTIONS_MAX).collect();
        self.blame(&tally.blamed);
        self.note_condemned(&tally, outputs);
    }

    fn blame(&mut self, units: &[UnitId]) {
        let all: BTreeSet<UnitId> = self.report.blamed.iter().chain(units).copied().collect();
        self.report.blamed = all.into_iter().collect();
    }

    fn note_tally(&mut self, tally: &Tally, outputs: &mut Outputs) {
        self.report.admitted = tally.admitted;
        self.report.others = tally.others;
        self.report.rejections.clone_from(&tally.rejections);
        self.report.blamed.clone_from(&tally.blamed);
        self.report.without_evidence.clone_from(&tally.without_evidence);
        if let Some(step) = self.report.steps.last_mut().filter(|step| step.ended.is_none()) {
            step.admitted = tally.admitted;
        }
        self.note_condemned(tally, outputs);
    }

    fn note_condemned(&mut self, tally: &Tally, outputs: &mut Outputs) {
        for condemned in &tally.condemned {
            self.tell(What::Condemned(condemned.clone()), outputs);
            if self.report.condemned.len() < LISTED_MAX {
                self.report.condemned.push(condemned.clone());
            }
        }
    }

    /// The affected clients that the labels of the step name now.
    fn named(&self, tally: &Tally) -> u64 {
        let at = usize::from(self.number_of_step()).checked_sub(1);
        at.and_then(|at| tally.labelled.get(at)).copied().unwrap_or_default()
    }

    /// A step of labels that name no affected client is passed without a bake (WAV-14). A client with a crash
    /// by the push leaves no deserted step.
    fn is_deserted(&self, plan: &Plan) -> bool {
        let is_only_named = |step: &Step| step.clients.is_some() && step.threshold == 0 && step.at_least == 0;
        self.step(plan).is_some_and(is_only_named) && !self.current.has_named
    }

    fn go_on(&mut self, plan: &Plan, tally: &Tally, outputs: &mut Outputs, now: Time) {
        let number = self.number_of_step();
        // A step that an operator began here alone spreads to nobody (LDG-5).
        let (is_ahead, next) = (self.is_ahead(), self.recorded().0 + 1);
        if self.is_deserted(plan) {
            self.note(Note::NobodyInStep(number), outputs);
            return self.ask_for_step(plan, next, outputs, now);
        }
        let baked = self.current.from + plan.bake_of(number).max(plan.bake_of(next - 1));
        if now < baked {
            return;
        }
        let is_away = self.current.has_named && self.named(tally) == 0;
        match judge::evidence(plan, &tally.admitted, is_away) {
            Evidence::Lacking { accepted, clients } => {
                if now >= baked + plan.halt_on.patience && self.report.verdict.is_none() {
                    self.pause(Reason::NoEvidence { accepted, clients }, outputs, now);
                }
                return self.close_gate();
            }
            // Clients that were here come back, or others take their place.
            Evidence::Nobody if self.current.short_since.is_some() => return,
            _ if self.waits_for_hook(plan, baked, outputs, now) => return,
            Evidence::Time => {
                self.note(Note::OnlyRelaysInStep(number), outputs);
                self.is_judged = true;
            }
            Evidence::Nobody => self.note(voiceless(number, &tally.admitted), outputs),
            Evidence::Enough => self.is_judged = true,
        }
        if self.report.verdict.is_some() {
            self.resume(outputs);
        }
        match (self.current.is_last && !is_ahead, &mut self.consent) {
            (true, None) => self.is_finished = true,
            (true, Some(consent)) => consent.bid = Some(Bid::finish(number)),
            (false, _) => self.ask_for_step(plan, next, outputs, now),
        }
    }

    /// Begins a step, or asks the ledger for it: no client is admitted before the record says so (LDG-4).
    fn ask_for_step(&mut self, plan: &Plan, number: u8, outputs: &mut Outputs, now: Time) {
        let threshold = plan.threshold_after(number, self.recorded().1);
        let Some(consent) = &mut self.consent else { return self.begin_step(plan, number, outputs, now) };
        let is_at_gate = self.report.steps.is_empty();
        // A promotion, or a return to known content, begins further than with the first step.
        if is_at_gate && consent.bid.is_some_and(|bid| bid.step >= number) {
            return;
        }
        let bid = Bid { step: number, threshold, is_finish: false };
        if consent.bid.replace(bid).is_none() && is_at_gate {
            self.admit(outputs);
        }
    }

    /// Each tally bids anew. A push at its gate needs no evidence.
    pub(super) fn take_back_bid(&mut self) {
        if let Some(consent) = self.consent.as_mut().filter(|_| !self.report.steps.is_empty()) {
            consent.bid = None;
        }
    }

    /// The push, as far as other replicas have to know.
    pub(super) fn local(&self, plan: &Plan, replica: &str) -> Option<LocalPush<'_>> {
        let consent = self.consent.as_ref()?;
        let halt = self.report.verdict.as_ref().filter(|_| self.is_halted()).map(|verdict| {
            let why = verdict.reason.shared_text();
            let blamed = consent.blamed(&self.report.blamed);
            let is_own = !matches!(verdict.reason, Reason::Replica { .. });
            let changed =
                if is_own { consent.changes_of(&self.report.blamed) } else { ContentSet::default() };
            (SharedHalt { replica: replica.into(), why, blamed, ..SharedHalt::default() }, changed)
        });
        let promoted = consent.promoted.map(|step| match step > plan.step_count() {
            true => Bid::finish(plan.step_count()),
            false => {
                let threshold = plan.threshold_after(step, self.recorded().1);
                Bid { step, threshold, is_finish: false }
            }
        });
        let bid = promoted.or(consent.bid);
        Some(LocalPush {
            number: self.report.number,
            changes: &consent.changes,
            promoted: self.promoted_of.map(|halted| (bid.map_or(1, |bid| bid.step), halted)),
            halt,
            bid,
            is_urgent: self.promoted_of.is_some()
                || promoted.is_some()
                || bid.is_some_and(|bid| bid.is_finish),
        })
    }

    /// The record admits a step and a threshold.
    pub(super) fn follow(&mut self, plan: &Plan, step: u8, threshold: u16, outputs: &mut Outputs, now: Time) {
        if step > self.number_of_step() {
            if let Some(consent) = self.consent.as_mut().filter(|consent| consent.recorded.0 == 0) {
                // Known content ends a push that nobody has yet. This one has other changes, too.
                consent.bid.take_if(|bid| bid.is_finish);
            }
            if self.report.verdict.is_some() && self.stands_since.is_none() {
                self.resume(outputs);
            }
            self.begin_step(plan, step, outputs, now);
        } else if (step, threshold) > self.recorded() {
            if step > self.recorded().0 {
                // An operator began it here before: the bake that counts for all begins now.
                (self.current.from, self.stands_since) = (now, self.stands_since.map(|_| now));
            }
            self.take_back_bid();
        }
        let reached = self.report.steps.last().map_or(0, |step| step.threshold);
        if threshold > reached {
            self.raise_to(threshold, outputs);
            // The evidence of the bid was of fewer clients.
            self.take_back_bid();
        }
        let reached = (step, threshold);
        if let Some(consent) = &mut self.consent {
            consent.recorded = consent.recorded.max(reached);
            consent.bid.take_if(|bid| !bid.is_finish && (bid.step, bid.threshold) <= reached);
            consent.promoted.take_if(|promoted| *promoted <= step);
        }
    }

    pub(super) fn number_of_step(&self) -> u8 {
        self.report.reached()
    }

    /// The step and the threshold that the ledger admits; without a ledger, those of here.
    pub(super) fn recorded(&self) -> (u8, u16) {
        let reached = self.report.steps.last().map_or((0, 0), |step| (step.number, step.threshold));
        self.consent.as_ref().map_or(reached, |consent| consent.recorded)
    }

    /// Whether an operator began the step here alone (LDG-5).
    pub(super) fn is_ahead(&self) -> bool {
        self.number_of_step() > self.recorded().0
    }

    pub(super) fn begin_step(&mut self, plan: &Plan, number: u8, outputs: &mut Outputs, now: Time) {
        self.tell_load(outputs);
        self.end_step(now);
        let before = self.report.steps.last().map_or(0, |step| step.threshold);
        let threshold = plan.threshold_after(number, before);
        let step = plan.step(number);
        let (ended, admitted, load) = (None, Counts::default(), None);
        self.report.steps.push(StepReport { number, threshold, began: now, ended, admitted, load });
        self.current = CurrentStep::new(now, step.is_none());
        // Another replica began the step while the clocks stand here: this step has stood since now.
        self.stands_since = self.stands_since.map(|_| now);
        // A push whose clocks stand for a reason stays paused.
        if self.stands_since.is_none() || self.report.verdict.is_none() {
            self.report.state = self.moving_state();
        }
        let steps = plan.step_count();
        self.tell(
            step.map_or(What::Settling, |_| What::StepBegun { step: number, steps, threshold }),
            outputs,
        );
        self.admit(outputs);
    }

    /// Tells the last word of load reports about the step under way.
    fn tell_load(&self, outputs: &mut Outputs) {
        let step = self.report.steps.last().filter(|step| step.ended.is_none());
        if let Some((step, judgement)) = step.and_then(|step| Some((step.number, step.load.clone()?))) {
            self.tell(What::LoadJudged { step, judgement }, outputs);
        }
    }

    fn end_step(&mut self, now: Time) {
        if let Some(step) = self.report.steps.last_mut() {
            step.ended.get_or_insert(now);
        }
    }

    /// The state without a verdict.
    pub(super) fn moving_state(&self) -> RolloutState {
        if self.current.is_last { RolloutState::Settling } else { RolloutState::Waving }
    }

    fn verdict(&self, reason: Reason, now: Time) -> Verdict {
        let after = now.since(self.report.began);
        Verdict {
            at: now,
            after,
            step: self.number_of_step(),
            clients: self.report.admitted.affected(),
            reason,
        }
    }

    pub(super) fn is_halted(&self) -> bool {
        self.report.state == RolloutState::Halted
    }

    /// By another replica.
    pub(super) fn is_halted_elsewhere(&self) -> bool {
        let verdict = self.report.verdict.as_ref().filter(|_| self.is_halted());
        verdict.is_some_and(|verdict| matches!(verdict.reason, Reason::Replica { .. }))
    }

    /// The units to blame for a halt: without evidence all.
    pub(super) fn blamed(&self) -> &[UnitId] {
        if self.report.blamed.is_empty() { &self.report.units } else { &self.report.blamed }
    }

    /// All clients are admitted.
    pub(super) fn is_settling(&self) -> bool {
        self.current.is_last && !self.is_halted()
    }

    pub(super) fn halt(&mut self, reason: Reason, outputs: &mut Outputs, now: Time) {
        self.tell_load(outputs);
        self.end_step(now);
        let stays = self.on_halt == OnHalt::Stay && reason != Reason::Operator;
        if self.report.mode == Mode::Enforce && !self.report.steps.is_empty() {
            self.has_holders = stays;
            let push = self.report.number;
            outputs.push_back(if stays { Output::Stay { push } } else { Output::Back { push } });
        }
        self.stop(RolloutState::Halted, What::Halted, reason, outputs, now);
    }

    pub(super) fn pause(&mut self, reason: Reason, outputs: &mut Outputs, now: Time) {
        self.stop(RolloutState::Paused, What::Paused, reason, outputs, now);
    }

    fn stop(
        &mut self,
        state: RolloutState,
        what: fn(Verdict) -> What,
        reason: Reason,
        outputs: &mut Outputs,
        now: Time,
    ) {
        let verdict = self.verdict(reason, now);
        self.report.state = state;
        self.report.verdict = Some(verdict.clone());
        self.tell(what(verdict), outputs);
        self.admit(outputs);
    }

    pub(super) fn resume(&mut self, outputs: &mut Outputs) {
        self.report.verdict = None;
        self.report.state = self.moving_state();
        self.tell(What::Resumed, outputs);
        self.admit(outputs);
    }

    fn watch_on(&mut self, outputs: &mut Outputs, now: Time) {
        let is_over = |verdict: &Verdict| now >= verdict.at + WATCHED_AFTER_HALT;
        if self.report.verdict.as_ref().is_some_and(is_over) {
            self.release(outputs);
        }
    }

    fn release(&mut self, outputs: &mut Outputs) {
        if self.is_watched {
            self.is_watched = false;
            outputs.push_back(Output::Release { push: self.report.number });
        }
    }

    pub(super) fn admit(&self, outputs: &mut Outputs) {
        let reached = self.report.steps.last();
        outputs.push_back(Output::Admit(Admission {
            push: self.report.number,
            threshold: reached.map_or(0, |step| step.threshold),
            step: reached.map_or(0, |step| step.number),
            state: self.report.state,
            holders_only: self.has_holders,
            holders_of: self.holders_of,
        }));
    }

    fn note(&mut self, note: Note, outputs: &mut Outputs) {
        self.tell(What::Note(note.clone()), outputs);
        if self.report.notes.len() < LISTED_MAX {
            self.report.notes.push(note);
        }
    }

    pub(super) fn tell(&self, what: What, outputs: &mut Outputs) {
        outputs.push_back(Output::Event(RolloutEvent { push: self.report.number, what }));
    }

    // === The gate at the begin of a push and at the end of each bake, which the hook opens (WAV-20) ===

    /// The evidence behind the hook's word is gone, and so is the word.
    pub(super) fn close_gate(&mut self) {
        if mem::take(&mut self.current.gate.is_open)
            && let Some(hook) = &mut self.report.hook
        {
            hook.answer = None;
        }
    }

    /// The step has other clients: the hook has to speak of these.
    pub(super) fn renew_gate(&mut self) {
        self.close_gate();
        self.current.gate.is_late = self.current.gate.is_asked;
    }

    /// Whether the hook keeps the push where it is. Asks the hook, and pauses the push `patience` after
    /// `since`.
    pub(super) fn waits_for_hook(
        &mut self,
        plan: &Plan,
        since: Time,
        outputs: &mut Outputs,
        now: Time,
    ) -> bool {
        if plan.hook.is_none() || self.current.gate.is_open {
            return false;
        }
        self.ask(outputs, now);
        if now >= since + plan.halt_on.patience {
            let reason = Reason::Hook(self.hook_said());
            match &mut self.report.verdict {
                // The words of a hook that counts down are no news.
                Some(verdict) if matches!(verdict.reason, Reason::Hook(_)) => verdict.reason = reason,
                _ => self.pause(reason, outputs, now),
            }
        }
        true
    }

    fn ask(&mut self, outputs: &mut Outputs, now: Time) {
        let is_due = self.current.gate.not_before.is_none_or(|not_before| now >= not_before);
        if !is_due || mem::replace(&mut self.current.gate.is_asked, true) {
            return;
        }
        let step = self.number_of_step();
        let previous = self.report.hook.take().filter(|previous| previous.step == step);
        self.report.hook =
            Some(HookReport { step, asked: now, answer: previous.and_then(|hook| hook.answer) });
        outputs.push_back(Output::Ask { push: self.report.number, step });
    }

    /// The latest answer about the step.
    fn hook_said(&self) -> HookAnswer {
        let answer = self.report.hook.as_ref().and_then(|hook| hook.answer.clone());
        answer.unwrap_or_else(|| HookAnswer { verdict: HookVerdict::Failed, reason: "no answer yet".into() })
    }

    /// The hook has answered the question about a step.
    pub(super) fn hear(
        &mut self,
        plan: &Plan,
        step: u8,
        answer: HookAnswer,
        outputs: &mut Outputs,
        now: Time,
    ) {
        let is_awaited = step == self.number_of_step() && mem::take(&mut self.current.gate.is_asked);
        let Some(hook) = self.report.hook.as_mut().filter(|_| is_awaited) else { return };
        self.current.gate.not_before = Some(now + ASK_AGAIN);
        let verdict = answer.verdict;
        let is_late = mem::take(&mut self.current.gate.is_late) && verdict == HookVerdict::Go;
        if hook.answer.as_ref() != Some(&answer) {
            hook.answer = (!is_late).then(|| answer.clone());
            self.tell(What::HookSaid { step, answer: answer.clone() }, outputs);
        }
        match verdict {
            HookVerdict::Wait | HookVerdict::Failed => {}
            HookVerdict::Go if is_late => {}
            HookVerdict::Go => {
                self.current.gate.is_open = true;
                // Before the first step there is no evidence to look at again.
                if step == 0 {
                    self.leave_gate(plan, outputs, now);
                }
            }
            HookVerdict::Halt => {
                // A few rejections may have blamed some of them, and the hook knows no units.
                self.report.blamed.clone_from(&self.report.units);
                self.halt(Reason::Hook(answer), outputs, now);
            }
        }
    }

    /// Whether the push waits for its first step.
    pub(super) fn is_at_gate(&self) -> bool {
        self.report.steps.is_empty() && !self.is_halted()
    }

    /// Begins the first step, if the clocks run and the hook lets the push go.
    pub(super) fn leave_gate(&mut self, plan: &Plan, outputs: &mut Outputs, now: Time) {
        if self.stands_since.is_some() || self.waits_for_hook(plan, self.current.from, outputs, now) {
            return;
        }
        if self.report.verdict.is_some() {
            self.resume(outputs);
        }
        self.ask_for_step(plan, 1, outputs, now);
    }

    // === The commands of operators ===

    /// An operator halts the push: all clients go back.
    pub(super) fn abort(&mut self, outputs: &mut Outputs, now: Time) {
        if !self.is_halted() {
            if self.report.blamed.is_empty() {
                self.report.blamed.clone_from(&self.report.units);
            }
            self.halt(Reason::Operator, outputs, now);
        } else if mem::take(&mut self.has_holders) {
            outputs.push_back(Output::Back { push: self.report.number });
            self.admit(outputs);
        }
    }

    /// The push is over without a verdict: all clients go back.
    pub(super) fn withdraw(&mut self, outputs: &mut Outputs) {
        let is_back = self.is_halted() && !self.has_holders || self.report.steps.is_empty();
        if !is_back {
            self.has_holders = false;
            outputs.push_back(Output::Back { push: self.report.number });
            outputs.push_back(Output::Admit(Admission { push: self.report.number, ..Admission::NOBODY }));
        }
    }

    /// An operator's word in place of evidence. `is_here`: for this replica alone.
    pub(super) fn promote(&mut self, plan: &Plan, step: u8, is_here: bool, outputs: &mut Outputs, now: Time) {
        if self.report.verdict.is_some() {
            self.resume(outputs);
        }
        let (reached, recorded) = (self.number_of_step(), self.recorded().0);
        match &mut self.consent {
            Some(consent) if !is_here && step > recorded => consent.promoted = Some(step),
            Some(_) if !is_here => {}
            _ if step <= reached => {}
            consent => {
                consent.iter_mut().for_each(|consent| consent.bid = None);
                self.begin_step(plan, step, outputs, now);
            }
        }
    }

    /// The push itself, if clients keep the push although halted.
    pub(super) fn holders(&self) -> Option<u64> {
        self.has_holders.then_some(self.report.number)
    }

    // === The record that outlives the process (WAV-8) ===

    pub(super) fn record(
        &self,
        digests: &BTreeMap<UnitId, (ReleaseDigest, ReleaseDigest)>,
    ) -> Option<PushRecord> {
        let report = &self.report;
        let unit = |unit: &UnitId| {
            let (stable, candidate) = digests.get(unit).copied().unwrap_or_default();
            UnitRecord { unit: *unit, stable, candidate }
        };
        let blamed = match (self.is_halted(), self.is_paused) {
            (true, _) => &report.blamed,
            // The pause of a push of several replicas stands in the ledger.
            (false, true) if self.consent.is_none() => &report.units,
            (false, _) => return None,
        };
        Some(PushRecord {
            number: report.number,
            step: self.number_of_step(),
            threshold: report.steps.last().map_or(0, |step| step.threshold),
            units: report.units.iter().map(unit).collect(),
            blamed: blamed.clone(),
        })
    }

    pub(super) fn restored(plan: &Plan, record: PushRecord, now: Time) -> Push {
        let mut push = Push::new(plan, record.number, &[], now);
        push.report.units = record.units.iter().map(|unit| unit.unit).collect();
        push.report.blamed = record.blamed;
        if record.step > 0 {
            let (ended, admitted) = (Some(now), Counts::default());
            let (number, threshold) = (record.step, record.threshold);
            push.report.steps.push(StepReport { number, threshold, began: now, ended, admitted, load: None });
        }
        (push.current.is_open, push.is_watched) = (true, false);
        let (step, clients, after) = (record.step, 0, Duration::ZERO);
        push.report.state = RolloutState::Halted;
        push.report.verdict = Some(Verdict { at: now, after, step, clients, reason: Reason::Restarted });
        push
    }
}
