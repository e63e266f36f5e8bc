//! A server that sends the same content again and again (ADR 67).
//!
//! A server may answer each ACK with the response that the ACK was about. The relay answers every response at
//! once (ACK-8), so the two would talk for ever, as fast as they can. A NACK has the same risk. So responses
//! of a type that follow each other closely are compared. A response with news is answered at once, whatever
//! came before. After [`FREE`] responses in sequence without news, an answer waits, longer each time, up to
//! [`MOST`]. A pause of [`QUIET`] ends all of it.
//!
//! News is what the server has not said during the sequence. Content that a new stream restates is news too:
//! a server that sends ten thousand resources one by one, each after the ACK before, is not slowed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::api::{Changes, Event};
use crate::Time;
use sluice_xds::{Resource, ResourceName, Status, Version};

/// The number of responses that are neither compared nor delayed. An ordinary server repeats itself once or
/// twice.
const FREE: u32 = 10;

/// The first wait.
const FIRST: Duration = Duration::from_millis(10);

/// The longest wait. Two requests a second load neither side, and no server waits for an ACK in vain.
const MOST: Duration = Duration::from_millis(500);

/// The responses of a loop follow the relay's answers within a round trip.
const QUIET: Duration = Duration::from_secs(1);

/// The word for a set without members.
const EMPTY: Version = Version(0);

/// The responses of one type on one stream, in close sequence.
#[derive(Debug, Default)]
pub(super) struct Repetition {
    /// The number of responses in sequence.
    responses: u32,
    /// The number of compared responses without news since the last news.
    repeats: u64,
    /// The last response brought heartbeats.
    is_heartbeat: bool,
    /// The time of the last response, or of the answer to the last response.
    last: Option<Time>,
    /// The server's last word about each name, in a sequence of more than [`FREE`] responses. Only wanted
    /// names and members occur.
    words: BTreeMap<ResourceName, Version>,
    owed: Option<OwedAnswer>,
}

/// An answer that waits. It is about the newest response, and stands for the answers before.
#[derive(Debug)]
pub(super) struct OwedAnswer {
    due: Time,
    /// `None`: an ACK.
    pub(super) error: Option<Status>,
    /// The names of bad elements.
    pub(super) names: Vec<ResourceName>,
}

impl Repetition {
    /// Notes a response with its effects. `by_name`: the type is wanted name by name.
    pub(super) fn note(&mut self, changes: Option<&Changes>, events: &[Event], by_name: bool, now: Time) {
        if self.owed.is_none() && self.quiet_at().is_none_or(|quiet| quiet <= now) {
            *self = Repetition::default();
        }
        self.last = Some(now);
        self.is_heartbeat = changes.is_some_and(|changes| !changes.refreshed.is_empty());
        self.responses = self.responses.saturating_add(1);
        if self.responses <= FREE {
            return;
        }
        match self.has_news(changes, events, by_name) {
            true => self.repeats = 0,
            false => self.repeats += 1,
        }
    }

    fn has_news(&mut self, changes: Option<&Changes>, events: &[Event], by_name: bool) -> bool {
        let mut is_news = false;
        let mut say =
            |name: &ResourceName, word| is_news |= self.words.insert(name.clone(), word) != Some(word);
        for event in events {
            match event {
                // A server could invent names for a wildcard without end.
                Event::ResourceError { error, .. } if by_name => {
                    say(&error.name, Version(error.status.code as u128));
                }
                Event::Malformed { faults, .. } => faults.iter().for_each(|(name, _)| say(name, EMPTY)),
                _ => {}
            }
        }
        let Some(changes) = changes else { return is_news };
        changes.present.iter().for_each(|resource| say(&resource.name, resource.version));
        changes.by_alias.iter().for_each(|(alias, resource)| say(alias, resource.version));
        changes.settled.iter().for_each(|glob| say(glob, EMPTY));
        for (name, _) in &changes.absent {
            self.words.remove(name);
        }
        let has_lost = changes.replaces && self.words.len() > changes.present.len();
        if has_lost {
            let word = |resource: &Arc<Resource>| (resource.name.clone(), resource.version);
            self.words = changes.present.iter().map(word).collect();
        }
        is_news || has_lost || !changes.absent.is_empty()
    }

    /// Returns true if the answer to the last response has to wait.
    pub(super) fn is_pacing(&self) -> bool {
        self.repeats >= u64::from(FREE)
    }

    /// Lets an answer wait. An answer that waits already is replaced, and its time stays. Returns the number
    /// of responses without news, unless the last response is a heartbeat: a server means those (TTL-4).
    pub(super) fn owe(&mut self, error: Option<Status>, names: Vec<ResourceName>, now: Time) -> Option<u64> {
        let doublings = self.repeats.saturating_sub(u64::from(FREE)).min(16);
        let wait = (FIRST * (1 << doublings)).min(MOST);
        let due = self.owed.take().map_or(now + wait, |owed| owed.due);
        self.owed = Some(OwedAnswer { due, error, names });
        (!self.is_heartbeat).then_some(self.repeats)
    }

    /// Takes the waiting answer, because a request of the type is written.
    pub(super) fn take(&mut self, now: Time) -> Option<OwedAnswer> {
        let owed = self.owed.take()?;
        self.last = Some(now);
        Some(owed)
    }

    /// The subscription changes, so that the next responses mean the change.
    pub(super) fn restart(&mut self) {
        self.repeats = 0;
    }

    /// A name is no longer wanted.
    pub(super) fn forget(&mut self, name: &ResourceName) {
        self.words.remove(name);
    }

    /// Nothing of what was wanted is wanted any more.
    pub(super) fn forget_all(&mut self) {
        self.words.clear();
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.owed.as_ref().is_some_and(|owed| owed.due <= now)
    }

    fn quiet_at(&self) -> Option<Time> {
        self.last.map(|last| last + QUIET)
    }

    /// The time of the waiting answer, or of the end of the words.
    pub(super) fn due(&self) -> Option<Time> {
        match &self.owed {
            Some(owed) => Some(owed.due),
            None => self.quiet_at().filter(|_| !self.words.is_empty()),
        }
    }

    /// Whether an answer waits.
    pub(super) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// Frees the words after a pause.
    pub(super) fn pass(&mut self, now: Time) {
        if self.owed.is_none() && self.due().is_some_and(|due| due <= now) {
            *self = Repetition::default();
        }
    }
}
