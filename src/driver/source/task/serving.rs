//! The content that clients are given: the newest, or that of the lanes while a plan holds content back
//! (WAV-1, WAV-2).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::audience::Audience;
use super::surroundings::Surroundings;
use crate::driver::ground::plans::{PlanHandle, Publication};
use crate::driver::source::handle::{NewcomerWait, SourceHandle};
use crate::driver::source::lane_order::{LaneContent, LaneOrder};
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::lanes::{Elder, Lanes, Published, Release, Wakes};
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::evidence::{Content, GivenContents};
use sluice_fleet::rollout::ledger::{
    JoinPolicy, JoinStanding, JoinWait, Newcomer, NewcomerContent, NewcomerType,
};
use sluice_fleet::rollout::plan::Gated;
use sluice_fleet::rollout::shared::UnitKey;
use sluice_xds::TypeUrl;

/// The time between two looks at the weight of lanes.
const WEIGHED_EVERY: Duration = Duration::from_secs(1);

/// The releases of a source.
pub(super) struct Serving {
    /// The source's number in the ids of views.
    number: u64,
    /// The plan that judges the pushes of a shared source, if there is one.
    plan: Option<Arc<PlanHandle>>,
    /// `None`: nothing is held back from clients.
    lanes: Option<Lanes>,
    /// `None`: the source has stable content.
    newcomer: Option<Newcomer>,
    /// When the newcomer is looked at, whatever happens.
    newcomer_due: Option<Time>,
    /// Clients wait for something else than before, and have to look.
    is_wait_new: bool,
    /// The contents that the plan refuses, and clients are given all the same.
    given: GivenContents,
    /// The content of the machine, as last published.
    live: Arc<Snapshot>,
    /// The time of the latest look at the weight of the lanes.
    weighed_at: Option<Instant>,
    pub(super) wakes: Wakes,
}

impl Serving {
    /// `newcomer`: the unit of a source that begins without stable content.
    pub(super) fn new(number: u64, newcomer: Option<UnitKey>) -> Serving {
        Serving {
            number,
            plan: None,
            lanes: None,
            newcomer: newcomer.map(Newcomer::new),
            newcomer_due: None,
            is_wait_new: false,
            given: GivenContents::default(),
            live: Arc::default(),
            weighed_at: None,
            wakes: Wakes::default(),
        }
    }

    /// Takes the plan in force. An observing plan has no lanes.
    pub(super) fn follow_plan(&mut self, around: &Surroundings, audience: &Audience) {
        let previous = std::mem::replace(&mut self.plan, around.handle.plan(&around.shared.plans));
        around.handle.judged_by.store(self.plan.clone());
        let plan = self.plan.as_ref().map(|plan| plan.plan()).filter(|plan| plan.enforces());
        match (&mut self.lanes, &plan) {
            (None, None) => {}
            (None, Some(plan)) => {
                self.lanes = Some(Lanes::new(self.number, plan.gated.clone(), plan.releases))
            }
            // The ids of views count on, so lanes stay.
            (Some(lanes), None) => lanes.configure(&Gated::Types(Vec::new()), 0),
            (Some(lanes), Some(plan)) => lanes.configure(&plan.gated, plan.releases),
        }
        if let Some(lanes) = &mut self.lanes {
            let is_same = previous.zip(self.plan.as_ref()).is_some_and(|(was, is)| Arc::ptr_eq(&was, is));
            if !is_same {
                lanes.change_hands();
            }
            self.refuse(around, audience);
            self.publish_lanes(around, audience);
            audience.wake_all();
        }
        if self.lanes.is_none() {
            self.settle_newcomer(around);
        }
        // Content that is held back, by another plan or before a change of steps, becomes a push of this
        // plan.
        self.note_stable(around);
    }

    /// Tells the plan of content that is held back.
    fn note_stable(&self, around: &Surroundings) {
        if let (Some(plan), Some(stable)) = (&self.plan, self.stable(around)) {
            plan.note(around.unit(), &stable);
        }
    }

    /// When [`Serving::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.lanes.as_ref().and_then(Lanes::poll_timeout).into_iter().chain(self.newcomer_due).min()
    }

    pub(super) fn handle_timeout(&mut self, around: &Surroundings, audience: &Audience) {
        if self.poll_timeout().is_some_and(|due| due <= around.now()) {
            self.publish_lanes(around, audience);
        }
    }

    /// Publishes new content of the source's machine.
    pub(super) fn publish(&mut self, live: &Arc<Snapshot>, around: &Surroundings, audience: &Audience) {
        let (before, served) = (self.live.clone(), around.handle.published());
        let published = self.serve_next(live, around);
        let (published, given) = self.note_given(published, around);
        let published = self.hold_newcomer(published, around);
        let is_held = published.lanes.is_some() && self.plan.is_some() && published.reads_the_same(&served);
        self.wakes.published(is_held);
        self.store(published, around, audience);
        if let Some(plan) = &self.plan {
            let serves = around.handle.published();
            let publication =
                Publication { before: &before, after: live, served: &served, serves: &serves, given };
            plan.published(around.unit(), publication);
        }
    }

    /// The next content to be served.
    fn serve_next(&mut self, live: &Arc<Snapshot>, around: &Surroundings) -> Published {
        let before = std::mem::replace(&mut self.live, live.clone());
        let answers_first = self.lanes.as_ref().is_some_and(|lanes| lanes.answers_first(&before, live));
        let elder = answers_first.then(|| self.elder(around)).flatten();
        match &mut self.lanes {
            None => Published::without_lanes(live.clone()),
            Some(lanes) => {
                lanes.look_at(elder);
                lanes.follow(&before, live, around.now())
            }
        }
    }

    /// The content that clients of this class have from another server of the list (WAV-22).
    fn elder(&self, around: &Surroundings) -> Option<Elder> {
        let plan = self.plan.as_ref()?;
        let in_force = plan.plan();
        let is_of_plan =
            |source: &SourceHandle| source.judge().is_some_and(|judge| Arc::ptr_eq(&judge, plan));
        let siblings = around.listing.siblings(&around.handle).into_iter();
        let mut siblings = siblings.filter(|source| is_of_plan(source)).map(|source| {
            let content = source.published().stable().clone();
            (source, content)
        });
        let has_content = |content: &Snapshot| content.gated_types(&in_force.gated).next().is_some();
        let (sibling, content) = siblings.find(|(_, content)| has_content(content))?;
        Some(Elder { content, holds_all: has_taken_over_from(&sibling, around) })
    }

    /// Takes over the contents that the plan refuses.
    fn refuse(&mut self, around: &Surroundings, audience: &Audience) {
        let refused = self.plan.as_ref().map(|plan| plan.refused()).unwrap_or_default();
        self.lanes.iter_mut().for_each(|lanes| lanes.refuse(&refused));
        let is_other = self.given.refuse(&refused, around.handle.published().stable());
        if is_other {
            self.publish_lanes(around, audience);
            audience.wake_all();
        }
    }

    /// Marks the refused contents among those that the source gives. Returns the contents that it gives for
    /// the first time.
    fn note_given(
        &mut self,
        mut published: Published,
        around: &Surroundings,
    ) -> (Published, BTreeSet<Content>) {
        let Some(plan) = self.plan.as_ref().map(|plan| plan.plan()) else {
            return (published, BTreeSet::new());
        };
        let served = around.handle.published();
        let given = self.given.follow(served.stable(), published.stable(), &plan.gated);
        // An observing plan holds nothing back, and only counts.
        if plan.enforces() {
            self.given.mark(&mut published, plan.relays);
        }
        (published, given)
    }

    /// Publishes the present content again, after a move of the lanes.
    fn publish_lanes(&mut self, around: &Surroundings, audience: &Audience) {
        let Some(lanes) = &mut self.lanes else { return };
        let published = lanes.published(around.now());
        let (published, _) = self.note_given(published, around);
        let published = self.hold_newcomer(published, around);
        self.store(published, around, audience);
    }

    /// Lets clients wait while the source has no stable content, and has content of a push that is under way
    /// elsewhere (LDG-3).
    fn hold_newcomer(&mut self, published: Published, around: &Surroundings) -> Published {
        let Some(newcomer) = &mut self.newcomer else { return published };
        around.handle.is_newcomer.store(true, Ordering::Release);
        let plan = self.plan.as_ref().map(|plan| (plan, plan.plan(), plan.join_word()));
        let Some((_, in_force, Some(word))) = plan.filter(|(_, plan, _)| plan.enforces()) else {
            self.settle_newcomer(around);
            return published;
        };
        let content = |unit| NewcomerContent {
            types: NewcomerType::of(published.stable(), &in_force.gated, unit),
            is_newest: published.held().is_none(),
        };
        let standing = newcomer.look(&word, content, around.now());
        self.newcomer_due = None;
        let JoinStanding::Waits(wait) = standing else {
            match standing {
                JoinStanding::Settled => self.settle_newcomer(around),
                _ => self.show_wait(None, around),
            }
            return published;
        };
        self.newcomer_due = wait.due;
        let is_waiting = |type_url: &TypeUrl| {
            in_force.gated.contains(type_url)
                && wait.types.as_ref().is_none_or(|types| types.contains(type_url))
        };
        let admission = word.admission;
        let admitted = wait.push.filter(|push| wait.is_of_push && admission.push == *push);
        let is_served = word.policy == JoinPolicy::Live;
        let published = if is_served { published } else { published.wait_for(is_waiting, admitted) };
        self.show_wait(Some((wait, is_served)), around);
        published
    }

    /// The source has stable content from now on.
    fn settle_newcomer(&mut self, around: &Surroundings) {
        (self.newcomer, self.newcomer_due) = (None, None);
        around.handle.is_newcomer.store(false, Ordering::Release);
        self.show_wait(None, around);
    }

    /// Shows for what clients wait, or no longer.
    fn show_wait(&mut self, wait: Option<(JoinWait, bool)>, around: &Surroundings) {
        let handle = &around.handle;
        let shown = handle.waits();
        let next = wait.map(|(wait, is_served)| {
            let since = shown.as_ref().map_or(around.now(), |shown| shown.since);
            NewcomerWait { push: wait.push, types: wait.types, since, is_served }
        });
        if shown.as_deref() != next.as_ref() {
            self.is_wait_new = true;
            handle.waits.store(next.map(Arc::new));
            self.plan.iter().for_each(|plan| plan.note_newcomer());
        }
    }

    /// Whether the source has no stable content that a next process could begin from.
    pub(super) fn is_newcomer(&self) -> bool {
        let word = || self.plan.as_ref()?.join_word();
        self.newcomer.is_some() && word().is_some_and(|word| word.policy == JoinPolicy::Wait)
    }

    /// The ledger has another word for newcomers.
    fn join(&mut self, around: &Surroundings, audience: &Audience) {
        if self.newcomer.is_some() {
            self.publish_lanes(around, audience);
            audience.wake_all();
        }
    }

    fn store(&mut self, published: Published, around: &Surroundings, audience: &Audience) {
        let handle = &around.handle;
        self.weigh(handle);
        around.shared.content.encoder.move_on(self.number, &published);
        handle.published.store(Arc::new(published));
        handle.shown_change.store(handle.changes.latest(), Ordering::Release);
        let is_wait_new = std::mem::take(&mut self.is_wait_new);
        if self.lanes.as_mut().is_some_and(Lanes::take_let_go) || is_wait_new {
            audience.wake_all();
        }
    }

    /// Brings the weight of the lanes up to date. Costs time in proportion to their differences, so once a
    /// second at most.
    fn weigh(&mut self, handle: &SourceHandle) {
        let Some(lanes) = &self.lanes else { return };
        let now = Instant::now();
        if lanes.is_holding() && self.weighed_at.is_some_and(|at| now < at + WEIGHED_EVERY) {
            return;
        }
        self.weighed_at = lanes.is_holding().then_some(now);
        handle.held_bytes.store(lanes.held_bytes(), Ordering::Relaxed);
    }

    /// Wakes streams. Changes that are held back wake only relays, which are served live (TIR-1).
    pub(super) fn wake(&self, sessions: &[SessionId], audience: &Audience) {
        audience.wake(sessions, self.wakes.are_for_live_only());
    }

    /// The server has confirmed the content from before a restart, so a halted push may be gone.
    pub(super) fn confirm(&mut self, around: &Surroundings, audience: &Audience) {
        if let Some(lanes) = &mut self.lanes {
            lanes.confirm();
            self.publish_lanes(around, audience);
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| self.lanes.is_some()) {
            plan.note(around.unit(), &self.live);
        }
    }

    /// Holds restored content from the begin: until the server has answered, nothing else is known about the
    /// content of clients.
    pub(super) fn hold_anew(
        &mut self,
        failed: &Published,
        is_restored: bool,
        around: &Surroundings,
        audience: &Audience,
    ) {
        if let Some(lanes) = self.lanes.as_mut().filter(|_| is_restored) {
            lanes.hold();
            failed.restated.iter().for_each(|restated| lanes.restate(restated));
            self.publish_lanes(around, audience);
        }
        around.handle.has_begun();
        self.note_stable(around);
    }

    /// The release for all clients outside of the steps of a push; `None` without a hold.
    pub(super) fn stable(&self, around: &Surroundings) -> Option<Arc<Snapshot>> {
        self.lanes.as_ref()?;
        around.handle.published.load().held().cloned()
    }

    /// Carries out an order of the plan. Returns the releases after the publication; `None` without a hold.
    pub(super) fn obey(
        &mut self,
        order: LaneOrder,
        is_restored: bool,
        around: &Surroundings,
        audience: &Audience,
    ) -> Option<LaneContent> {
        match order {
            LaneOrder::Refuse => self.refuse(around, audience),
            LaneOrder::Join => self.join(around, audience),
            order => return self.move_lanes(order, is_restored, around, audience),
        }
        None
    }

    fn move_lanes(
        &mut self,
        order: LaneOrder,
        is_restored: bool,
        around: &Surroundings,
        audience: &Audience,
    ) -> Option<LaneContent> {
        let lanes = self.lanes.as_mut()?;
        let is_cut = matches!(order, LaneOrder::Cut(_));
        let changes_content = matches!(order, LaneOrder::Serve(_) | LaneOrder::Open | LaneOrder::Restate(_));
        match order {
            LaneOrder::Cut(push) => lanes.cut(push),
            LaneOrder::PutOff(push) => lanes.put_off(push),
            LaneOrder::Give(push) => lanes.give(push),
            LaneOrder::Back(push) => lanes.go_back(push),
            LaneOrder::Stay(push) => lanes.stay(push),
            LaneOrder::Settle(push) => lanes.settle(push),
            LaneOrder::Serve(number) => {
                let release = lanes.released().filter(|release| release.push <= number).last().cloned();
                release.iter().for_each(|release| lanes.serve(release));
            }
            LaneOrder::Restate(earlier) => lanes.restate(&earlier),
            LaneOrder::Refuse | LaneOrder::Join => {}
            // The server has not answered since a restart: nothing else is known about the content of
            // clients.
            LaneOrder::Keep if is_restored => lanes.hold(),
            LaneOrder::Keep => lanes.keep(),
            LaneOrder::Rest => lanes.rest(),
            LaneOrder::Open => lanes.release(),
        }
        let released = lanes.released().filter(|_| is_cut).cloned().collect();
        self.publish_lanes(around, audience);
        if changes_content {
            audience.wake_all();
        }
        content_of(&around.handle.published.load(), released)
    }
}

/// Whether another configuration brings the clients of a sibling here: its server left the list, or has this
/// one before it.
fn has_taken_over_from(sibling: &SourceHandle, around: &Surroundings) -> bool {
    let (settings, handle) = (around.shared.settings(), &around.handle);
    settings
        .lists
        .find(sibling.key().place)
        .is_none_or(|listed| handle.id() > sibling.id() && listed.higher().contains(&handle.key().place))
}

fn content_of(published: &Published, released: Vec<Release>) -> Option<LaneContent> {
    let lanes = published.lanes_that_hold()?;
    let candidate = lanes.candidate.as_ref().map_or(&published.live, |(_, candidate)| candidate);
    Some(LaneContent { stable: lanes.stable.clone(), candidate: candidate.clone(), released })
}
