//! The next answer of a type.

use crate::Time;
use crate::collection::Collection;
use crate::downstream::answer::errors_and_ttls::told_at;
use crate::downstream::answer::spelling::Refusals;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::downstream::order::turn::Turn;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::unasked::Unasked;
use sluice_xds::{ResourceName, Variant, Version};

impl Subscription {
    /// The due answer, if the client may be sent an answer now.
    pub(in crate::downstream) fn poll(&mut self, variant: Variant, turn: &Turn<'_>) -> Option<Answer> {
        self.look();
        // At most one update is unACKed. Only new collections may be answered beside that update (NON-4).
        if let Some(pending) = &self.pending {
            return Some((**pending).clone());
        }
        let overdue = turn.overdue && self.type_url.kind().is_cluster_side();
        let may_send = !self.nonces.is_waiting() || self.fresh || overdue;
        let refused: Vec<_> = self.refusals().map_or_else(Vec::new, |all| all.untold().cloned().collect());
        if !may_send || (self.parts.is_empty() && refused.is_empty()) {
            return None;
        }
        let full = self.is_full(variant);
        let may_adopt = self.type_url.is_sent_unasked() && variant == Variant::Delta;
        let (mut news, mut membership_known) = (false, true);
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let snapshot = turn.snapshot(part.source())?;
            let types = snapshot.of(&self.type_url)?;
            // Unasked resources are a part of the answer: the client of a Service needs the workloads behind the Service, too.
            if may_adopt && Unasked::is_behind(self.unasked.as_deref(), part, types) {
                return None;
            }
            let view = part.look_up(types)?;
            membership_known &= view.is_complete() || !part.is_wildcard();
            let answered = part.answered(snapshot, types, view);
            news |= part.is_behind(answered.due);
            parts.push(answered);
        }
        // Never a guess (RLY-3): the state of a name that was given up beside the wildcard is known
        // together with the membership (DEL-19). A greeting is due if nothing else is: the set is empty,
        // and the client presented nothing (DEL-29). In SotW a greeting is always due: the set proves the
        // removal of names that were given up with the request for the wildcard.
        let holds_nothing = parts.iter().all(|part| {
            !matches!(part.collection, Collection::Wildcard) || (part.held.is_empty() && part.view.is_empty())
        });
        let greeting = self.greets(membership_known) && (full || holds_nothing)
            || self.set_marks.as_mut().is_some_and(|marks| !news && marks.is_due_alone(&parts));
        let mut departed = refused;
        if membership_known {
            let in_doubt = |name: &&ResourceName| parts.iter().any(|part| part.may_have(name));
            departed.extend(self.departed().filter(|name| !in_doubt(name)).cloned());
        }
        let is_due = news || greeting || !departed.is_empty();
        if !is_due {
            self.name_wait = None;
        }
        // Complete sets wait for UNKNOWN names that the client may have: absence means deletion (RLY-5). New listeners wait
        // for the removal of others (DEL-26).
        if !is_due || self.must_wait(&parts, full, turn) {
            return None;
        }
        if let Some(presented) = self.presented_version() {
            self.presented = None;
            if self.is_current(presented, full, &parts) {
                return None;
            }
        }
        let features = self.features;
        let views = parts.iter().map(|part| &part.view);
        Some(Answer {
            type_url: self.type_url.clone(),
            variant,
            full,
            greeting,
            features,
            told_at: if features.ttl { told_at(views, turn.now) } else { Time::ZERO },
            repeats: self.repeats(&parts).filter(|_| variant == Variant::Sotw && !full),
            parts,
            departed,
            refused: self.refusals().map(Refusals::errors).unwrap_or_default(),
            spellings: self.spellings(),
            told_variants: self.told_variants.clone(),
            chunk: 0,
            rest: None,
            begun: turn.carried,
        })
    }

    /// Whether an empty first answer to the wildcard is due. The membership must be known first (RLY-3).
    fn greets(&self, membership_known: bool) -> bool {
        self.greeting && membership_known
    }

    /// The client's ACKed version, for repetition in a response without content (SST-7). `None` while a
    /// response is unACKed.
    fn repeats(&self, parts: &[AnswerPart]) -> Option<Version> {
        let has_annotations =
            self.features.errors_alone && parts.iter().any(|part| !part.view.annotations().is_empty());
        self.nonces.version_acked.filter(|_| has_annotations && !self.nonces.is_waiting())
    }

    /// A wildcard client that reconnects with the current version has the whole set already (STR-10).
    fn is_current(&mut self, presented: Version, full: bool, parts: &[AnswerPart]) -> bool {
        let ([part], [answer]) = (self.parts.as_mut_slice(), parts) else { return false };
        let current = full && part.is_wildcard() && self.type_url.is_full_state() && answer.view.digest() == presented
                // The client's TTL timers have to start again (TTL-3).
                && !(self.features.ttl && answer.view.annotations().shortest_ttl().is_some());
        if current {
            part.have(&answer.view, answer.due);
            self.greeting = false;
            self.fresh = false;
        }
        current
    }

    /// Notes that the whole answer was handed out, or was empty.
    pub(in crate::downstream) fn arrive(&mut self, answer: &Answer, has_spoken: bool) {
        self.keep_in_doubt(answer);
        self.keep_told_variants(answer, true);
        for (part, answered) in self.parts.iter_mut().zip(&answer.parts) {
            part.bring_to(answer, answered);
            match &answer.rest {
                Some(rest) => rest.told_names.iter().for_each(|told| part.follow_sent(told, &answered.view)),
                None => part.follow_aliases(answered, &answer.type_url),
            }
            if answer.withholds_errors() || (!has_spoken && answer.variant == Variant::Sotw) {
                part.keep_errors(&answered.held);
            }
        }
        let is_known = |part: &AnswerPart| part.view.is_complete();
        let is_member = |part: &&AnswerPart| matches!(part.collection, Collection::Wildcard);
        self.greeting &= !answer.parts.iter().filter(is_member).all(is_known);
        // A new collection that is still UNKNOWN may be answered once beside an unACKed response (NON-4).
        self.fresh &= !has_spoken && !answer.parts.iter().all(is_known);
        self.presented = None;
        self.pending = None;
        if has_spoken {
            self.end_first(answer);
        }
        self.note_told(&answer.departed);
        self.note_gone(answer);
    }
}
