//! The condemned contents that replicas share (LDG-2, QUA-2). Each replica writes those that the ledger
//! lacks; none is ever taken out before its end.

use std::sync::Arc;

use super::Expected;
use crate::rollout::shared::condemned::{CondemnedSet, ContentHash};
use crate::rollout::shared::record::{CondemnedRecord, FORMAT, read};
use sluice_engine::Time;

/// The condemned contents of this replica and of the ledger.
#[derive(Debug, Default)]
pub(super) struct Condemning {
    here: Vec<(ContentHash, Time)>,
    held: CondemnedRecord,
    /// The contents of `held`, for readers.
    elsewhere: Arc<CondemnedSet>,
    /// `None`: the ledger has no such entry.
    revision: Option<u64>,
    /// The entry cannot be read.
    pub unreadable: Option<Box<str>>,
    /// The ledger has all that is condemned here.
    is_settled: bool,
    /// An entry of before this revision is out of date.
    not_before: u64,
}

impl Condemning {
    /// A load begins.
    pub fn reload(&mut self) {
        *self = Condemning { here: std::mem::take(&mut self.here), ..Condemning::default() };
    }

    pub fn take(&mut self, value: &[u8], revision: u64) {
        match read(value) {
            Ok(record) => self.take_record(record, revision),
            Err(error) => self.unreadable = Some(format!("the condemned contents: {error}").into()),
        }
    }

    /// The entry as it was read, or as this replica wrote it.
    pub fn take_record(&mut self, record: CondemnedRecord, revision: u64) {
        if self.revision.is_some_and(|present| present > revision) {
            return;
        }
        if record.contents != *self.elsewhere {
            self.elsewhere = Arc::new(record.contents.clone());
        }
        (self.held, self.revision) = (record, Some(revision));
        (self.unreadable, self.is_settled) = (None, false);
    }

    /// The entry is gone: what this replica knows is written again.
    pub fn lose(&mut self) {
        (self.held, self.revision, self.not_before) = (CondemnedRecord::default(), None, 0);
        (self.unreadable, self.is_settled) = (None, false);
    }

    pub fn lost_race(&mut self, revision: u64) {
        self.not_before = revision;
    }

    /// The write of this replica failed, or was late.
    pub fn look_again(&mut self) {
        self.is_settled = false;
    }

    /// All condemned contents of this replica, each with its end.
    pub fn condemn(&mut self, contents: Vec<(ContentHash, Time)>) {
        (self.here, self.is_settled) = (contents, false);
    }

    /// The condemned contents of all replicas, as the ledger has them.
    pub fn elsewhere(&self) -> &Arc<CondemnedSet> {
        &self.elsewhere
    }

    /// The entry with the contents that the ledger lacks, and how the entry is now. `seconds`: since 1970, at
    /// a time of the plan.
    pub fn next(&mut self, seconds: impl Fn(Time) -> u32, now: Time) -> Option<(CondemnedRecord, Expected)> {
        if self.is_settled || self.revision.unwrap_or(0) < self.not_before {
            return None;
        }
        self.is_settled = true;
        let here = self.here.iter().map(|(content, end)| (*content, seconds(*end)));
        let mut next = CondemnedRecord { version: FORMAT, ..self.held.clone() };
        let expected = self.revision.map_or(Expected::Absent, Expected::Revision);
        next.contents.merge(here, seconds(now)).then_some((next, expected))
    }
}
