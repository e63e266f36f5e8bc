//! The gate at the begin of a push and at the end of each bake, which the hook opens (WAV-20).

use std::mem;
use std::time::Duration;

use super::api::{Output, What};
use super::push::{Outputs, Push};
use crate::Time;
use crate::rollout::hook::{HookAnswer, HookReport, HookVerdict};
use crate::rollout::plan::Plan;
use crate::rollout::report::Reason;

/// The time from an answer that does not open the gate to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The gate of the step under way.
#[derive(Debug, Default)]
pub(super) struct HookGate {
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
    /// The evidence for which the hook let the push go on is gone, and so is its word.
    pub(super) fn close_gate(&mut self) {
        if mem::take(&mut self.gate.is_open)
            && let Some(hook) = &mut self.report.hook
        {
            hook.answer = None;
        }
    }

    /// The step has other clients: the hook has to speak of these.
    pub(super) fn renew_gate(&mut self) {
        self.close_gate();
        self.gate.is_late = self.gate.is_asked;
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
        if plan.hook.is_none() || self.gate.is_open {
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
        let is_due = self.gate.not_before.is_none_or(|not_before| now >= not_before);
        if !is_due || mem::replace(&mut self.gate.is_asked, true) {
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
        let is_awaited = step == self.number_of_step() && mem::take(&mut self.gate.is_asked);
        let Some(hook) = self.report.hook.as_mut().filter(|_| is_awaited) else { return };
        self.gate.not_before = Some(now + ASK_AGAIN);
        let verdict = answer.verdict;
        let is_late = mem::take(&mut self.gate.is_late) && verdict == HookVerdict::Go;
        if hook.answer.as_ref() != Some(&answer) {
            hook.answer = (!is_late).then(|| answer.clone());
            self.tell(What::HookSaid { step, answer: answer.clone() }, outputs);
        }
        match verdict {
            HookVerdict::Wait | HookVerdict::Failed => {}
            HookVerdict::Go if is_late => {}
            HookVerdict::Go => {
                self.gate.is_open = true;
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
        if self.stands_since.is_some() || self.waits_for_hook(plan, self.step_from, outputs, now) {
            return;
        }
        if self.report.verdict.is_some() {
            self.resume(outputs);
        }
        self.begin_step(plan, 1, outputs, now);
    }
}
