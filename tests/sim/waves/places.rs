//! The judge of the places in a step: of clients that go away, and of others that take their place (WAV-14).

use std::collections::BTreeSet;

use sluice_fleet::evidence::LOST_WITHIN;
use sluice_fleet::rollout::{Admission, PushReport, RolloutState, Tally};

use super::claims::{ROUND, Standing};
use super::content::GATED;
use super::relay::Stream;
use super::world::World;
use crate::schedule::SECOND;
use crate::words::bit;
use crate::world::Invariant;

/// A client that is back within this time keeps its place.
const BACK_WITHIN: u64 = 10 * SECOND;

/// A loss is evidence for this time.
const LOST_FOR: u64 = 600 * SECOND;

/// Of a client that lost so many streams before, whatever it was served, lost streams are no evidence.
const LEAVES_FROM: u32 = 3;

/// Clients without a text have this bucket.
const LAST_BUCKET: u16 = 9_999;

impl World {
    /// A stream is lost. Counts the loss if the machines certainly do: its client has the push since less than a minute.
    pub fn reference_loses(&mut self, stream: &Stream) {
        let push = &self.reference.push;
        let within = LOST_WITHIN.as_micros() as u64;
        let gated = GATED.iter().flat_map(|ty| &stream.of.open[*ty]);
        let has_push = match self.standing(stream) {
            Standing::Unaffected => false,
            // The client may have come with the content.
            Standing::Accepted => stream.push == Some(push.number) && push.was_open.contains(&stream.id),
            // A removal counts only if the client had the resource, as the machines know. Names that the client gave up do not count.
            Standing::Open => gated.clone().any(|open| {
                let is_kept = |name: usize| open.given_up & bit(name) == 0;
                open.push == Some(push.number)
                    && self.now < open.at + within
                    && open.of_push.iter().any(|(name, content)| *content != 0 && is_kept(*name))
            }),
        };
        let node = self.clients[stream.client].plan.node;
        let is_new = !push.is_halted && self.now < push.began + within;
        let is_seated = self.is_seated(stream.client);
        let ends = self.reference.leavers.entry(node).or_default();
        if has_push && is_new && *ends < LEAVES_FROM && is_seated {
            self.reference.push.lost.insert(node, self.now);
        } else {
            *ends += 1;
        }
    }

    /// Whether clients of the push were lost before the latest tally, by which the plan decides, and nobody else has accepted it.
    pub fn has_only_lost(&self) -> bool {
        let push = &self.reference.push;
        push.accepting.iter().all(|node| push.lost.contains_key(node))
            && push.lost.values().any(|at| *at < push.tallied && self.now + ROUND < at + LOST_FOR)
    }

    /// A step under way admits others. Its bake begins anew if nobody has accepted the push.
    pub fn reference_raises(&mut self, admission: &Admission) {
        let former = self.pilot.admission;
        let is_raised = (former.push, former.step) == (admission.push, admission.step)
            && admission.threshold > former.threshold;
        let accepted = self.streams.iter().flatten().any(|of| self.standing(of) == Standing::Accepted);
        let push = &mut self.reference.push;
        if is_raised && push.tallies > 1 {
            (push.short_since, push.raised) = (None, self.scheduler.now);
            if push.accepting.is_empty() && !accepted {
                push.step_began = push.tallied;
            }
        }
        if is_raised {
            self.renew_question();
        }
    }

    /// A step with too few clients asks for others that are there.
    pub fn judge_places(&mut self, tally: &Tally) {
        let accepting = self.streams.iter().flatten().filter(|of| self.standing(of) == Standing::Accepted);
        let accepting: BTreeSet<_> = accepting.map(|of| self.clients[of.client].plan.node).collect();
        let now = self.now;
        let of_push = &mut self.reference.push;
        of_push.lost.retain(|node, _| !accepting.contains(node));
        of_push.accepting.extend(accepting);
        (of_push.tallies, of_push.tallied) = (of_push.tallies + 1, now);
        let push = self.pilot.rollout.under_way();
        let Some(push) = push.filter(|push| push.number == self.reference.push.number) else { return };
        let number = push.number;
        let moves = matches!(push.state, RolloutState::Waving | RolloutState::Paused) && !self.stands();
        // A client that awaits a first set is not there yet (ADR 52).
        if !moves || !self.is_short(push) || self.is_doubtful() {
            self.reference.push.short_since = None;
            return;
        }
        let since = *self.reference.push.short_since.get_or_insert(now);
        if now > since + BACK_WITHIN + 2 * ROUND {
            let (voices, smallest) = (tally.voices, &tally.smallest);
            let text = format!(
                "push {number} asks for nobody in the place of clients that are gone: {voices} {smallest:?}"
            );
            self.fail(Invariant::Admission, || text);
        }
    }

    /// Whether the step has fewer clients than it asks for, whatever they rejected before, and others are there.
    fn is_short(&self, push: &PushReport) -> bool {
        let Some(step) = usize::from(push.reached()).checked_sub(1).and_then(|at| self.plan.steps.get(at))
        else {
            return false;
        };
        let affected =
            || self.streams.iter().flatten().filter(|of| self.standing(of) != Standing::Unaffected);
        let there = affected().filter(|of| self.is_seated(of.client)).count();
        let is_able = |of: &Stream| {
            let client = &self.clients[of.client];
            client.seat.bucket < LAST_BUCKET && self.reference.is_fresh(client.plan.node)
        };
        let mut others = affected().filter(|of| !self.is_seated(of.client));
        there < step.at_least as usize && others.any(|of| is_able(of))
    }
}
