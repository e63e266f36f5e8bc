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
mod tests;
