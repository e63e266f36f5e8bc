//! The hook of a plan: its answers, the driver's part in asking, and the judge of both (WAV-20).

use std::collections::BTreeSet;

use sluice_fleet::rollout::hook::{HookAnswer, HookVerdict};
use sluice_fleet::rollout::report::{Reason, Verdict};
use sluice_fleet::rollout::{RolloutState, Tally};

use super::claims::ROUND;
use super::world::{Job, World};
use crate::schedule::{MILLI, SECOND};
use crate::world::Invariant;

/// The time from an answer to the next question about the same step.
const ASK_AGAIN: u64 = 10 * SECOND;

/// The hook of a world.
#[derive(Clone, Debug)]
pub struct HookPlan {
    /// The percentage of answers that let the push go on.
    pub goes: u64,
    /// The maximum time of a prompt answer.
    pub within: u64,
    pub timeout: u64,
}

/// The question under way, as in the driver.
#[derive(Debug)]
pub struct Question {
    number: u64,
    push: u64,
    step: u8,
    said: Option<HookVerdict>,
}

impl Question {
    pub fn is_answered(&self) -> bool {
        self.said.is_some()
    }
}

/// A push and its step, 0 before the first.
type Gate = (u64, usize);

/// What the judge knows of the hook.
#[derive(Clone, Debug, Default)]
pub struct Hooked {
    /// The question without an answer.
    open: Option<Gate>,
    /// The clients of the step have changed since the question.
    is_late: bool,
    /// The latest answer that was awaited, and its time.
    said: Option<(Gate, HookVerdict, u64)>,
    /// The hook let this gate be passed.
    allowed: Option<Gate>,
    /// The machine may have seen since that the evidence is gone.
    may_be_gone: bool,
    /// The steps that begin by an operator's word.
    pub passes: BTreeSet<Gate>,
    /// The gate that waits for the hook, and the time of the first question.
    waits: Option<(Gate, u64)>,
    /// Since then clocks run and evidence stands, without a break.
    waits_since: u64,
}

impl World {
    // === the driver's part ===

    /// Asks the hook. A question under way is given up.
    pub fn ask_hook(&mut self, push: u64, step: u8) {
        self.judge_question((push, usize::from(step)));
        let Some(hook) = self.plan.hook.clone() else { return };
        if self.pilot.counted.as_ref().is_none_or(|counted| counted.number != push) {
            return;
        }
        let (said, delay) = self.draw_answer(&hook);
        self.tell(|| format!("the hook is asked about push {push}, step {step}: {said:?} after {delay} µs"));
        self.questions += 1;
        let number = self.questions;
        self.pilot.asked = Some(Question { number, push, step, said: None });
        self.after(delay, Job::HookSaid(number, said));
    }

    fn draw_answer(&mut self, hook: &HookPlan) -> (HookVerdict, u64) {
        let prompt = 1 + self.rng.below(if self.is_healed { 20 * MILLI } else { hook.within });
        if self.is_healed || self.rng.percent(hook.goes) {
            return (HookVerdict::Go, prompt);
        }
        match self.rng.below(8) {
            0..3 => (HookVerdict::Wait, prompt),
            3 => (HookVerdict::Halt, prompt),
            4 => (HookVerdict::Failed, prompt),
            // A late answer, and none at all.
            5 => (HookVerdict::Go, 1 + self.rng.below(hook.timeout)),
            6 => (HookVerdict::Halt, 1 + self.rng.below(hook.timeout)),
            _ => (HookVerdict::Failed, hook.timeout),
        }
    }

    pub fn take_answer(&mut self, number: u64, said: HookVerdict) {
        if let Some(question) = self.pilot.asked.as_mut().filter(|of| of.number == number) {
            question.said = Some(said);
            self.wake_pilot();
        }
    }

    /// The plan's task hears an answer that has arrived.
    pub fn hear_hook(&mut self) {
        let Some(Question { push, step, said: Some(said), .. }) =
            self.pilot.asked.take_if(|of| of.said.is_some())
        else {
            return;
        };
        self.tell(|| format!("the hook says {said:?} about push {push}, step {step}"));
        self.note(44, push, u64::from(step) << 2 | said as u64);
        let time = self.time();
        self.pilot.rollout.hook_said(push, step, answer(said), time);
        // A push that may go on does so by the next tally.
        self.tally_soon();
        self.judge_answer((push, usize::from(step)), said);
    }

    // === the judge ===

    /// The gate of the push under way.
    fn gate(&self) -> Gate {
        (self.reference.push.number, self.reference.push.step)
    }

    fn is_lacking(&self) -> bool {
        let (accepted, others) = self.evidence();
        others > 0 && accepted * 100 < 95 * (accepted + others)
    }

    /// The hook is asked once, when nothing but its word is missing.
    fn judge_question(&mut self, asked: Gate) {
        let hooked = &self.reference.hooked;
        let again = hooked.said.filter(|(gate, ..)| *gate == asked).map(|(.., at)| at + ASK_AGAIN);
        let fault = if self.plan.hook.is_none() {
            Some("there is no hook")
        } else if asked != self.gate() || self.reference.push.is_halted {
            Some("no such step is under way")
        } else if hooked.open == Some(asked) {
            Some("a question about it is open")
        } else if again.is_some_and(|again| self.now < again) {
            Some("the answer came a moment ago")
        } else if hooked.allowed == Some(asked) && !hooked.may_be_gone {
            Some("the hook let it go on")
        } else if self.is_frozen() || self.stands() {
            Some("the clocks stand")
        } else if asked.1 > 0 && self.now < self.reference.push.step_began + self.bake() {
            Some("it bakes")
        } else if asked.1 > 0 && self.is_lacking() {
            Some("clients have not spoken for it")
        } else {
            None
        };
        if let Some(fault) = fault {
            return self.fail(Invariant::Hygiene, || format!("the hook is asked about {asked:?}: {fault}"));
        }
        let now = self.now;
        let hooked = &mut self.reference.hooked;
        (hooked.open, hooked.allowed, hooked.is_late) = (Some(asked), None, false);
        if hooked.waits.is_none_or(|(gate, _)| gate != asked) {
            (hooked.waits, hooked.waits_since) = (Some((asked, now)), now);
        }
    }

    /// The step admits others: the hook has to speak of these.
    pub fn renew_question(&mut self) {
        let (gate, hooked) = (self.gate(), &mut self.reference.hooked);
        hooked.allowed.take_if(|allowed| *allowed == gate);
        hooked.is_late = hooked.open == Some(gate);
    }

    fn judge_answer(&mut self, asked: Gate, said: HookVerdict) {
        let is_awaited = self.reference.hooked.open.take_if(|open| *open == asked).is_some()
            && asked == self.gate()
            && !self.reference.push.is_halted;
        if !is_awaited {
            return;
        }
        let now = self.now;
        let hooked = &mut self.reference.hooked;
        let is_late = std::mem::take(&mut hooked.is_late);
        hooked.said = Some((asked, said, now));
        if is_late && said == HookVerdict::Go {
            return;
        }
        (hooked.allowed, hooked.may_be_gone) = ((said == HookVerdict::Go).then_some(asked), false);
        let push = self.pilot.rollout.under_way();
        let goes_on = push.is_some_and(|of| of.number == asked.0 && of.state != RolloutState::Halted);
        if said == HookVerdict::Halt && goes_on {
            self.fail(Invariant::BlastRadius, || format!("the hook halts {asked:?}, and it goes on"));
        }
        // The machine tells of the halt later, and may be told to begin again before.
        self.reference.push.is_halted |= said == HookVerdict::Halt;
    }

    /// A step begins, or the push is over: the hook has let the push go on, or an operator goes past it. `is_free`: no question is due.
    pub fn judge_hooked(&mut self, is_free: bool, next: usize, what: impl FnOnce() -> String) {
        let (gate, hooked) = (self.gate(), &mut self.reference.hooked);
        let is_passed = hooked.passes.remove(&(gate.0, next));
        // A step whose end the hook was asked about is no deserted one.
        let is_free = is_free && hooked.waits.is_none_or(|(of, _)| of != gate);
        let is_allowed = hooked.allowed == Some(gate);
        if self.plan.hook.is_some() && !is_free && !is_passed && !is_allowed {
            let text = format!("{}, and the hook has not let {gate:?} go on", what());
            self.fail(Invariant::BlastRadius, || text);
        }
    }

    pub fn judge_hook_halt(&mut self) {
        let gate = self.gate();
        let said = self.reference.hooked.said;
        if said.is_none_or(|(of, said, _)| of != gate || said != HookVerdict::Halt) {
            self.fail(Invariant::Truth, || format!("the hook halts {gate:?}, and said {said:?}"));
        }
    }

    pub fn judge_pause(&mut self, verdict: &Verdict) {
        let Reason::Hook(told) = &verdict.reason else { return };
        let (gate, hooked) = (self.gate(), &self.reference.hooked);
        // A word that let the push go on is forgotten when the evidence is gone: no answer counts as a failure.
        let said = hooked.said.filter(|(of, said, _)| *of == gate && *said != HookVerdict::Go);
        let said = said.map_or(HookVerdict::Failed, |(_, said, _)| said);
        let waits = hooked.allowed != Some(gate) || hooked.may_be_gone;
        let asked = hooked.waits.filter(|(of, _)| *of == gate && waits);
        let is_waiting = asked.is_some();
        // The clocks of the first step begin with the push, and those of others with the step.
        let from = match gate.1 {
            0 => asked.map_or(0, |(_, first)| first.saturating_sub(ROUND)),
            _ => self.reference.push.step_began + self.bake(),
        };
        let is_due = self.now >= from + self.plan.patience;
        if told.verdict != said || !is_due || !is_waiting {
            let text = format!("{gate:?} is paused by {told:?}, due: {is_due}, waits: {is_waiting}");
            self.fail(Invariant::Truth, || format!("{text}, and the hook said {said:?}"));
        }
    }

    /// Without the hook's word nothing moves; after `patience` the plan says so.
    pub fn judge_waiting(&mut self, tally: &Tally) {
        if self.plan.hook.is_none() {
            return;
        }
        let of = &tally.admitted;
        self.reference.hooked.may_be_gone |= of.evidence() == 0 || of.accepted * 100 < 95 * of.evidence();
        let (gate, now, patience) = (self.gate(), self.now, self.plan.patience);
        // Whether the bake of a step that admits others begins anew depends on what clients had that the wire does not tell.
        let from = self.reference.push.step_began.max(self.reference.push.raised);
        let baked = from + if gate.1 > 0 { self.bake() } else { 0 };
        let (stands, is_lacking) = (self.stands(), gate.1 > 0 && self.is_lacking());
        let is_moving = self.pilot.rollout.under_way().is_some_and(|of| {
            of.number == gate.0 && matches!(of.state, RolloutState::Waving | RolloutState::Settling)
        });
        let hooked = &mut self.reference.hooked;
        if is_lacking && !stands {
            // The word was about evidence that is gone.
            hooked.allowed.take_if(|allowed| *allowed == gate);
        }
        // The step may wait for another client in the place of those who are gone.
        let has_places = of.evidence() == 0 && tally.voices == 0 && !tally.smallest.is_empty();
        if stands || is_lacking || has_places {
            hooked.waits_since = now;
        }
        let waits = hooked.waits.is_some_and(|(of, _)| of == gate) && hooked.allowed != Some(gate);
        if is_moving && waits && now > hooked.waits_since.max(baked) + patience + ROUND {
            self.fail(Invariant::Truth, || format!("{gate:?} waits for the hook, and is not paused"));
        }
    }

    /// The clocks of the push stand.
    pub fn stands(&self) -> bool {
        let Some(push) = self.pilot.rollout.under_way() else { return false };
        // A push that is paused for another reason keeps that reason while a server is lost.
        let is_lost = push.units.iter().any(|unit| self.pilot.lost.contains(unit));
        let stops = |of: &Verdict| matches!(of.reason, Reason::Operator | Reason::Frozen);
        is_lost || push.verdict.as_ref().is_some_and(stops)
    }

    /// The bake of the step under way.
    fn bake(&self) -> u64 {
        let at = self.reference.push.step.checked_sub(1);
        at.and_then(|at| self.plan.steps.get(at)).map_or(self.plan.final_bake, |of| of.bake)
    }
}

fn answer(verdict: HookVerdict) -> HookAnswer {
    HookAnswer { verdict, reason: verdict.name().into() }
}
