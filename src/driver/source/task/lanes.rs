//! The lanes of a source, while its plan holds content back (WAV-1, WAV-2).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::SourceTask;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::{LaneContent, LaneOrder, Ordered};
use crate::engine::evidence::Content;
use crate::engine::lanes::{Elder, Lanes, Published, Release};
use crate::engine::rollout::UnitId;
use crate::engine::rollout::plan::Gated;
use crate::engine::snapshot::Snapshot;
use crate::xds::TypeUrl;

/// The time between two looks at the weight of lanes.
const WEIGHED_EVERY: Duration = Duration::from_secs(1);

impl SourceTask {
    /// Takes the plan in force. An observing plan has no lanes.
    pub(super) fn follow_plan(&mut self) {
        let former = std::mem::replace(&mut self.plan, self.handle.plan(&self.shared.plans));
        self.handle.judged_by.store(self.plan.clone());
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
            let is_same = former.zip(self.plan.as_ref()).is_some_and(|(was, is)| Arc::ptr_eq(&was, is));
            if !is_same {
                lanes.change_hands();
            }
            self.refuse();
            self.publish_lanes();
            self.streams.values().for_each(|stream| stream.wake());
        }
        // Content that is held back, by another plan or before a change of steps, becomes a push of this plan.
        if let (Some(plan), Some(stable)) = (&self.plan, self.stable()) {
            plan.note(UnitId(self.handle.id().0), &stable);
        }
    }

    /// The next content to be served.
    pub(super) fn serve_next(&mut self, live: &Arc<Snapshot>) -> Published {
        let before = std::mem::replace(&mut self.live, live.clone());
        let answers_first = self.lanes.as_ref().is_some_and(|lanes| lanes.answers_first(&before, live));
        let elder = answers_first.then(|| self.elder()).flatten();
        match &mut self.lanes {
            None => Published::without_lanes(live.clone()),
            Some(lanes) => {
                lanes.look_at(elder);
                lanes.follow(&before, live, self.shared.clock.now())
            }
        }
    }

    /// The content that clients of this class have from another server of the list (WAV-22).
    fn elder(&self) -> Option<Elder> {
        let plan = self.plan.as_ref()?;
        let in_force = plan.plan();
        let is_of_plan = |source: &SourceHandle| source.judge().is_some_and(|of| Arc::ptr_eq(&of, plan));
        let siblings = self.listing.siblings(&self.handle).into_iter();
        let mut siblings = siblings.filter(|source| is_of_plan(source)).map(|source| {
            let content = source.published().stable().clone();
            (source, content)
        });
        let is_gated = |type_url: &TypeUrl| in_force.gated.contains(type_url);
        let has_content = |content: &Snapshot| content.types().any(|(type_url, _)| is_gated(type_url));
        let (sibling, content) = siblings.find(|(_, content)| has_content(content))?;
        Some(Elder { content, holds_all: self.has_taken_over_from(&sibling) })
    }

    /// Whether another configuration brings the clients of a sibling here: its server left the list, or has this one before it.
    fn has_taken_over_from(&self, sibling: &SourceHandle) -> bool {
        let settings = self.shared.settings();
        settings.lists.find(sibling.key().place).is_none_or(|listed| {
            self.handle.id() > sibling.id() && listed.higher().contains(&self.handle.key().place)
        })
    }

    /// Takes the contents that the plan refuses over.
    fn refuse(&mut self) {
        let refused = self.plan.as_ref().map(|plan| plan.refused()).unwrap_or_default();
        self.lanes.iter_mut().for_each(|lanes| lanes.refuse(&refused));
        let is_other = self.given.refuse(&refused, self.handle.published().stable());
        if is_other {
            self.publish_lanes();
            self.streams.values().for_each(|stream| stream.wake());
        }
    }

    /// Marks the refused contents among what the source gives. Returns those that it gives for the first time.
    pub(super) fn note_given(&mut self, mut published: Published) -> (Published, BTreeSet<Content>) {
        let Some(plan) = self.plan.as_ref().map(|plan| plan.plan()) else {
            return (published, BTreeSet::new());
        };
        let is_gated = |type_url: &TypeUrl| plan.gated.contains(type_url);
        let served = self.handle.published();
        let given = self.given.follow(served.stable(), published.stable(), &is_gated);
        // An observing plan holds nothing back, and only counts.
        if plan.enforces() {
            self.given.mark(&mut published);
        }
        (published, given)
    }

    /// Publishes the present content again, after a move of the lanes.
    pub(super) fn publish_lanes(&mut self) {
        let Some(lanes) = &mut self.lanes else { return };
        let published = lanes.published(self.shared.clock.now());
        let (published, _) = self.note_given(published);
        self.store_published(published);
    }

    pub(super) fn store_published(&mut self, published: Published) {
        self.weigh();
        self.shared.content.encoder.move_on(self.number, &published);
        self.handle.published.store(Arc::new(published));
        self.handle.shown_change.store(self.handle.changes.latest(), Ordering::Release);
        if self.lanes.as_mut().is_some_and(Lanes::take_let_go) {
            self.streams.values().for_each(|stream| stream.wake());
        }
    }

    /// Brings the weight of the lanes up to date. Costs time in proportion to their differences, so once a second at most.
    fn weigh(&mut self) {
        let Some(lanes) = &self.lanes else { return };
        let now = Instant::now();
        if lanes.is_holding() && self.weighed_at.is_some_and(|at| now < at + WEIGHED_EVERY) {
            return;
        }
        self.weighed_at = lanes.is_holding().then_some(now);
        self.handle.held_bytes.store(lanes.held_bytes(), Ordering::Relaxed);
    }

    /// The server has confirmed the content from before a restart, so a halted push may be gone.
    pub(super) fn note_confirmed(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.confirm();
            self.publish_lanes();
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| self.lanes.is_some()) {
            plan.note(UnitId(self.handle.id().0), &self.live);
        }
    }

    /// The release for all clients outside of the steps of a push; `None` without a hold.
    pub(super) fn stable(&self) -> Option<Arc<Snapshot>> {
        self.lanes.as_ref()?;
        self.handle.published.load().lanes.as_ref()?.stable.clone()
    }

    pub(super) fn take_order(&mut self, ordered: Ordered) {
        let content = self.carry_out_order(ordered.order);
        // The plan may have ended meanwhile.
        let _ = ordered.done.send(content);
    }

    fn carry_out_order(&mut self, order: LaneOrder) -> Option<LaneContent> {
        if order == LaneOrder::Refuse {
            self.refuse();
            return None;
        }
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
            LaneOrder::Refuse => {}
            // The server has not answered since a restart: nothing else is known about the content of clients.
            LaneOrder::Keep if self.source.is_restored() => lanes.hold(),
            LaneOrder::Keep => lanes.keep(),
            LaneOrder::Rest => lanes.rest(),
            LaneOrder::Open => lanes.release(),
        }
        let released = lanes.released().filter(|_| is_cut).cloned().collect();
        self.publish_lanes();
        if changes_content {
            self.streams.values().for_each(|stream| stream.wake());
        }
        content_of(&self.handle.published.load(), released)
    }
}

fn content_of(published: &Published, released: Vec<Release>) -> Option<LaneContent> {
    let lanes = published.lanes.as_ref()?;
    let candidate = lanes.candidate.as_ref().map_or(&published.live, |(_, candidate)| candidate);
    Some(LaneContent { stable: lanes.stable.clone()?, candidate: candidate.clone(), released })
}
