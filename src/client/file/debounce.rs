//! Decides when to read a changed file: at once after a rename, otherwise after a quiet time (FIL-1, FIL-8).
//!
//! Uses no clock and no file system: time and stamps are parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use tokio::time::Instant;

/// Metadata that reveals a change of content without reading the file. Unlike `trust::contents::Stamp`,
/// without the time of the inode: a rename changes this time, and a renamed file keeps its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) inode: (u64, u64),
    pub(super) length: u64,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
}

/// The kernel's reports about a directory since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// These names changed.
    pub(super) touched: BTreeSet<OsString>,
    /// A file was renamed to these names.
    pub(super) moved: BTreeSet<OsString>,
    /// All files were replaced at once: by a swap of `..data`, or because the watch begins.
    pub(super) all_moved: bool,
}

/// The files to handle now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DueFiles {
    pub(super) read: Vec<OsString>,
    pub(super) gone: Vec<OsString>,
}

#[derive(Debug)]
pub(super) struct Debounce {
    quiet: Duration,
    /// The files as last read.
    taken: BTreeMap<OsString, FileStamp>,
    /// Names changed since, with the last stamp and the end of the quiet time. A stamp of `None`: missing.
    waiting: BTreeMap<OsString, (Option<FileStamp>, Instant)>,
    /// Files that could not be read. They are read again, changed or not.
    unread: BTreeSet<OsString>,
}

impl Debounce {
    pub(super) fn new(quiet: Duration) -> Debounce {
        Debounce { quiet, taken: BTreeMap::new(), waiting: BTreeMap::new(), unread: BTreeSet::new() }
    }

    /// Compares the directory with the files as last read. `is_hidden`: the directory has the name, but the
    /// file cannot be looked at, so that it is neither read nor gone.
    ///
    /// A missing file waits like a file being written, because editors replace a file by removing it first. A
    /// file renamed within the directory loses its old name and gains its new name in the same step, reported
    /// by the kernel or not: its content is never missing in between.
    pub(super) fn look(
        &mut self,
        present: &BTreeMap<OsString, FileStamp>,
        is_hidden: impl Fn(&OsString) -> bool,
        changes: &Changes,
        now: Instant,
    ) -> DueFiles {
        let mut due = DueFiles::default();
        let missing = self.taken.iter().filter(|(name, _)| !present.contains_key(*name) && !is_hidden(name));
        let missing: Vec<_> = missing.map(|(name, stamp)| (name.clone(), stamp.clone())).collect();
        for (name, stamp) in present {
            let touched = changes.touched.contains(name);
            let is_taken = self.taken.get(name) == Some(stamp) && !self.unread.contains(name);
            let changed = touched || self.waiting.contains_key(name) || !is_taken;
            let renamed = missing.iter().any(|(_, old)| old == stamp);
            let moved = changes.all_moved || changes.moved.contains(name) || renamed;
            if moved || (changed && self.is_quiet(name, Some(stamp), touched, now)) {
                due.read.push(name.clone());
            }
        }
        for (name, old) in missing {
            let moved = changes.all_moved || present.values().any(|stamp| *stamp == old);
            if moved || self.is_quiet(&name, None, changes.touched.contains(&name), now) {
                due.gone.push(name);
            }
        }
        for name in due.read.iter().chain(&due.gone) {
            self.waiting.remove(name);
            self.unread.remove(name);
        }
        for name in &due.read {
            self.taken.extend(present.get(name).map(|stamp| (name.clone(), stamp.clone())));
        }
        for name in &due.gone {
            self.taken.remove(name);
        }
        self.unread.extend(self.waiting.keys().filter(|name| is_hidden(name)).cloned());
        let is_known = |name: &OsString| present.contains_key(name) || self.taken.contains_key(name);
        self.waiting.retain(|name, _| is_known(name) && !is_hidden(name));
        due
    }

    /// A file changed while being read.
    pub(super) fn unsettled(&mut self, name: &OsStr, stamp: Option<FileStamp>, now: Instant) {
        self.waiting.insert(name.to_owned(), (stamp, now + self.quiet));
    }

    /// A file that is due could not be read.
    pub(super) fn unread(&mut self, name: &OsStr) {
        self.unread.insert(name.to_owned());
    }

    /// When to look again even without a report.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.waiting.values().map(|(_, quiet_at)| *quiet_at).min()
    }

    fn is_quiet(&mut self, name: &OsStr, stamp: Option<&FileStamp>, touched: bool, now: Instant) -> bool {
        match self.waiting.get(name) {
            Some((last, quiet_at)) if !touched && last.as_ref() == stamp => *quiet_at <= now,
            _ => {
                self.waiting.insert(name.to_owned(), (stamp.cloned(), now + self.quiet));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(500);

    fn files(files: &[(&str, u64, i64)]) -> BTreeMap<OsString, FileStamp> {
        let stamp = |inode, modified| FileStamp { inode: (1, inode), length: 9, modified: (modified, 0) };
        files.iter().map(|(name, inode, modified)| ((*name).into(), stamp(*inode, *modified))).collect()
    }

    /// All files can be looked at.
    fn seen(_: &OsString) -> bool {
        false
    }

    fn touched(name: &str) -> Changes {
        Changes { touched: BTreeSet::from([name.into()]), ..Changes::default() }
    }

    fn due(read: &[&str], gone: &[&str]) -> DueFiles {
        let names = |names: &[&str]| names.iter().map(OsString::from).collect();
        DueFiles { read: names(read), gone: names(gone) }
    }

    /// A directory with `a` and `b`, both taken.
    fn settled(now: Instant) -> Debounce {
        let mut debounce = Debounce::new(QUIET);
        let all = Changes { all_moved: true, ..Changes::default() };
        assert_eq!(
            debounce.look(&files(&[("a", 1, 0), ("b", 2, 0)]), seen, &all, now),
            due(&["a", "b"], &[])
        );
        assert_eq!(debounce.timeout(), None);
        debounce
    }

    #[test]
    fn fil_1_a_rename_is_taken_at_once() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let moved = Changes { moved: BTreeSet::from(["a".into()]), ..touched("a") };
        assert_eq!(debounce.look(&files(&[("a", 3, 0), ("b", 2, 0)]), seen, &moved, now), due(&["a"], &[]));
        assert_eq!(debounce.timeout(), None);
    }

    #[test]
    fn fil_8_a_save_in_place_is_taken_when_it_is_quiet() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let nothing = Changes::default();
        let (first, second) = (files(&[("a", 1, 1), ("b", 2, 0)]), files(&[("a", 1, 2), ("b", 2, 0)]));
        assert_eq!(debounce.look(&first, seen, &touched("a"), now), DueFiles::default());
        assert_eq!(debounce.timeout(), Some(now + QUIET));
        // Each further write begins the quiet time anew, with or without an event.
        let (later, latest) = (now + QUIET / 2, now + QUIET);
        assert_eq!(debounce.look(&first, seen, &touched("a"), later), DueFiles::default());
        assert_eq!(debounce.look(&second, seen, &nothing, latest), DueFiles::default());
        assert_eq!(
            debounce.look(&second, seen, &nothing, latest + QUIET - Duration::from_nanos(1)),
            DueFiles::default()
        );
        assert_eq!(debounce.look(&second, seen, &nothing, latest + QUIET), due(&["a"], &[]));
        assert_eq!(debounce.look(&second, seen, &nothing, latest + QUIET * 2), DueFiles::default());
    }

    #[test]
    fn a_missing_file_is_gone_when_it_stays_away() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let without = files(&[("b", 2, 0)]);
        assert_eq!(debounce.look(&without, seen, &touched("a"), now), DueFiles::default());
        assert_eq!(debounce.look(&without, seen, &Changes::default(), now + QUIET), due(&[], &["a"]));
        assert_eq!(debounce.timeout(), None);

        let mut debounce = settled(now);
        assert_eq!(debounce.look(&without, seen, &touched("a"), now), DueFiles::default());
        let again = files(&[("a", 7, 5), ("b", 2, 0)]);
        assert_eq!(debounce.look(&again, seen, &Changes::default(), now + QUIET), DueFiles::default());
        assert_eq!(debounce.look(&again, seen, &Changes::default(), now + QUIET * 2), due(&["a"], &[]));
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_neither_read_nor_gone() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let (without, hidden) = (files(&[("b", 2, 0)]), |name: &OsString| name == "a");
        let all = Changes { all_moved: true, ..Changes::default() };
        assert_eq!(debounce.look(&without, hidden, &all, now), due(&["b"], &[]));
        assert_eq!(debounce.look(&without, hidden, &touched("a"), now + QUIET), DueFiles::default());
        assert_eq!(debounce.timeout(), None);
        // As it was.
        let again = files(&[("a", 1, 0), ("b", 2, 0)]);
        assert_eq!(debounce.look(&again, seen, &Changes::default(), now + QUIET * 2), DueFiles::default());
        assert_eq!(debounce.timeout(), None);
        // While it was being written.
        let written = files(&[("a", 1, 1), ("b", 2, 0)]);
        assert_eq!(debounce.look(&written, seen, &touched("a"), now + QUIET * 2), DueFiles::default());
        assert_eq!(debounce.look(&without, hidden, &touched("a"), now + QUIET * 2), DueFiles::default());
        assert_eq!(debounce.timeout(), None);
        assert_eq!(debounce.look(&written, seen, &Changes::default(), now + QUIET * 3), DueFiles::default());
        assert_eq!(debounce.look(&written, seen, &Changes::default(), now + QUIET * 4), due(&["a"], &[]));
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let both = files(&[("a", 1, 0), ("b", 2, 0)]);
        debounce.unread("a".as_ref());
        assert_eq!(debounce.timeout(), None);
        assert_eq!(debounce.look(&both, seen, &Changes::default(), now), DueFiles::default());
        assert_eq!(debounce.look(&both, seen, &Changes::default(), now + QUIET), due(&["a"], &[]));
        assert_eq!(debounce.look(&both, seen, &Changes::default(), now + QUIET * 2), DueFiles::default());
        debounce.unread("a".as_ref());
        let without = files(&[("b", 2, 0)]);
        assert_eq!(debounce.look(&without, seen, &Changes::default(), now), DueFiles::default());
        assert_eq!(debounce.look(&without, seen, &Changes::default(), now + QUIET), due(&[], &["a"]));
    }

    #[test]
    fn a_renamed_file_changes_its_name_in_one_step() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let half_heard = touched("a");
        assert_eq!(
            debounce.look(&files(&[("b", 2, 0), ("c", 1, 0)]), seen, &half_heard, now),
            due(&["c"], &["a"])
        );
    }

    #[test]
    fn fil_2_a_swap_of_all_files_is_taken_at_once() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let all = Changes { all_moved: true, ..Changes::default() };
        assert_eq!(
            debounce.look(&files(&[("a", 8, 0), ("d", 9, 0)]), seen, &all, now),
            due(&["a", "d"], &["b"])
        );
    }

    #[test]
    fn a_temporary_file_leaves_nothing_behind() {
        let now = Instant::now();
        let mut debounce = settled(now);
        let with = files(&[("a", 1, 0), ("b", 2, 0), ("t", 3, 0)]);
        assert_eq!(debounce.look(&with, seen, &touched("t"), now), DueFiles::default());
        assert_eq!(
            debounce.look(&files(&[("a", 1, 0), ("b", 2, 0)]), seen, &touched("t"), now),
            DueFiles::default()
        );
        assert_eq!(debounce.timeout(), None);
    }
}
