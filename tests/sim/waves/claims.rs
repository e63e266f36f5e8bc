//! The judge of the machine's decisions: steps, halts and promotions need the evidence that the wire gave, and the plan's
//! permission.

use std::collections::BTreeSet;

use sluice_fleet::rollout::command::{PinFor, Until};
use sluice_fleet::rollout::report::{Outcome, Reason};
use sluice_fleet::rollout::{Admission, Command, RolloutEvent, RolloutState, Tally, UnitId, What};

use super::content::{GATED, is_gated};
use super::reference::{Contents, Halted, Pin, Push};
use super::relay::{Open, Stream};
use super::world::World;
use crate::schedule::SECOND;
use crate::words::{OLD, SHORT, bit, bits, is_full_state, show};
use crate::world::Invariant;

/// The machine sees ends of clocks at its next round.
pub const ROUND: u64 = 3 * SECOND;

/// The state of a client towards the push, from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Unaffected,
    Accepted,
    Open,
}

impl World {
    // === what clients said ===

    /// A client rejects a response.
    pub fn reference_rejects(&mut self, stream: &Stream, ty: usize, open: &Open, words: &str) {
        let node = self.clients[stream.client].plan.node;
        self.reference_rejects_content(stream, ty, open);
        let Some(push) = open.beside else { return };
        if push == self.reference.push.number {
            // A response that leaves a name as the client accepted it last brings nothing of the name that can be rejected.
            let is_other = |(name, content): &(usize, u32)| stream.of.accepted[ty][*name] != *content;
            let is_kept = |(name, _): &&(usize, u32)| open.given_up & bit(*name) == 0;
            let brings = open.push.is_some() && open.of_push.iter().filter(is_kept).any(is_other);
            let of = &mut self.reference.push;
            let rejecting = if brings { &mut of.rejecting } else { &mut of.beside };
            rejecting.insert(stream.id, node);
            of.rejected_of.insert(stream.id, open.unit);
        }
        let is_known = self.reference.known.contains(&node);
        let named = open.put.iter().filter(|(name, _)| words.starts_with(&format!("{} ", show(bit(*name)))));
        for (name, content) in named.filter(|_| !is_known) {
            self.reference.votes.entry((ty, *name, *content)).or_default().insert(node);
        }
        self.note(41, stream.id, push);
    }

    /// Notes what a rejected response brought.
    pub fn reference_rejects_content(&mut self, stream: &Stream, ty: usize, open: &Open) {
        let (node, list) = (self.clients[stream.client].plan.node, self.plan.list_of(open.unit));
        // The content may become that of a push later. A name without a resource has content 0.
        let removed = bits(open.removed).filter(|name| *name < OLD).map(|name| (name, 0));
        let contents = open.put.iter().copied().chain(removed);
        for (name, content) in contents {
            let rejected = (node, (list, ty, name, content));
            self.reference.rejected.insert(rejected);
            // What the client gave up before its rejection is not rejected.
            if stream.of.wants[ty].covers(name) && open.given_up & bit(name) == 0 {
                self.reference.rejected_wanted.insert(rejected);
            }
        }
        let is_absent = |name: &usize| open.is_full && open.put.iter().all(|(put, _)| put != name);
        let absences = (0..OLD).filter(is_absent).map(|name| (node, (list, ty, name, 0)));
        self.reference.rejected_absences.extend(absences);
    }

    /// Where a client stands towards the candidate of its unit.
    pub fn standing(&self, stream: &Stream) -> Standing {
        let of = &self.reference.units[stream.unit];
        let number = self.reference.push.number;
        if of.candidate.as_ref().is_none_or(|of| of.0 != number) {
            return Standing::Unaffected;
        }
        let Some((stable, candidate)) = &of.cut else { return Standing::Unaffected };
        let mut standing = Standing::Unaffected;
        for ty in GATED {
            let want = stream.of.wants[ty];
            for name in (0..OLD).filter(|name| want.covers(*name)) {
                let [old, new] = [stable, candidate].map(|of| of.for_want(ty, name, want));
                let is_told = new != Some(0) || is_full_state(ty) || self.clients[stream.client].plan.delta;
                if old == new || new.is_none() || old.is_none() || !is_told {
                    continue;
                }
                let is_good =
                    [&stream.of.sent, &stream.of.accepted].iter().all(|of| Some(of[ty][name]) == new);
                // The machines count a name as gone before the client ACKs its removal, if the client gave it up and has accepted an answer
                // to the wildcard that lacks it.
                let is_dropped = stream.of.answered_without[ty] & bit(name) != 0 && want.wildcard;
                let is_unknown = (!stream.of.has_accepted[ty] || is_dropped) && new == Some(0);
                if !is_good && !is_unknown {
                    return Standing::Open;
                }
                standing = Standing::Accepted;
            }
        }
        standing
    }

    /// The admitted clients with the push, and without, by nodes that never rejected before.
    pub fn evidence(&self) -> (u64, u64) {
        let mut evidence = (0, 0);
        for stream in self.streams.iter().flatten() {
            let node = self.clients[stream.client].plan.node;
            let is_fresh = self.reference.is_fresh(node);
            match self.standing(stream) {
                Standing::Accepted => evidence.0 += 1,
                Standing::Open if is_fresh && self.is_seated(stream.client) => evidence.1 += 1,
                Standing::Open | Standing::Unaffected => {}
            }
        }
        evidence
    }

    pub fn judge_tally(&mut self, tally: &Tally) {
        let standings: Vec<_> = self.streams.iter().flatten().map(|stream| self.standing(stream)).collect();
        let count = |of| standings.iter().filter(|standing| **standing == of).count() as u64;
        let open = self.streams.iter().flatten().zip(&standings).filter(|(_, of)| **of == Standing::Open);
        let open: Vec<u64> = open.map(|(stream, _)| stream.id).collect();
        let accepted = tally.admitted.accepted + tally.others.accepted;
        if accepted > count(Standing::Accepted) && !self.reference.push.is_halted {
            let text =
                format!("{accepted} clients accepted the push, and at most {}", count(Standing::Accepted));
            return self.fail(Invariant::Truth, || text);
        }
        self.reference.push.was_open.extend(open);
        let rejected = |of: &sluice_fleet::rollout::Counts| of.rejected + of.rejected_again;
        let told = rejected(&tally.admitted) + rejected(&tally.others);
        let fresh = tally.admitted.rejected + tally.others.rejected;
        let [of_push, of_all] = [false, true].map(|ever| self.rejecting_nodes(ever));
        let absences = self.reference.rejected_absences.iter().filter(|(_, of)| self.is_of_push(*of));
        let perhaps: BTreeSet<_> = absences.map(|(node, _)| *node).collect();
        let [known, ever] = [&(&of_push | &perhaps), &of_all].map(|nodes| self.clients_of(nodes));
        self.reference.push.rejected = known;
        self.reference.push.nodes.extend(of_push);
        self.reference.push.perhaps.extend(perhaps);
        let rejecting = self.reference.push.rejecting.keys();
        let streams = || rejecting.clone().filter_map(|id| self.streams[*id as usize].as_deref());
        // A client may have accepted other content between two tallies.
        let stands = |stream: &&Stream| {
            self.standing(stream) == Standing::Open && stream.of.rejected.iter().any(|rejected| *rejected)
        };
        let seen: Vec<u64> = streams().filter(stands).map(|stream| stream.id).collect();
        let is_seen = |stream: &&Stream| {
            seen.contains(&stream.id) || self.reference.push.seen_rejecting.contains(&stream.id)
        };
        let blamed = streams().filter(is_seen).filter(|stream| self.wants_rejected(stream));
        let blamed = blamed.filter(|stream| self.reference.push.is_served_rejected(stream));
        let blamed = blamed.map(|stream| stream.unit).collect();
        self.reference.push.blamed = blamed;
        self.reference.push.seen_rejecting.extend(seen);
        if told > ever || fresh > known {
            let text = format!("{fresh} clients of {told} rejected the push, and at most {known} of {ever}");
            self.fail(Invariant::Truth, || text);
        }
    }

    /// The nodes that rejected content of the push, now or as content of an earlier push; or any content `ever`.
    fn rejecting_nodes(&self, ever: bool) -> BTreeSet<usize> {
        let is_of_push = |of: &(usize, usize, usize, u32)| ever || self.is_of_push(*of);
        let mut nodes: BTreeSet<usize> =
            self.reference.push.maybe_rejecting().map(|(_, node)| *node).collect();
        nodes.extend(self.reference.rejected.iter().filter(|(_, of)| is_of_push(of)).map(|(node, _)| *node));
        nodes
    }

    /// Whether the latest cut of a unit of the list changed a name to this content.
    fn is_of_push(&self, (list, ty, name, content): (usize, usize, usize, u32)) -> bool {
        let mut of_list = (0..self.units.len()).filter(|unit| self.plan.list_of(*unit) == list);
        of_list.any(|unit| self.is_of_cut(unit, (ty, name, content)))
    }

    fn is_of_cut(&self, unit: usize, (ty, name, content): (usize, usize, u32)) -> bool {
        let Some((stable, candidate)) = &self.reference.units[unit].cut else { return false };
        let named = [stable, candidate].map(|of| of.names.get(&(ty, name)).copied());
        let member = [stable, candidate].map(|of| of.member(ty, name));
        let mut changes = [named, member].into_iter();
        changes.any(|[old, new]| old.is_some() && old != new && new == Some(content))
    }

    /// The clients of these nodes: all streams, and the nodes without a stream.
    fn clients_of(&self, nodes: &BTreeSet<usize>) -> u64 {
        let node_of = |stream: &Stream| self.clients[stream.client].plan.node;
        let of_streams: Vec<_> = self.streams.iter().flatten().map(|stream| node_of(stream)).collect();
        let connected = of_streams.iter().filter(|node| nodes.contains(node)).count();
        (connected + nodes.iter().filter(|node| !of_streams.contains(node)).count()) as u64
    }

    /// A push that admitted clients reject does not go on.
    pub fn judge_after_tally(&mut self) {
        let push = self.pilot.rollout.under_way();
        let Some(push) = push.filter(|push| push.number == self.reference.push.number) else { return };
        if push.state == RolloutState::Halted {
            return;
        }
        for stream in self.streams.iter().flatten() {
            let node = self.clients[stream.client].plan.node;
            let is_evidence = self.reference.push.rejecting.contains_key(&stream.id)
                && self.reference.is_fresh(node)
                && stream.of.rejected.iter().any(|rejected| *rejected)
                && self.standing(stream) == Standing::Open;
            let is_evidence = is_evidence && self.reference.push.is_served_rejected(stream);
            if is_evidence && self.wants_rejected(stream) && self.is_seated(stream.client) {
                let text = format!("push {} goes on, and client {} rejected it", push.number, stream.client);
                return self.fail(Invariant::BlastRadius, || text);
            }
        }
    }

    /// Whether a client still asks for content of the push that its node rejected. Of a name that the client gave up there is
    /// nothing left to reject, and content that it accepted later, apart from others, is good.
    fn wants_rejected(&self, stream: &Stream) -> bool {
        let node = self.clients[stream.client].plan.node;
        self.reference.rejected_wanted.iter().any(|(of, content)| {
            let (list, ty, name, content) = *content;
            (*of, list) == (node, self.plan.list_of(stream.unit))
                && stream.of.wants[ty].covers(name)
                && !(content != 0 && stream.of.accepted[ty][name] == content)
                && self.is_of_cut_for(stream, (ty, name, content))
        })
    }

    /// Whether the latest cut changed what this client asks for to this content. A name that was first asked for after the cut is none of
    /// the push, though a member may have the same name.
    fn is_of_cut_for(&self, stream: &Stream, (ty, name, content): (usize, usize, u32)) -> bool {
        let Some(cut) = &self.reference.units[stream.unit].cut else { return false };
        let [old, new] = [&cut.0, &cut.1].map(|of| of.for_want(ty, name, stream.of.wants[ty]));
        old.is_some() && old != new && new == Some(content)
    }

    // === what the machine decided ===

    pub fn judge_event(&mut self, event: &RolloutEvent) {
        self.tell(|| format!("plan: push {}: {:?}", event.push, event.what));
        let kind = std::mem::discriminant(&event.what);
        self.note(42, event.push, u64::from(kind == std::mem::discriminant(&What::Resumed)));
        match &event.what {
            What::Gathered { .. } => self.judge_begin(event.push),
            What::StepBegun { step, .. } => self.judge_step(usize::from(*step)),
            What::Settling => self.judge_step(self.plan.steps.len() + 1),
            What::Halted(verdict) => self.judge_halt(&verdict.reason),
            What::Paused(verdict) => self.judge_pause(verdict),
            What::Over(outcome) => self.judge_over(*outcome),
            What::Condemned(of) => {
                self.reference.condemned.insert(of.clone());
            }
            What::Pinned(_) => self.reference.halted = None,
            What::Unpinned(_) => self.judge_unpinned(),
            What::Unfrozen => {
                if std::mem::take(&mut self.reference.is_thawed) {
                    return;
                }
                let early = self.reference.frozen_until.is_some_and(|until| self.now < until);
                if early {
                    self.fail(Invariant::PinFreeze, || "a freeze ends before its end".to_owned());
                }
                self.reference.frozen_until = None;
            }
            _ => {}
        }
    }

    pub fn is_frozen(&self) -> bool {
        self.reference.frozen_until.is_some_and(|until| self.now < until)
    }

    /// Whether a push has these halted contents of a unit. If its server says otherwise about a name that nobody asks for any
    /// more, it is another push.
    fn is_again(&self, number: u64, unit: usize, of: &Contents) -> bool {
        let candidate = self.reference.units[unit].candidate.as_ref();
        let Some((_, now)) = candidate.filter(|(push, _)| *push == number) else { return false };
        let is_other = |(key, content): (&(usize, usize), &u32)| {
            is_gated(key.0) && now.is_forgotten(key) && self.has(unit, key.0, key.1) != *content
        };
        !now.differs_so_far(of) && !of.names.iter().any(is_other)
    }

    fn judge_begin(&mut self, number: u64) {
        if self.is_frozen() || self.reference.pin.is_some() {
            self.fail(Invariant::PinFreeze, || format!("push {number} begins in a freeze or a pin"));
        }
        let mut pushed = self.reference.units.iter().enumerate().filter(|(_, of)| {
            of.candidate.as_ref().is_some_and(|(push, _)| *push == number) && of.stable.is_some()
        });
        if pushed.any(|(unit, _)| self.pilot.lost.contains(&UnitId(self.id_of(unit)))) {
            let text = format!("push {number} begins with a unit whose server is lost");
            return self.fail(Invariant::Admission, || text);
        }
        let is_repeated = std::mem::take(&mut self.reference.is_repeated);
        if let Some(halted) = self.reference.halted.take().filter(|_| !is_repeated) {
            let is_again = |unit: &usize, of: &Contents| self.is_again(number, *unit, of);
            let is_whole = !halted.is_barred && halted.contents.iter().all(|(unit, of)| is_again(unit, of));
            if is_whole && !halted.contents.is_empty() {
                return self.fail(Invariant::BlastRadius, || format!("push {number} is the halted one"));
            }
            if let Some(unit) = halted.blamed.iter().find(|unit| is_again(unit, &halted.contents[*unit])) {
                let text = format!("push {number} has the content of unit {unit} that was halted");
                return self.fail(Invariant::BlastRadius, || text);
            }
        }
        self.reference.units.iter_mut().for_each(|of| of.begin(number));
        let former = std::mem::take(&mut self.reference.push);
        self.reference.known =
            former.maybe_rejecting().map(|(_, node)| *node).chain(former.nodes.iter().copied()).collect();
        self.reference.known_perhaps = former.perhaps;
        self.reference.rejecters.extend(&self.reference.known);
        self.reference.rejecters.extend(&self.reference.known_perhaps);
        let began = self.now;
        self.reference.push = Push { number, began, is_promoted: is_repeated, ..Push::default() };
    }

    /// A step begins: the first one at once, each other one after the bake, and by evidence.
    fn judge_step(&mut self, step: usize) {
        let push = self.reference.push.clone();
        // The step may have begun before an operator froze the plan in the same round, by itself or by the operator's word.
        let begun = (push.number, step);
        let is_earlier = self.reference.hooked.passes.contains(&begun) || self.reference.begun == Some(begun);
        if self.is_frozen() && !is_earlier {
            return self.fail(Invariant::PinFreeze, || format!("step {step} begins in a freeze"));
        }
        let was_given = || {
            let candidates = self.reference.units.iter().filter_map(|of| Some((of, of.candidate.as_ref()?)));
            let mut candidates = candidates.filter(|(_, (number, _))| *number == push.number);
            candidates
                .all(|(of, (_, candidate))| of.trusted.iter().any(|then| !then.content.differs(candidate)))
        };
        let is_restored = step > 1 && push.step == 0 && was_given();
        if step > 1 && push.step == 0 && !push.is_promoted && !is_restored {
            let text = || format!("push {} is for all at once, and was halted or taken back", push.number);
            return self.fail(Invariant::BlastRadius, text);
        }
        let is_again = push.step == 0 && push.is_promoted;
        let is_first = step == 1 || is_restored;
        let is_free = is_restored || is_again || self.is_deserted(push.step);
        self.judge_hooked(is_free, step, || format!("step {step} begins"));
        if push.step == 0 && !push.is_promoted {
            self.judge_condemned(push.number);
        }
        if !push.is_promoted && !is_first {
            self.judge_next(push.step, push.step_began);
        }
        let allowed = self.plan.steps.get(step - 1).map_or(10_000, |of| of.threshold);
        let push = &mut self.reference.push;
        (push.step, push.step_began, push.tallies, push.short_since) = (step, self.scheduler.now, 0, None);
        push.threshold = push.threshold.max(allowed);
    }

    /// A push that brings condemned content reaches nobody by itself.
    fn judge_condemned(&mut self, number: u64) {
        for (unit, of) in self.reference.units.iter().enumerate() {
            let Some((stable, candidate)) = &of.cut else { continue };
            if of.candidate.as_ref().is_none_or(|(push, _)| *push != number) {
                continue;
            }
            for (ty, name) in GATED.iter().flat_map(|ty| (0..OLD).map(move |name| (*ty, name))) {
                let named = [stable, candidate].map(|of| of.names.get(&(ty, name)).copied());
                let member = [stable, candidate].map(|of| of.members[ty].map(|members| members[name]));
                let changed = [named, member].into_iter().filter(|[old, new]| old.is_some() && old != new);
                for content in changed.filter_map(|[_, new]| new.filter(|new| *new != 0)) {
                    let version = crate::words::version(ty, name, self.plan.list_of(unit), content);
                    let key = (self.words.types[ty].clone(), self.words.names[ty][name].clone(), version);
                    if self.reference.condemned.contains(&key) {
                        let text = format!("push {number} brings {} {}", SHORT[ty], show(bit(name)));
                        return self.fail(Invariant::Condemned, || format!("{text}, which is condemned"));
                    }
                }
            }
        }
    }

    fn judge_next(&mut self, step: usize, began: u64) {
        if self.is_deserted(step) {
            return;
        }
        let of = step.checked_sub(1).and_then(|at| self.plan.steps.get(at));
        let bake = of.map_or(self.plan.final_bake, |of| of.bake);
        if self.now < began + bake {
            return self.fail(Invariant::BlastRadius, || format!("step {step} ends before its bake"));
        }
        let (accepted, others) = self.evidence();
        if others > 0 && accepted * 100 < 95 * (accepted + others) {
            let text = format!("step {step} ends, and {accepted} accepted of {}", accepted + others);
            return self.fail(Invariant::BlastRadius, || text);
        }
        if accepted + others == 0 && self.has_only_lost() {
            self.fail(Invariant::BlastRadius, || format!("step {step} ends, and its clients have died"));
        }
    }

    /// A step by labels alone may pass without a bake.
    fn is_deserted(&self, step: usize) -> bool {
        let of = step.checked_sub(1).and_then(|at| self.plan.steps.get(at));
        of.is_some_and(|of| of.labels && of.threshold == 0 && of.at_least == 0)
    }

    fn judge_halt(&mut self, reason: &Reason) {
        self.reference.push.is_halted = true;
        let of_push = |of: &super::reference::Releases| {
            of.latest.as_ref().filter(|(push, _)| *push == self.reference.push.number).map(|of| of.1.clone())
        };
        let contents = self.reference.units.iter().enumerate();
        let contents = contents.filter_map(|(unit, of)| Some((unit, of_push(of)?))).collect();
        let mut blamed = self.reference.push.blamed.clone();
        self.reference.push.short_since = None;
        match reason {
            Reason::Rejected { .. } if self.reference.push.rejected == 0 => {
                self.fail(Invariant::Truth, || "a push is halted that nobody rejected".to_owned());
            }
            Reason::Condemned((type_url, resource, version)) => {
                let (ty, name) = (self.words.type_of(type_url), self.words.name_of(resource));
                let name = name.unwrap_or_default();
                let is_known = self.reference.rejected.iter().any(|(_, (list, t, n, content))| {
                    (*t, *n) == (ty, name) && crate::words::version(ty, name, *list, *content) == *version
                });
                if !is_known {
                    let text = format!("{} {} is condemned, and nobody rejected it", SHORT[ty], resource);
                    self.fail(Invariant::Condemned, || text);
                }
            }
            Reason::Hook(_) => {
                self.judge_hook_halt();
                blamed = (0..self.units.len()).collect();
            }
            _ => {}
        }
        let number = self.reference.push.number;
        let units = self.reference.units.iter_mut();
        let halted = units.filter(|of| of.latest.as_ref().is_some_and(|of| of.0 == number));
        halted.for_each(|of| of.doubt_latest());
        blamed.retain(|unit| self.reference.units[*unit].latest.as_ref().is_some_and(|of| of.0 == number));
        blamed.iter().for_each(|unit| self.reference.units[*unit].distrust_latest());
        self.reference.halted = Some(Halted { contents, blamed, is_barred: false });
    }

    fn judge_over(&mut self, outcome: Outcome) {
        if matches!(outcome, Outcome::Finished | Outcome::Unjudged) {
            self.judge_hooked(false, 0, || "the push is over".to_owned());
        }
        match outcome {
            Outcome::Finished | Outcome::Unjudged if !self.reference.push.is_promoted => {
                let push = &self.reference.push;
                let (step, began) = (push.step, push.step_began);
                self.judge_next(step, began);
            }
            Outcome::Withdrawn | Outcome::Abandoned => {
                (self.reference.halted, self.reference.is_repeated) = (None, false);
            }
            _ => {}
        }
    }

    fn judge_unpinned(&mut self) {
        if std::mem::take(&mut self.reference.is_unpinned) {
            return;
        }
        let Some(pin) = self.reference.pin.take() else { return };
        let is_over = pin.until.is_some_and(|until| self.now >= until);
        if !is_over && !pin.ends_by_change {
            self.fail(Invariant::PinFreeze, || "a pin ends before its end".to_owned());
        }
    }

    /// Who is admitted has a seat in a step that has begun.
    pub fn judge_admission(&mut self, admission: &Admission) {
        self.note(43, admission.push, u64::from(admission.threshold));
        // A halted push admits nobody by its steps. After a restart the record may tell of one that was over.
        let admits_nobody = admission.step == 0 || admission.state == RolloutState::Halted;
        if admission.push != self.reference.push.number || admits_nobody {
            return;
        }
        let step = usize::from(admission.step);
        if step > self.reference.push.step && !self.reference.push.is_halted {
            return self.fail(Invariant::Admission, || format!("step {step} has not begun"));
        }
        let affected = self.streams.iter().flatten().filter(|of| self.standing(of) != Standing::Unaffected);
        let fresh = affected.filter(|of| self.reference.is_fresh(self.clients[of.client].plan.node));
        let mut buckets: Vec<u16> = fresh.map(|of| self.clients[of.client].seat.bucket).collect();
        buckets.sort_unstable();
        self.reference_raises(admission);
        let wanted = self.plan.steps.get(step - 1).map_or(0, |of| of.at_least as usize);
        // Where only known rejecters answer, a step asks for another client, also after they have left.
        let has_known = self.clients.iter().any(|client| !self.reference.is_fresh(client.plan.node));
        let wanted = wanted.max(usize::from(has_known && step <= self.plan.steps.len()));
        let mut all = self.streams.iter().flatten();
        let is_new = |of: &Stream| GATED.iter().any(|ty| !of.of.has_accepted[*ty]);
        let is_able = buckets.len() >= wanted && !self.streams.iter().flatten().any(|of| is_new(of))
            || !all.any(|of| self.standing(of) != Standing::Unaffected);
        let raised = buckets.iter().take(wanted).next_back().map_or(0, |bucket| bucket + 1);
        // Nodes whose rejections no tally has seen count as others do.
        let raised = if is_able { raised } else { 10_000 };
        let push = &mut self.reference.push;
        if admission.threshold > push.threshold.max(raised) {
            let text = format!(
                "step {step} admits buckets below {}, and may below {}",
                admission.threshold,
                push.threshold.max(raised)
            );
            return self.fail(Invariant::Admission, || text);
        }
        push.threshold = push.threshold.max(admission.threshold);
    }

    // === commands ===

    pub fn reference_before_command(&mut self, command: &Command) {
        // These end at once what they end, and the machine tells so during the command.
        match command {
            Command::Unfreeze => {
                self.reference.is_thawed |= self.pilot.rollout.report().frozen_until.is_some();
                self.reference.frozen_until = None;
            }
            // The end of the freeze before is told after the command.
            Command::Freeze { .. } => {
                self.reference.is_thawed |=
                    self.reference.frozen_until.is_some_and(|until| self.now >= until);
            }
            // The end of the pin before is told after the command.
            Command::Pin { .. } | Command::Rollback { .. } => {
                let is_over = self
                    .reference
                    .pin
                    .as_ref()
                    .and_then(|of| of.until)
                    .is_some_and(|until| self.now >= until);
                let has_ended = self.reference.pin.is_some() && self.pilot.rollout.report().pin.is_none();
                if is_over || has_ended {
                    self.judge_unpinned();
                    self.reference.is_unpinned = true;
                }
            }
            Command::Unpin => {
                if let Some(pin) = &mut self.reference.pin {
                    pin.until = Some(self.scheduler.now);
                }
            }
            _ => {}
        }
    }

    pub fn reference_after_command(&mut self, command: &Command, is_done: bool) {
        if !is_done {
            return;
        }
        match command {
            Command::Promote { push, .. } if *push == self.reference.push.number => {
                self.reference.push.is_promoted = true;
                self.reference.is_repeated = self.reference.push.is_halted;
            }
            // The machine tells of the halt later, and may be told to begin again before.
            Command::Abort { push } if *push == self.reference.push.number => {
                self.reference.push.is_halted = true;
                self.reference.is_repeated = false;
            }
            Command::Freeze { length } => {
                self.reference.frozen_until = Some(self.now + length.as_micros() as u64);
            }
            Command::Pin { until, .. } => {
                let length = if let PinFor::Length(of) = until { Some(of.as_micros() as u64) } else { None };
                self.pinned(length.map(|of| self.now + of), *until == PinFor::NextPush);
            }
            Command::Rollback { .. } if self.pilot.rollout.report().pin.is_some() => self.pinned(None, true),
            Command::Bar { units, .. } => {
                let units: Vec<_> = units.iter().filter_map(|unit| self.unit_of(*unit)).collect();
                if let Some(halted) = self.reference.halted.as_mut().filter(|_| !units.is_empty()) {
                    halted.blamed.retain(|unit| !units.contains(unit));
                    halted.is_barred = true;
                }
            }
            _ => {}
        }
    }

    fn pinned(&mut self, until: Option<u64>, ends_by_change: bool) {
        self.reference.pin = Some(Pin { until, ends_by_change });
        self.reference.halted = None;
    }

    /// Freezes and pins end when they were to end.
    pub fn judge_clocks(&mut self) {
        let report = self.pilot.rollout.report();
        let now = self.now;
        let is_over = |until: u64| now > until + ROUND;
        if report.frozen_until.is_some_and(|until| is_over(self.relative(until))) {
            self.fail(Invariant::PinFreeze, || "a freeze does not end".to_owned());
        }
        let pinned_until = match report.pin.map(|pin| pin.until) {
            Some(Until::Time(until)) => Some(self.relative(until)),
            Some(Until::NextPush | Until::Unpin) | None => None,
        };
        if pinned_until.is_some_and(is_over) {
            self.fail(Invariant::PinFreeze, || "a pin does not end".to_owned());
        }
    }
}
