//! Rejected messages of an answer in several messages (DEL-26, ADR 56).
//!
//! Resources of a type may exclude each other: a listener takes over the address of another, which moves away. In a single message the
//! client sees both. In two, the client may reject the first, and the second would have cured the error. So the rejected part is sent once
//! more, after the client has answered the rest. A part that is rejected again is not: its content must change first (DEL-27).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::nonces::{IN_FLIGHT_MAX, Verdict};
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
        self.told_names.get(self.chunk).into_iter().flat_map(|told| &told.sent)
    }

    fn brings_content(&self) -> bool {
        self.told_names.get(self.chunk).is_some_and(|told| !(told.sent.is_empty() && told.removed.is_empty()))
    }
}

impl Subscription {
    /// Notes a message of an answer in several messages.
    pub(in crate::downstream) fn note_message(
        &mut self,
        nonce: u64,
        told_names: &Arc<[ToldNames]>,
        chunk: usize,
    ) {
        if !self.type_url.kind().may_exclude() {
            return;
        }
        let messages = self.rejected_messages.get_or_insert_default();
        if messages.unanswered.len() >= IN_FLIGHT_MAX {
            messages.unanswered.remove(0);
        }
        let message = Message { nonce, told_names: told_names.clone(), chunk };
        if message.brings_content() {
            messages.brought = nonce;
        }
        messages.unanswered.push(message);
    }

    /// Notes the only message of an answer.
    pub(in crate::downstream) fn note_only_message(&mut self, nonce: u64, answer: &Answer) {
        let Some(messages) = &mut self.rejected_messages else { return };
        if answer.parts.iter().any(|part| part.held.differing(&part.view).next().is_some()) {
            messages.brought = nonce;
        }
    }

    /// Notes a verdict. Once the client has answered all messages, the rejected messages that a later message may have cured are due
    /// again. Returns whether any is.
    pub(in crate::downstream) fn send_rejected_again(
        &mut self,
        nonce: Option<u64>,
        verdict: &Verdict,
    ) -> bool {
        let (Some(messages), Some(nonce)) = (&mut self.rejected_messages, nonce) else { return false };
        match verdict {
            Verdict::Nack { .. } => {
                messages.rejected.extend(messages.unanswered.extract_if(.., |of| of.nonce == nonce));
            }
            Verdict::Ack { .. } => messages.unanswered.retain(|of| of.nonce != nonce),
            Verdict::Stale | Verdict::None => return false,
        }
        if self.nonces.is_waiting() || self.pending.is_some() {
            return false;
        }
        self.settle_messages()
    }

    fn settle_messages(&mut self) -> bool {
        let Some(mut messages) = self.rejected_messages.take() else { return false };
        messages.unanswered.clear();
        let rejected = std::mem::take(&mut messages.rejected);
        // Only content behind a rejected message may have cured it.
        let is_curable = rejected.iter().any(|of| of.nonce < messages.brought);
        let is_held = |of: &&(ResourceName, Version)| {
            self.parts.iter().any(|part| part.held.version_of(&of.0) == Some(of.1))
        };
        let is_new = |of: &&(ResourceName, Version)| messages.again.get(&of.0) != Some(&of.1);
        let due = rejected.iter().filter(|_| is_curable).flat_map(Message::names);
        let due: Vec<_> = due.filter(|of| is_held(of) && is_new(of)).cloned().collect();
        for (name, _) in &due {
            self.forget_name(name);
        }
        let is_due = !due.is_empty();
        messages.again.extend(due);
        let stands = self.parts.iter().any(|part| part.rejected.is_some());
        self.rejected_messages = Some(messages).filter(|messages| stands && !messages.again.is_empty());
        is_due
    }
}
