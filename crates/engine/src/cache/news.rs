//! The news of a source: changed views, the sessions that watch them, and the changes of content.

use crate::Time;
use crate::change::{Altered, Change};
use crate::view::ViewId;
use sluice_xds::{TypeUrl, Version};

/// One downstream stream, as a source knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Sessions whose view changed. May name a session more than once.
#[derive(Debug, Default)]
pub struct News {
    /// A requested name has become known: first answers are never delayed to join others (RLY-54).
    pub first: Vec<SessionId>,
    /// A known name has changed.
    pub update: Vec<SessionId>,
    /// The changes of content.
    pub changes: Vec<CacheChange>,
}

/// A change of the content of one cache.
#[derive(Debug)]
pub struct CacheChange {
    number: u64,
    at: Time,
    altered: Altered,
    version: Version,
    sessions: usize,
}

impl CacheChange {
    pub fn of(self, type_url: &TypeUrl) -> Change {
        let CacheChange { number, at, altered, version, sessions } = self;
        Change { number, type_url: type_url.clone(), at, altered, version, sessions }
    }
}

impl News {
    /// Notes a change of content with this number, for the sessions that watch the content.
    pub(super) fn note_change(
        &mut self,
        number: Option<u64>,
        altered: Option<Box<Altered>>,
        version: Version,
        sessions: usize,
        at: Time,
    ) {
        if let (Some(number), Some(altered)) = (number, altered) {
            self.changes.push(CacheChange { number, at, altered: *altered, version, sessions });
        }
    }
}

/// Gives each new view its id and the time of its content's last change.
#[derive(Debug)]
pub struct Stamp {
    source: u64,
    count: u64,
    pub(super) now: Time,
    /// The number of changes of content so far.
    changes: u64,
}

impl Stamp {
    pub fn new(source: u64) -> Stamp {
        Stamp { source, count: 0, now: Time::ZERO, changes: 0 }
    }

    pub fn at(&mut self, now: Time) -> &mut Stamp {
        self.now = now;
        self
    }

    /// The number of the latest change of content.
    pub fn last_change(&self) -> u64 {
        self.changes
    }

    /// Numbers a change of content, if there is one.
    pub(super) fn number(&mut self, altered: Option<&Altered>) -> Option<u64> {
        altered?;
        self.changes += 1;
        Some(self.changes)
    }

    pub(super) fn next(&mut self) -> (ViewId, Time) {
        self.count += 1;
        (ViewId::fresh(self.source, self.count), self.now)
    }
}
