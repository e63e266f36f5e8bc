//! The contents of an enforcing plan: the held contents, with their ages, and the releases of the past
//! (WAV-4, WAV-17, HIS-3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::rollout::push::{Differs, ReleaseDigest, UnitId, UnitPush};
use crate::rollout::report::{Outcome, PushReport};
use sluice_engine::Time;
use sluice_engine::time::ReceivedAt;

/// The contents that all clients were given at one time: by a push, or by the return to a release of the
/// past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenRelease {
    pub push: u64,
    pub units: BTreeMap<UnitId, Given>,
    /// The units can serve the content again. Only digests are known of releases from before a restart, but
    /// for the stable release at the restart.
    pub is_here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub content: ReleaseDigest,
    /// The content was neither halted nor taken back since: it may go to all at once.
    pub is_trusted: bool,
    pub origin: ContentOrigin,
}

/// The evidence for the content of a unit in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentOrigin {
    /// The push of the release had the unit.
    Pushed,
    /// A later push found the content with all clients.
    Found,
    /// An earlier release, or a record: the unit may have had another content since.
    Carried,
}

impl Given {
    pub fn new(content: ReleaseDigest, origin: ContentOrigin) -> Given {
        Given { content, is_trusted: true, origin }
    }

    fn carried(self) -> Given {
        Given { origin: ContentOrigin::Carried, ..self }
    }
}

impl GivenRelease {
    /// The contents, for a later release.
    fn carried(&self) -> BTreeMap<UnitId, Given> {
        self.units.iter().map(|(unit, given)| (*unit, given.carried())).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct HeldContents {
    /// Units whose newest content differs from the stable content, each with the time of the oldest change
    /// that not all clients were given.
    pub away: BTreeMap<UnitId, ReceivedAt>,
    /// As `away` was before a restart, for units whose server has not answered since.
    recalled: BTreeMap<UnitId, ReceivedAt>,
    /// Units that wait although others go on, until their content changes.
    pub barred: BTreeSet<UnitId>,
    /// Units whose stable content clients have accepted as a push.
    pub proved: BTreeSet<UnitId>,
    /// The contents of the push under way.
    pub digests: BTreeMap<UnitId, (ReleaseDigest, ReleaseDigest)>,
    /// The releases that the push under way returns to.
    returns: BTreeMap<UnitId, u64>,
    /// In the order of time, the latest first. A release that was served again stands twice.
    releases: VecDeque<GivenRelease>,
    /// The release that is the stable content.
    pub served: u64,
    /// The units that serve the pinned release. A later class has only the newest content.
    pub pinned: BTreeSet<UnitId>,
    /// The contents take too many bytes.
    pub is_full: bool,
}

impl HeldContents {
    /// Notes the newest content of a unit. Returns whether the content waits for the next push.
    pub(super) fn compare(&mut self, unit: UnitId, differs: Differs, now: Time) -> bool {
        match differs.from_stable {
            true => {
                let recalled = self.recalled.remove(&unit);
                self.away.entry(unit).or_insert(recalled.unwrap_or(now.into()));
            }
            false => drop(self.away.remove(&unit)),
        }
        if differs.from_candidate || !differs.from_stable {
            self.barred.remove(&unit);
        }
        differs.from_candidate
    }

    /// The units of the next push.
    pub(super) fn units(&self) -> Vec<UnitId> {
        self.away.keys().filter(|unit| !self.barred.contains(unit)).copied().collect()
    }

    /// A push begins.
    pub(super) fn begin(&mut self, units: &[UnitPush]) {
        self.digests = units.iter().map(|unit| (unit.unit, (unit.stable, unit.candidate))).collect();
        self.returns = units.iter().filter_map(|unit| Some((unit.unit, unit.returns_to?))).collect();
        if self.releases.is_empty() {
            self.add(GivenRelease { push: 0, units: BTreeMap::new(), is_here: true }, 1);
        }
        if self.is_given_again() {
            let units = match self.releases.front() {
                Some(latest) if latest.push == self.served => latest.carried(),
                _ => {
                    let given = |(given, _): (Given, usize)| Given { is_trusted: false, ..given.carried() };
                    let contents = self.contents_of(self.served).into_iter();
                    contents.map(|(unit, content)| (unit, given(content))).collect()
                }
            };
            self.releases.push_front(GivenRelease { push: self.served, units, is_here: true });
        }
        // A unit that is new to the plan has had its stable content from the beginning of the plan's memory.
        if let Some(latest) = self.releases.front_mut() {
            let given = |(stable, _): &(ReleaseDigest, _)| Given::new(*stable, ContentOrigin::Found);
            latest.units.extend(self.digests.iter().map(|(unit, digests)| (*unit, given(digests))));
        }
    }

    /// Whether all clients have another content than the latest release: one of the past was served since,
    /// the stable content grew, or a unit was without clients for a while.
    fn is_given_again(&self) -> bool {
        let Some(latest) = self.releases.front() else { return false };
        let mut stable = self.digests.iter().map(|(unit, (stable, _))| (unit, *stable));
        latest.push != self.served
            || stable
                .any(|(unit, stable)| latest.units.get(unit).is_some_and(|given| given.content != stable))
    }

    /// All clients have the push: its content is a release. `waiting`: the units with later changes, each
    /// with the time of the first. From then on the unit is behind (TRU-7).
    pub(super) fn settle(&mut self, push: &PushReport, waiting: &BTreeMap<UnitId, Time>, most: usize) {
        let returns = std::mem::take(&mut self.returns);
        for (unit, (_, content)) in self.digests.clone() {
            // A content that was taken back, and went by steps again, is no return.
            let is_trusted =
                |release: &GivenRelease| release.units.get(&unit).is_none_or(|given| given.is_trusted);
            let had = |release: &GivenRelease| {
                release.units.get(&unit).is_some_and(|given| given.content == content)
            };
            let had = self.releases.iter().position(|release| had(release) && is_trusted(release));
            // A grown content is known by the release only. The unit remembers releases longer than the plan.
            let grown = returns.get(&unit).and_then(|release| {
                let at = self.releases.iter().position(|entry| entry.push == *release);
                at.map_or(Some(self.releases.len()), |at| is_trusted(&self.releases[at]).then_some(at))
            });
            self.take_back(unit, Some(content), had.max(grown).unwrap_or(0));
        }
        let mut units = self.releases.front().map(GivenRelease::carried).unwrap_or_default();
        let pushed = |(_, candidate): &(_, ReleaseDigest)| Given::new(*candidate, ContentOrigin::Pushed);
        units.extend(self.digests.iter().map(|(unit, digests)| (*unit, pushed(digests))));
        self.add(GivenRelease { push: push.number, units, is_here: true }, most);
        self.served = push.number;
        self.away.retain(|unit, since| match waiting.get(unit) {
            _ if !push.units.contains(unit) => true,
            Some(first) => {
                *since = (*first).into();
                true
            }
            None => false,
        });
    }

    /// The units that hold something back, each with the age of the oldest change. Units from before a
    /// restart are included.
    pub(super) fn ages(&self, now: Time) -> impl Iterator<Item = (UnitId, Duration)> {
        self.recalled.iter().chain(&self.away).map(move |(unit, since)| (*unit, since.age(now)))
    }

    /// Notes the units that held something back before a restart.
    pub(super) fn recall(&mut self, away: impl IntoIterator<Item = (UnitId, ReceivedAt)>) {
        self.recalled.extend(away);
    }

    /// Units whose server has not answered since a restart.
    pub(super) fn recalled(&self) -> impl Iterator<Item = UnitId> {
        self.recalled.keys().copied()
    }

    /// The server of a unit has answered since a restart. A later change is a new one.
    pub(super) fn answered(&mut self, unit: UnitId) {
        self.recalled.remove(&unit);
    }

    pub(super) fn add(&mut self, release: GivenRelease, most: usize) {
        self.releases.push_front(release);
        self.keep(most);
    }

    /// Forgets the oldest releases beyond a number. The latest one stays.
    pub(super) fn keep(&mut self, most: usize) {
        let most = most.max(1);
        // Each return to the past repeats a release.
        self.releases.truncate(2 * most);
        while self.each_once().count() > most {
            self.releases.pop_back();
        }
    }

    /// A push was halted because of these units. The contents are trusted no longer, and go to clients by
    /// steps (WAV-17).
    pub(super) fn give_up(&mut self, units: &[UnitId]) {
        for unit in units {
            if let Some((_, halted)) = self.digests.get(unit) {
                self.distrust(*unit, &BTreeSet::from([*halted]));
            }
        }
    }

    /// A unit returns to a content, or to an unknown one. The later contents, the latest `count`, are taken
    /// back and trusted no longer.
    fn take_back(&mut self, unit: UnitId, content: Option<ReleaseDigest>, count: usize) {
        let since =
            self.releases.iter().take(count).filter_map(|release| Some(release.units.get(&unit)?.content));
        let since: BTreeSet<_> = since.filter(|digest| Some(*digest) != content).collect();
        self.distrust(unit, &since);
    }

    fn distrust(&mut self, unit: UnitId, contents: &BTreeSet<ReleaseDigest>) {
        for given in self.releases.iter_mut().filter_map(|release| release.units.get_mut(&unit)) {
            given.is_trusted &= !contents.contains(&given.content);
        }
    }

    /// The contents of a release as the push gave them, each with the number of later entries. A unit that is
    /// new to the plan since has had the stable content from the beginning of the plan's memory.
    fn contents_of(&self, release: u64) -> BTreeMap<UnitId, (Given, usize)> {
        let first = self.releases.iter().rposition(|entry| entry.push == release);
        let mut contents = BTreeMap::new();
        for (at, entry) in self.releases.iter().enumerate().rev() {
            for (unit, given) in &entry.units {
                if first.is_some_and(|first| at >= first) || !contents.contains_key(unit) {
                    contents.insert(*unit, (*given, at));
                }
            }
        }
        contents
    }

    /// The content of a release, if sure. A unit outside of the push has a sure content after the next push
    /// with the unit.
    fn sure(&self, unit: UnitId, given: Given, later: usize) -> Option<ReleaseDigest> {
        let since = self.releases.iter().take(later).rev().filter_map(|release| release.units.get(&unit));
        let content =
            since.filter(|given| given.origin == ContentOrigin::Found).map(|given| given.content).next();
        let is_sure =
            given.origin != ContentOrigin::Carried || content.is_none_or(|content| content == given.content);
        is_sure.then_some(given.content)
    }

    /// All clients are given a release of the past (HIS-3).
    pub(super) fn serve(&mut self, release: u64) {
        self.served = release;
        for (unit, (given, since)) in self.contents_of(release) {
            self.take_back(unit, self.sure(unit, given, since), since);
        }
    }

    /// Whether clients have another release than this.
    pub(super) fn is_other_than(&self, release: u64) -> bool {
        self.served != release
    }

    /// Whether all contents of a push were given to all clients before, and are trusted.
    pub(super) fn knows(&self, units: &[UnitPush]) -> bool {
        let is = |unit: &UnitPush, given: &Given| given.is_trusted && given.content == unit.candidate;
        let was = |unit: &UnitPush| {
            self.releases
                .iter()
                .filter_map(|release| release.units.get(&unit.unit))
                .any(|given| is(unit, given))
        };
        !units.is_empty() && units.iter().all(was)
    }

    /// The latest first. A release that was served again stands twice.
    pub(super) fn releases(&self) -> impl Iterator<Item = &GivenRelease> {
        self.releases.iter()
    }

    /// Each release once, the latest push first.
    fn each_once(&self) -> impl Iterator<Item = (u64, bool)> {
        let releases: BTreeMap<_, _> =
            self.releases.iter().map(|release| (release.push, release.is_here)).collect();
        releases.into_iter().rev()
    }

    /// The releases that units can serve again, the latest first (HIS-3).
    pub(super) fn servable(&self) -> impl Iterator<Item = u64> {
        self.each_once().filter(|(_, is_here)| *is_here).map(|(push, _)| push)
    }

    /// The release that all clients have without the push; after a return to the past, no later release.
    pub(super) fn before(&self, push: u64) -> Option<u64> {
        if self.served != push {
            return self.releases.front().map(|_| self.served);
        }
        let mut releases =
            self.releases.iter().map(|release| release.push).skip_while(|release| *release != push);
        releases.find(|release| *release != push)
    }

    /// Only the stable content can be served: the units have forgotten all others.
    pub(super) fn lose_the_past(&mut self) {
        let served = self.served;
        self.releases.iter_mut().for_each(|release| release.is_here &= release.push == served);
    }

    /// A unit has ended, or belongs to another plan.
    pub(super) fn forget(&mut self, unit: UnitId) {
        self.away.remove(&unit);
        self.recalled.remove(&unit);
        self.barred.remove(&unit);
        self.proved.remove(&unit);
    }

    /// All clients have a push. Without evidence, the content of the units is unproved (WAV-7).
    pub(super) fn prove(&mut self, units: &[UnitId], outcome: Outcome) {
        match outcome {
            Outcome::Finished => self.proved.extend(units),
            Outcome::Unjudged => self.proved.retain(|unit| !units.contains(unit)),
            _ => {}
        }
    }

    /// A unit has another number since the relay began anew.
    pub(super) fn rename(&mut self, previous: UnitId, unit: UnitId) {
        fn moved<T>(map: &mut BTreeMap<UnitId, T>, previous: UnitId, unit: UnitId) {
            if let Some(value) = map.remove(&previous) {
                map.insert(unit, value);
            }
        }
        moved(&mut self.away, previous, unit);
        moved(&mut self.recalled, previous, unit);
        moved(&mut self.digests, previous, unit);
        self.releases.iter_mut().for_each(|release| moved(&mut release.units, previous, unit));
        for units in [&mut self.barred, &mut self.proved, &mut self.pinned] {
            if units.remove(&previous) {
                units.insert(unit);
            }
        }
    }
}
