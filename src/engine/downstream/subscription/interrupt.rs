//! Answers that end before their last message.

use std::sync::Arc;

use crate::engine::downstream::answer::Answer;
use crate::engine::downstream::answer::told_variants::Located;
use crate::engine::downstream::subscription::Subscription;
use crate::xds::{ResourceName, Variant};

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

impl Subscription {
    pub(super) fn note_located(&mut self, names: &[ResourceName]) {
        if self.located.is_none() && names.iter().any(ResourceName::is_located) {
            self.located = Some(Arc::default());
        }
    }

    /// The client's variants after all messages of this answer.
    pub(in crate::engine::downstream) fn located_after(&self, answer: &Answer) -> Option<Located> {
        if self.located.is_none() || answer.variant != Variant::Delta {
            return None;
        }
        match &answer.rest {
            Some(rest) => rest.located.clone(),
            None => Some(Located { held: answer.told() }),
        }
    }

    /// The client was sent all messages of this answer, or (not `whole`) some of them.
    pub(super) fn hold_located(&mut self, answer: &Answer, whole: bool) {
        let Some(told) = self.located_after(answer) else { return };
        let Some(located) = &mut self.located else { return };
        if whole {
            *located = Arc::new(told);
        } else {
            Arc::make_mut(located).add(told);
        }
    }
}
