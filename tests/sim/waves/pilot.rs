//! The work of the driver around the machine of a plan, in the same order: what a unit serves is published before a client
//! is admitted to it, and an order arrives at each unit at another moment.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::Time;
use sluice_engine::downstream::SourceId;
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::evidence::{
    Clients, Compared, Ended, KnownContents, Leavers as _, PushSet, PushStanding, Rejecters, Seen, condemn,
    is_current, returned, sum_up,
};
use sluice_fleet::rollout::report::{Outcome, Reason};
use sluice_fleet::rollout::{
    Admission, Command, Output, Plan, PushReport, Refused, Rollout, RolloutState, UnitId, UnitPush,
};

use super::hook::Question;
use super::relay::{Restating, Stream};
use super::world::{Job, World};
use crate::schedule::SECOND;
use crate::world::Invariant;

/// The threshold that admits all clients.
const ALL: u16 = 10_000;

/// The time between two tallies.
const TALLY_EVERY: u64 = SECOND;

/// The lost streams of nodes, without an end of their window: schedules are short.
#[derive(Debug, Default)]
struct Leavers {
    ends: RefCell<BTreeMap<String, u32>>,
    /// Clients have a halted push, and may be lost for its sake.
    is_paused: bool,
}

impl sluice_fleet::evidence::Leavers for Leavers {
    fn note(&self, node: &str, _: Time) {
        if !self.is_paused {
            *self.ends.borrow_mut().entry(node.to_owned()).or_default() += 1;
        }
    }

    fn ends_of(&self, node: &str, _: Time) -> u32 {
        self.ends.borrow().get(node).copied().unwrap_or(0)
    }
}

/// The pushes that went back or were halted and that clients rejected.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    /// The latest push.
    push: u64,
    /// The pushes that each node rejected.
    pub nodes: BTreeMap<Arc<str>, BTreeSet<u64>>,
}

/// A push between its cut and its begin.
struct Next {
    number: u64,
    set: PushSet,
    after: BTreeMap<SourceId, Arc<Snapshot>>,
}

/// The clients of a push.
pub struct Counted {
    pub number: u64,
    set: PushSet,
    candidates: BTreeMap<SourceId, Arc<Snapshot>>,
    clients: Clients,
}

/// An order to units about their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Cut(u64),
    PutOff(u64),
    Give(u64),
    Back(u64),
    Stay(u64),
    Settle(u64),
    Serve(u64),
    Rest,
    Open,
}

/// The place of the task in its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Carries out what changes and commands led to.
    Changes,
    /// Ends holds that a command has left, and keeps the operator's word.
    Obeyed,
    /// The same, of a tally.
    Tally,
    Resting,
}

/// A unit at a cut: the stable content and the candidate, and the release that the candidate returns to.
type Cut = (UnitId, Arc<Snapshot>, Arc<Snapshot>, Option<u64>);

pub struct Pilot {
    pub plan: Arc<Plan>,
    pub rollout: Rollout,
    /// The admission in force.
    pub admission: Admission,
    /// The latest word of the machine, which comes into force next.
    stated: Admission,
    pub due: Option<u64>,
    pub known: KnownContents,
    next: Option<Next>,
    pub counted: Option<Counted>,
    pub rejecters: Rejecters,
    /// The contents that the plan refuses, as the units know them.
    pub refused: Refused,
    leavers: Leavers,
    /// The latest push that went back, or that was halted.
    restates: Option<u64>,
    pub rejected: Rejected,
    pub lost: BTreeSet<UnitId>,
    /// The units that know that their hold outlives their names.
    pub kept: BTreeSet<UnitId>,
    is_changed: bool,
    tally_due: u64,
    changed: BTreeSet<usize>,
    pub commands: Vec<Command>,
    has_obeyed: bool,
    ended: Vec<Ended>,
    /// The first rejection of each stream since the last tally.
    heard: BTreeMap<u64, Seen>,
    phase: Phase,
    is_noted: bool,
    order: Option<Order>,
    /// The units that have not carried out the order.
    waits: BTreeSet<usize>,
    cut: Vec<Cut>,
    /// The units that a cut is put off for.
    outside: BTreeSet<usize>,
    /// The question to the hook, until the task has heard the answer.
    pub asked: Option<Question>,
    /// A unit was not current when the cut was ordered.
    is_cut_stale: bool,
}

impl Pilot {
    pub fn new(plan: Arc<Plan>) -> Pilot {
        Pilot {
            rollout: Rollout::new(plan.clone()),
            plan,
            admission: Admission::NOBODY,
            stated: Admission::NOBODY,
            due: None,
            known: KnownContents::default(),
            next: None,
            counted: None,
            rejecters: Rejecters::default(),
            refused: Refused::default(),
            leavers: Leavers::default(),
            restates: None,
            rejected: Rejected::default(),
            lost: BTreeSet::new(),
            kept: BTreeSet::new(),
            is_changed: false,
            tally_due: 0,
            changed: BTreeSet::new(),
            commands: Vec::new(),
            has_obeyed: false,
            ended: Vec::new(),
            heard: BTreeMap::new(),
            phase: Phase::Idle,
            is_noted: false,
            order: None,
            waits: BTreeSet::new(),
            cut: Vec::new(),
            outside: BTreeSet::new(),
            asked: None,
            is_cut_stale: false,
        }
    }

    /// Whether the task waits between two rounds.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The latest push that went back, or was halted, if this node rejected it or one before.
    pub fn rejected_by(&self, node: &str) -> Option<u64> {
        self.rejected.nodes.contains_key(node).then_some(self.rejected.push)
    }

    /// Whether this node rejected this push, and the push went back or was halted.
    pub fn has_rejected(&self, node: &str, push: u64) -> bool {
        self.rejected.nodes.get(node).is_some_and(|pushes| pushes.contains(&push))
    }
}

impl World {
    // === notes ===

    /// Wakes the plan's task.
    pub fn wake_pilot(&mut self) {
        if self.pilot.phase == Phase::Idle && !std::mem::replace(&mut self.pilot.is_noted, true) {
            let delay = self.rng.below(300);
            self.after(delay, Job::Pilot);
        }
    }

    pub fn note_change(&mut self, unit: usize) {
        self.pilot.changed.insert(unit);
        self.wake_pilot();
    }

    /// The server has confirmed the content from before a restart, so a halted push may be gone.
    pub fn note_confirmed(&mut self, unit: usize) {
        self.note_change(unit);
    }

    pub fn note_end(&mut self, stream: &Stream, is_lost: bool) {
        let node = self.clients[stream.client].node.clone();
        let Some(counted) = &self.pilot.counted else {
            if is_lost {
                self.pilot.leavers.note(&node.id, self.time());
                *self.reference.leavers.entry(self.clients[stream.client].plan.node).or_default() += 1;
            }
            return;
        };
        let served = (stream.push, &stream.found);
        let latest = |id| self.served(stream.client, served, id);
        let due = |id| counted.candidates.get(&id).cloned().or_else(|| latest(id));
        let time = self.time();
        let standing =
            PushStanding::of_client(&stream.session, &counted.set, &mut Compared::default(), &due, time);
        if is_lost && standing.rejections.is_empty() && self.pilot.leavers.ends_of(&node.id, time) < 3 {
            self.reference_loses(stream);
        }
        if is_lost || !standing.rejections.is_empty() {
            self.pilot.ended.push(Ended { stream: stream.id, node: Some(node), at: time, standing });
        }
    }

    pub fn note_rejection(&mut self, stream: &Stream) {
        let node = self.clients[stream.client].node.clone();
        let Some(counted) = &self.pilot.counted else { return };
        let served = (stream.push, &stream.found);
        let due =
            |id| counted.candidates.get(&id).cloned().or_else(|| self.served(stream.client, served, id));
        let time = self.time();
        let standing =
            PushStanding::of_client(&stream.session, &counted.set, &mut Compared::default(), &due, time);
        if !standing.rejections.is_empty() {
            let seen = Seen { stream: stream.id, node: Some(node), standing, is_relay: false };
            self.pilot.heard.entry(stream.id).or_insert(seen);
        }
    }

    // === a round ===

    /// One round of the plan's task.
    pub fn fly(&mut self) {
        self.pilot.due = None;
        if self.pilot.phase != Phase::Idle {
            return;
        }
        self.pilot.is_noted = false;
        let time = self.time();
        for unit in std::mem::take(&mut self.pilot.changed) {
            self.compare_unit(unit);
        }
        let former = self.step_begun();
        self.pilot.rollout.handle_timeout(time);
        self.hear_hook();
        self.note_begun(former);
        for command in std::mem::take(&mut self.pilot.commands) {
            self.pilot.has_obeyed = true;
            self.obey(command);
        }
        self.pilot.phase = Phase::Changes;
        self.carry_out();
    }

    /// A step that began before the operator's words of the round.
    fn note_begun(&mut self, former: (u64, usize)) {
        let begun = self.step_begun();
        self.reference.begun = (begun != former && begun.1 > 0).then_some(begun);
        if self.reference.begun.is_some() && self.is_frozen() {
            self.fail(Invariant::PinFreeze, || format!("{begun:?} begins in a freeze"));
        }
    }

    fn obey(&mut self, command: Command) {
        let time = self.time();
        self.reference_before_command(&command);
        let (former, push) = (self.step_begun(), self.pilot.rollout.report().push);
        let done = self.pilot.rollout.command(command.clone(), time);
        let begun = self.step_begun();
        if begun != former {
            if begun.1 > 0 && self.is_frozen() {
                self.fail(Invariant::PinFreeze, || format!("{command:?} begins {begun:?} in a freeze"));
            }
            self.reference.hooked.passes.insert(begun);
        }
        if let Some(push) = push {
            self.judge_ended_by_word(&command, &push);
        }
        self.tell(|| format!("operator: {command:?}: {done:?}"));
        self.note(40, u64::from(done.is_ok()), 0);
        self.reference_after_command(&command, done.is_ok());
    }

    /// A command ends the push that was under way only if it is a promotion, and the push was paused after its last step.
    fn judge_ended_by_word(&mut self, command: &Command, push: &PushReport) {
        let past = self.pilot.rollout.report().past;
        let end = past.iter().find(|of| of.number == push.number).and_then(|of| of.end);
        if !end.is_some_and(|end| matches!(end.outcome, Outcome::Finished | Outcome::Unjudged)) {
            return;
        }
        let is_last = push.steps.last().is_some_and(|step| step.number == push.step_count);
        if matches!(command, Command::Promote { .. }) && push.state == RolloutState::Paused && is_last {
            self.reference.hooked.passes.insert((push.number, 0));
        } else {
            let text = format!("{command:?} ends push {} while it is {:?}", push.number, push.state);
            self.fail(Invariant::BlastRadius, || text);
        }
    }

    /// Stable goes only after all clients are admitted: until then each unit is served from one release (WAV-2).
    fn judge_settle(&mut self, push: u64) {
        use RolloutState::{Paused, Settling, Waving};
        let of = self.pilot.admission;
        let is_open = matches!(of.state, Waving | Paused | Settling);
        if of.push != push || of.threshold < ALL || !is_open {
            let text = || format!("push {push} is stable before all clients are admitted: {of:?}");
            self.fail(Invariant::OneRelease, text);
        }
    }

    /// With `on_halt: stay`, only an operator's halt takes a push from clients that have it (WAV-16), also if it has condemned content (QUA-5).
    fn judge_back(&mut self, push: u64) {
        let halted = self.pilot.rollout.under_way().filter(|of| of.number == push);
        let Some(halted) = halted.filter(|of| of.state == RolloutState::Halted) else { return };
        let is_word = halted.verdict.as_ref().is_none_or(|verdict| verdict.reason == Reason::Operator);
        // A halted push goes back later, too.
        if !self.plan.stays || is_word || self.reference.push.is_halted {
            return;
        }
        let is_condemned = !halted.condemned.is_empty();
        let invariant = if is_condemned { Invariant::Condemned } else { Invariant::Admission };
        self.fail(invariant, || format!("the halt of push {push} takes it from the clients that have it"));
    }

    /// The push under way, and its latest step.
    fn step_begun(&self) -> (u64, usize) {
        let step = |push: &PushReport| usize::from(push.reached());
        self.pilot.rollout.under_way().map_or((0, 0), |push| (push.number, step(push)))
    }

    fn carry_out(&mut self) {
        while self.failure.is_none() && self.pilot.waits.is_empty() {
            let Some(output) = self.pilot.rollout.poll_output() else {
                self.end_phase();
                if self.pilot.phase == Phase::Idle {
                    return;
                }
                continue;
            };
            self.pilot.is_changed = true;
            match output {
                Output::Ask { push, step } => self.ask_hook(push, step),
                Output::Cut { push, units } => {
                    let units: BTreeSet<usize> =
                        units.iter().filter_map(|unit| self.unit_of(*unit)).collect();
                    units.iter().for_each(|unit| self.note_reach(*unit));
                    if !self.is_put_off(&units) {
                        self.pilot.is_cut_stale = units.iter().any(|unit| !self.is_current(*unit));
                        self.send_order(Order::Cut(push), units);
                    }
                }
                Output::Admit(admission) => {
                    self.begin_push(admission.push);
                    let former = self.pilot.stated;
                    let is_begun = admission.push == former.push && former.step > 0;
                    self.pilot.stated = admission;
                    let admits = admission.state != RolloutState::Halted && admission.step > 0;
                    match admits && !is_begun {
                        true => self.send_order(Order::Give(admission.push), self.all_units()),
                        false => self.admit(admission),
                    }
                }
                Output::Event(event) => self.judge_event(&event),
                Output::Release { push } => self.release(push),
                Output::Back { push } => {
                    self.judge_back(push);
                    self.send_order(Order::Back(push), self.all_units());
                }
                Output::Stay { push } => self.send_order(Order::Stay(push), self.all_units()),
                Output::Settle { push } => {
                    self.judge_settle(push);
                    self.send_order(Order::Settle(push), self.all_units());
                }
                Output::Serve { release } => self.send_order(Order::Serve(release), self.all_units()),
                Output::Open => self.send_order(Order::Open, self.all_units()),
                // The plans of these worlds have no ledger.
                Output::Write(_) => {}
            }
        }
    }

    /// Whether a cut would be put off, and takes a halted content from clients that keep it.
    fn is_put_off(&mut self, units: &BTreeSet<usize>) -> bool {
        if !self.pilot.rollout.has_holders() {
            return false;
        }
        let looked = units.iter().filter_map(|unit| {
            let (id, published) = (UnitId(self.id_of(*unit)), &self.units[*unit].published);
            let stable = published.held()?;
            let former = self.pilot.known.candidate(id);
            Some(sum_up(&self.pilot.plan, id, stable, &published.live, former).1)
        });
        let looked = looked.collect();
        let time = self.time();
        let is_put_off = self.pilot.rollout.look(looked, time);
        if is_put_off {
            self.tell(|| format!("plan: no cut of units {units:?}"));
        }
        is_put_off
    }

    fn is_current(&self, unit: usize) -> bool {
        is_current(&self.pilot.plan, &self.units[unit].live)
    }

    fn all_units(&self) -> BTreeSet<usize> {
        (0..self.units.len()).collect()
    }

    /// All outputs so far are carried out.
    fn end_phase(&mut self) {
        match self.pilot.phase {
            Phase::Changes if std::mem::take(&mut self.pilot.has_obeyed) => self.rest(Phase::Obeyed),
            Phase::Obeyed => {
                self.keep();
                self.pilot.is_changed = false;
                self.pilot.phase = Phase::Changes;
            }
            Phase::Changes if self.now >= self.pilot.tally_due => {
                self.pilot.tally_due = self.now + TALLY_EVERY;
                self.follow_servers();
                self.look_at_awaited();
                self.tally();
                self.pilot.phase = Phase::Tally;
            }
            Phase::Tally if self.pilot.is_changed => self.rest(Phase::Resting),
            Phase::Resting => {
                self.keep();
                self.pilot.is_changed = false;
                self.end_round();
            }
            Phase::Changes | Phase::Tally | Phase::Idle => self.end_round(),
        }
    }

    /// Ends holds without a difference once no push stands.
    fn rest(&mut self, phase: Phase) {
        let is_open = self.pilot.rollout.state() == RolloutState::Open;
        let holds = self.units.iter().any(|unit| unit.published.lanes.is_some());
        self.pilot.phase = phase;
        if is_open && holds {
            self.send_order(Order::Rest, self.all_units());
        }
    }

    fn end_round(&mut self) {
        self.keep_holds();
        if self.plan.siblings {
            self.refuse();
        }
        let pilot = &mut self.pilot;
        pilot.phase = Phase::Idle;
        let is_halted = pilot.rollout.state() == RolloutState::Halted;
        pilot.leavers.is_paused = is_halted && pilot.stated.has_holders();
        let timeout = pilot.rollout.poll_timeout();
        let looks = pilot.rollout.wants_tally() || timeout.is_some() || pilot.is_changed;
        let is_behind = pilot.rollout.report().behind_from.is_some();
        let tally = (looks || is_behind).then_some(pilot.tally_due);
        let is_answered = pilot.asked.as_ref().is_some_and(Question::is_answered);
        let is_awake = !pilot.changed.is_empty() || !pilot.commands.is_empty() || is_answered;
        let timeout = timeout.map(|at| self.relative(at));
        self.pilot.due = [timeout, tally].into_iter().flatten().min().map(|at| at.max(self.now + 1));
        if is_awake {
            self.wake_pilot();
        }
    }

    /// The next round counts the clients, too.
    pub fn tally_soon(&mut self) {
        self.pilot.tally_due = self.now;
    }

    // === orders to units ===

    fn send_order(&mut self, order: Order, units: BTreeSet<usize>) {
        self.tell(|| format!("plan: {order:?} to units {units:?}"));
        self.pilot.order = Some(order);
        self.pilot.waits = units.clone();
        for unit in units {
            let delay = self.rng.below(500);
            self.after(delay, Job::Order(unit));
        }
        if self.pilot.waits.is_empty() {
            self.finish_order();
        }
    }

    pub fn take_order(&mut self, unit: usize) {
        // The relay may have begun anew.
        let Some(order) = self.pilot.order.filter(|_| self.pilot.waits.remove(&unit)) else { return };
        if let Order::Settle(push) = order
            && self.units[unit].published.candidate_of(push).is_some()
        {
            let id = UnitId(self.id_of(unit));
            self.pilot.known.settle(id);
        }
        let lanes = &mut self.units[unit].lanes;
        match order {
            Order::Cut(push) => lanes.cut(push),
            Order::PutOff(push) => lanes.put_off(push),
            Order::Give(push) => lanes.give(push),
            Order::Back(push) => lanes.go_back(push),
            Order::Stay(push) => lanes.stay(push),
            Order::Settle(push) => lanes.settle(push),
            Order::Serve(number) => {
                let release = lanes.released().filter(|release| release.push <= number).last().cloned();
                release.iter().for_each(|release| lanes.serve(release));
            }
            Order::Rest => lanes.rest(),
            Order::Open => lanes.release(),
        }
        self.reference_ordered(unit, order);
        self.publish_lanes(unit);
        if matches!(order, Order::Serve(_) | Order::Open) {
            self.wake_all(unit);
        }
        let published = &self.units[unit].published;
        if let (Order::Cut(_), Some(lanes)) = (order, &published.lanes) {
            let stable = &lanes.stable;
            let candidate = lanes.candidate.as_ref().map_or(&published.live, |(_, of)| of).clone();
            let released: Vec<_> = self.units[unit].lanes.released().cloned().collect();
            let returns_to = returned(&self.pilot.plan, released.iter(), stable, &candidate);
            let content = (UnitId(self.id_of(unit)), stable.clone(), candidate, returns_to);
            self.pilot.cut.push(content);
        }
        if self.pilot.waits.is_empty() {
            self.finish_order();
            self.carry_out();
        }
    }

    pub fn wake_all(&mut self, unit: usize) {
        let id = SourceId(self.id_of(unit));
        let streams = self.streams.iter().flatten();
        let of_unit = streams.filter(|stream| stream.unit == unit || stream.told.contains(&id));
        let all: Vec<_> = of_unit.map(|stream| stream.id).collect();
        all.into_iter().for_each(|id| self.wake(id));
    }

    fn finish_order(&mut self) {
        let Some(order) = self.pilot.order.take() else { return };
        match order {
            Order::Cut(number) => self.finish_cut(number),
            Order::Open => self.pilot.known.clear(),
            Order::Give(_) => self.admit(self.pilot.stated),
            Order::Stay(_) => {}
            Order::PutOff(_) => {
                std::mem::take(&mut self.pilot.outside).into_iter().for_each(|unit| self.compare_unit(unit));
            }
            _ => {
                if let Order::Serve(_) = order {
                    let units: Vec<_> = (0..self.units.len()).map(|unit| UnitId(self.id_of(unit))).collect();
                    self.pilot.rollout.serves(units);
                }
                for unit in 0..self.units.len() {
                    if let Order::Serve(_) = order {
                        let id = UnitId(self.id_of(unit));
                        self.pilot.known.know(id, self.units[unit].live.clone());
                    }
                    self.compare_unit(unit);
                }
            }
        }

        if let Order::Back(push) | Order::Stay(push) = order {
            self.pilot.restates = Some(push);
            self.restate_rejecters();
        }
    }

    fn finish_cut(&mut self, number: u64) {
        let (mut changes, mut pushed, mut after) = (Vec::new(), Vec::<UnitPush>::new(), BTreeMap::new());
        let (former, mut outside) = (self.pilot.known.candidates(), BTreeSet::new());
        let all = std::mem::take(&mut self.pilot.cut);
        let units: BTreeSet<_> = all.iter().filter_map(|(unit, ..)| self.unit_of(*unit)).collect();
        for (unit, stable, candidate, returns_to) in all {
            let latest = former.get(&unit).map(|latest| &**latest);
            let (of_unit, mut push) = sum_up(&self.pilot.plan, unit, &stable, &candidate, latest);
            push.returns_to = returns_to;
            changes.push(of_unit);
            // Without a known change the unit is in no push.
            if push.is_empty() {
                outside.extend(self.unit_of(unit));
            } else {
                self.pilot.known.know(unit, candidate.clone());
                after.insert(SourceId(unit.0), candidate);
            }
            pushed.push(push);
        }
        // The push has changes that were none of a push at the order before.
        let cut: Vec<_> = after.keys().filter_map(|id| self.unit_of(UnitId(id.0))).collect();
        cut.into_iter().for_each(|unit| self.compare_unit(unit));
        let set = PushSet::new(changes);
        let now = self.time();
        condemn(&mut pushed, self.pilot.rejecters.condemned_in(&set, now));
        self.pilot.next = Some(Next { number, set, after });
        let time = self.time();
        // The server took the halted push back in this moment: its clients go back, too (WAV-17).
        let is_back = pushed.iter().all(UnitPush::is_empty);
        if !self.pilot.rollout.ready(pushed, time) {
            // The content is part of no push yet, and must be found again.
            self.pilot.known.restore(former);
            outside = units;
            if self.pilot.is_cut_stale && self.pilot.admission.holders_only && !is_back {
                self.fail(Invariant::Admission, || {
                    "a cut that is put off takes a halted push from its clients".to_owned()
                });
            }
        }
        if !outside.is_empty() {
            self.pilot.outside.clone_from(&outside);
            self.send_order(Order::PutOff(number), outside);
        }
    }

    /// The latest cut is the push under way.
    fn begin_push(&mut self, push: u64) {
        if let Some(next) = self.pilot.next.take_if(|next| next.number == push) {
            let Next { number, set, after } = next;
            after.keys().for_each(|unit| self.pilot.known.begin(UnitId(unit.0)));
            self.pilot.rejecters.next_push();
            let clients = Clients::default();
            self.pilot.counted = Some(Counted { number, set, candidates: after, clients });
            self.pilot.heard.clear();
            self.pilot.tally_due = self.now;
        }
    }

    fn admit(&mut self, admission: Admission) {
        self.tell(|| format!("plan: {admission:?}"));
        self.judge_admission(&admission);
        for id in 0..self.streams.len() {
            let equal = self.streams[id].as_ref().and_then(|stream| self.has_equal(stream));
            if let (Some(stream), true) = (&mut self.streams[id], equal.is_some()) {
                stream.of.equal = equal;
            }
        }
        if admission.step == 0 && admission.holders_of.is_some() {
            self.streams.iter_mut().flatten().for_each(|stream| stream.of.may_be_back = true);
        }
        let before = std::mem::replace(&mut self.pilot.admission, admission);
        let is_moved = |stream: &Stream| {
            let seat = self.clients[stream.client].seat;
            let [had, has] = [before, admission].map(|of| of.admits(seat, stream.push));
            had != has || before.push != admission.push && has
        };
        let moved: Vec<_> =
            self.streams.iter().flatten().filter(|stream| is_moved(stream)).map(|stream| stream.id).collect();
        moved.into_iter().for_each(|id| self.wake(id));
    }

    fn release(&mut self, number: u64) {
        self.pilot.counted.take_if(|counted| counted.number == number);
        self.pilot.next.take_if(|next| next.number == number);
        if self.pilot.counted.is_none() {
            self.pilot.ended.clear();
            self.pilot.heard.clear();
        }
    }

    // === comparisons and counts ===

    /// Compares the newest content of a unit with stable and the latest candidate.
    fn compare_unit(&mut self, unit: usize) {
        self.reference_compares(unit);
        let (id, time) = (UnitId(self.id_of(unit)), self.time());
        let (is_kept, last) = (self.pilot.rollout.keeps(id), self.pilot.rollout.last_push());
        let published = &self.units[unit].published;
        let compared = self.pilot.known.compare(&self.pilot.plan, id, published, is_kept, last);
        self.pilot.is_changed |= compared.has_forgotten;
        let differs = compared.differs;
        self.tell(|| format!("unit {unit}: {differs:?}"));
        self.pilot.rollout.compared(id, differs, time);
    }

    /// Compares units whose server has not answered for all types since a restart.
    fn look_at_awaited(&mut self) {
        for unit in self.all_units() {
            let id = UnitId(self.id_of(unit));
            if self.pilot.known.awaits(id) {
                self.compare_unit(unit);
                self.pilot.known.hear(&self.pilot.plan, id, &self.units[unit].live);
            }
        }
    }

    fn follow_servers(&mut self) {
        let report = self.pilot.rollout.report();
        let of_push = report.push.iter().flat_map(|push| push.units.iter().copied());
        let all: BTreeSet<UnitId> = of_push.chain(report.waiting).collect();
        for id in all {
            if let Some(unit) = self.unit_of(id) {
                self.note_reach(unit);
            }
        }
    }

    fn note_reach(&mut self, unit: usize) {
        let (id, time) = (UnitId(self.id_of(unit)), self.time());
        if self.units[unit].live.standing().reach().is_lost() {
            if self.pilot.lost.insert(id) {
                self.pilot.rollout.lost(id, time);
            }
        } else if self.pilot.lost.remove(&id) {
            self.pilot.rollout.heard(id, time);
        }
    }

    fn tally(&mut self) {
        if !self.pilot.rollout.wants_tally() {
            return;
        }
        let time = self.time();
        let (admission, plan) = (self.pilot.admission, self.pilot.plan.clone());
        let Some(mut counted) = self.pilot.counted.take() else { return };
        let mut rejecters = std::mem::take(&mut self.pilot.rejecters);
        let mut count = counted.clients.begin(&plan, admission, &mut rejecters, time);
        let heard = std::mem::take(&mut self.pilot.heard);
        counted.clients.hear(heard.into_values(), &mut count, &mut rejecters);
        let mut compared = Compared::default();
        let mut told = Vec::new();
        for stream in self.streams.iter().flatten() {
            let latest = |id| self.served(stream.client, (stream.push, &stream.found), id);
            let due = |id| counted.candidates.get(&id).cloned().or_else(|| latest(id));
            let standing = PushStanding::of_client(&stream.session, &counted.set, &mut compared, &due, time);
            let node = Some(self.clients[stream.client].node.clone());
            told.push(format!("{}:{:?}/{:?}", stream.client, standing.state, self.standing(stream)));
            let seen = Seen { stream: stream.id, node, standing, is_relay: false };
            counted.clients.see(seen, &mut count, &mut rejecters);
        }
        let ended = std::mem::take(&mut self.pilot.ended);
        let tally = counted.clients.finish(count, ended.into_iter(), &mut rejecters, &self.pilot.leavers);
        self.pilot.rejecters = rejecters;
        self.pilot.counted = Some(counted);
        self.tell(|| format!("tally {}", told.join(" ")));
        self.judge_tally(&tally);
        self.pilot.rollout.tally(tally.clone(), time);
        self.judge_after_tally();
        self.judge_places(&tally);
        self.judge_waiting(&tally);
        self.restate_rejecters();
    }

    /// Restates the differences of a push that went back, or that was halted, to the clients with a rejection.
    fn restate_rejecters(&mut self) {
        let Some(push) = self.pilot.restates else { return };
        let Some(counted) = self.pilot.counted.as_ref().filter(|counted| counted.number == push) else {
            return;
        };
        let nodes = counted.clients.rejecting_nodes();
        self.pilot.rejected.push = push;
        let rejected = &mut self.pilot.rejected.nodes;
        let new: BTreeSet<_> =
            nodes.into_iter().filter(|node| rejected.entry(node.clone()).or_default().insert(push)).collect();
        self.pilot.is_changed |= !new.is_empty();
        for id in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[id] else { continue };
            if new.contains(&*self.clients[stream.client].node.id) {
                stream.restating = Some(Restating::of(push));
                self.wake(id as u64);
            }
        }
    }
}
