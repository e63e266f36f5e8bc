//! What each client may be sent, by the contents that the servers have stated and by the plan: the releases of the units.
//!
//! The reference takes the newest content from what a unit knows of its server, and derives the releases by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sluice_engine::cache::Known;
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::evidence::Content;

use super::client::Want;
use super::content::{GATED, is_gated};
use super::elders::ElderContents;
use super::hook::Hooked;
use super::pilot::Order;
use super::plan::WavePlan;
use super::relay::Stream;
use super::world::World;
use crate::words::{CDS, EDS, LDS, Lexicon, Mask, OLD, RDS, TYPES, bit, has_endpoints, read};

/// The content of a unit at a release. 0: no resource; nothing: unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// By type and name, of the names that were asked for.
    pub names: BTreeMap<(usize, usize), u32>,
    /// The members of the wildcard, once all are known.
    pub members: [Option<[u32; OLD]>; TYPES],
    /// The names that are asked for, with and without an answer, and the types whose wildcard is asked for.
    asked: BTreeSet<(usize, usize)>,
    asked_whole: [bool; TYPES],
    /// The members so far.
    partial: [[u32; OLD]; TYPES],
    /// Of names that have no resource here: the contents of a server of higher priority (RLY-42).
    stand_ins: BTreeMap<(usize, usize), u32>,
}

impl Contents {
    pub fn of(words: &Lexicon, snapshot: &Snapshot) -> Contents {
        let mut contents = Contents::default();
        for ty in [CDS, EDS, LDS, RDS] {
            let Some(of) = snapshot.of(&words.types[ty]) else { continue };
            for (name, known) in of.names.entries.iter() {
                let Some(name) = words.name_of(name) else { continue };
                contents.asked.insert((ty, name));
                let content = match known {
                    Known::Unknown => continue,
                    Known::Absent(_) => 0,
                    Known::Present(cached) => read(&cached.resource).3,
                };
                contents.names.insert((ty, name), content);
            }
            contents.asked_whole[ty] = of.wildcard.view.is_some();
            let mut members = [0; OLD];
            for (name, cached) in of.wildcard.members.iter() {
                members[words.name_of(name).unwrap_or_default()] = read(&cached.resource).3;
            }
            match of.wildcard.view.as_ref().is_some_and(|view| view.is_complete()) {
                true => contents.members[ty] = Some(members),
                false => contents.partial[ty] = members,
            }
        }
        contents
    }

    /// With the contents of a server of higher priority in the place of what is missing here (RLY-42).
    pub fn with_stand_ins(&self, higher: &Contents) -> Contents {
        let stand_ins = higher.names.iter().filter(|(_, content)| **content != 0);
        Contents { stand_ins: stand_ins.map(|(key, content)| (*key, *content)).collect(), ..self.clone() }
    }

    /// The content of a name for a subscription; `None`: unknown.
    pub fn for_want(&self, ty: usize, name: usize, want: Want) -> Option<u32> {
        let named = self.names.get(&(ty, name)).filter(|_| want.names & 1 << name != 0);
        let member = self.member(ty, name).filter(|_| want.wildcard);
        let there = |of: &u32| *of != 0;
        let stand_in = self.stand_ins.get(&(ty, name)).filter(|_| want.names & 1 << name != 0).copied();
        let content = named.copied().filter(there).or(member.filter(there)).or(stand_in);
        content.or(member).or(named.copied())
    }

    /// The names without a resource, but for stand-ins.
    pub fn lacks(&self, ty: usize, want: Want) -> Mask {
        let own = |name: usize| {
            let named = self.names.get(&(ty, name)).filter(|_| want.names & bit(name) != 0);
            named
                .copied()
                .filter(|of| *of != 0)
                .or(self.member(ty, name).filter(|of| want.wildcard && *of != 0))
        };
        (0..OLD).filter(|name| own(*name).is_none()).fold(0, |all: Mask, name| all | bit(name))
    }

    /// Whether the other lacks or changes a member that was known before all were.
    fn has_lost_members(&self, other: &Contents) -> bool {
        let is_lost = |ty: usize, name: usize| {
            let partial = self.partial[ty][name];
            partial != 0 && other.member(ty, name) != Some(partial)
        };
        GATED.into_iter().any(|ty| (0..OLD).any(|name| is_lost(ty, name)))
    }

    /// The content of a member of the wildcard; `None`: unknown.
    pub fn member(&self, ty: usize, name: usize) -> Option<u32> {
        let partial = Some(self.partial[ty][name]).filter(|of| *of != 0);
        self.members[ty].map_or(partial, |members| Some(members[name]))
    }

    /// Whether nobody asks for a name, and the content of the name is not known.
    pub fn is_forgotten(&self, key: &(usize, usize)) -> bool {
        !self.asked.contains(key) && !self.names.contains_key(key)
    }

    /// Whether gated content that both know differs.
    pub fn differs(&self, other: &Contents) -> bool {
        let named = self.names.iter().filter(|((ty, _), _)| is_gated(*ty));
        let mut named = named.filter_map(|(key, content)| Some((content, other.names.get(key)?)));
        let members = |ty: &usize| self.members[*ty].zip(other.members[*ty]).is_some_and(|(a, b)| a != b);
        named.any(|(own, other)| own != other) || GATED.iter().any(members)
    }

    /// The same, with the members so far of wildcards that are not complete.
    pub fn differs_so_far(&self, other: &Contents) -> bool {
        let is_other = |ty: usize, name: usize| {
            self.member(ty, name).zip(other.member(ty, name)).is_some_and(|(own, other)| own != other)
        };
        self.differs(other) || GATED.iter().any(|ty| (0..OLD).any(|name| is_other(*ty, name)))
    }

    /// Whether members that both have of an incomplete wildcard differ.
    fn differs_in_part(&self, other: &Contents) -> bool {
        let is_partial = |ty: &usize| self.members[*ty].or(other.members[*ty]).is_none();
        GATED.into_iter().filter(is_partial).any(|ty| self.partial[ty] != other.partial[ty])
    }

    /// Whether both know the same gated content.
    fn is_same(&self, other: &Contents) -> bool {
        let gated = |of: &Contents| {
            let names = of.names.iter().filter(|((ty, _), _)| is_gated(*ty));
            names.map(|(key, content)| (*key, *content)).collect::<Vec<_>>()
        };
        gated(self) == gated(other) && GATED.iter().all(|ty| self.members[*ty] == other.members[*ty])
    }

    /// Whether the other has all gated content.
    fn is_within(&self, other: &Contents) -> bool {
        let named = |(key, content): (&(usize, usize), &u32)| other.names.get(key) == Some(content);
        let members = |ty: &usize| self.members[*ty].is_none() || self.members[*ty] == other.members[*ty];
        self.names.iter().filter(|((ty, _), _)| is_gated(*ty)).all(named) && GATED.iter().all(members)
    }

    /// Whether somebody asks the other for gated content that it does not know again yet.
    fn is_awaited(&self, other: &Contents) -> bool {
        let is_open = |key: &(usize, usize)| other.asked.contains(key) && !other.names.contains_key(key);
        let members = |ty: &usize| {
            self.members[*ty].is_some() && other.members[*ty].is_none() && other.asked_whole[*ty]
        };
        self.names.keys().filter(|(ty, _)| is_gated(*ty)).any(is_open) || GATED.iter().any(members)
    }

    /// The endpoints that the clusters name.
    pub fn names_endpoints(&self, name: usize) -> bool {
        let named = self.names.get(&(CDS, name)).copied();
        // Clients are sent members before all are known.
        let member = self.members[CDS].unwrap_or(self.partial[CDS])[name];
        [named, Some(member)].into_iter().flatten().any(|content| content != 0 && has_endpoints(content))
    }

    /// The endpoints of `former` that are others here, or gone.
    fn ended_endpoints(&self, former: &Contents) -> impl Iterator<Item = (usize, u32)> {
        let endpoints = former.names.iter().filter(|((ty, _), _)| *ty == EDS);
        let ended = endpoints.filter(|(key, content)| self.names.get(key) != Some(content));
        ended.map(|((_, name), content)| (*name, *content))
    }

    /// The members of a wildcard that the release comes to know have the contents that it knows by name: one release for all ways to ask.
    fn name_members(&mut self, ty: usize, elder: Option<&ElderContents<'_>>) {
        let members = self.members[ty].as_mut().unwrap_or(&mut self.partial[ty]);
        for (name, member) in members.iter_mut().enumerate().filter(|(_, member)| **member != 0) {
            let instead = || elder.and_then(|elder| elder.instead((ty, name), *member, true));
            *member = self.names.get(&(ty, name)).copied().or_else(instead).unwrap_or(*member);
        }
    }

    /// Takes over what the release does not know, and endpoints.
    fn follow(&mut self, before: &Contents, live: &Contents, elder: Option<&ElderContents<'_>>) {
        for (key, new) in live.names.iter().filter(|((ty, _), _)| is_gated(*ty)) {
            if !self.names.contains_key(key) {
                let member = |of: &Contents| of.members[key.0].map(|members| members[key.1]);
                let own = member(self).unwrap_or(0);
                let is_held = own != 0 && (*new != 0 || member(live) == Some(0));
                // Another unit is asked where the release states nothing.
                let is_stated = own != 0 && *new != 0;
                let elder = elder.filter(|_| !is_stated);
                let instead = || elder.and_then(|elder| elder.instead(*key, *new, false)).unwrap_or(*new);
                self.names.insert(*key, if is_held { own } else { instead() });
            }
        }
        for ty in GATED {
            if self.members[ty].is_none() {
                (self.members[ty], self.partial[ty]) = (live.members[ty], live.partial[ty]);
                self.name_members(ty, elder);
            }
        }
        for name in 0..OLD {
            let key = (EDS, name);
            let (old, new) = (before.names.get(&key), live.names.get(&key));
            let own = self.names.get(&key).copied().unwrap_or(0);
            // Kept endpoints that no cluster names any more, as in another release, go when the unit forgets the name, or somebody asks
            // for it again.
            let has_other_askers = live.asked.contains(&key) != before.asked.contains(&key);
            if old == new && !(has_other_askers && new.is_none()) {
                continue;
            }
            let is_kept = own != 0 && new.is_none_or(|new| *new == 0) && self.names_endpoints(name);
            match new {
                _ if is_kept => {}
                Some(new) => drop(self.names.insert(key, *new)),
                None => drop(self.names.remove(&key)),
            }
        }
    }
}

/// The releases at a cut, and the candidate.
pub type BeforeCut = (Option<(Contents, Contents)>, Option<(u64, Contents)>);

/// The releases of a unit.
#[derive(Clone, Debug, Default)]
pub struct Releases {
    pub live: Contents,
    pub stable: Option<Contents>,
    pub candidate: Option<(u64, Contents)>,
    /// The two releases at the latest cut. What is known only later is no part of the push.
    pub cut: Option<(Contents, Contents)>,
    /// The latest candidate, whatever became of it.
    pub latest: Option<(u64, Contents)>,
    pub went_back: bool,
    /// The hold outlives the names that the unit forgets, for a halt of before a restart, or for a pin.
    pub is_kept: bool,
    /// The content is of before the unit began anew, and its server has not confirmed it.
    pub is_unconfirmed: bool,
    /// The releases and the candidate of the push before the latest cut.
    pub before_cut: BeforeCut,
    pub history: Vec<(u64, Contents)>,
    /// Endpoints that were the newest of the unit or of a release, with the times of their ends; 0 for none.
    pub former_endpoints: VecDeque<(u64, (usize, u32))>,
    /// The last endpoints under each name that the unit knew and lost, while somebody asks for the name: last bytes for those who
    /// have some (RLY-51).
    pub departed: BTreeMap<usize, u32>,
    /// The same under names that nobody asks for any more, with the times of the last interest, and those that a push kept which went
    /// back. A unit remembers them for a while.
    pub deserted: BTreeMap<usize, (u64, u32)>,
    /// The contents that all clients were given, also before a restart: each push that settled, and the stable content at the
    /// begin of each push, whatever became of the push, and the stable content at its end. Last bytes may be of any of them.
    pub given: Vec<Contents>,
    /// The contents that all clients were given as above, without those that were taken back or halted: they may be for all at once.
    pub trusted: Vec<Trusted>,
    /// Contents of halted pushes that the machines may have blamed: whether they are trusted depends on the clients that were lost.
    pub doubted: Vec<Contents>,
    /// The pushes that settled while nobody was there: a unit may have forgotten their contents.
    pub unseen: BTreeSet<u64>,
    /// The release of the past that was served since the latest push.
    pub served: Option<u64>,
    /// The same, of the unit without a hold, where they went without a push: members that a wildcard lost before all were known, the
    /// content before a pin, and stable content that ended with its endpoints unchanged.
    pub unheld: Vec<Contents>,
}

/// A content that all clients were given.
#[derive(Clone, Debug)]
pub struct Trusted {
    /// The number of the push that began from the content (`false`), or that gave it to all (`true`), in the order of time.
    pub at: (u64, bool),
    /// The push of which the content is.
    pub release: u64,
    pub content: Contents,
}

impl Releases {
    /// Takes the next content that the unit knows.
    fn take(&mut self, live: Contents, now: u64, elder: Option<&ElderContents<'_>>) {
        let before = std::mem::replace(&mut self.live, live);
        self.former_endpoints.extend(self.live.ended_endpoints(&before).map(|ended| (now, ended)));
        self.depart(&before, now);
        let by_elder = || {
            let mut trial = before.clone();
            trial.follow(&before, &self.live, elder);
            trial.differs(&self.live) || trial.differs_in_part(&self.live)
        };
        if self.stable.is_none() && (before.differs(&self.live) || elder.is_some() && by_elder()) {
            self.stable = Some(before.clone());
        }
        if self.stable.is_none() && before.has_lost_members(&self.live) {
            self.unheld.push(before.clone());
        }
        for lane in self.stable.iter_mut().chain(self.candidate.iter_mut().map(|(_, of)| of)) {
            let former = lane.clone();
            lane.follow(&before, &self.live, elder);
            self.former_endpoints.extend(lane.ended_endpoints(&former).map(|ended| (now, ended)));
        }
        while self.former_endpoints.len() > 100 {
            self.former_endpoints.pop_front();
        }
        if self.candidate.is_some() {
            self.latest.clone_from(&self.candidate);
        }
        self.end_if_equal();
    }

    /// Notes the endpoints that the unit lost, and forgets those that are back or that nobody asks for any more.
    fn depart(&mut self, before: &Contents, now: u64) {
        let live = &self.live;
        let is_gone = |name: usize| live.names.get(&(EDS, name)).is_none_or(|content| *content == 0);
        let lost = live.ended_endpoints(before).filter(|(name, content)| *content != 0 && is_gone(*name));
        self.departed.extend(lost);
        let is_asked = |name: usize| live.asked.contains(&(EDS, name));
        let deserted = self.departed.iter().filter(|(name, _)| is_gone(**name) && !is_asked(**name));
        self.deserted.extend(deserted.map(|(name, content)| (*name, (now, *content))));
        let back = self.departed.iter().filter(|(name, _)| !is_gone(**name));
        self.former_endpoints.extend(back.map(|(name, content)| (now, (*name, *content))));
        self.departed.retain(|name, _| is_gone(*name) && is_asked(*name));
        self.deserted.retain(|name, _| is_gone(*name));
    }

    fn end_if_equal(&mut self) {
        let ends = |stable: &Contents| {
            !stable.differs(&self.live)
                && !stable.differs_in_part(&self.live)
                && (!(self.went_back || self.is_kept) || stable.is_within(&self.live))
                && !stable.is_awaited(&self.live)
        };
        let may_end = self.candidate.is_none() && !self.is_unconfirmed;
        if may_end && self.stable.as_ref().is_some_and(ends) {
            self.end_stable();
        }
    }

    /// Ends the stable content. Everybody may have it, with what the unit has forgotten or changed since.
    fn end_stable(&mut self) {
        if let Some(former) = self.stable.take() {
            let has_ended_endpoints = self.live.ended_endpoints(&former).next().is_some();
            let ended = if has_ended_endpoints { &mut self.given } else { &mut self.unheld };
            ended.push(former);
        }
        self.went_back = false;
    }

    fn obey(&mut self, order: Order, most: usize, now: u64) {
        match order {
            Order::Cut(push) if self.stable.is_some() => {
                self.before_cut = (self.cut.take(), self.latest.take());
                self.went_back |= self.candidate.is_some();
                self.candidate = Some((push, self.live.clone()));
                self.latest.clone_from(&self.candidate);
                self.cut = self.stable.clone().map(|stable| (stable, self.live.clone()));
                return;
            }
            Order::Give(push) if self.candidate.as_ref().is_some_and(|(number, _)| *number == push) => {
                (self.went_back, self.is_kept) = (false, false);
            }
            Order::Settle(push) => {
                if let Some((_, candidate)) = self.candidate.take_if(|(number, _)| *number == push) {
                    (self.went_back, self.is_kept) = (false, false);
                    self.trust(push, candidate.clone());
                    if let Some(former) = self.stable.replace(candidate.clone()) {
                        // Endpoints may have changed since the begin of the push.
                        self.given.push(former.clone());
                        self.history.extend(Some((0, former)).filter(|_| self.history.is_empty()));
                    }
                    self.given.push(candidate.clone());
                    self.history.push((push, candidate));
                    self.history.drain(..self.history.len().saturating_sub(most));
                }
            }
            // The unit goes on as before the cut.
            Order::PutOff(push) => {
                if self.candidate.take_if(|(number, _)| *number == push).is_some() {
                    (self.cut, self.latest) = std::mem::take(&mut self.before_cut);
                }
            }
            Order::Back(push) => {
                if let Some((_, candidate)) = self.candidate.take_if(|(number, _)| *number == push) {
                    self.went_back = true;
                    // Endpoints that the push kept are last bytes for a while.
                    let kept =
                        candidate.names.iter().filter(|((ty, _), content)| *ty == EDS && **content != 0);
                    self.deserted.extend(kept.map(|((_, name), content)| (*name, (now, *content))));
                }
            }
            Order::Serve(number) => self.serve(number),
            Order::Rest => (self.went_back, self.is_kept, self.is_unconfirmed) = (false, false, false),
            Order::Open => {
                (self.is_kept, self.is_unconfirmed) = (false, false);
                self.end_stable();
                self.candidate = None;
            }
            Order::Cut(_) | Order::Give(_) | Order::Stay(_) => {}
        }
        self.end_if_equal();
    }

    fn serve(&mut self, number: u64) {
        let release = self.history.iter().rev().find(|(push, _)| *push <= number).cloned();
        let Some((served, mut release)) = release else { return };
        self.take_back((served, true), &release);
        self.served = Some(served);
        let former = self.stable.as_ref().unwrap_or(&self.live);
        release.names.retain(|(ty, _), _| is_gated(*ty));
        let endpoints = former.names.iter().filter(|((ty, _), _)| *ty == EDS);
        release.names.extend(endpoints.map(|(key, content)| (*key, *content)));
        // Endpoints, and what the release does not know, are those that clients have.
        release.follow(former, former, None);
        release.follow(&self.live, &self.live, None);
        // Everybody may have what was stable until now.
        match self.stable.replace(release) {
            Some(former) => self.given.push(former),
            None => self.unheld.push(self.live.clone()),
        }
        self.candidate = None;
    }

    /// A push begins. All clients have the stable content, also where it is none of a push: it grew since the latest release, or
    /// a class without clients slept meanwhile.
    pub fn begin(&mut self, number: u64) {
        let is_of_push = self.candidate.as_ref().is_some_and(|(push, _)| *push == number);
        if let Some((stable, _)) = self.cut.as_ref().filter(|_| is_of_push) {
            self.given.push(stable.clone());
            let settled = self.history.last().map_or(0, |(settled, _)| *settled);
            let release = self.served.unwrap_or(settled);
            self.trusted.push(Trusted { at: (number, false), release, content: stable.clone() });
        }
    }

    /// All clients are given the push of the latest cut. What they had since the release that the push returns to is taken back, unless
    /// that was taken back itself, and goes by steps again.
    fn trust(&mut self, number: u64, content: Contents) {
        // A pin may have taken back a content to which names came since.
        let was_served = self.served.take().is_some();
        let is_return = |of: &Contents| of.is_same(&content) || !was_served && !of.differs(&content);
        let is_seen = |of: &Trusted| !self.unseen.contains(&of.at.0) && is_return(&of.content);
        // A content that has settled since is trusted, whatever became of a part of it before.
        let is_same = |of: &Contents| of.is_same(&content);
        let is_sure = self.trusted.iter().any(|of| is_seen(of) && is_same(&of.content));
        let is_doubted = self.doubted.iter().any(|of| is_same(of) || is_return(of) && !is_sure);
        if let Some((stable, candidate)) = &self.cut
            && self.trusted.iter().any(is_seen)
            && !is_doubted
        {
            let is_of = |(_, of): &&(u64, Contents)| of.differs(stable) && !of.differs(candidate);
            let release = self.history.iter().rev().find(is_of).map(|(release, _)| *release);
            if let Some(release) = release {
                // The release may have been stable at the begin of later pushes as well, perhaps with names that came since.
                let own = self.trusted.iter().filter(|of| of.release == release).map(|of| of.at).max();
                self.take_back(own.unwrap_or((release, true)), &content);
            }
        }
        self.doubted.retain(|of| !of.is_same(&content));
        self.trusted.push(Trusted { at: (number, true), release: number, content });
    }

    /// The contents since a time are trusted no longer, but for the one that all are given.
    fn take_back(&mut self, time: (u64, bool), given: &Contents) {
        let since = self.trusted.iter().filter(|of| of.at > time && !of.content.is_same(given));
        let since: Vec<_> = since.map(|of| of.content.clone()).collect();
        self.trusted.retain(|of| !since.iter().any(|gone| gone.is_same(&of.content)));
    }

    /// The latest candidate was halted.
    pub fn distrust_latest(&mut self) {
        if let Some((_, halted)) = &self.latest {
            self.trusted.retain(|of| !of.content.is_same(halted));
        }
    }

    /// The latest candidate was halted, perhaps for other units.
    pub fn doubt_latest(&mut self) {
        self.doubted.extend(self.latest.iter().map(|(_, halted)| halted.clone()));
    }

    /// What the unit knows after a restart: only stable is left.
    pub fn restarted(self) -> Releases {
        let live = self.stable().clone();
        // The record may be older than the latest return.
        let unknown = |of: &Contents| Trusted { at: (0, true), release: 0, content: of.clone() };
        let trusted = self.given.iter().map(unknown).collect();
        Releases { live, trusted, given: self.given, ..Releases::default() }
    }

    /// The unit holds what it began with.
    pub fn hold(&mut self) {
        self.stable.get_or_insert_with(|| self.live.clone());
        (self.is_kept, self.is_unconfirmed) = (true, true);
    }

    /// The server has confirmed what the unit began with. Returns whether that was open.
    pub fn confirm(&mut self) -> bool {
        let was_open = std::mem::take(&mut self.is_unconfirmed);
        if was_open {
            self.end_if_equal();
        }
        was_open
    }

    /// Stable and candidate.
    pub fn lanes(&self) -> Option<(&Contents, &Contents)> {
        Some((self.stable.as_ref()?, &self.candidate.as_ref()?.1))
    }

    /// The same, while this push is under way.
    pub fn lanes_with(&self, push: u64) -> Option<(&Contents, &Contents)> {
        self.lanes().filter(|_| self.candidate.as_ref().is_some_and(|(number, _)| *number == push))
    }

    /// The two at the latest cut.
    pub fn latest_cut(&self) -> Option<(&Contents, &Contents)> {
        self.cut.as_ref().map(|(stable, candidate)| (stable, candidate))
    }

    /// The release for everybody outside of the steps.
    pub fn stable(&self) -> &Contents {
        self.stable.as_ref().unwrap_or(&self.live)
    }
}

/// The push under way, as far as its way is known from events that were judged.
#[derive(Clone, Debug, Default)]
pub struct Push {
    pub number: u64,
    pub began: u64,
    pub step: usize,
    /// The tallies since the step began, and the time of the latest.
    pub tallies: usize,
    pub tallied: u64,
    /// Since when the step has fewer clients than it asks for, and others are there.
    pub short_since: Option<u64>,
    /// When a step last admitted others than it began with.
    pub raised: u64,
    /// The nodes that accepted the push at some tally.
    pub accepting: BTreeSet<usize>,
    /// The nodes whose loss certainly counts, each with the time of the latest.
    pub lost: BTreeMap<usize, u64>,
    pub step_began: u64,
    /// Buckets below this one may be admitted.
    pub threshold: u16,
    pub is_halted: bool,
    /// An operator allowed steps without evidence.
    pub is_promoted: bool,
    /// The units of clients with a rejection, at the latest tally.
    pub blamed: BTreeSet<usize>,
    /// The most clients that may count as rejecters.
    pub rejected: u64,
    /// The nodes that may count as rejecters at some tally: others than below rejected content of the push in responses of another
    /// one.
    pub nodes: BTreeSet<usize>,
    /// The nodes that may count as well, because they rejected a full state without a resource that the push removes. The machines
    /// do not know whether a client had the resource.
    pub perhaps: BTreeSet<usize>,
    /// The streams that rejected content of the push, and their nodes.
    pub rejecting: BTreeMap<u64, usize>,
    /// The units that served what these streams rejected.
    pub rejected_of: BTreeMap<u64, usize>,
    /// Those of them whose rejection stood at a tally.
    pub seen_rejecting: BTreeSet<u64>,
    /// The streams without all of the push at some tally.
    pub was_open: BTreeSet<u64>,
    /// The same, of responses that were sent while one with content of the push was unanswered: of these the machines know only
    /// what all of them brought.
    pub beside: BTreeMap<u64, usize>,
}

impl Push {
    /// The streams that may count as rejecting, and their nodes.
    pub fn maybe_rejecting(&self) -> impl Iterator<Item = (&u64, &usize)> {
        self.rejecting.iter().chain(&self.beside)
    }

    /// Whether the server of a stream is the one whose content the client rejected.
    pub fn is_served_rejected(&self, stream: &Stream) -> bool {
        self.rejected_of.get(&stream.id) == Some(&stream.unit)
    }
}

/// A halted push.
#[derive(Clone, Debug, Default)]
pub struct Halted {
    pub contents: BTreeMap<usize, Contents>,
    pub blamed: BTreeSet<usize>,
    /// An operator lets the other units go on.
    pub is_barred: bool,
}

/// The reference for a whole plan.
pub struct Reference {
    pub units: Vec<Releases>,
    pub push: Push,
    pub halted: Option<Halted>,
    /// The nodes that rejected content of any earlier push.
    pub rejecters: BTreeSet<usize>,
    /// The nodes that rejected content of the push before, in responses of whichever push.
    pub known: BTreeSet<usize>,
    /// The nodes that may have done so ([`Push::perhaps`]).
    pub known_perhaps: BTreeSet<usize>,
    /// The nodes that rejected each content by name, or as the only change.
    pub votes: BTreeMap<(usize, usize, u32), BTreeSet<usize>>,
    /// The contents that were condemned.
    pub condemned: BTreeSet<Content>,
    /// All contents of rejected responses: the node; and the unit, type, name and content.
    pub rejected: BTreeSet<(usize, (usize, usize, usize, u32))>,
    /// The names without a resource in full states that were rejected: the node; and the unit, type, name and content.
    pub rejected_absences: BTreeSet<(usize, (usize, usize, usize, u32))>,
    /// Those of the rejected contents that the client asked for when it rejected them.
    pub rejected_wanted: BTreeSet<(usize, (usize, usize, usize, u32))>,
    /// The streams that each node lost without a push to blame.
    pub leavers: BTreeMap<usize, u32>,
    pub frozen_until: Option<u64>,
    /// The step that began in this round before the operator's words.
    pub begun: Option<(u64, usize)>,
    pub pin: Option<Pin>,
    /// An operator allowed the next push to begin again.
    pub is_repeated: bool,
    pub hooked: Hooked,
    /// The end of a freeze is known, and its event has not come yet.
    pub is_thawed: bool,
    /// The end of a pin is judged, and its event has not come yet.
    pub is_unpinned: bool,
    most: usize,
}

/// A release that an operator pinned.
#[derive(Clone, Copy, Debug)]
pub struct Pin {
    pub until: Option<u64>,
    pub ends_by_change: bool,
}

impl Reference {
    /// Whether the node certainly did not reject the push before. A full state without a name may be a rejected removal.
    pub fn is_fresh(&self, node: usize) -> bool {
        !self.known.contains(&node) && !self.known_perhaps.contains(&node)
    }

    /// Whether the node may count as one that rejected content of this push or of an earlier one: the content may have come in
    /// responses of another push.
    pub fn may_have_rejected(&self, node: usize) -> bool {
        let push = &self.push;
        self.rejecters.contains(&node)
            || push.maybe_rejecting().any(|(_, of)| *of == node)
            || push.nodes.contains(&node)
            || push.perhaps.contains(&node)
    }

    pub fn new(plan: &WavePlan) -> Reference {
        Reference {
            units: vec![Releases::default(); plan.units()],
            push: Push::default(),
            halted: None,
            rejecters: BTreeSet::new(),
            known: BTreeSet::new(),
            known_perhaps: BTreeSet::new(),
            votes: BTreeMap::new(),
            condemned: BTreeSet::new(),
            rejected: BTreeSet::new(),
            rejected_absences: BTreeSet::new(),
            leavers: BTreeMap::new(),
            rejected_wanted: BTreeSet::new(),
            frozen_until: None,
            begun: None,
            pin: None,
            is_repeated: false,
            hooked: Hooked::default(),
            is_thawed: false,
            is_unpinned: false,
            most: plan.releases,
        }
    }
}

impl World {
    /// A unit has published another content of its server.
    pub fn reference_follows(&mut self, unit: usize) {
        let live = Contents::of(&self.words, &self.units[unit].live);
        let (elder, list) = (self.elder_contents(unit), self.plan.list_of(unit));
        let mut of = std::mem::take(&mut self.reference.units[unit]);
        let refuses = |ty: usize, name: usize, content: u32| self.is_refused(list, (ty, name), content);
        let elder = elder.as_ref().map(|of| ElderContents { of, refuses: &refuses });
        of.take(live, self.now, elder.as_ref());
        self.reference.units[unit] = of;
        self.judge_published(unit);
    }

    /// The plan looks at the content of a unit. A name that somebody asks for after the halt belongs to the halted push, too. If clients
    /// keep the push, it takes the first content of the name; else the content at the first look.
    pub fn reference_compares(&mut self, unit: usize) {
        let (of, number) = (&self.reference.units[unit], self.reference.push.number);
        let halted = self.reference.halted.as_mut().and_then(|halted| halted.contents.get_mut(&unit));
        match (halted, &of.candidate) {
            (Some(halted), Some((push, candidate))) if *push == number => halted.clone_from(candidate),
            (Some(halted), _) => {
                let partial = halted.partial;
                halted.follow(&of.live, &of.live, None);
                // Members so far stay as they were at the halt until all are known: another content is a change.
                for ty in GATED.into_iter().filter(|ty| halted.members[*ty].is_none()) {
                    halted.partial[ty] = partial[ty];
                }
            }
            (None, _) => {}
        }
    }

    /// A unit carries out an order.
    pub fn reference_ordered(&mut self, unit: usize, order: Order) {
        let most = self.reference.most;
        let is_deserted = !self.streams.iter().flatten().any(|stream| stream.unit == unit);
        if let Order::Settle(push) = order
            && is_deserted
        {
            self.reference.units[unit].unseen.insert(push);
        }
        self.reference.units[unit].obey(order, most, self.scheduler.now);
    }

    /// Whether the steps so far seat a client, by the plan.
    pub fn is_seated(&self, client: usize) -> bool {
        let (admission, client) = (&self.pilot.admission, &self.clients[client]);
        let labelled = self.plan.steps.iter().position(|step| step.labels);
        let by_label = client.plan.is_canary && labelled.is_some_and(|at| at < usize::from(admission.step));
        client.seat.bucket < admission.threshold || by_label
    }

    /// The release of a unit for a client, and the push of it. `had`: the push that the client has content of.
    pub fn release_at(&self, (client, unit): (usize, usize), had: Option<u64>) -> (Option<u64>, &Contents) {
        use sluice_fleet::rollout::RolloutState::{Halted, Paused, Settling, Waving};
        let of = &self.reference.units[unit];
        let admission = &self.pilot.admission;
        let holds = |push: u64| had == Some(push) || had == Some(admission.push);
        let is_admitted = match admission.state {
            // Nobody has a push before its first step.
            Waving | Paused | Settling if admission.step > 0 => {
                self.is_seated(client) || admission.holders_of.is_some_and(holds)
            }
            Halted => admission.holders_only && had == Some(admission.push),
            _ => false,
        };
        match &of.candidate {
            Some((push, candidate)) if is_admitted && *push == admission.push && of.stable.is_some() => {
                (Some(*push), candidate)
            }
            _ => (None, of.stable()),
        }
    }
}
