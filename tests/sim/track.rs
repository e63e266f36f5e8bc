//! The history of one resource in the reference model.

use super::words::Content;
use sluice_xds::Code;

/// The three states of a name (RLY-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Unknown,
    Present(Content),
    Absent,
}

/// Valid from the response with this number on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) from: u32,
    pub(super) state: State,
}

/// A resource requested by name, or a member of the wildcard.
#[derive(Clone, Debug, Default)]
pub struct Track {
    pub(super) history: Vec<Entry>,
    /// The end of the time to live, and its length.
    pub expires: Option<(u64, u64)>,
    /// The resource expired, and was not sent since.
    pub has_expired: bool,
    pub(super) upstream_version: Box<str>,
    /// The server's error for the name, and whether the error must stand.
    pub failed: Option<(Code, bool)>,
}

impl Track {
    pub fn state(&self) -> State {
        self.history.last().map(|entry| entry.state).unwrap_or_default()
    }

    pub(super) fn entry(&self, moment: u32) -> Option<&Entry> {
        self.history.iter().rev().find(|entry| entry.from <= moment)
    }

    /// The state after the response with this number.
    pub fn state_at(&self, moment: u32) -> State {
        self.entry(moment).map(|entry| entry.state).unwrap_or_default()
    }

    /// The last content before the absence, if the name is absent at this moment.
    pub fn last_content(&self, moment: u32) -> Option<Content> {
        self.history.iter().rev().filter(|entry| entry.from <= moment).find_map(|entry| match entry.state {
            State::Present(content) => Some(content),
            _ => None,
        })
    }

    /// Whether this was the last content at `moment`, or has been the content since.
    pub fn had_since(&self, content: Content, moment: u32) -> bool {
        let mut later = self.history.iter().filter(|entry| entry.from > moment);
        self.last_content(moment) == Some(content)
            || later.any(|entry| entry.state == State::Present(content))
    }

    /// Whether this was the content at some time.
    pub fn has_had(&self, content: Content) -> bool {
        self.history.iter().any(|entry| entry.state == State::Present(content))
    }

    /// The last change up to `moment`.
    pub fn changed_at(&self, moment: u32) -> u32 {
        self.entry(moment).map_or(0, |entry| entry.from)
    }

    /// The moment of the last removal; `None` if the name was never there.
    pub fn left_at(&self, moment: u32) -> Option<u32> {
        let history: Vec<_> = self.history.iter().filter(|entry| entry.from <= moment).collect();
        let last = history.iter().rposition(|entry| matches!(entry.state, State::Present(_)))?;
        history.get(last + 1).map(|entry| entry.from)
    }

    pub(super) fn set(&mut self, state: State, from: u32) {
        self.has_expired &= !matches!(state, State::Present(_));
        if self.state() == state {
            return;
        }
        match self.history.last_mut() {
            Some(last) if last.from == from => last.state = state,
            _ => self.history.push(Entry { from, state }),
        }
    }

    pub(super) fn lose(&mut self, state: State, from: u32) {
        self.expires = None;
        self.upstream_version = Box::default();
        self.failed = self.failed.filter(|(code, _)| *code == Code::NotFound && state == State::Absent);
        self.set(state, from);
    }
}
