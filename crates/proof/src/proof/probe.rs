//! An open shadow as the machine sees it.

use std::sync::Arc;
use std::time::Duration;

use super::comparison::{Stance, stance};
use super::content::Content;
use super::history::{History, NameKey};
use super::input::{ShadowId, Wanted};
use sluice_engine::Time;

/// A shadow, from begin to end.
#[derive(Clone, Debug)]
pub struct Probe {
    pub id: ShadowId,
    pub since: Time,
    pub wants: Arc<[Wanted]>,
    /// `None`: the shadow has published nothing so far.
    pub content: Option<Content>,
    pub history: History,
    /// The connection of the stream; equal numbers are one connection.
    pub connection: Option<u64>,
    /// The first time at which the whole subscription had an answer.
    pub answered_at: Option<Time>,
}

impl Probe {
    pub fn new(id: ShadowId, wants: Arc<[Wanted]>, now: Time) -> Probe {
        Probe {
            id,
            since: now,
            wants,
            content: None,
            history: History::default(),
            connection: None,
            answered_at: None,
        }
    }

    pub fn publish(&mut self, content: Content, connection: Option<u64>, now: Time, window: Duration) {
        if let Some(before) = &self.content {
            self.history.note(before, &content, now, window);
        }
        (self.content, self.connection) = (Some(content), connection);
    }

    /// The state of a name; `None`: no word.
    pub fn stance(&self, key: &NameKey) -> Option<Stance> {
        stance(self.content.as_ref()?, &self.wants, key)
    }

    /// Whether some part of the subscription has an answer: the server accepts the node.
    pub fn has_answer(&self) -> bool {
        let types = self.content.iter().flat_map(|content| &content.types);
        types
            .filter(|entry| !entry.1.standing.restored)
            .any(|entry| entry.1.standing.is_current || entry.1.standing.answered.is_some())
    }
}
