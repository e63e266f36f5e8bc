//! The content of a client between unanswered responses (TRU-3): a verdict on one response says nothing about
//! the others.

use std::sync::Arc;

use crate::collection::CollectionKind;
use crate::downstream::subscription::nonces::IN_FLIGHT_MAX;
use crate::downstream::subscription::part::{Key, Part};
use crate::view::View;
use sluice_xds::ResourceName;

/// The contents before all unanswered responses but the oldest. Empty for clients that answer before the next
/// response.
#[derive(Debug)]
pub(super) struct Stages(Vec<Stage>);

/// Stands for the nonce of the next response.
const NEXT: u64 = u64::MAX;

/// The content before one response, by part. A part may have come to another server of its list since.
#[derive(Debug)]
struct Stage {
    nonce: u64,
    parts: Vec<(Key, Arc<View>)>,
}

impl Stages {
    pub(super) const fn new() -> Stages {
        Stages(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, nonce: u64, parts: Vec<(Key, Arc<View>)>) {
        match self.0.last_mut().filter(|stage| stage.nonce == NEXT) {
            Some(stage) => stage.nonce = nonce,
            None => self.push(nonce, parts),
        }
    }

    /// Keeps the content before the next response, because the record of the content is about to change
    /// without a response.
    pub(super) fn begin(&mut self, parts: Vec<(Key, Arc<View>)>) {
        if self.0.last().is_none_or(|stage| stage.nonce != NEXT) {
            self.push(NEXT, parts);
        }
    }

    fn push(&mut self, nonce: u64, parts: Vec<(Key, Arc<View>)>) {
        if self.0.len() >= IN_FLIGHT_MAX {
            self.0.remove(0);
        }
        self.0.push(Stage { nonce, parts });
    }

    /// The content of a part before a response; `None` if no earlier response was unanswered.
    pub(super) fn before(&self, nonce: u64, part: &Part) -> Option<&Arc<View>> {
        self.0.iter().find(|stage| stage.nonce == nonce)?.view_of(part)
    }

    /// The content of a part with a response; `None` after the latest response.
    pub(super) fn after(&self, nonce: u64, part: &Part) -> Option<&Arc<View>> {
        self.0.iter().find(|stage| stage.nonce > nonce)?.view_of(part)
    }

    /// The contents of a part before the unanswered responses but the oldest.
    pub(super) fn views_of<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a Arc<View>> {
        self.0.iter().filter_map(|stage| stage.view_of(part))
    }

    /// The content of a part before the second unanswered response.
    pub(super) fn first_of(&self, part: &Part) -> Option<&Arc<View>> {
        self.0.iter().find_map(|stage| stage.view_of(part))
    }

    /// The contents of a part before the unanswered responses.
    pub(super) fn earlier<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a Arc<View>> {
        part.before.iter().chain(self.views_of(part))
    }

    /// Whether the client has not answered for its content of a name.
    pub(super) fn leave_open(&self, part: &Part, name: &ResourceName) -> bool {
        let held = part.held.version_of(name);
        self.earlier(part).any(|view| view.version_of(name) != held)
    }

    pub(super) fn of_kind_mut(&mut self, kind: CollectionKind) -> impl Iterator<Item = &mut Arc<View>> {
        let parts = self.0.iter_mut().flat_map(|stage| &mut stage.parts);
        parts.filter(move |((part_kind, _), _)| *part_kind == kind).map(|(_, view)| view)
    }

    /// A response was answered. `is_waiting`: others are unanswered.
    pub(super) fn end(&mut self, nonce: Option<u64>, is_waiting: bool) {
        self.0.retain(|stage| is_waiting && Some(stage.nonce) > nonce);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

impl Stage {
    fn view_of(&self, part: &Part) -> Option<&Arc<View>> {
        self.parts.iter().find(|(key, _)| *key == part.key()).map(|(_, view)| view)
    }
}
