//! The collections of one stream in one type, and the client's content.

mod acknowledgement;
pub mod carried;
mod complete_set;
mod delta_request;
mod interrupt;
pub mod ledger;
pub mod name_wait;
pub mod nonces;
pub mod part;
mod parts;
mod poll;
mod rejected_messages;
mod resend;
mod set_marks;
mod sotw_request;
pub mod stages;
pub mod suspects;
mod unasked;
mod unread;
pub mod unsent_news;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::collection::NameSet;
use crate::downstream::answer::Answer;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::answer::key::AnswerKey;
use crate::downstream::answer::spelling::{NonCanonicalNames, Refusals, Spellings};
use crate::downstream::answer::told_variants::ToldVariants;
use crate::downstream::memory::{SUBSCRIBED_NAME_BYTES, weight};
use crate::downstream::order::acknowledged::AcknowledgedAnswers;
use crate::downstream::subscription::name_wait::{First, NameWait};
use crate::downstream::subscription::nonces::Nonces;
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::rejected_messages::RejectedMessages;
use crate::downstream::subscription::set_marks::SetMarks;
use crate::downstream::subscription::stages::Stages;
use crate::downstream::subscription::unasked::Unasked;
use crate::downstream::subscription::unread::Unread;
use sluice_xds::{ResourceName, TypeUrl, Variant, Version};

/// One stream × one type (STR-1).
#[derive(Debug)]
pub struct Subscription {
    pub type_url: TypeUrl,
    /// The wildcard, then globs, then names, each by group: old-style names before authorities. No part is
    /// empty.
    pub parts: Vec<Part>,
    /// Names that were unsubscribed beside a wildcard, and still need an answer (DEL-19). Nearly always `None`.
    #[expect(clippy::box_collection, reason = "an empty set would take 16 bytes more of each subscription")]
    departed: Option<Box<BTreeSet<ResourceName>>>,
    pub nonces: Nonces,
    pub(super) stages: Stages,
    /// Names that the client gave up before it read a response with them.
    unread: Option<Box<Unread>>,
    /// Adopted names. Nearly always `None`.
    unasked: Option<Box<Unasked>>,
    /// For a routing type: the client's ACKs so far.
    pub acknowledged: AcknowledgedAnswers,
    /// A first answer to the wildcard is due, even without resources (SST-7, DEL-25).
    pub greeting: bool,
    /// New collections may be answered beside an unACKed response (NON-4).
    pub fresh: bool,
    /// The SotW state before the first answer of the type (RLY-5).
    first: Option<Box<First>>,
    /// The client's wait for a name.
    pub name_wait: Option<Box<NameWait>>,
    /// Boxed: gone with the first answer.
    pub presented: Option<Box<Presented>>,
    /// The rest of an answer that takes several messages. The rest goes out before a newer answer begins
    /// (RLY-31).
    pub pending: Option<Box<Answer>>,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub legacy_wildcard: bool,
    /// The client's capabilities for the type.
    pub features: ClientFeatures,
    /// The client's own spellings of names, and refused names. Nearly always `None`.
    non_canonical: Option<Box<NonCanonicalNames>>,
    /// The client's content under names with dynamic parameters, if the client asks for any.
    pub told_variants: Option<Arc<ToldVariants>>,
    /// The messages of an answer in several messages, where a message may cure another. Nearly always `None`.
    rejected_messages: Option<Box<RejectedMessages>>,
    /// The marks sent so far, if the client reads marks.
    pub(super) set_marks: Option<Box<SetMarks>>,
    /// The count of the session's news before the look that made the latest answer. `None` if the answer was made from older content,
    /// or the collections changed since.
    pub(super) sent_after: Option<u32>,
    /// A request of the type came.
    seen: bool,
    /// Some request had a non-empty list: from then on an empty list means no names (SUB-10).
    named: bool,
    /// A hash of the last SotW list, so that an ACK with the same list costs no comparison of sets.
    fingerprint: u64,
}

/// The versions in the first request of a client.
#[derive(Debug)]
pub enum Presented {
    /// SotW, of a wildcard client (STR-10).
    Whole(Version),
    /// Delta: the memory of the names, in bytes.
    Names(usize),
}

/// The change of a session's collections in a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub wildcard: Option<bool>,
    /// The changed sets of names and globs, by part.
    pub names: BTreeMap<Key, NameSetChange>,
    /// Spellings have changed, or names were refused.
    pub non_canonical: bool,
    /// In SotW, the number of names that came or went, or are newly refused or spelled otherwise.
    pub moved: usize,
    /// Names that the client gave up, and that the wildcard or a glob may cover, with the versions that it accepted.
    pub left: Vec<(ResourceName, Version)>,
}

/// The new set of names.
#[derive(Debug)]
pub struct NameSetChange(pub Arc<NameSet>);

impl PartialEq for NameSetChange {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for NameSetChange {}

impl Subscription {
    pub fn new(type_url: TypeUrl) -> Subscription {
        Subscription {
            type_url,
            parts: Vec::new(),
            departed: None,
            nonces: Nonces::default(),
            stages: Stages::default(),
            unread: None,
            unasked: None,
            acknowledged: AcknowledgedAnswers::default(),
            greeting: false,
            fresh: false,
            first: None,
            name_wait: None,
            presented: None,
            pending: None,
            legacy_wildcard: true,
            features: ClientFeatures::default(),
            non_canonical: None,
            told_variants: None,
            rejected_messages: None,
            set_marks: None,
            sent_after: None,
            seen: false,
            named: false,
            fingerprint: 0,
        }
    }

    pub fn is_wildcard(&self) -> bool {
        self.parts.iter().any(Part::is_wildcard)
    }

    /// The number of requested names, counted once per spelling.
    pub fn names_len(&self) -> usize {
        let refused = self.refusals().map_or(0, Refusals::len);
        let respelled =
            self.non_canonical.as_ref().map_or(0, |non_canonical| non_canonical.spellings.extra());
        refused
            + respelled
            + self.parts.iter().filter_map(Part::names).map(|names| names.len()).sum::<usize>()
    }

    /// A name in more spellings than are served.
    pub fn crowded(&self) -> Option<&ResourceName> {
        self.non_canonical.as_ref()?.spellings.crowded()
    }

    /// Requested names that cannot be served (NAM-5).
    pub fn refusals(&self) -> Option<&Refusals> {
        self.non_canonical.as_ref().map(|non_canonical| &non_canonical.refusals)
    }

    /// The client's spellings that differ from the canonical names (NAM-8).
    pub fn spellings(&self) -> Option<Arc<Spellings>> {
        let non_canonical =
            self.non_canonical.as_ref().filter(|non_canonical| !non_canonical.spellings.is_empty())?;
        Some(non_canonical.spellings.clone())
    }

    /// Whether the client was sent nothing of its collections yet, and presented nothing.
    pub fn holds_nothing(&self) -> bool {
        self.nonces.version_sent.is_none() && self.parts.iter().all(|part| part.held.is_empty())
    }

    /// The key of the answer with messages left to send.
    pub fn pending_key(&self) -> Option<AnswerKey> {
        self.pending.as_ref().map(|answer| answer.key())
    }

    /// The version of a wildcard client, before the first answer (STR-10).
    pub fn presented_version(&self) -> Option<Version> {
        match self.presented.as_deref()? {
            Presented::Whole(version) => Some(*version),
            Presented::Names(_) => None,
        }
    }

    fn presented_bytes(&self) -> usize {
        match self.presented.as_deref() {
            Some(Presented::Names(bytes)) => *bytes,
            Some(Presented::Whole(_)) | None => 0,
        }
    }

    /// Whether no request of this type came on this stream yet.
    pub fn is_new(&self) -> bool {
        !self.seen
    }

    /// Whether the client has no spellings, variants, rejected messages or marks of its own, and its first answer is sent.
    pub(super) fn is_plain(&self) -> bool {
        self.first.is_none()
            && self.non_canonical.is_none()
            && self.told_variants.is_none()
            && self.rejected_messages.is_none()
            && self.set_marks.is_none()
    }

    /// Notes that the client was told of these names.
    pub fn note_told(&mut self, departed: &[ResourceName]) {
        if departed.is_empty() {
            return;
        }
        self.retain_departed(|name| !departed.contains(name));
        if let Some(non_canonical) = &mut self.non_canonical {
            non_canonical.refusals.note_told();
        }
    }

    /// The names that were unsubscribed beside a wildcard, and still need an answer (DEL-19).
    pub(in crate::downstream) fn departed(&self) -> impl Iterator<Item = &ResourceName> {
        self.departed.iter().flat_map(|names| names.iter())
    }

    fn retain_departed(&mut self, is_kept: impl Fn(&ResourceName) -> bool) {
        if let Some(departed) = &mut self.departed {
            departed.retain(is_kept);
            self.departed.take_if(|departed| departed.is_empty());
        }
    }

    /// Whether the next response must be a complete set: in SotW, for full-state types and for wildcards of
    /// any type (SST-1 to SST-3).
    pub(super) fn is_full(&self, variant: Variant) -> bool {
        variant == Variant::Sotw && (self.type_url.is_full_state() || self.is_wildcard())
    }

    pub(super) fn names_bytes(&self) -> usize {
        let sets = self.parts.iter().filter_map(|part| part.names());
        let wanted: usize = sets.map(|names| names.text_bytes() + names.len() * SUBSCRIBED_NAME_BYTES).sum();
        let departed: usize = self.departed().map(weight).sum();
        let spelled = self.spellings().map_or(0, |spellings| spellings.bytes());
        let refused = self.refusals().map_or(0, Refusals::bytes);
        wanted
            + departed
            + spelled
            + refused
            + self.presented_bytes()
            + self.unread.as_ref().map_or(0, |unread| unread.bytes())
            + self.unasked.as_ref().map_or(0, |unasked| unasked.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size classes of the allocator: each idle client has one of both for each type.
    #[test]
    fn an_idle_subscription_costs_little() {
        let (subscription, part) = (size_of::<Subscription>(), size_of::<Part>());
        assert!(subscription <= 320 && part <= 128, "subscription {subscription}, part {part}");
    }
}
