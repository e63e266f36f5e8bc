//! The lanes of one source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::elder::Elder;
use super::lane::Lane;
use super::lane_type::{LaneType, changed_names};
use super::lasts::{Ended, Lasts};
use super::members::changed_members;
use super::published::{Published, PublishedLanes};
use super::release::{Release, Restated};
use super::rule::{Rule, Stamps};
use crate::Time;
use crate::cache::Known;
use crate::collection::CollectionKind;
use crate::rollout::Refused;
use crate::rollout::plan::Gated;
use crate::snapshot::{LaneMark, LastVersions, Snapshot, TypeSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The lanes of one source with a plan.
#[derive(Debug)]
pub struct Lanes {
    pub(super) gated: Gated,
    pub(super) stamps: Stamps,
    /// The source's own content.
    pub(super) live: Arc<Snapshot>,
    /// The release that everybody may have.
    pub(super) release: u64,
    /// The number of releases so far.
    releases: u64,
    pub(super) stable: Option<Lane>,
    pub(super) candidate: Option<Lane>,
    pub(super) ended: Vec<Ended>,
    /// Something was held: the source's own last bytes may be of content that was part of no release.
    pub(super) has_held: bool,
    /// The latest push went back. Its content must not come back with names that the source forgot meanwhile.
    went_back: bool,
    /// The same for a reason that the lanes do not know: a halt before a restart, or a pin.
    pub(super) is_kept: bool,
    /// The held content is of before the source began, and its server has not answered since.
    pub(super) is_unconfirmed: bool,
    restated: Option<Arc<Restated>>,
    /// The contents that the plan refuses, and the content of another unit for the next first answers.
    pub(super) refused: Refused,
    pub(super) elder: Option<Elder>,
    /// A hold ended, in which clients had other endpoints than the source has.
    has_let_go: bool,
    history: VecDeque<Release>,
    history_max: usize,
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
    /// `source` is the number of the source, as for its views. `history`: the number of releases that are kept.
    pub fn new(source: u64, gated: Gated, history: usize) -> Lanes {
        Lanes {
            gated,
            stamps: Stamps::new(source),
            live: Arc::default(),
            release: 0,
            releases: 0,
            stable: None,
            candidate: None,
            ended: Vec::new(),
            has_held: false,
            went_back: false,
            is_kept: false,
            is_unconfirmed: false,
            restated: None,
            refused: Refused::default(),
            elder: None,
            has_let_go: false,
            history: VecDeque::new(),
            history_max: history,
        }
    }

    /// Takes another plan over. What another set of types holds is let go.
    pub fn configure(&mut self, gated: &Gated, history: usize) {
        if *gated != self.gated {
            self.release();
            self.gated = gated.clone();
            self.history.clear();
        }
        self.history_max = history;
    }

    /// Takes the next snapshot of the source, before it is published. Holds before the first change of known gated
    /// content (WAV-4). `before`: the snapshot that the source published before, without lanes.
    pub fn follow(&mut self, before: &Arc<Snapshot>, live: &Arc<Snapshot>, now: Time) -> Published {
        let begins =
            self.stable.is_none() && (self.begins(before, live) || self.begins_by_elder(before, live));
        if begins {
            let mark = LaneMark { release: self.release, push: None };
            self.stable = Some(Lane::freeze(before, &self.gated, mark));
            self.has_held = true;
        }
        self.live = live.clone();
        let (new, elder) = (self.new_types(), self.elder.take());
        let elder = elder.as_ref().map(|elder| (elder, &self.refused));
        if let Some(stable) = &mut self.stable {
            stable.follow((before, live), &self.gated, None, elder, &mut self.stamps);
            if let Some(candidate) = &mut self.candidate {
                candidate.follow((before, live), &self.gated, Some(stable), elder, &mut self.stamps);
            }
            match begins {
                // Clients may have the bytes of lanes that ended a moment ago.
                true => self.renew_all(),
                false => self.renew_changed(before, &new),
            }
            self.end_if_equal();
        }
        self.published(now)
    }

    /// Whether known gated content changes.
    fn begins(&self, before: &Snapshot, live: &Snapshot) -> bool {
        let nothing = TypeSnapshot::default();
        before.types().filter(|(type_url, _)| self.gated.contains(type_url)).any(|(type_url, before)| {
            let live = live.of(type_url).unwrap_or(&nothing);
            !before.holds_the_same(live) && has_known_change(before, live)
        })
    }

    /// The snapshots that the source serves now. Due after each operation, and at [`Lanes::poll_timeout`].
    pub fn published(&mut self, now: Time) -> Published {
        self.expire(now);
        let restated = self.restated.clone();
        let (live, stamps) = (&self.live, &mut self.stamps);
        let Some(stable) = &mut self.stable else {
            return Published { live: self.live_after_lanes(), lanes: None, restated };
        };
        let stable = Arc::new(stable.snapshot(live, &self.gated, stamps));
        let candidate = self.candidate.as_mut().and_then(|candidate| {
            Some((candidate.mark.push?, Arc::new(candidate.snapshot(live, &self.gated, stamps))))
        });
        let lanes = Some(Box::new(PublishedLanes { candidate, stable: Some(stable) }));
        Published { live: live.clone(), lanes, restated }
    }

    /// The source's own content for clients that may come from lanes.
    fn live_after_lanes(&mut self) -> Arc<Snapshot> {
        if !self.has_held && self.release == 0 && self.ended.is_empty() {
            return self.live.clone();
        }
        let mark = LaneMark { release: self.release, push: None };
        let mut types: BTreeMap<TypeUrl, TypeSnapshot> =
            self.live.types().map(|(type_url, of)| (type_url.clone(), of.clone())).collect();
        let of_ended: BTreeSet<_> = self.ended.iter().flat_map(|of| of.types.keys()).collect();
        for type_url in of_ended {
            let Some(of) = types.get_mut(type_url) else { continue };
            let mut lasts = Lasts::default();
            for kind in CollectionKind::ALL {
                let bodies = self.ended.iter().filter_map(|of| of.types.get(type_url)?.get(&kind));
                let names: BTreeSet<_> = bodies.flat_map(|of| of.keys()).cloned().collect();
                let lacking = names.into_iter().filter(|name| of.body(kind, name).is_none());
                let ended = self.ended.iter().rev();
                let find = |name: &ResourceName| {
                    ended.clone().filter_map(|of| of.last(type_url, kind, name)).collect()
                };
                lasts.renew(kind, lacking, find, &mut self.stamps);
            }
            let live = of.clone();
            lasts.add_to(of, Some(&live), self.gated.contains(type_url), &mut self.stamps);
        }
        // The source's own last bytes are for clients that have them (WAV-9).
        let none = Arc::<LastVersions>::default();
        for (_, of) in types.iter_mut().filter(|(type_url, _)| self.gated.contains(type_url)) {
            of.lasts.get_or_insert_with(|| none.clone());
        }
        Arc::new(self.live.with_types(types, mark))
    }

    /// The time when [`Lanes::published`] has news without an event: bytes of ended lanes go.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.ended.iter().filter_map(|ended| ended.until).min()
    }

    fn expire(&mut self, now: Time) {
        self.stamps.now = now;
        let count = self.ended.len();
        self.ended.retain_mut(|ended| !ended.expire(now));
        if self.ended.len() < count {
            self.renew_all();
        }
    }

    pub fn differs(&self) -> Differences {
        let differs = |lane: &Option<Lane>| lane.as_ref().is_some_and(|lane| lane.differs(&self.gated));
        Differences { from_stable: differs(&self.stable), from_candidate: differs(&self.candidate) }
    }

    /// Whether a hold ended since the last call, in which clients had other endpoints than the source has. Then all sessions have to
    /// look for content, as no change of the source tells them.
    pub fn take_let_go(&mut self) -> bool {
        std::mem::take(&mut self.has_let_go)
    }

    /// Whether changes are held.
    pub fn is_holding(&self) -> bool {
        self.stable.is_some()
    }

    /// The source's content becomes the candidate of a push (WAV-4). No effect while nothing is held.
    pub fn cut(&mut self, push: u64) {
        if self.stable.is_none() {
            return;
        }
        let former = self.candidate.take();
        // A push that was halted before its first client did not have to go back.
        self.went_back |= former.is_some();
        self.releases += 1;
        let mark = LaneMark { release: self.releases, push: Some(push) };
        self.candidate = Some(Lane { is_given: false, ..Lane::freeze(&self.live, &self.gated, mark) });
        self.end(former);
    }

    /// Clients are given the candidate of a push from now on. The content of a push that was halted before its first client is not
    /// among the last bytes that other clients may be sent.
    pub fn give(&mut self, push: u64) {
        if let Some(candidate) = self.candidate.as_mut().filter(|of| of.mark.push == Some(push)) {
            candidate.is_given = true;
            (self.went_back, self.is_kept) = (false, false);
        }
    }

    /// The latest cut is part of no push. Another push may take the number, and must not find this content under it.
    pub fn put_off(&mut self, push: u64) {
        let Some(candidate) = self.take_candidate(push) else { return };
        self.end(Some(candidate));
        self.end_if_equal();
    }

    /// The candidate is stable from now on. The hold goes on if the source has changed since the cut.
    pub fn settle(&mut self, push: u64) {
        let Some(mut candidate) = self.take_candidate(push) else { return };
        candidate.mark.push = None;
        candidate.is_given = true;
        (self.went_back, self.is_kept) = (false, false);
        self.release = candidate.mark.release;
        let release = Release::of(push, &candidate, &self.gated);
        let former = self.stable.replace(candidate);
        if let Some(former) = former.as_ref().filter(|_| self.history.is_empty()) {
            self.history.push_back(Release::of(0, former, &self.gated));
        }
        self.history.push_back(release);
        self.history.drain(..self.history.len().saturating_sub(self.history_max));
        self.end(former);
        self.end_if_equal();
    }

    /// The candidate is given to nobody any more. Who has it goes back to stable.
    pub fn go_back(&mut self, push: u64) {
        let Some(candidate) = self.take_candidate(push) else { return };
        if let Some(stable) = &self.stable {
            if candidate.is_given {
                let restated = self.restated(push, &candidate, stable);
                self.restated = Some(Arc::new(restated.after(self.restated.as_deref())));
            }
            self.went_back = true;
        }
        self.end(Some(candidate));
        self.end_if_equal();
    }

    /// The push is halted, and who has it keeps it. What differs is known already, for clients that rejected the push and come back, and for
    /// the time when another push takes the place of this one (WAV-10).
    pub fn stay(&mut self, push: u64) {
        let given = self.candidate.as_ref().filter(|of| of.mark.push == Some(push) && of.is_given);
        if let Some((candidate, stable)) = given.zip(self.stable.as_ref()) {
            let restated = self.restated(push, candidate, stable);
            self.restated = Some(Arc::new(restated.after(self.restated.as_deref())));
        }
    }

    /// Clients may have any of these names, of pushes that went back before a restart. Pushes since then count as later ones.
    pub fn restate(&mut self, earlier: &Restated) {
        let all =
            self.restated.as_deref().map_or_else(|| earlier.clone(), |own| own.clone().after(Some(earlier)));
        self.restated = Some(Arc::new(all));
    }

    /// Another plan has the source: its pushes and releases have numbers of their own, and give nothing of the former plan's.
    pub fn change_hands(&mut self) {
        if let Some(push) = self.candidate.as_ref().and_then(|candidate| candidate.mark.push) {
            self.go_back(push);
        }
        self.history.clear();
    }

    /// The content that is held back must not come back with names that the source forgot, until a push of it is given to clients,
    /// or nothing stands any more.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// No push stands any more: a hold without a difference ends, whatever the source forgot.
    pub fn rest(&mut self) {
        (self.went_back, self.is_kept, self.is_unconfirmed) = (false, false, false);
        self.end_if_equal();
    }

    /// All lanes end: everybody is served the source's own content.
    pub fn release(&mut self) {
        (self.went_back, self.is_kept, self.is_unconfirmed) = (false, false, false);
        let lanes = [self.candidate.take(), self.stable.take()];
        if lanes.iter().any(Option::is_some) {
            self.releases += 1;
            self.release = self.releases;
        }
        for lane in lanes {
            self.end(lane);
        }
    }

    /// A release of the history is stable from now on (HIS-3). The push under way is given to nobody any more.
    pub fn serve(&mut self, release: &Release) {
        let (gated, none) = (&self.gated, LaneMark::default());
        let former = self.stable.take().unwrap_or_else(|| Lane::freeze(&self.live, gated, none));
        self.releases += 1;
        self.release = self.releases;
        let mark = LaneMark { release: self.release, push: None };
        let stable = Lane::of_release(release, &former, &self.live, gated, mark, &mut self.stamps);
        self.stable = Some(stable);
        let candidate = self.candidate.take();
        self.end(Some(former));
        self.end(candidate);
        self.end_if_equal();
    }

    /// The latest releases, oldest first.
    pub fn released(&self) -> impl Iterator<Item = &Release> {
        self.history.iter()
    }

    /// The memory of content that the source itself does not have any more, in bytes.
    pub fn held_bytes(&self) -> usize {
        let ended: usize = self.ended.iter().map(Ended::bytes).sum();
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for lane in [&self.stable, &self.candidate].into_iter().flatten() {
            for (type_url, of) in &lane.types {
                let live = self.live.of(type_url);
                for kind in CollectionKind::ALL {
                    for name in of.differing(kind, live) {
                        let Some(body) = of.content.body(kind, &name) else { continue };
                        let lives = live.and_then(|live| live.body(kind, &name));
                        let is_lives = lives.is_some_and(|lives| lives.version == body.version);
                        if !is_lives && seen.insert((type_url, kind, name, body.version)) {
                            bytes += body.size();
                        }
                    }
                }
            }
        }
        bytes + ended
    }

    fn take_candidate(&mut self, push: u64) -> Option<Lane> {
        self.candidate.take_if(|candidate| candidate.mark.push == Some(push))
    }

    /// Ends the hold when the source has stable's content again, and no push is under way. What clients ask for, and the source has
    /// no answer to yet after it forgot the content, may differ.
    pub(super) fn end_if_equal(&mut self) {
        let gated = &self.gated;
        let ends = |stable: &Lane| {
            !stable.differs(gated)
                && (!(self.went_back || self.is_kept) || stable.is_equal(gated))
                && !stable.is_awaited(&self.live, gated)
        };
        if self.candidate.is_none()
            && !self.is_unconfirmed
            && let Some(stable) = self.stable.take_if(|stable| ends(stable))
        {
            self.went_back = false;
            self.release = stable.mark.release;
            self.has_let_go |= stable.keeps_endpoints(&self.gated);
            self.end(Some(stable));
        }
    }

    /// Keeps the bytes of an ended lane that a remaining one lacks.
    fn end(&mut self, lane: Option<Lane>) {
        let Some(lane) = lane.filter(|lane| lane.is_given) else { return self.renew_all() };
        let lanes = || [&self.stable, &self.candidate].into_iter().flatten();
        let nothing = TypeSnapshot::default();
        let remaining = |type_url: &TypeUrl| {
            let of_live = self.live.of(type_url).filter(|_| self.stable.is_none());
            let of_lanes = lanes().filter_map(|lane| lane.types.get(type_url));
            let mut all: Vec<_> = of_lanes.map(|of| of.content.clone()).collect();
            all.extend(of_live.cloned());
            if all.is_empty() {
                all.push(nothing.clone());
            }
            all
        };
        let differing = |type_url: &TypeUrl, kind| {
            let of = std::iter::once(&lane).chain(lanes()).filter_map(|lane| lane.types.get(type_url));
            let live = self.live.of(type_url);
            of.flat_map(|of| of.differing(kind, live)).collect()
        };
        let ended = Ended::of(&lane, remaining, differing);
        if !ended.types.is_empty() {
            self.ended.push(ended);
        }
        self.renew_all();
    }

    fn restated(&self, push: u64, candidate: &Lane, stable: &Lane) -> Restated {
        let mut types: BTreeMap<TypeUrl, BTreeMap<_, _>> = BTreeMap::new();
        for (type_url, of) in candidate.types.iter().filter(|(type_url, _)| self.gated.contains(type_url)) {
            let (live, stable) = (self.live.of(type_url), stable.types.get(type_url));
            for kind in CollectionKind::ALL {
                let names = stable.into_iter().chain([of]).flat_map(|of| of.differing(kind, live));
                let version =
                    |of: &LaneType, name: &ResourceName| of.content.body(kind, name).map(|body| body.version);
                let differ = |name: &ResourceName| {
                    version(of, name) != stable.and_then(|stable| version(stable, name))
                };
                let names: imbl::OrdSet<_> = names.filter(differ).collect();
                if !names.is_empty() {
                    types.entry(type_url.clone()).or_default().insert(kind, names);
                }
            }
        }
        Restated { push, types }
    }
}

/// Whether something known changes that lanes would hold.
fn has_known_change(before: &TypeSnapshot, live: &TypeSnapshot) -> bool {
    let rule = Rule::Gated;
    let known =
        |of: &TypeSnapshot, name: &ResourceName| of.names.entries.get(name).cloned().unwrap_or_default();
    let names = || {
        changed_names(&before.names, &live.names).iter().any(|name| {
            match (known(before, name), known(live, name)) {
                (Known::Unknown, _) | (_, Known::Unknown) | (Known::Absent(_), Known::Absent(_)) => false,
                (old, new) => {
                    rule.holds(name, old.resource().map(Arc::as_ref), new.resource().map(Arc::as_ref))
                }
            }
        })
    };
    let changes = |name: &ResourceName, before: Option<&_>, live: Option<&_>| {
        let resource = |of: Option<&crate::cache::CachedResource>| of.map(|of| of.resource.clone());
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
