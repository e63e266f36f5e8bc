//! Rejected messages of an answer in several messages (DEL-26, ADR 56).
//!
//! Resources of a type may exclude each other: a listener takes over the address of another, which moves
//! away. In a single message the client sees both. In two, the client may reject the first, and the second
//! would have cured the error. So the rejected part is sent once more, after the client has answered the
//! rest. A part that is rejected again is not: its content must change first (DEL-27).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::subscription::nonces::IN_FLIGHT_MAX;
use crate::downstream::subscription::parts::PartList;
use sluice_xds::{ResourceName, Version};

/// The messages of answers in several messages, from the first message until the client has answered all.
#[derive(Debug, Default)]
pub(in crate::downstream) struct RejectedMessages {
    unanswered: Vec<Message>,
    rejected: Vec<Message>,
    /// The nonce of the latest message with content: errors cure nothing.
    brought: u64,
    /// The content that was sent once more. Bounded by the client's content.
    again: BTreeMap<ResourceName, Version>,
}

/// A message of an answer. All clients share the names.
#[derive(Debug)]
struct Message {
    nonce: u64,
    told_names: Arc<[ToldNames]>,
    chunk: usize,
}

impl Message {
    fn names(&self) -> impl Iterator<Item = &(ResourceName, Version)> {
        self.told_names.get(self.chunk).into_iter().flat_map(|message| &message.sent)
    }

    fn brings_content(&self) -> bool {
        self.told_names
            .get(self.chunk)
            .is_some_and(|message| !(message.sent.is_empty() && message.removed.is_empty()))
    }
}

impl RejectedMessages {
    /// Notes a message of an answer in several messages.
    pub(super) fn note(&mut self, nonce: u64, told_names: &Arc<[ToldNames]>, chunk: usize) {
        if self.unanswered.len() >= IN_FLIGHT_MAX {
            self.unanswered.remove(0);
        }
        let message = Message { nonce, told_names: told_names.clone(), chunk };
        if message.brings_content() {
            self.brought = nonce;
        }
        self.unanswered.push(message);
    }

    /// Notes the only message of an answer.
    pub(super) fn note_only(&mut self, nonce: u64, answer: &Answer) {
        if answer.parts.iter().any(|part| part.held.differing(&part.view).next().is_some()) {
            self.brought = nonce;
        }
    }

    /// Notes an ACK or a NACK.
    pub(super) fn judge(&mut self, nonce: u64, is_rejected: bool) {
        let answered = self.unanswered.extract_if(.., |message| message.nonce == nonce);
        match is_rejected {
            true => self.rejected.extend(answered),
            false => answered.for_each(drop),
        }
    }

    /// The client has answered all messages. Returns names that are due again: a later message may have cured
    /// the error.
    pub(super) fn settle(&mut self, parts: &PartList) -> Vec<ResourceName> {
        self.unanswered.clear();
        let rejected = std::mem::take(&mut self.rejected);
        // Only content behind a rejected message may have cured it.
        let is_curable = rejected.iter().any(|message| message.nonce < self.brought);
        let is_held = |name: &ResourceName, version| {
            parts.iter().any(|part| part.held.version_of(name) == Some(version))
        };
        let is_new = |name: &ResourceName, version: &Version| self.again.get(name) != Some(version);
        let due = rejected.iter().filter(|_| is_curable).flat_map(Message::names);
        let due = due.filter(|(name, version)| is_held(name, *version) && is_new(name, version));
        let due: Vec<_> = due.cloned().collect();
        self.again.extend(due.iter().cloned());
        due.into_iter().map(|(name, _)| name).collect()
    }

    /// Whether content was sent once more.
    pub(super) fn has_sent_again(&self) -> bool {
        !self.again.is_empty()
    }
}
