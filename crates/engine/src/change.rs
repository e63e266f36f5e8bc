//! Published changes of a source: their numbers, their names, and the changes that a view went through
//! (ADM-10).

use super::Time;
use sluice_xds::{Resource, ResourceName, TypeUrl, Version};

/// The names that a list of a change holds: enough to recognise a change, and few enough to be kept in
/// memory.
pub const NAMES_MAX: usize = 20;

/// The bytes of all names in a list, because a server decides the lengths of names.
const NAMES_BYTES_MAX: usize = 2 << 10;

/// The latest changes that a view went through. Changes count from 1 in their source. Of older changes than
/// the last 64, nobody asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeMarks {
    latest: u64,
    /// Bit `i` stands for the change `latest - i`.
    recent: u64,
}

impl ChangeMarks {
    /// Adds a change with a higher number than all before.
    pub fn add(&mut self, number: u64) {
        let distance = u32::try_from(number.saturating_sub(self.latest)).unwrap_or(u32::MAX);
        self.recent = self.recent.checked_shl(distance).unwrap_or(0) | 1;
        self.latest = number;
    }

    /// The number of the latest change; 0 if there was none.
    pub fn latest(self) -> u64 {
        self.latest
    }

    /// The latest change after the change `seen`, if there is one.
    pub fn latest_after(self, seen: u64) -> Option<u64> {
        (self.latest > seen).then_some(self.latest)
    }

    /// Whether there are changes after `seen` besides the latest.
    pub fn has_overtaken_after(self, seen: u64) -> bool {
        self.bits_after(seen) != 0
    }

    /// The bits of the changes after `seen`, without the latest.
    fn bits_after(self, seen: u64) -> u64 {
        let before = self.recent & !1;
        match self.latest.saturating_sub(seen) {
            count @ 0..64 => before & ((1 << count) - 1),
            _ => before,
        }
    }

    /// The changes after `seen`, without the latest.
    pub fn overtaken_after(self, seen: u64) -> impl Iterator<Item = u64> {
        let mut left = self.bits_after(seen);
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(self.latest.saturating_sub(u64::from(bit)))
        })
    }
}

/// Names, bounded, and their exact number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    pub count: usize,
    pub names: Vec<ResourceName>,
    bytes: usize,
}

impl NameList {
    pub fn add(&mut self, name: &ResourceName) {
        self.count += 1;
        let bytes = self.bytes + name.as_str().len();
        if self.names.len() < NAMES_MAX && bytes <= NAMES_BYTES_MAX {
            self.bytes = bytes;
            self.names.push(name.clone());
        }
    }

    /// Adds a list. A name of both lists is shown once, and counts twice.
    pub fn merge(&mut self, other: &NameList) {
        let count = self.count + other.count;
        for name in &other.names {
            if !self.names.contains(name) {
                self.add(name);
            }
        }
        self.count = count;
    }
}

/// The resources of a cache that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    pub added: NameList,
    pub changed: NameList,
    pub removed: NameList,
    /// The size of the added and changed resources.
    pub bytes: usize,
}

impl Altered {
    /// A name has this resource now, in place of `old`.
    pub(super) fn put(&mut self, name: &ResourceName, old: Option<&Resource>, new: &Resource) {
        match old {
            Some(_) => self.changed.add(name),
            None => self.added.add(name),
        }
        self.bytes += new.size();
    }

    pub(super) fn take(&mut self, name: &ResourceName) {
        self.removed.add(name);
    }
}

/// One published change of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub number: u64,
    pub type_url: TypeUrl,
    pub at: Time,
    pub altered: Altered,
    /// The version of the whole content after the change.
    pub version: Version,
    /// The sessions that watch a changed set. Some may not want the change: they are served by another
    /// server, or have the content already.
    pub sessions: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(numbers: &[u64]) -> ChangeMarks {
        let mut marks = ChangeMarks::default();
        numbers.iter().for_each(|number| marks.add(*number));
        marks
    }

    #[test]
    fn adm_10_a_view_knows_the_changes_that_it_went_through() {
        let view = marks(&[2, 3, 7, 9]);
        assert_eq!(view.latest_after(8), Some(9));
        assert_eq!(view.latest_after(9), None);
        assert_eq!(view.overtaken_after(2).collect::<Vec<_>>(), [7, 3]);
        assert_eq!(view.overtaken_after(0).collect::<Vec<_>>(), [7, 3, 2]);
        assert_eq!(view.overtaken_after(8).count() + view.overtaken_after(20).count(), 0);
    }

    #[test]
    fn adm_10_changes_beyond_the_last_64_are_forgotten() {
        assert_eq!(marks(&[1, 2, 65]).overtaken_after(0).collect::<Vec<_>>(), [2]);
        assert_eq!(marks(&[1, 2, 1 << 40]).overtaken_after(0).count(), 0);
    }

    #[test]
    fn adm_10_the_names_of_a_change_are_bounded_and_counted() {
        let mut list = NameList::default();
        (0..50).for_each(|number| list.add(&ResourceName::from(format!("name-{number}"))));
        list.add(&ResourceName::from("x".repeat(5000)));
        assert_eq!((list.names.len(), list.count), (NAMES_MAX, 51));
    }
}
