//! Unfinished answers: the content of their messages so far, and answers that end before their last message.

use std::borrow::Cow;
use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::answer::rest::Rest;
use crate::downstream::answer::told_variants::ToldVariants;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use sluice_xds::{ResourceName, Variant};

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
        for (index, part) in self.parts.iter_mut().enumerate() {
            hold_sent(part, index, answer, rest);
        }
        for told in rest.told_names.iter().take(answer.chunk) {
            if self.departed.is_some() {
                let answered = told.answered();
                self.retain_departed(|name| !answered.contains(name));
            }
        }
    }

    /// The part with the content of the messages so far, while an answer is unfinished.
    pub(in crate::downstream) fn part_so_far<'a>(&self, part: &'a Part) -> Cow<'a, Part> {
        let mut so_far = Cow::Borrowed(part);
        if let Some(answer) = &self.pending
            && let Some(rest) = &answer.rest
            && let Some(index) = self.parts.iter().position(|of| of.key() == part.key())
        {
            hold_sent(so_far.to_mut(), index, answer, rest);
        }
        so_far
    }

    pub(super) fn note_dynamic_names(&mut self, names: &[ResourceName]) {
        if self.told_variants.is_none() && names.iter().any(ResourceName::is_located) {
            self.told_variants = Some(Arc::default());
        }
    }

    /// The client's variants after all messages of this answer.
    pub(in crate::downstream) fn told_variants_after(&self, answer: &Answer) -> Option<ToldVariants> {
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

/// Notes in a part that the client was sent the messages of an answer so far. `index`: the part's place in the answer. All clients
/// that had the same content share the content after each message.
fn hold_sent(part: &mut Part, index: usize, answer: &Answer, rest: &Rest) {
    let Some(answered) = answer.parts.get(index) else { return };
    let view = rest.targets.get(index).unwrap_or(&answered.view);
    let mut is_shared = part.is_as_answered(answered);
    for told in rest.told_names.iter().take(answer.chunk) {
        let made = || {
            let mut made = part.clone();
            made.hold_chunk(told, view);
            made.held
        };
        match is_shared.then(|| told.so_far(index, made)).flatten() {
            Some(held) => part.held.clone_from(held),
            None => {
                is_shared = false;
                part.hold_chunk(told, view);
            }
        }
    }
}
