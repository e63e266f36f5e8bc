//! The clients that a step asks for (WAV-14): some when it begins, and others in the place of those who are
//! gone.

use std::mem;
use std::time::Duration;

use super::push::{Outputs, Push};
use crate::engine::Time;
use crate::engine::rollout::plan::{Plan, Step};
use crate::engine::rollout::seat::LAST_BUCKET;
use crate::engine::rollout::tally::Tally;

/// A client that only reconnects is back within this time, and no other takes its place.
const BACK_WITHIN: Duration = Duration::from_secs(10);

impl Push {
    /// Raises the threshold of the step, so that some affected clients are admitted: of a new step at once,
    /// and again when clients have been gone for [`BACK_WITHIN`]. The losses are no evidence against the
    /// push: else it is halted. Returns whether the clients of the step are others than those of the tally.
    pub(super) fn raise(&mut self, plan: &Plan, tally: &Tally, outputs: &mut Outputs, now: Time) -> bool {
        let is_new = !mem::replace(&mut self.is_open, true);
        let short_since = self.short_since.take();
        let Some(threshold) = self.threshold_for(plan, tally) else { return is_new };
        if !is_new {
            if self.stands_since.is_some() {
                return false;
            }
            let since = short_since.unwrap_or(now);
            if now < since + BACK_WITHIN {
                self.short_since = Some(since);
                return false;
            }
            if tally.admitted.accepted + tally.admitted.departed == 0 {
                // Nobody has stood with the push so far.
                self.step_from = now;
            }
        }
        if let Some(step) = self.report.steps.last_mut() {
            step.threshold = threshold;
        }
        self.renew_gate();
        self.admit(outputs);
        true
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
}

/// The clients with a voice that a step asks for. One broken client does not stop a plan: where only known
/// rejecters answer, the step asks for another client (QUA-4).
fn clients_asked(step: &Step, tally: &Tally) -> usize {
    let is_broken = tally.admitted.rejected_again > 0 && tally.admitted.evidence() == 0;
    (step.at_least as usize).max(usize::from(is_broken))
}
