//! A bounded memory of contents, with an end for each content (QUA-5).

use std::time::Duration;

use imbl::{OrdMap, OrdSet};

pub use crate::rollout::push::Content;
use sluice_engine::Time;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// A content is remembered for this time: longer than a control plane takes to be mended, and no archive
/// (QUA-5).
pub const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The maximum number of contents in a memory.
pub const CONTENTS_MAX: usize = 10_000;

/// The condemned contents of a plan.
pub type CondemnedContents = Remembered<()>;

/// Contents, each with a value and an end. A clone shares all contents with the original.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered<V: Clone> {
    entries: OrdMap<Content, (Time, V)>,
    /// The same contents in the order of their ends.
    ends: OrdSet<(Time, Content)>,
}

impl<V: Clone> Default for Remembered<V> {
    fn default() -> Remembered<V> {
        Remembered { entries: OrdMap::new(), ends: OrdSet::new() }
    }
}

impl<V: Clone> Remembered<V> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether both share all contents. False may be returned for equal memories.
    pub fn is_same(&self, other: &Remembered<V>) -> bool {
        self.ends.ptr_eq(&other.ends) || self.is_empty() && other.is_empty()
    }

    pub fn contains(&self, content: &Content) -> bool {
        self.entries.contains_key(content)
    }

    /// The remembered versions of a resource.
    pub fn versions_of(&self, type_url: &TypeUrl, name: &ResourceName) -> impl Iterator<Item = Version> {
        let from = (type_url.clone(), name.clone(), Version(0))..;
        let contents = self.entries.range(from).map(|(content, _)| content);
        contents
            .take_while(move |content| content.0 == *type_url && content.1 == *name)
            .map(|(_, _, version)| *version)
    }

    /// All contents with their ends, the latest end first.
    pub fn latest_first(&self) -> impl Iterator<Item = &(Time, Content)> {
        self.ends.iter().rev()
    }

    /// The time at which the next content is forgotten.
    pub fn next_end(&self) -> Option<Time> {
        self.ends.get_min().map(|(end, _)| *end)
    }

    /// Remembers a content until `end`, also if it is known already. A full memory forgets the content with
    /// the next end.
    pub fn put(&mut self, content: Content, end: Time, value: V) {
        self.take(&content);
        self.ends.insert((end, content.clone()));
        self.entries.insert(content, (end, value));
        while self.entries.len() > CONTENTS_MAX && self.forget_next() {}
    }

    /// Forgets a content. Returns its value.
    pub(super) fn take(&mut self, content: &Content) -> Option<V> {
        let (end, value) = self.entries.remove(content)?;
        self.ends.remove(&(end, content.clone()));
        Some(value)
    }

    /// Forgets the contents whose time has come.
    pub(super) fn forget(&mut self, now: Time) {
        while self.next_end().is_some_and(|end| end <= now) && self.forget_next() {}
    }

    fn forget_next(&mut self) -> bool {
        let Some((_, content)) = self.ends.remove_min() else { return false };
        self.entries.remove(&content);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(name: &str, version: u128) -> Content {
        (TypeUrl::of_message("envoy.config.cluster.v3.Cluster"), ResourceName::new(name), Version(version))
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn qua_5_a_full_memory_forgets_the_oldest_content_first() {
        let mut memory = CondemnedContents::default();
        let most = CONTENTS_MAX as u64;
        // The first content is remembered anew, so that the second one is the oldest.
        (0..most)
            .chain([0])
            .zip(0..)
            .for_each(|(version, second)| memory.put(content("a", version.into()), at(second), ()));
        assert_eq!(memory.len(), CONTENTS_MAX);
        memory.put(content("b", 7), at(most + 1), ());
        assert_eq!((memory.len(), memory.ends.len()), (CONTENTS_MAX, CONTENTS_MAX));
        let is_known = [content("a", 0), content("a", 1), content("a", 2), content("b", 7)];
        assert_eq!(is_known.map(|content| memory.contains(&content)), [true, false, true, true]);
        assert_eq!(memory.latest_first().next(), Some(&(at(most + 1), content("b", 7))));
    }

    #[test]
    fn qua_5_a_content_is_forgotten_at_its_end() {
        let mut memory = Remembered::default();
        memory.put(content("a", 1), at(5), "one");
        memory.put(content("a", 2), at(6), "two");
        memory.put(content("ab", 3), at(9), "other");
        let versions = |memory: &Remembered<_>| {
            let (type_url, name, _) = content("a", 0);
            memory.versions_of(&type_url, &name).map(|version| version.0).collect::<Vec<_>>()
        };
        assert_eq!((versions(&memory), memory.next_end()), (vec![1, 2], Some(at(5))));
        let before = memory.clone();
        memory.forget(at(5));
        assert_eq!((versions(&memory), memory.next_end()), (vec![2], Some(at(6))));
        assert_eq!((memory.take(&content("a", 2)), memory.take(&content("a", 2))), (Some("two"), None));
        memory.forget(at(9));
        assert!(memory.is_empty() && memory.next_end().is_none());
        assert_eq!(versions(&before), [1, 2], "a clone is on its own");
    }
}
