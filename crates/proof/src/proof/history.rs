//! The lately replaced versions of a side of a comparison (PRF-12).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::content::{Content, TypeContent};
use sluice_engine::Time;
use sluice_engine::cache::{CachedResource, Known};
use sluice_engine::collection::CollectionKind;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The noted versions of a name: the latest, and beside them the smallest.
const NOTED: usize = 8;
/// Changes of more names within a window make a side blind for one window.
const NAMES_MAX: usize = 4_096;

/// A name, or a member, of one kind of collection of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameKey {
    pub type_url: TypeUrl,
    pub kind: CollectionKind,
    pub name: ResourceName,
}

/// A replaced version; `None`: the name was absent.
#[derive(Clone, Copy, Debug)]
struct Noted {
    version: Option<Version>,
    until: Time,
}

/// The replaced versions of one name.
#[derive(Clone, Debug, Default)]
struct Notes {
    latest: VecDeque<Noted>,
    /// The versions with the smallest numbers. A version is a hash, so two sides that go through thousands of
    /// versions at a distance of seconds note the same ones here, where the latest eight of both have none in
    /// common.
    smallest: Vec<Noted>,
}

impl Notes {
    fn add(&mut self, noted: Noted) {
        if self.latest.len() == NOTED {
            self.latest.pop_front();
        }
        self.latest.push_back(noted);
        match self.smallest.iter_mut().find(|other| other.version == noted.version) {
            Some(other) => other.until = noted.until,
            None => {
                let place = self.smallest.partition_point(|other| other.version < noted.version);
                self.smallest.insert(place, noted);
                self.smallest.truncate(NOTED);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Noted> {
        self.latest.iter().chain(&self.smallest)
    }

    /// Drops the notes from before `horizon`.
    fn forget(&mut self, horizon: Time) {
        self.latest.retain(|noted| noted.until >= horizon);
        self.smallest.retain(|noted| noted.until >= horizon);
    }
}

/// The replaced versions of one side, for the last window.
#[derive(Clone, Debug, Default)]
pub struct History {
    notes: BTreeMap<NameKey, Notes>,
    /// Earlier versions may be missing.
    blind_until: Option<Time>,
    swept_at: Time,
    /// Counts the notes ever made.
    added: u64,
}

impl History {
    /// Notes all names with another version in `after`. Returns whether the content changed.
    pub fn note(&mut self, before: &Content, after: &Content, now: Time, window: Duration) -> bool {
        if now.since(self.swept_at) > window / 4 {
            self.sweep(now, window);
        }
        let added = self.added;
        for (type_url, new) in &after.types {
            if let Some(old) = before.types.get(type_url) {
                self.note_type(type_url, old, new, now);
            }
        }
        let is_changed = self.added > added;
        if self.notes.len() > NAMES_MAX {
            self.notes.clear();
            self.blind_until = Some(now + window);
        }
        is_changed
    }

    fn note_type(&mut self, type_url: &TypeUrl, old: &TypeContent, new: &TypeContent, now: Time) {
        let (old, new) = (&old.snapshot, &new.snapshot);
        for item in old.names.entries.diff(&new.names.entries) {
            let (name, state) = match item {
                DiffItem::Update { old: (name, state), .. } | DiffItem::Remove(name, state) => (name, state),
                DiffItem::Add(..) => continue,
            };
            let version = match state {
                Known::Unknown => continue,
                Known::Absent(_) => None,
                Known::Present(cached) => Some(cached.resource.version),
            };
            self.add(type_url, CollectionKind::Names, name, version, now);
        }
        let is_whole = old.wildcard.is_whole();
        self.note_members(
            (type_url, CollectionKind::Wildcard),
            &old.wildcard.members,
            &new.wildcard.members,
            now,
            |_| is_whole,
        );
        let has = |name: &ResourceName| name.glob().is_some_and(|glob| old.globs.complete.contains(&glob));
        self.note_members(
            (type_url, CollectionKind::Globs),
            &old.globs.members,
            &new.globs.members,
            now,
            has,
        );
    }

    /// `knew`: the membership with the name was known before, so that a new member was absent.
    fn note_members(
        &mut self,
        part: (&TypeUrl, CollectionKind),
        old: &OrdMap<ResourceName, CachedResource>,
        new: &OrdMap<ResourceName, CachedResource>,
        now: Time,
        knew: impl Fn(&ResourceName) -> bool,
    ) {
        for item in old.diff(new) {
            match item {
                DiffItem::Update { old: (name, cached), .. } | DiffItem::Remove(name, cached) => {
                    self.add(part.0, part.1, name, Some(cached.resource.version), now);
                }
                DiffItem::Add(name, _) if knew(name) => self.add(part.0, part.1, name, None, now),
                DiffItem::Add(..) => {}
            }
        }
    }

    fn add(
        &mut self,
        type_url: &TypeUrl,
        kind: CollectionKind,
        name: &ResourceName,
        version: Option<Version>,
        now: Time,
    ) {
        let key = NameKey { type_url: type_url.clone(), kind, name: name.clone() };
        self.added += 1;
        self.notes.entry(key).or_default().add(Noted { version, until: now });
    }

    fn sweep(&mut self, now: Time, window: Duration) {
        self.swept_at = now;
        for notes in self.notes.values_mut() {
            notes.forget(now - window);
        }
        self.notes.retain(|_, notes| !notes.latest.is_empty());
    }

    /// Whether versions of the window may be missing: nothing can be decided then.
    pub fn is_blind(&self, now: Time) -> bool {
        self.blind_until.is_some_and(|until| now < until)
    }

    /// Whether the name had the version within the window, before the present version.
    pub fn has_had(&self, key: &NameKey, version: Option<Version>, now: Time, window: Duration) -> bool {
        let notes = self.notes.get(key).into_iter().flat_map(Notes::all);
        notes.filter(|noted| now.since(noted.until) <= window).any(|noted| noted.version == version)
    }

    /// The number of noted versions of the window, at most eight.
    pub fn count(&self, key: &NameKey, now: Time, window: Duration) -> usize {
        let notes = self.notes.get(key).into_iter().flat_map(|notes| &notes.latest);
        notes.filter(|noted| now.since(noted.until) <= window).count()
    }

    /// Whether both sides noted a version of the name within the window.
    pub fn shares(&self, other: &History, key: &NameKey, now: Time, window: Duration) -> bool {
        let mut notes = self.notes.get(key).into_iter().flat_map(Notes::all);
        notes.any(|noted| now.since(noted.until) <= window && other.has_had(key, noted.version, now, window))
    }

    /// The time of the last change of a name; `None`: longer ago than the window.
    pub fn changed_at(&self, key: &NameKey) -> Option<Time> {
        self.notes.get(key)?.latest.back().map(|noted| noted.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::bench::{at_ms, clusters, endpoints, named, wildcard};

    const WINDOW: Duration = Duration::from_secs(60);

    fn key(name: &str) -> NameKey {
        NameKey { type_url: clusters(), kind: CollectionKind::Wildcard, name: name.into() }
    }

    #[test]
    fn prf_12_the_versions_of_the_window_are_noted_and_older_ones_forgotten() {
        let mut history = History::default();
        let contents: Vec<Content> =
            (1..=3).map(|version| wildcard(&clusters(), &[("a", version)])).collect();
        assert!(history.note(&contents[0], &contents[1], at_ms(0), WINDOW));
        assert!(history.note(&contents[1], &contents[2], at_ms(50_000), WINDOW));
        let has = |history: &History, version, ms| {
            history.has_had(&key("a"), Some(Version(version)), at_ms(ms), WINDOW)
        };
        assert!(has(&history, 1, 60_000) && !has(&history, 1, 60_001), "replaced more than a window ago");
        assert!(has(&history, 2, 60_001) && !has(&history, 3, 50_000), "the present version is not noted");
        assert_eq!(history.changed_at(&key("a")), Some(at_ms(50_000)));
        assert!(!history.note(&contents[2], &contents[2], at_ms(50_001), WINDOW));
    }

    #[test]
    fn prf_12_absence_is_noted_like_a_version() {
        let mut history = History::default();
        history.note(&wildcard(&clusters(), &[]), &wildcard(&clusters(), &[("a", 1)]), at_ms(0), WINDOW);
        assert!(history.has_had(&key("a"), None, at_ms(1), WINDOW));
        let (old, new) = (named(&endpoints(), &[("e", Some(1))]), named(&endpoints(), &[("e", None)]));
        history.note(&old, &new, at_ms(1), WINDOW);
        let name = NameKey { type_url: endpoints(), kind: CollectionKind::Names, name: "e".into() };
        assert!(history.has_had(&name, Some(Version(1)), at_ms(2), WINDOW));
    }

    #[test]
    fn prf_12_sides_seconds_apart_share_versions_whatever_the_rate() {
        let (mut ahead, mut behind) = (History::default(), History::default());
        let content = |step: u128| {
            wildcard(&clusters(), &[("a", step.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))])
        };
        for step in 0..5_000u32 {
            let now = at_ms(u64::from(step));
            ahead.note(&content(step.into()), &content(u128::from(step) + 1), now, WINDOW);
            if let Some(step) = step.checked_sub(3_000) {
                behind.note(&content(step.into()), &content(u128::from(step) + 1), now, WINDOW);
            }
        }
        assert!(ahead.shares(&behind, &key("a"), at_ms(5_000), WINDOW));
        assert_eq!(ahead.count(&key("a"), at_ms(5_000), WINDOW), NOTED);
    }

    #[test]
    fn prf_12_a_side_with_too_many_changes_is_blind_for_a_window() {
        let mut history = History::default();
        let names: Vec<String> = (0..=NAMES_MAX).map(|number| number.to_string()).collect();
        let members: Vec<(&str, u128)> = names.iter().map(|name| (&**name, 1)).collect();
        history.note(&wildcard(&clusters(), &[]), &wildcard(&clusters(), &members), at_ms(0), WINDOW);
        assert!(history.is_blind(at_ms(59_999)) && !history.is_blind(at_ms(60_000)));
        assert!(history.notes.is_empty());
    }
}
