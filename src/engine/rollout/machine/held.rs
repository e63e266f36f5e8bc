//! The contents of a plan that enforces: what is held, from when, and which releases can come back (WAV-4, WAV-17, HIS-3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::engine::Time;
use crate::engine::rollout::push::{Differs, ReleaseDigest, UnitId, UnitPush};
use crate::engine::rollout::report::{Outcome, PushReport};
use crate::engine::time::ReceivedAt;

/// A content that all clients were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    pub push: u64,
    /// The trusted contents: without those of [`Held::distrust`].
    pub units: BTreeMap<UnitId, ReleaseDigest>,
    /// The units can serve the content again. Of releases from before a restart only the digests are known, but for the one that was
    /// stable at the restart.
    pub is_here: bool,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    /// Units whose newest content differs from the stable content, each with the time of the oldest change that not all clients were given.
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
    /// The latest first.
    releases: VecDeque<Release>,
    /// The release that is the stable content.
    pub served: u64,
    /// The units that serve the pinned release. A class that came later has only the newest content.
    pub pinned: BTreeSet<UnitId>,
    /// The contents take too many bytes.
    pub is_full: bool,
}

impl Held {
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
            self.add(Release { push: 0, units: BTreeMap::new(), is_here: true }, 1);
        }
        // A unit that is new to the plan has had its stable content from the beginning of the plan's memory.
        if let Some(latest) = self.releases.front_mut() {
            latest.units.extend(self.digests.iter().map(|(unit, (stable, _))| (*unit, *stable)));
        }
    }

    /// All clients have the push: its content is a release. `waiting`: the units that have changed since, each with the time of its first
    /// change. From then on the unit is behind (TRU-7).
    pub(super) fn settle(&mut self, push: &PushReport, waiting: &BTreeMap<UnitId, Time>, most: usize) {
        let contents = self.digests.iter().map(|(unit, (_, candidate))| (*unit, *candidate));
        self.return_to(&contents.collect());
        let mut taken_back = BTreeSet::new();
        for (unit, release) in std::mem::take(&mut self.returns) {
            let later = self.releases.iter().take_while(|of| of.push > release);
            taken_back.extend(later.filter_map(|of| Some((unit, *of.units.get(&unit)?))));
        }
        self.distrust(taken_back);
        let mut units = self.releases.front().map(|latest| latest.units.clone()).unwrap_or_default();
        units.extend(self.digests.iter().map(|(unit, (_, candidate))| (*unit, *candidate)));
        self.add(Release { push: push.number, units, is_here: true }, most);
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

    /// The units that hold something back, each with the age of the oldest change. Those of before a restart are not forgotten.
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

    pub(super) fn add(&mut self, release: Release, most: usize) {
        self.releases.push_front(release);
        self.keep(most);
    }

    /// Forgets the oldest releases beyond a number. The latest one stays.
    pub(super) fn keep(&mut self, most: usize) {
        self.releases.truncate(most.max(1));
    }

    /// Trusts contents of units no longer: they were halted, or taken back. Clients get them by steps (WAV-17).
    fn distrust(&mut self, contents: BTreeSet<(UnitId, ReleaseDigest)>) {
        for of in &mut self.releases {
            of.units.retain(|unit, content| !contents.contains(&(*unit, *content)));
        }
    }

    /// A push was halted, and these units are to blame.
    pub(super) fn give_up(&mut self, units: &[UnitId]) {
        let content = |unit: &UnitId| Some((*unit, self.digests.get(unit)?.1));
        self.distrust(units.iter().filter_map(content).collect());
    }

    /// All clients are given these contents. Where a unit returns to a trusted content, the contents since then are taken back.
    fn return_to(&mut self, contents: &BTreeMap<UnitId, ReleaseDigest>) {
        let mut taken_back = BTreeSet::new();
        for (unit, content) in contents {
            let had = || self.releases.iter().filter_map(|of| of.units.get(unit));
            if had().any(|of| of == content) {
                taken_back.extend(had().take_while(|of| *of != content).map(|of| (*unit, *of)));
            }
        }
        self.distrust(taken_back);
    }

    /// All clients are given a release of the past (HIS-3).
    pub(super) fn serve(&mut self, release: u64) {
        self.served = release;
        // A unit that is new to the plan has had its stable content from the beginning of the plan's memory.
        let mut contents = BTreeMap::new();
        for of in self.releases.iter().rev() {
            for (unit, content) in &of.units {
                if of.push <= release || !contents.contains_key(unit) {
                    contents.insert(*unit, *content);
                }
            }
        }
        self.return_to(&contents);
    }

    /// Whether all contents of a push were given to all clients before, and are trusted.
    pub(super) fn knows(&self, units: &[UnitPush]) -> bool {
        let was = |unit: &UnitPush| {
            self.releases.iter().any(|of| of.units.get(&unit.unit) == Some(&unit.candidate))
        };
        !units.is_empty() && units.iter().all(was)
    }

    pub(super) fn releases(&self) -> impl Iterator<Item = &Release> {
        self.releases.iter()
    }

    /// The releases that units can serve again, the latest first (HIS-3).
    pub(super) fn servable(&self) -> impl Iterator<Item = u64> {
        self.releases.iter().filter(|of| of.is_here).map(|of| of.push)
    }

    /// The latest release before a push.
    pub(super) fn before(&self, push: u64) -> Option<u64> {
        self.releases.iter().map(|of| of.push).find(|number| *number < push)
    }

    /// Only the stable content can be served: the units have forgotten all others.
    pub(super) fn lose_the_past(&mut self) {
        let served = self.served;
        self.releases.iter_mut().for_each(|of| of.is_here &= of.push == served);
    }

    /// A unit has ended, or belongs to another plan.
    pub(super) fn forget(&mut self, unit: UnitId) {
        self.away.remove(&unit);
        self.recalled.remove(&unit);
        self.barred.remove(&unit);
        self.proved.remove(&unit);
    }

    /// All clients have a push. Without evidence for it, the content of its units is unproved (WAV-7).
    pub(super) fn prove(&mut self, units: &[UnitId], outcome: Outcome) {
        match outcome {
            Outcome::Finished => self.proved.extend(units),
            Outcome::Unjudged => self.proved.retain(|unit| !units.contains(unit)),
            _ => {}
        }
    }

    /// A unit has another number since the relay began anew.
    pub(super) fn rename(&mut self, former: UnitId, unit: UnitId) {
        fn moved<T>(map: &mut BTreeMap<UnitId, T>, former: UnitId, unit: UnitId) {
            if let Some(value) = map.remove(&former) {
                map.insert(unit, value);
            }
        }
        moved(&mut self.away, former, unit);
        moved(&mut self.recalled, former, unit);
        moved(&mut self.digests, former, unit);
        self.releases.iter_mut().for_each(|of| moved(&mut of.units, former, unit));
        for of in [&mut self.barred, &mut self.proved, &mut self.pinned] {
            if of.remove(&former) {
                of.insert(unit);
            }
        }
    }
}
