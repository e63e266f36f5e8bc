//! The lanes of one source, from push to push.

use std::sync::Arc;

use super::elder::{Elder, RefusingElder};
use super::lane::{Lane, SourceUpdate};
use super::lane_set::LaneSet;
use super::lane_type::{changed_members, changed_names};
use super::published::Published;
use super::release::{Release, Releases, Restated};
use super::rule::{HoldRule, Stamps};
use crate::Time;
use crate::cache::{CachedResource, Known};
use crate::gated::{Gated, Refused};
use crate::snapshot::{LaneMark, Snapshot, TypeSnapshot};
use sluice_xds::ResourceName;

/// The lanes of one source with a plan.
#[derive(Debug)]
pub struct Lanes {
    set: LaneSet,
    stamps: Stamps,
    /// The source's own content.
    live: Arc<Snapshot>,
    releases: Releases,
    reasons: HoldReasons,
    restated: Option<Arc<Restated>>,
    /// The contents that the plan refuses.
    refused: Refused,
    /// The content of another unit for the next first answers.
    elder: Option<Elder>,
    /// Something was held: the source's own last bytes may be of content that was part of no release.
    has_held: bool,
    /// A hold ended, in which clients had other endpoints than the source has.
    has_let_go: bool,
}

/// The reasons why a hold goes on although the source has stable's content again.
#[derive(Debug, Default)]
struct HoldReasons {
    /// The latest push went back. Its content must not come back with names that the source forgot meanwhile.
    went_back: bool,
    /// The same for a halt before a restart, and for a pin.
    is_kept: bool,
    /// The held content is of before the source began, and its server has not answered since.
    is_unconfirmed: bool,
}

/// Whether the source's gated content differs from the lanes'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Something is held: the next push has content.
    pub from_stable: bool,
    /// Something changed since the push under way was cut.
    pub from_candidate: bool,
}

impl Lanes {
    /// `source` is the number of the source, as for its views. `history`: the number of releases that are
    /// kept.
    pub fn new(source: u64, gated: Gated, history: usize) -> Lanes {
        Lanes {
            set: LaneSet { gated, stable: None, candidate: None, ended: Vec::new() },
            stamps: Stamps::new(source),
            live: Arc::default(),
            releases: Releases { most: history, ..Releases::default() },
            reasons: HoldReasons::default(),
            restated: None,
            refused: Refused::default(),
            elder: None,
            has_held: false,
            has_let_go: false,
        }
    }

    /// Takes another plan over. All that another set of types holds is let go.
    pub fn configure(&mut self, gated: &Gated, history: usize) {
        if *gated != self.set.gated {
            self.release();
            self.set.gated = gated.clone();
            self.releases.history.clear();
        }
        self.releases.most = history;
    }

    /// Takes the next snapshot of the source, before it is published. Holds before the first change of known
    /// gated content (WAV-4). `before`: the snapshot that the source published before, without lanes.
    pub fn follow(&mut self, before: &Arc<Snapshot>, live: &Arc<Snapshot>, now: Time) -> Published {
        let begins =
            !self.is_holding() && (self.is_changed(before, live) || self.begins_by_elder(before, live));
        if begins {
            self.begin(before);
        }
        self.live = live.clone();
        let (new, elder) = (self.set.new_types(live), self.elder.take());
        if self.is_holding() {
            let elder = elder.as_ref().map(|elder| RefusingElder { elder, refused: &self.refused });
            let update = SourceUpdate { before, live };
            self.set.follow(&update, elder, &mut self.stamps);
            match begins {
                // Clients may have the bytes of lanes that ended a moment ago.
                true => self.set.renew_all(live, &mut self.stamps),
                false => self.set.renew_changed(&update, &new, &mut self.stamps),
            }
            self.end_if_equal();
        }
        self.published(now)
    }

    /// Whether known gated content changes.
    fn is_changed(&self, before: &Snapshot, live: &Snapshot) -> bool {
        let nothing = TypeSnapshot::default();
        before.gated_types(&self.set.gated).any(|(type_url, before)| {
            let live = live.of(type_url).unwrap_or(&nothing);
            !before.holds_the_same(live) && has_known_change(before, live)
        })
    }

    /// Whether a first answer is held back.
    fn begins_by_elder(&mut self, before: &Snapshot, live: &Snapshot) -> bool {
        let Some(elder) = &self.elder else { return false };
        let mut lane = Lane::freeze(before, &self.set.gated, LaneMark::default());
        let elder = Some(RefusingElder { elder, refused: &self.refused });
        lane.follow(&SourceUpdate { before, live }, &self.set.gated, None, elder, &mut self.stamps);
        lane.differs(&self.set.gated)
    }

    /// A hold begins with this content as stable.
    fn begin(&mut self, stable: &Snapshot) {
        let mark = LaneMark { release: self.releases.current, push: None };
        self.set.stable = Some(Lane::freeze(stable, &self.set.gated, mark));
        self.has_held = true;
    }

    /// Holds the present content of a source that begins anew with content of before: from the checkpoint, or
    /// of a task that failed (WAV-8). The server has not confirmed the content yet. The hold lasts until
    /// [`Lanes::confirm`] or [`Lanes::rest`]: otherwise nothing would be held if the source forgets the
    /// content before its server answers.
    pub fn hold(&mut self) {
        if !self.is_holding() {
            self.begin(&self.live.clone());
            self.set.renew_all(&self.live, &mut self.stamps);
        }
        (self.reasons.is_kept, self.reasons.is_unconfirmed) = (true, true);
    }

    /// The server has confirmed or replaced all that it stated before: from now on, equal content is held no
    /// longer.
    pub fn confirm(&mut self) {
        if std::mem::take(&mut self.reasons.is_unconfirmed) {
            self.end_if_equal();
        }
    }

    /// The contents that the plan refuses, from now on.
    pub fn refuse(&mut self, refused: &Refused) {
        self.refused = refused.clone();
    }

    /// The elder for the next [`Lanes::follow`]. Due if that [answers](Lanes::answers_first) something first.
    pub fn look_at(&mut self, elder: Option<Elder>) {
        self.elder = elder;
    }

    /// Whether the source answers for something gated that nobody had an answer for.
    pub fn answers_first(&self, before: &Snapshot, live: &Snapshot) -> bool {
        let nothing = TypeSnapshot::default();
        live.gated_types(&self.set.gated).any(|(type_url, live)| {
            let before = before.of(type_url).unwrap_or(&nothing);
            let is_known = |content: &TypeSnapshot, name: &ResourceName| {
                content.names.entries.get(name).is_some_and(|state| !matches!(state, Known::Unknown))
            };
            let is_new = |name: &ResourceName| is_known(live, name) && !is_known(before, name);
            !before.wildcard.is_whole() && live.wildcard.view.is_some()
                || !live.globs.members.ptr_eq(&before.globs.members)
                || !live.globs.complete.ptr_eq(&before.globs.complete)
                || changed_names(&before.names, &live.names).iter().any(is_new)
        })
    }

    /// The snapshots that the source serves now. Due after each operation, and at [`Lanes::poll_timeout`].
    pub fn published(&mut self, now: Time) -> Published {
        self.stamps.now = now;
        self.set.expire(&self.live, now, &mut self.stamps);
        let restated = self.restated.clone();
        match self.set.published(&self.live, &mut self.stamps) {
            Some(lanes) => Published { live: self.live.clone(), lanes: Some(Box::new(lanes)), restated },
            None => Published { live: self.live_after_lanes(), lanes: None, restated },
        }
    }

    /// The source's own content for clients that may come from lanes.
    fn live_after_lanes(&mut self) -> Arc<Snapshot> {
        if !self.has_held && self.releases.current == 0 && self.set.ended.is_empty() {
            return self.live.clone();
        }
        let mark = LaneMark { release: self.releases.current, push: None };
        let types = self.set.live_after_lanes(&self.live, &mut self.stamps);
        Arc::new(self.live.with_types(types, mark))
    }

    /// The time when [`Lanes::published`] has news without an event: bytes of ended lanes go.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.set.ended.iter().filter_map(|ended| ended.until).min()
    }

    pub fn differs(&self) -> Differences {
        let differs = |lane: &Option<Lane>| lane.as_ref().is_some_and(|lane| lane.differs(&self.set.gated));
        Differences { from_stable: differs(&self.set.stable), from_candidate: differs(&self.set.candidate) }
    }

    /// Whether a hold ended since the last call, in which clients had other endpoints than the source has.
    /// Then all sessions have to look for content, as no change of the source tells them.
    pub fn take_let_go(&mut self) -> bool {
        std::mem::take(&mut self.has_let_go)
    }

    /// Whether changes are held.
    pub fn is_holding(&self) -> bool {
        self.set.stable.is_some()
    }

    /// The source's content becomes the candidate of a push (WAV-4). No effect while nothing is held.
    pub fn cut(&mut self, push: u64) {
        if !self.is_holding() {
            return;
        }
        let previous = self.set.candidate.take();
        // A push that was halted before its first client did not have to go back.
        self.reasons.went_back |= previous.is_some();
        let mark = LaneMark { release: self.releases.next(), push: Some(push) };
        let candidate = Lane::freeze(&self.live, &self.set.gated, mark);
        self.set.candidate = Some(Lane { is_given: false, ..candidate });
        self.end(previous);
    }

    /// Clients are given the candidate of a push from now on. The content of a push that was halted before
    /// its first client is not among the last bytes that other clients may be sent.
    pub fn give(&mut self, push: u64) {
        let candidate = self.set.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|candidate| candidate.mark.push == Some(push)) {
            candidate.is_given = true;
            (self.reasons.went_back, self.reasons.is_kept) = (false, false);
        }
    }

    /// The latest cut is part of no push. Another push may take the number, and must not find this content
    /// under it.
    pub fn put_off(&mut self, push: u64) {
        let Some(candidate) = self.set.take_candidate(push) else { return };
        self.end(Some(candidate));
        self.end_if_equal();
    }

    /// The candidate is stable from now on. The hold goes on if the source has changed since the cut.
    pub fn settle(&mut self, push: u64) {
        let Some(mut candidate) = self.set.take_candidate(push) else { return };
        candidate.mark.push = None;
        candidate.is_given = true;
        (self.reasons.went_back, self.reasons.is_kept) = (false, false);
        self.releases.current = candidate.mark.release;
        let previous = self.set.stable.as_ref().map(|stable| &stable.types);
        self.releases.add(push, &candidate.types, previous, &self.set.gated);
        let previous = self.set.stable.replace(candidate);
        self.end(previous);
        self.end_if_equal();
    }

    /// The candidate is given to nobody any more. Clients with the candidate go back to stable.
    pub fn go_back(&mut self, push: u64) {
        let Some(candidate) = self.set.take_candidate(push) else { return };
        if self.is_holding() {
            self.restate_latest(self.set.restated(push, &candidate, &self.live));
            self.reasons.went_back = true;
        }
        self.end(Some(candidate));
        self.end_if_equal();
    }

    /// The push is halted, and clients keep it. Its differences are known from now on, for clients that
    /// rejected the push and come back, and for the time when another push takes the place of this one
    /// (WAV-10).
    pub fn stay(&mut self, push: u64) {
        let candidate = self.set.candidate.as_ref().filter(|candidate| candidate.mark.push == Some(push));
        let restated = candidate.and_then(|candidate| self.set.restated(push, candidate, &self.live));
        self.restate_latest(restated);
    }

    /// Adds the latest push to those of which clients may have any part.
    fn restate_latest(&mut self, latest: Option<Restated>) {
        if let Some(latest) = latest {
            self.restated = Some(Arc::new(latest.after(self.restated.as_deref())));
        }
    }

    /// Clients may have any of these names, of pushes that went back before a restart. Pushes since then
    /// count as later ones.
    pub fn restate(&mut self, earlier: &Restated) {
        let latest = self.restated.as_deref().cloned();
        let all = latest.map_or_else(|| earlier.clone(), |latest| latest.after(Some(earlier)));
        self.restated = Some(Arc::new(all));
    }

    /// Another plan has the source: its pushes and releases have numbers of their own, and give nothing of
    /// the previous plan's.
    pub fn change_hands(&mut self) {
        if let Some(push) = self.set.candidate.as_ref().and_then(|candidate| candidate.mark.push) {
            self.go_back(push);
        }
        self.releases.history.clear();
    }

    /// The content that is held back must not come back with names that the source forgot, until a push of it
    /// is given to clients, or nothing stands any more.
    pub fn keep(&mut self) {
        self.reasons.is_kept = true;
    }

    /// No push stands any more: a hold without a difference ends, whatever the source forgot.
    pub fn rest(&mut self) {
        self.reasons = HoldReasons::default();
        self.end_if_equal();
    }

    /// All lanes end: everybody is served the source's own content.
    pub fn release(&mut self) {
        self.reasons = HoldReasons::default();
        let lanes = [self.set.candidate.take(), self.set.stable.take()];
        if lanes.iter().any(Option::is_some) {
            self.releases.current = self.releases.next();
        }
        for lane in lanes {
            self.end(lane);
        }
    }

    /// A release of the history is stable from now on (HIS-3). The push under way is given to nobody any
    /// more.
    pub fn serve(&mut self, release: &Release) {
        let (gated, none) = (&self.set.gated, LaneMark::default());
        let previous = self.set.stable.take().unwrap_or_else(|| Lane::freeze(&self.live, gated, none));
        self.releases.current = self.releases.next();
        let mark = LaneMark { release: self.releases.current, push: None };
        let stable = Lane::of_release(release, &previous, &self.live, gated, mark, &mut self.stamps);
        self.set.stable = Some(stable);
        let candidate = self.set.candidate.take();
        self.end(Some(previous));
        self.end(candidate);
        self.end_if_equal();
    }

    /// The latest releases, oldest first.
    pub fn released(&self) -> impl Iterator<Item = &Release> {
        self.releases.history.iter()
    }

    /// The memory of content that the source itself does not have any more, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.set.held_bytes(&self.live)
    }

    /// Ends the hold when the source has stable's content again, and no push is under way. Content that
    /// clients ask for, and that the source has no answer to yet after it forgot the content, may differ.
    fn end_if_equal(&mut self) {
        let HoldReasons { went_back, is_kept, is_unconfirmed } = self.reasons;
        let gated = &self.set.gated;
        let ends = |stable: &Lane| {
            !stable.differs(gated)
                && (!(went_back || is_kept) || stable.is_equal(gated))
                && !stable.is_awaited(&self.live, gated)
        };
        if self.set.candidate.is_none()
            && !is_unconfirmed
            && let Some(stable) = self.set.stable.take_if(|stable| ends(stable))
        {
            self.reasons.went_back = false;
            self.releases.current = stable.mark.release;
            self.has_let_go |= stable.keeps_endpoints(&self.set.gated);
            self.end(Some(stable));
        }
    }

    fn end(&mut self, lane: Option<Lane>) {
        self.set.end(lane, &self.live, &mut self.stamps);
    }
}

/// Whether something known changes that lanes would hold.
fn has_known_change(before: &TypeSnapshot, live: &TypeSnapshot) -> bool {
    let rule = HoldRule::Gated;
    let state = |content: &TypeSnapshot, name: &ResourceName| {
        content.names.entries.get(name).cloned().unwrap_or_default()
    };
    let names = || {
        changed_names(&before.names, &live.names).iter().any(|name| {
            match (state(before, name), state(live, name)) {
                (Known::Unknown, _) | (_, Known::Unknown) | (Known::Absent(_), Known::Absent(_)) => false,
                (old, new) => {
                    rule.holds(name, old.resource().map(Arc::as_ref), new.resource().map(Arc::as_ref))
                }
            }
        })
    };
    let changes = |name: &ResourceName, before: Option<&_>, live: Option<&_>| {
        let resource = |cached: Option<&CachedResource>| cached.map(|cached| cached.resource.clone());
        rule.holds(name, resource(before).as_deref(), resource(live).as_deref())
    };
    let wildcard = || {
        let (before, live) = (&before.wildcard, &live.wildcard);
        let names = changed_members(&before.members, &live.members);
        before.is_whole()
            && live.is_whole()
            && names.iter().any(|name| changes(name, before.members.get(name), live.members.get(name)))
    };
    let globs = || {
        let (before, live) = (&before.globs, &live.globs);
        let is_known = |name: &ResourceName| {
            name.glob().is_some_and(|glob| before.complete.contains(&glob) && live.complete.contains(&glob))
        };
        let names = changed_members(&before.members, &live.members);
        names
            .iter()
            .any(|name| is_known(name) && changes(name, before.members.get(name), live.members.get(name)))
    };
    names() || wildcard() || globs()
}
