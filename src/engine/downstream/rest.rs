//! The rest of an answer with several messages.
//!
//! All messages are built together with the first message, and the sender keeps them. From then on the
//! stream needs no snapshot for the rest, only names, in case the answer begins anew before the last
//! message. So a client that stops reading in the middle keeps no resources alive that every other client
//! has moved on from (RLY-55).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::{Answer, AnswerKey, AnswerPart, Chunk, Composition};
use super::located::Located;
use super::session::Session;
use super::subscription::Subscription;
use crate::engine::view::View;
use crate::xds::{Resource, ResourceName, Version};

/// The names in a message of a longer answer, shared by all clients of the message.
#[derive(Debug)]
pub struct Told {
    /// Resources under their own names and their aliases.
    pub(super) sent: Box<[(ResourceName, Version)]>,
    pub(super) beats: Box<[ResourceName]>,
    pub(super) removed: Box<[ResourceName]>,
    pub(super) errors: Box<[ResourceName]>,
    /// The aliases among the names.
    aliases: BTreeSet<ResourceName>,
}

/// The state of an answer after the handover of its first message.
#[derive(Clone, Debug)]
pub struct Rest {
    key: AnswerKey,
    told: Arc<[Told]>,
    targets: Vec<Arc<View>>,
    /// For a client with dynamic parameters: the client's content after this answer.
    pub(super) located: Option<Located>,
}

fn names(resource: &Arc<Resource>) -> impl Iterator<Item = &ResourceName> {
    std::iter::once(&resource.name).chain(&resource.aliases)
}

impl Told {
    fn of(chunk: &Chunk) -> Told {
        let with_version = |resource| names(resource).map(|name| (name.clone(), resource.version));
        let aliases = chunk.resources.iter().chain(&chunk.beats).flat_map(|resource| &resource.aliases);
        Told {
            sent: chunk.resources.iter().flat_map(with_version).collect(),
            beats: chunk.beats.iter().flat_map(names).cloned().collect(),
            removed: chunk.removed.iter().cloned().collect(),
            errors: chunk.errors.iter().map(|(name, _)| name.clone()).collect(),
            aliases: aliases.cloned().collect(),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.sent.iter().map(|(name, _)| name)
    }

    /// The names whose state the message tells: present, refreshed or removed.
    fn answered(&self) -> BTreeSet<&ResourceName> {
        let own = self.names().chain(&self.beats).filter(|name| !self.aliases.contains(*name));
        own.chain(&self.removed).collect()
    }
}

impl Composition {
    /// Notes the names of the messages, if there are several.
    pub(super) fn note_told(&mut self) {
        if self.chunks.len() > 1 {
            self.told = self.chunks.iter().map(Told::of).collect();
        }
    }
}

impl Answer {
    /// The key of the whole answer; `None` if no message was handed out yet.
    pub(super) fn rest_key(&self) -> Option<AnswerKey> {
        self.rest.as_ref().map(|rest| rest.key)
    }

    /// The rest of the answer after the message that was just handed out.
    pub(super) fn rest(&self, told: &Arc<[Told]>, targets: &[Arc<View>], located: Option<Located>) -> Answer {
        let rest = || {
            let (key, told, targets) = (self.key(), told.clone(), targets.to_vec());
            Box::new(Rest { key, told, targets, located })
        };
        let rest = self.rest.clone().unwrap_or_else(rest);
        let part = |part: &AnswerPart| AnswerPart {
            interest: part.interest.clone(),
            held: part.held.clone(),
            view: part.view.clone(),
            keeps: Vec::new(),
            snapshot: Arc::default(),
            ..*part
        };
        let parts = self.parts.iter().map(part).collect();
        let (spellings, type_url) = (self.spellings.clone(), self.type_url.clone());
        let (departed, refused) = (self.departed.clone(), self.refused.clone());
        let (rest, chunk) = (Some(rest), self.chunk + 1);
        Answer { type_url, parts, departed, refused, spellings, located: None, rest, chunk, ..*self }
    }
}

impl Subscription {
    /// Gives up the rest of an answer that takes several messages, for a newer answer. The client holds the
    /// messages sent so far.
    pub fn interrupt(&mut self) {
        let Some(answer) = self.pending.take() else { return };
        self.fresh = true;
        self.hold_located(&answer, false);
        let Some(rest) = &answer.rest else { return };
        for told in rest.told.iter().take(answer.chunk) {
            for (index, (part, answered)) in self.parts.iter_mut().zip(&answer.parts).enumerate() {
                part.hold_chunk(told, rest.targets.get(index).unwrap_or(&answered.view));
            }
            if !self.departed.is_empty() {
                let answered = told.answered();
                self.departed.retain(|name| !answered.contains(name));
            }
        }
    }
}

impl Session {
    /// Gives up the rest of this subscription's answer. The next answer is built from the snapshots of that
    /// time.
    pub fn begin_anew(&mut self, index: usize) {
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            subscription.interrupt();
        }
    }

    /// As [`Self::begin_anew`], for each unfinished answer whose key satisfies the condition.
    pub fn give_up(&mut self, is_given_up: impl Fn(&AnswerKey) -> bool) {
        for subscription in &mut self.subscriptions {
            if subscription.pending_key().is_some_and(|key| is_given_up(&key)) {
                subscription.interrupt();
            }
        }
    }
}
