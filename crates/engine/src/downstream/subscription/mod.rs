//! The collections of one stream in one type, and the client's content.
//!
//! A [`Subscription`] coordinates its sub-states: the parts with the client's content, the nonces of the
//! responses, the client's interest as its requests state it, the delivery of answers, and the exceptions
//! that a plain client at rest has none of. Requests stand in `requests.rs`.

pub mod carried;
mod delivery;
mod exceptions;
mod interest;
pub mod ledger;
pub mod name_wait;
pub mod nonces;
pub mod part;
pub mod parts;
mod rejected_messages;
mod requests;
mod set_marks;
mod stages;
pub mod suspects;
mod unasked;
mod unread;

use std::borrow::Cow;
use std::sync::Arc;

use crate::Time;
use crate::collection::Collection;
use crate::downstream::answer::AnswerKey;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::answer::compose::told_at;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::answer::rest::ToldVariants;
use crate::downstream::answer::spelling::{Refusals, Spellings};
use crate::downstream::answer::{Answer, AnswerPart};
use crate::downstream::memory::SUBSCRIBED_NAME_BYTES;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::{ChangeId, SourceId};
use crate::downstream::subscription::carried::{Carried, Passed, Unsettled};
use crate::downstream::subscription::delivery::Delivery;
use crate::downstream::subscription::exceptions::Exceptions;
use crate::downstream::subscription::interest::Interest;
pub(super) use crate::downstream::subscription::interest::{InterestChange, NameSetChange};
use crate::downstream::subscription::ledger::Ledger;
use crate::downstream::subscription::name_wait::{Doubt, First, FirstAnswer, NameWait, first_answer_look};
use crate::downstream::subscription::nonces::{Judged, Nonces, Verdict};
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::parts::PartList;
use crate::downstream::subscription::set_marks::SetMarks;
use crate::downstream::subscription::suspects::{Brought, Nack, Suspects};
use crate::downstream::subscription::unasked::Unasked;
use crate::snapshot::Snapshot;
use crate::view::View;
use sluice_xds::{ResourceName, Status, TypeUrl, Variant, Version};

/// One stream × one type (STR-1).
#[derive(Debug)]
pub struct Subscription {
    pub type_url: TypeUrl,
    pub parts: PartList,
    pub nonces: Nonces,
    pub(super) delivery: Delivery,
    pub(super) interest: Interest,
    /// Gone with the first answer.
    first_answer: Option<Box<FirstAnswer>>,
    exceptions: Exceptions,
}

impl Subscription {
    pub fn new(type_url: TypeUrl) -> Subscription {
        Subscription {
            type_url,
            parts: PartList::default(),
            nonces: Nonces::default(),
            delivery: Delivery::default(),
            interest: Interest::default(),
            first_answer: None,
            exceptions: Exceptions::default(),
        }
    }

    // The collections, and the names of the client.

    pub fn is_wildcard(&self) -> bool {
        self.parts.is_wildcard()
    }

    /// The number of requested names, counted once per spelling.
    pub fn names_len(&self) -> usize {
        let refused = self.refusals().map_or(0, Refusals::len);
        let non_canonical = self.exceptions.non_canonical.as_ref();
        let respelled = non_canonical.map_or(0, |non_canonical| non_canonical.spellings.extra());
        refused + respelled + self.parts.names_len()
    }

    /// A name in more spellings than are served.
    pub fn crowded(&self) -> Option<&ResourceName> {
        self.exceptions.non_canonical.as_ref()?.spellings.crowded()
    }

    /// Requested names that cannot be served (NAM-5).
    pub fn refusals(&self) -> Option<&Refusals> {
        self.exceptions.refusals()
    }

    fn spellings(&self) -> Option<Arc<Spellings>> {
        self.exceptions.spellings().cloned()
    }

    /// Whether the client was sent nothing of its collections yet, and presented nothing.
    pub fn holds_nothing(&self) -> bool {
        self.nonces.version_sent().is_none() && self.parts.iter().all(|part| part.held.is_empty())
    }

    /// Whether no request of this type came on this stream yet.
    pub fn is_new(&self) -> bool {
        self.interest.is_new()
    }

    /// The client's wait for a name.
    pub fn name_wait(&self) -> Option<&NameWait> {
        self.exceptions.name_wait.as_deref()
    }

    /// The client's wait for a name, with the type.
    pub(super) fn name_wait_mut(&mut self) -> Option<(&TypeUrl, &mut NameWait)> {
        Some((&self.type_url, self.exceptions.get_mut()?.name_wait.as_deref_mut()?))
    }

    /// The version of a wildcard client, before the first answer (STR-10).
    pub(super) fn presented_version(&self) -> Option<Version> {
        self.first_answer.as_ref()?.presented_version()
    }

    /// Whether the next response must be a complete set: in SotW, for full-state types and for wildcards of
    /// any type (SST-1 to SST-3).
    pub(super) fn is_full(&self, variant: Variant) -> bool {
        variant == Variant::Sotw && (self.type_url.is_full_state() || self.is_wildcard())
    }

    pub(super) fn names_bytes(&self) -> usize {
        let sets = self.parts.iter().filter_map(|part| part.names());
        let subscribed: usize =
            sets.map(|names| names.text_bytes() + names.len() * SUBSCRIBED_NAME_BYTES).sum();
        let presented = self.first_answer.as_ref().map_or(0, |first_answer| first_answer.presented_bytes());
        subscribed + presented + self.exceptions.names_bytes()
    }

    /// Whether nothing but new content can be due.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_answered = |first_answer: &FirstAnswer| {
            first_answer.first.is_none() && first_answer.presented_version().is_none()
        };
        self.delivery.is_at_rest()
            && self.first_answer.as_deref().is_none_or(is_answered)
            && self.exceptions.allow_rest()
            && self.parts.iter().all(Part::is_at_rest)
    }

    // The next answer.

    /// The due answer, if the client may be sent an answer now.
    pub(super) fn poll(&mut self, variant: Variant, turn: &Turn<'_>) -> Option<Answer> {
        // Begins a new decision about the wait.
        if let Some((_, wait)) = self.name_wait_mut() {
            wait.look_at = None;
        }
        // At most one update is unACKed. Only new collections may be answered beside that update (NON-4).
        if let Some(pending) = &self.delivery.pending {
            return Some((**pending).clone());
        }
        let overdue = turn.overdue && self.type_url.kind().is_cluster_side();
        let may_send = !self.nonces.is_waiting() || self.delivery.fresh || overdue;
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
            // Unasked resources are a part of the answer: the client of a Service needs the workloads behind
            // the Service, too.
            if may_adopt && Unasked::is_behind(self.exceptions.unasked.as_deref(), part, types) {
                return None;
            }
            let view = part.look_up(types)?;
            membership_known &= view.is_complete() || !part.is_wildcard();
            let answered = part.answered(snapshot, types, view);
            news |= part.is_behind(answered.due);
            parts.push(answered);
        }
        let greeting = self.is_greeting_due(&parts, full, news, membership_known);
        let mut departed = refused;
        if membership_known {
            let in_doubt = |name: &&ResourceName| parts.iter().any(|part| part.may_have(name));
            departed.extend(self.exceptions.departed().filter(|name| !in_doubt(name)).cloned());
        }
        let is_due = news || greeting || !departed.is_empty();
        if !is_due {
            self.exceptions.end_name_wait();
        }
        // Complete sets wait for UNKNOWN names that the client may have: absence means deletion (RLY-5). New
        // listeners wait for the removal of others (DEL-26).
        if !is_due || self.must_wait(&parts, full, turn) || self.has_presented_all(full, &parts) {
            return None;
        }
        let features = self.interest.features;
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
            told_variants: self.exceptions.told_variants.clone(),
            chunk: 0,
            rest: None,
            begun: turn.carried,
        })
    }

    /// Whether an empty answer is due if nothing else is: to the first request for the wildcard, or with a
    /// mark. Never a guess (RLY-3): the state of a name that was given up beside the wildcard is known
    /// together with the membership (DEL-19). A greeting is due if nothing else is: the set is empty, and the
    /// client presented nothing (DEL-29). In SotW a greeting is always due: the set proves the removal of
    /// names that were given up with the request for the wildcard.
    fn is_greeting_due(
        &mut self,
        parts: &[AnswerPart],
        full: bool,
        news: bool,
        membership_known: bool,
    ) -> bool {
        let holds_nothing = || {
            parts.iter().all(|part| {
                !matches!(part.collection, Collection::Wildcard)
                    || (part.held.is_empty() && part.view.is_empty())
            })
        };
        self.delivery.greeting && membership_known && (full || holds_nothing())
            || self.set_marks_mut().is_some_and(|marks| !news && marks.is_due_alone(parts))
    }

    /// Whether the answer has to wait for a name. Notes the name.
    fn must_wait(&mut self, parts: &[AnswerPart], full: bool, turn: &Turn<'_>) -> bool {
        let (type_url, features) = (&self.type_url, self.interest.features);
        let doubt = Doubt { type_url, parts, features, last: self.exceptions.name_wait.as_deref() };
        let awaited = match full {
            true => {
                let first = self.first_answer.as_mut().and_then(|first_answer| first_answer.first.as_mut());
                let has_answers = self.nonces.latest().is_some();
                doubt.awaited(first, &self.parts, has_answers, turn.now)
            }
            false => doubt.awaited_room(turn.now),
        };
        let Some(awaited) = awaited else {
            self.exceptions.end_name_wait();
            return false;
        };
        let source = self.parts.get(awaited.index).map_or(SourceId(0), |part| part.source());
        let exceptions = self.exceptions.make_mut();
        let wait = NameWait::new(awaited, source, exceptions.name_wait.take(), turn.now);
        exceptions.name_wait = Some(Box::new(wait));
        true
    }

    /// Whether a wildcard client reconnects with the current version, and has the whole set already (STR-10).
    /// The presented version counts once.
    fn has_presented_all(&mut self, full: bool, parts: &[AnswerPart]) -> bool {
        let Some(presented) = self.presented_version() else { return false };
        self.end_presented();
        let ([part], [answer]) = (&mut *self.parts, parts) else { return false };
        let is_current = full && part.is_wildcard() && self.type_url.is_full_state() && answer.view.digest() == presented
                // The client's TTL timers have to start again (TTL-3).
                && !(self.interest.features.ttl && answer.view.annotations().shortest_ttl().is_some());
        if is_current {
            part.have(&answer.view, answer.due);
            self.delivery.greeting = false;
            self.delivery.fresh = false;
        }
        is_current
    }

    /// A presented version describes the client's content only until the client is sent something, or gives
    /// something up (STR-10).
    pub(super) fn end_presented(&mut self) {
        if let Some(first_answer) = &mut self.first_answer {
            first_answer.presented = None;
            self.first_answer.take_if(|first_answer| first_answer.is_over());
        }
    }

    /// The client's ACKed version, for repetition in a response without content (SST-7). `None` while a
    /// response is unACKed.
    fn repeats(&self, parts: &[AnswerPart]) -> Option<Version> {
        let has_annotations = self.interest.features.errors_alone
            && parts.iter().any(|part| !part.view.annotations().is_empty());
        self.nonces.version_acked().filter(|_| has_annotations && !self.nonces.is_waiting())
    }

    /// The time of the next look for a missing name.
    pub(super) fn look_at(&self) -> Option<Time> {
        self.name_wait().and_then(|wait| wait.look_at)
    }

    /// The time of the next look while the routing types wait for the first answer of this type; `None` if
    /// there is no wait (ORD-12).
    pub(super) fn owes_first(&self, variant: Variant, turn: &Turn<'_>) -> Option<Time> {
        match self.nonces.latest() {
            Some(_) => None,
            None => first_answer_look(&self.parts, &self.type_url, self.nonces.since, variant, turn),
        }
    }

    /// The complete set, for clients without a stream (RST-12); `None` while a name is UNKNOWN.
    pub(super) fn complete_set(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Option<Answer> {
        let part = |part: &Part| {
            let snapshot = latest(part.source())?;
            let types = snapshot.of(&self.type_url)?;
            let view = types.view(&part.collection).cloned()?;
            let (collection, held) = (part.collection.clone(), Arc::<View>::default());
            // The client's content is unknown, so no removed names are kept for the client.
            let (due, keeps, last_bytes) = (view.id(), Vec::new(), types.last_bytes());
            view.is_complete().then(|| AnswerPart {
                source: part.source(),
                collection,
                held,
                view,
                keeps,
                due,
                last_bytes,
                snapshot,
            })
        };
        let parts: Vec<_> = self.parts.iter().map(part).collect::<Option<_>>()?;
        let (type_url, variant) = (self.type_url.clone(), Variant::Sotw);
        let answer = Answer {
            type_url,
            variant,
            full: true,
            greeting: true,
            // A single answer never refreshes a TTL.
            features: ClientFeatures { ttl: false, ..self.interest.features },
            told_at: Time::ZERO,
            repeats: None,
            parts,
            departed: Vec::new(),
            refused: self.refusals().map(Refusals::errors).unwrap_or_default(),
            spellings: self.spellings(),
            told_variants: self.exceptions.told_variants.clone(),
            chunk: 0,
            rest: None,
            begun: 0,
        };
        // If every name is refused (NAM-5), the set is known to be empty.
        (!answer.parts.is_empty() || self.refusals().is_some()).then_some(answer)
    }

    // The handover of messages.

    /// Notes a message of an answer, the `is_last` of its answer. Returns the changes in the message.
    /// `has_message`: the answer has messages at all. Every update of every client comes here.
    pub(super) fn carry(
        &mut self,
        answer: &Answer,
        is_last: bool,
        has_message: bool,
        passed: &mut Option<Box<Passed>>,
    ) -> Carried {
        self.parts.carry(answer, is_last, has_message, passed)
    }

    /// Keeps the content before a response that goes out, until the client has answered it.
    pub(super) fn remember(&mut self, nonce: u64) {
        if self.nonces.is_waiting() {
            let so_far = self.content_so_far();
            self.exceptions.make_mut().stages.add(nonce, so_far);
        }
        for part in &mut self.parts {
            part.before.get_or_insert_with(|| part.held.clone());
        }
    }

    /// The client's content is about to be made due again, as if it were unknown. A verdict on an unanswered
    /// response is about what the response brought (TRU-3).
    pub(super) fn keep_content(&mut self) {
        if self.nonces.is_waiting() {
            let so_far = self.content_so_far();
            self.exceptions.make_mut().stages.begin(so_far);
        }
    }

    /// The content of each part after the messages so far: an answer may take several.
    fn content_so_far(&self) -> Vec<(Key, Arc<View>)> {
        let parts = self.parts.iter();
        parts.map(|part| (part.key(), self.part_so_far(part).held.clone())).collect()
    }

    /// The part with the content of the messages so far, while an answer is unfinished.
    pub(super) fn part_so_far<'a>(&self, part: &'a Part) -> Cow<'a, Part> {
        let mut so_far = Cow::Borrowed(part);
        if let Some(answer) = &self.delivery.pending
            && let Some(rest) = &answer.rest
            && let Some(index) = self.parts.iter().position(|other| other.key() == part.key())
        {
            so_far.to_mut().hold_sent(index, answer, rest);
        }
        so_far
    }

    /// Notes that the whole answer was handed out, or was empty.
    pub(super) fn arrive(&mut self, answer: &Answer, has_spoken: bool) {
        self.parts.keep_in_doubt(answer);
        self.exceptions.keep_told_variants(answer, true);
        for (part, answered) in self.parts.iter_mut().zip(&answer.parts) {
            part.bring_to(answer, answered);
            match &answer.rest {
                Some(rest) => {
                    rest.told_names.iter().for_each(|message| part.follow_sent(message, &answered.view))
                }
                None => part.follow_aliases(answered, &answer.type_url),
            }
            if answer.withholds_errors() || (!has_spoken && answer.variant == Variant::Sotw) {
                part.keep_errors(&answered.held);
            }
        }
        let is_known = |part: &AnswerPart| part.view.is_complete();
        let is_member = |part: &&AnswerPart| matches!(part.collection, Collection::Wildcard);
        let delivery = &mut self.delivery;
        delivery.greeting &= !answer.parts.iter().filter(is_member).all(is_known);
        // A new collection that is still UNKNOWN may be answered once beside an unACKed response (NON-4).
        delivery.fresh &= !has_spoken && !answer.parts.iter().all(is_known);
        delivery.pending = None;
        if has_spoken && let Some(first_answer) = &mut self.first_answer {
            // An error in place of a name may end while the client still has a copy (ERR-4).
            let is_excused = answer.features.errors_alone && !answer.parts.iter().all(is_known);
            first_answer.first.take_if(|_| !is_excused);
        }
        self.end_presented();
        self.exceptions.note_told(&answer.departed);
        if let Some(exceptions) = self.exceptions.get_mut() {
            if let Some(unasked) = &mut exceptions.unasked {
                unasked.note_removals(answer);
            }
            self.exceptions.trim();
        }
    }

    /// Notes that a message was handed out, and that more messages follow.
    pub(super) fn begin_rest(
        &mut self,
        answer: &Answer,
        told_names: &Arc<[ToldNames]>,
        targets: &[Arc<View>],
    ) {
        let told_variants: Option<ToldVariants> = match (&answer.rest, &self.exceptions.told_variants) {
            (None, Some(_)) => self.exceptions.told_variants_after(&answer.brought_to(targets)),
            _ => None,
        };
        self.delivery.pending = Some(Box::new(answer.rest(told_names, targets, told_variants)));
    }

    /// Notes a message of an answer in several messages.
    pub(super) fn note_message(&mut self, nonce: u64, told_names: &Arc<[ToldNames]>, chunk: usize) {
        if self.type_url.kind().may_exclude() {
            let messages = &mut self.exceptions.make_mut().rejected_messages;
            messages.get_or_insert_default().note(nonce, told_names, chunk);
        }
    }

    /// Notes the only message of an answer.
    pub(super) fn note_only_message(&mut self, nonce: u64, answer: &Answer) {
        if let Some(exceptions) = self.exceptions.get_mut()
            && let Some(messages) = &mut exceptions.rejected_messages
        {
            messages.note_only(nonce, answer);
        }
    }

    pub(super) fn set_marks_mut(&mut self) -> Option<&mut SetMarks> {
        self.exceptions.get_mut()?.set_marks.as_deref_mut()
    }

    /// The key of the answer with messages left to send.
    pub fn pending_key(&self) -> Option<AnswerKey> {
        self.delivery.pending.as_ref().map(|answer| answer.key())
    }

    /// Gives up the rest of an answer that takes several messages, for a newer answer. The client holds the
    /// messages sent so far.
    #[inline]
    pub fn interrupt(&mut self) {
        if let Some(answer) = self.delivery.pending.take() {
            self.keep_sent(&answer);
        }
    }

    fn keep_sent(&mut self, answer: &Answer) {
        self.delivery.fresh = true;
        self.exceptions.keep_told_variants(answer, false);
        let Some(rest) = &answer.rest else { return };
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.hold_sent(index, answer, rest);
        }
        for message in rest.told_names.iter().take(answer.chunk) {
            if self.exceptions.departed().next().is_some() {
                let answered = message.answered();
                self.exceptions.retain_departed(|name| !answered.contains(name));
            }
        }
    }

    // Content that is due again, although the client was sent the content before.

    /// Makes a name due again, whatever the client holds.
    fn forget_name(&mut self, name: &ResourceName) {
        self.interrupt();
        self.parts.forget(name);
    }

    /// Makes the endpoints of a cluster due, changed or not, because the cluster was just sent (ORD-5,
    /// RLY-52).
    pub fn force(&mut self, name: &ResourceName) {
        self.interrupt();
        self.delivery.fresh |= self.parts.force(name);
    }

    /// Makes the client's whole content due again, changed or not.
    pub fn force_all(&mut self) {
        let held: Vec<_> = self.parts.iter().flat_map(|part| part.held.names()).cloned().collect();
        held.iter().for_each(|name| self.force(name));
    }

    // The client's verdicts (RLY-50, RLY-51).

    /// Judges a request by its nonce.
    pub(super) fn judge(
        &mut self,
        nonce: Option<u64>,
        error: Option<Status>,
        now: Time,
    ) -> (Verdict, Judged) {
        let rejected = self.nack().map(|nack| nack.version);
        let (verdict, judged) = self.nonces.judge(nonce, error, rejected, now);
        match &verdict {
            Verdict::Nack { status, version, .. } => {
                let nack = Nack {
                    version: *version,
                    status: status.clone(),
                    at: now,
                    carried: judged.carried.clone(),
                    brought: Vec::new(),
                    has_lost_names: judged.has_lost_names,
                };
                self.exceptions.make_mut().nack = Some(Box::new(nack));
            }
            Verdict::Ack { .. } => {
                if let Some(exceptions) = self.exceptions.get_mut()
                    && let Some(nack) = exceptions.nack.take()
                {
                    exceptions.previous_nack = Some(nack);
                }
            }
            Verdict::Stale | Verdict::None => {}
        }
        (verdict, judged)
    }

    /// The last rejection; ends with the next ACK.
    pub fn nack(&self) -> Option<&Nack> {
        self.exceptions.nack.as_deref()
    }

    /// The last rejection before an ACK of other content, and the last rejection.
    pub(super) fn nacks(&self) -> impl Iterator<Item = &Nack> {
        [&self.exceptions.previous_nack, &self.exceptions.nack].into_iter().flatten().map(|nack| &**nack)
    }

    /// Takes a verdict on a response. Returns whether something is due again by it.
    pub(super) fn take_verdict(
        &mut self,
        nonce: Option<u64>,
        verdict: &Verdict,
        judged: &Judged,
        variant: Variant,
    ) -> bool {
        let is_rejected = match verdict {
            Verdict::Ack { .. } => false,
            Verdict::Nack { .. } => true,
            Verdict::Stale | Verdict::None => return false,
        };
        if is_rejected {
            self.note_rejected(nonce, judged.carried.rejected());
        }
        self.follow(nonce, is_rejected, variant);
        let is_due = self.send_rejected_again(nonce, is_rejected);
        self.exceptions.trim();
        is_due
    }

    /// Notes the content that the client rejects, before the client's content goes back: that of the
    /// response, and content of earlier responses that the client rejected and never accepted.
    fn note_rejected(&mut self, nonce: Option<u64>, changes: &[ChangeId]) {
        // The client rejected a part of these changes: the rest of the answer brings none of them.
        self.nonces.give_up_changes(changes);
        self.parts.give_up_changes(changes);
        let Some(nonce) = nonce else { return };
        let is_latest = self.nonces.latest() == Some(nonce);
        let brought = self.parts.iter().enumerate().filter_map(|(index, part)| {
            let pending = self.delivery.pending_view(index);
            Brought::by_response(part, nonce, pending, &self.exceptions.stages, is_latest)
        });
        let brought = brought.collect();
        if let Some(nack) = self.exceptions.get_mut().and_then(|exceptions| exceptions.nack.as_mut()) {
            nack.brought = brought;
        }
    }

    /// Notes the client's ACK or NACK of a response.
    fn follow(&mut self, nonce: Option<u64>, is_rejected: bool, variant: Variant) {
        let waiting = self.nonces.is_waiting();
        if is_rejected {
            self.reject(nonce.filter(|_| waiting));
        } else {
            if self.type_url.kind().refers_to_clusters() {
                self.delivery.acknowledged.ack(nonce);
            }
            if !waiting {
                self.accept(variant);
            } else if let Some(nonce) = nonce {
                // Only what was sent since is unanswered.
                for part in &mut self.parts {
                    let after = self.exceptions.stages.after(nonce, part).cloned();
                    part.before = after.or(part.before.take());
                }
            }
        }
        if let Some(exceptions) = self.exceptions.get_mut() {
            exceptions.stages.end(nonce, waiting);
            if let Some(unread) = &mut exceptions.unread {
                unread.end(nonce, waiting);
                exceptions.unread.take_if(|unread| unread.is_empty());
            }
        }
        for part in self.parts.iter_mut().filter(|_| !waiting) {
            part.before = None;
        }
    }

    /// Notes an ACK of all responses.
    fn accept(&mut self, variant: Variant) {
        let full = self.is_full(variant);
        for part in &mut self.parts {
            let earlier = self.exceptions.stages.first_of(part).cloned();
            part.accept(earlier.as_ref(), full, variant);
        }
        if let Some(exceptions) = self.exceptions.get_mut()
            && self.parts.iter().all(|part| part.rejected.is_none())
        {
            exceptions.previous_nack = None;
        }
    }

    /// Notes a rejection: the client keeps its former content. `older`: the nonce of the rejected response,
    /// if later ones are unanswered, which may still be accepted (NON-1).
    fn reject(&mut self, older: Option<u64>) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let newest = self.delivery.pending_view(index);
            let after = older.and_then(|nonce| self.exceptions.stages.after(nonce, part)).cloned();
            part.reject(newest, after.as_ref(), older.is_some());
        }
    }

    /// Once the client has answered all messages of an answer, the rejected messages that a later message may
    /// have cured are due again. Returns whether any is.
    fn send_rejected_again(&mut self, nonce: Option<u64>, is_rejected: bool) -> bool {
        let Some(exceptions) = self.exceptions.get_mut() else { return false };
        let (Some(messages), Some(nonce)) = (&mut exceptions.rejected_messages, nonce) else { return false };
        messages.judge(nonce, is_rejected);
        if self.nonces.is_waiting() || self.delivery.pending.is_some() {
            return false;
        }
        let due = messages.settle(&self.parts);
        let stands = self.parts.iter().any(|part| part.rejected.is_some());
        exceptions.rejected_messages.take_if(|messages| !stands || !messages.has_sent_again());
        for name in &due {
            self.forget_name(name);
        }
        !due.is_empty()
    }

    /// Whether the client has ACKed this type's content of this source, as of this count of carried
    /// responses.
    pub(super) fn has_followed(&self, source: SourceId, carried: u64, turn: &Turn<'_>) -> bool {
        if !self.type_url.kind().refers_to_clusters() {
            return true;
        }
        let parts = || self.parts.iter().filter(|part| part.source() == source);
        if parts().any(|part| part.rejected.is_some()) {
            return false;
        }
        let has_news = |part: &Part| part.has_news(part.view_in(turn, &self.type_url));
        let has_nothing_left =
            || !self.nonces.is_waiting() && self.delivery.pending.is_none() && !parts().any(has_news);
        self.delivery.acknowledged.covers(carried) || parts().next().is_none() || has_nothing_left()
    }

    /// Whether unsent content is due, as far as visible without a composition.
    pub fn is_due(&self, turn: &Turn<'_>) -> bool {
        self.delivery.pending.is_some()
            || self.parts.iter().any(|part| part.has_news(part.view_in(turn, &self.type_url)))
    }

    /// Whether a source has unsent content, apart from withheld removals.
    pub(super) fn has_unsent(&self, turn: &Turn<'_>) -> bool {
        self.delivery.pending.is_some() || self.parts.have_unsent(&self.type_url, turn)
    }

    /// Whether news of this type cannot be sent before the client's ACK, so that the routing types must
    /// wait (RLY-50). Removals, renewed TTLs and errors are no such news.
    pub fn holds_back(&self, turn: &Turn<'_>) -> bool {
        self.nonces.is_waiting()
            && self.parts.iter().any(|part| {
                let view = part.view_in(turn, &self.type_url);
                view.is_some_and(|view| {
                    let only_adds =
                        part.withheld.is_none() && !part.held.may_lose(view) && view.annotations().is_empty();
                    part.is_behind(part.due(view)) && (only_adds || part.held.has_news_in(view))
                })
            })
    }

    /// Whether the client has a name in another version, or may have it from an earlier stream. `was_kept`:
    /// it had before the latest answer.
    pub(super) fn has_another(&self, name: &ResourceName, version: Version, was_kept: bool) -> bool {
        let mut held = self.parts.iter().filter_map(|part| part.held.version_of(name)).peekable();
        let has_some = held.peek().is_some();
        let is_asked_for = || self.parts.iter().any(|part| part.collection.covers(name));
        let returns = || self.first().is_some_and(|first| first.may_have(name));
        let may_have = || !has_some && (was_kept || returns()) && is_asked_for();
        held.any(|held| held != version) || may_have()
    }

    fn first(&self) -> Option<&First> {
        self.first_answer.as_ref()?.first.as_ref()
    }

    // Reports.

    /// The version of the client's accepted content; `None` if the client has nothing.
    pub fn version_held(&self) -> Option<Version> {
        self.parts.version_held()
    }

    /// The version of the content that the client was sent last, of all messages together.
    pub fn version_of_sent(&self) -> Option<Version> {
        self.parts.version_of_sent()
    }

    /// The version of the content that the sources have for the client; `None` if they know nothing yet.
    pub(super) fn version_due(&self, turn: &Turn<'_>) -> Option<Version> {
        self.parts.version_due(&self.type_url, turn)
    }

    /// Whether the sources know everything about the collections. Without a collection there is nothing to
    /// know.
    pub(super) fn is_known(&self, turn: &Turn<'_>) -> bool {
        self.parts.are_known(&self.type_url, turn)
    }

    /// The time of the last change of the content that the client should have.
    pub(super) fn changed_at(&self, turn: &Turn<'_>) -> Option<Time> {
        self.parts.changed_at(&self.type_url, turn)
    }

    /// The client's content name by name.
    pub(super) fn ledger(&self, turn: &Turn<'_>) -> Ledger {
        let (is_waiting, is_rejected) = (self.nonces.is_waiting(), self.nack().is_some());
        Ledger::new(&self.type_url, &self.parts, self.refusals(), is_waiting, is_rejected, turn)
    }

    /// The names of the rejected response in the text of a NACK, in the order of the text.
    pub fn names_in(&self, nack: &Nack) -> Vec<ResourceName> {
        nack.names_in_text(|name| self.parts.iter().any(|part| part.held.has(name)))
    }

    /// The suspects of a NACK, apart from the versions that other clients accepted.
    pub fn suspects(&self, nack: &Nack) -> Suspects {
        Suspects::new(nack, self.names_in(nack))
    }

    /// The changes that an answer brings, for a report about its body.
    pub fn changes_in(&self, answer: &Answer) -> impl Iterator<Item = ChangeId> {
        self.parts.changes_in(answer)
    }

    /// The changes that the client has not answered or not been sent.
    pub(super) fn unsettled(&self, turn: &Turn<'_>) -> Vec<Unsettled> {
        let pending = self.delivery.pending.as_deref();
        self.parts.unsettled(&self.type_url, self.nonces.unanswered(), pending, turn)
    }
}
