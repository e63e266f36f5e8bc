//! Answers that end before their last message.

use std::sync::Arc;

use crate::engine::downstream::answer::Answer;
use crate::engine::downstream::answer::told_variants::ToldVariants;
use crate::engine::downstream::subscription::Subscription;
use crate::xds::{ResourceName, Variant};

impl Subscription {
    /// Gives up the rest of an answer that takes several messages, for a newer answer. The client holds the
    /// messages sent so far.
    #[inline]
    pub fn interrupt(&mut self) {
        if let Some(answer) = self.pending.take() {
            self.keep_sent(&answer);
        }
    }

    fn keep_sent(&mut self, answer: &Answer) {
        self.fresh = true;
        self.keep_told_variants(answer, false);
        let Some(rest) = &answer.rest else { return };
        for told in rest.told_names.iter().take(answer.chunk) {
            for (index, (part, answered)) in self.parts.iter_mut().zip(&answer.parts).enumerate() {
                part.hold_chunk(told, rest.targets.get(index).unwrap_or(&answered.view));
            }
            if !self.departed.is_empty() {
                let answered = told.answered();
                self.departed.retain(|name| !answered.contains(name));
            }
        }
    }

    pub(super) fn note_dynamic_names(&mut self, names: &[ResourceName]) {
        if self.told_variants.is_none() && names.iter().any(ResourceName::is_located) {
            self.told_variants = Some(Arc::default());
        }
    }

    /// The client's variants after all messages of this answer.
    pub(in crate::engine::downstream) fn told_variants_after(&self, answer: &Answer) -> Option<ToldVariants> {
        if self.told_variants.is_none() || answer.variant != Variant::Delta {
            return None;
        }
        match &answer.rest {
            Some(rest) => rest.told_variants.clone(),
            None => Some(ToldVariants { held: answer.variants() }),
        }
    }

    /// The client was sent all messages of this answer, or (not `whole`) some of them.
    pub(super) fn keep_told_variants(&mut self, answer: &Answer, whole: bool) {
        let Some(told) = self.told_variants_after(answer) else { return };
        let Some(told_variants) = &mut self.told_variants else { return };
        if whole {
            *told_variants = Arc::new(told);
        } else {
            Arc::make_mut(told_variants).add(told);
        }
    }
}
