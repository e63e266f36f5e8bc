//! State that the subscription of a plain client at rest has none of.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::answer::client_names::variants_after;
use crate::downstream::answer::rest::ToldVariants;
use crate::downstream::answer::spelling::{NonCanonicalNames, Refusals, Spellings};
use crate::downstream::memory::weight;
use crate::downstream::subscription::name_wait::NameWait;
use crate::downstream::subscription::rejected_messages::RejectedMessages;
use crate::downstream::subscription::set_marks::SetMarks;
use crate::downstream::subscription::stages::Stages;
use crate::downstream::subscription::suspects::Nack;
use crate::downstream::subscription::unasked::Unasked;
use crate::downstream::subscription::unread::Unread;
use sluice_xds::{ResourceName, Variant};

/// Whatever sets a subscription apart from that of a plain client at rest. All of it is behind one pointer,
/// since every update of every client has to ask whether there is any.
#[derive(Debug, Default)]
pub(in crate::downstream) struct Exceptions(Option<Box<Exceptional>>);

/// The exceptions of one subscription.
#[derive(Debug)]
pub(in crate::downstream) struct Exceptional {
    /// Names that were unsubscribed beside a wildcard, and still need an answer (DEL-19).
    departed: BTreeSet<ResourceName>,
    /// Names that the client gave up before it read a response with them.
    pub(super) unread: Option<Box<Unread>>,
    /// Adopted names.
    pub(super) unasked: Option<Box<Unasked>>,
    /// The content of the client between unanswered responses.
    pub(super) stages: Stages,
    /// The client's wait for a name.
    pub(super) name_wait: Option<Box<NameWait>>,
    /// The client's own spellings of names, and refused names.
    pub(super) non_canonical: Option<Box<NonCanonicalNames>>,
    /// The client's content under names with dynamic parameters, if the client asks for any.
    pub(super) told_variants: Option<Arc<ToldVariants>>,
    /// The messages of an answer in several messages, where a message may cure another.
    pub(super) rejected_messages: Option<Box<RejectedMessages>>,
    /// The marks sent so far, if the client reads marks.
    pub(in crate::downstream) set_marks: Option<Box<SetMarks>>,
    /// The last rejection; ends with the next ACK.
    pub(super) nack: Option<Box<Nack>>,
    /// The last rejection before an ACK of other content: the client still has not accepted what it rejected.
    pub(super) previous_nack: Option<Box<Nack>>,
}

static NONE: Exceptional = Exceptional::new();

impl Exceptional {
    const fn new() -> Exceptional {
        Exceptional {
            departed: BTreeSet::new(),
            unread: None,
            unasked: None,
            stages: Stages::new(),
            name_wait: None,
            non_canonical: None,
            told_variants: None,
            rejected_messages: None,
            set_marks: None,
            nack: None,
            previous_nack: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.allows_rest()
            && self.unread.is_none()
            && self.unasked.is_none()
            && self.stages.is_empty()
            && self.nack.is_none()
            && self.previous_nack.is_none()
    }

    /// Whether nothing here can make an answer due.
    fn allows_rest(&self) -> bool {
        self.departed.is_empty()
            && self.name_wait.is_none()
            && self.non_canonical.is_none()
            && self.told_variants.is_none()
            && self.rejected_messages.is_none()
            && self.set_marks.is_none()
            && !self.unasked.as_ref().is_some_and(|unasked| unasked.has_gone())
    }

    /// The names that were unsubscribed beside a wildcard, and still need an answer (DEL-19).
    pub(super) fn departed(&self) -> impl Iterator<Item = &ResourceName> {
        self.departed.iter()
    }

    /// Requested names that cannot be served (NAM-5).
    pub(super) fn refusals(&self) -> Option<&Refusals> {
        self.non_canonical.as_ref().map(|non_canonical| &non_canonical.refusals)
    }

    /// The client's spellings that differ from the canonical names (NAM-8).
    pub(super) fn spellings(&self) -> Option<&Arc<Spellings>> {
        let non_canonical = self.non_canonical.as_ref();
        non_canonical.map(|non_canonical| &non_canonical.spellings).filter(|spellings| !spellings.is_empty())
    }

    /// The memory of the names, in bytes.
    pub(super) fn names_bytes(&self) -> usize {
        self.departed().map(weight).sum::<usize>()
            + self.spellings().map_or(0, |spellings| spellings.bytes())
            + self.refusals().map_or(0, Refusals::bytes)
            + self.unread.as_ref().map_or(0, |unread| unread.bytes())
            + self.unasked.as_ref().map_or(0, |unasked| unasked.bytes())
    }

    /// The client's variants after all messages of this answer.
    pub(super) fn told_variants_after(&self, answer: &Answer) -> Option<ToldVariants> {
        if self.told_variants.is_none() || answer.variant != Variant::Delta {
            return None;
        }
        match &answer.rest {
            Some(rest) => rest.told_variants.clone(),
            None => Some(variants_after(answer)),
        }
    }
}

impl Deref for Exceptions {
    type Target = Exceptional;

    fn deref(&self) -> &Exceptional {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl Exceptions {
    pub(in crate::downstream) fn get_mut(&mut self) -> Option<&mut Exceptional> {
        self.0.as_deref_mut()
    }

    pub(in crate::downstream) fn make_mut(&mut self) -> &mut Exceptional {
        self.0.get_or_insert_with(|| Box::new(Exceptional::new()))
    }

    /// Frees the memory if there are no exceptions any more.
    pub(super) fn trim(&mut self) {
        self.0.take_if(|exceptional| exceptional.is_empty());
    }

    /// See [`Exceptional::allows_rest`]. Nearly always one look at a pointer.
    pub(super) fn allow_rest(&self) -> bool {
        self.0.as_ref().is_none_or(|exceptional| exceptional.allows_rest())
    }

    pub(super) fn add_departed(&mut self, name: &ResourceName) {
        self.make_mut().departed.insert(name.clone());
    }

    pub(super) fn remove_departed(&mut self, name: &ResourceName) {
        if let Some(exceptional) = self.get_mut() {
            exceptional.departed.remove(name);
        }
    }

    pub(super) fn retain_departed(&mut self, is_kept: impl Fn(&ResourceName) -> bool) {
        if let Some(exceptional) = self.get_mut() {
            exceptional.departed.retain(is_kept);
        }
    }

    /// Notes that the client was told of these names.
    pub(super) fn note_told(&mut self, departed: &[ResourceName]) {
        if departed.is_empty() {
            return;
        }
        self.retain_departed(|name| !departed.contains(name));
        if let Some(non_canonical) = self.get_mut().and_then(|exceptional| exceptional.non_canonical.as_mut())
        {
            non_canonical.refusals.note_told();
        }
    }

    /// Forgets spellings and refusals if there are none left.
    pub(super) fn end_non_canonical(&mut self) {
        if let Some(exceptional) = self.get_mut() {
            exceptional.non_canonical.take_if(|non_canonical| non_canonical.is_empty());
            self.trim();
        }
    }

    pub(super) fn end_name_wait(&mut self) {
        if let Some(exceptional) = self.get_mut() {
            exceptional.name_wait = None;
        }
    }

    /// Notes that the client asks for names. For names with dynamic parameters, its variants are remembered
    /// from now on.
    pub(super) fn note_dynamic_names(&mut self, names: &[ResourceName]) {
        if self.told_variants.is_none() && names.iter().any(ResourceName::is_located) {
            self.make_mut().told_variants = Some(Arc::default());
        }
    }

    /// The client was sent all messages of this answer, or (not `whole`) some of them.
    pub(super) fn keep_told_variants(&mut self, answer: &Answer, whole: bool) {
        let Some(exceptional) = &mut self.0 else { return };
        let Some(variants) = exceptional.told_variants_after(answer) else { return };
        let Some(told_variants) = &mut exceptional.told_variants else { return };
        if whole {
            *told_variants = Arc::new(variants);
        } else {
            Arc::make_mut(told_variants).add(variants);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_exceptions_ends_with_the_last() {
        let mut exceptions = Exceptions::default();
        exceptions.remove_departed(&ResourceName::from("a"));
        assert!(exceptions.0.is_none() && exceptions.allow_rest());
        exceptions.add_departed(&ResourceName::from("a"));
        exceptions.trim();
        assert!(!exceptions.allow_rest());
        exceptions.remove_departed(&ResourceName::from("a"));
        assert!(exceptions.allow_rest());
        exceptions.trim();
        assert!(exceptions.0.is_none());
    }
}
