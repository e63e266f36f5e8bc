//! The resources that may be the reason for a rejection (TRU-6).
//!
//! The text of a NACK mostly has the names of the bad resources. Without names, each resource that the response changed is
//! suspected. A resource is no suspect if another client of the same program accepted its version: only a walk over the
//! clients knows that, so the caller removes such resources.

use std::sync::Arc;

use crate::collection::CollectionKind;
use crate::downstream::sources::ChangeId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::ledger::HeldVersion;
use crate::downstream::subscription::nonces::Nack;
use crate::downstream::subscription::part::{Key, Part};
use crate::view::View;
use sluice_xds::{ResourceName, Version};

/// The maximum number of names in one text. A text of 4 KiB names few resources, or all.
const NAMED_MAX: usize = 16;

/// The maximum number of suspects of one rejection without names.
pub const SUSPECTS_MAX: usize = 100;

/// The content of a part before a rejected response, and with the response. The part may have come to another server of its list
/// since (WAV-18).
#[derive(Clone, Debug)]
pub struct Brought {
    pub key: Key,
    pub before: Arc<View>,
    pub sent: Arc<View>,
}

impl Brought {
    /// Whether the response brought this version of the name, or with `None` its removal. A name that the client gave up is gone,
    /// too, and nobody removed it.
    pub fn has(&self, name: &ResourceName, version: Option<Version>) -> bool {
        let is_told =
            version.is_some() || self.key.0 != CollectionKind::Names || self.sent.knows_absent(name);
        is_told && self.sent.version_of(name) == version && self.before.version_of(name) != version
    }

    fn changes(&self, name: &ResourceName) -> bool {
        self.sent.version_of(name) != self.before.version_of(name)
    }
}

/// A resource that may be the reason for a rejection. Without a version, the response removed it, or the client had given the
/// name up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suspect {
    pub name: ResourceName,
    pub version: Option<Version>,
}

/// The suspects of one rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    pub list: Vec<Suspect>,
    /// The text has these names. Otherwise the list has all that the response changed, up to [`SUSPECTS_MAX`].
    pub are_named: bool,
    /// The response changed more resources than the list has, or may have.
    pub has_more: bool,
}

impl Suspects {
    /// Whether the client blames each resource of the list (QUA-2): its words name them, or the response changed nothing else.
    pub fn are_blamed(&self) -> bool {
        self.are_named || self.list.len() == 1 && !self.has_more
    }
}

impl Subscription {
    /// Notes the content that the client rejects, before the client's content goes back: that of the response, and content
    /// of earlier responses that the client rejected and never accepted.
    pub(in crate::downstream) fn note_rejected(&mut self, nonce: Option<u64>, changes: &[ChangeId]) {
        self.give_up_changes(changes);
        let Some(nonce) = nonce else { return };
        let brought = self.parts.iter().enumerate().map(|(index, part)| {
            let pending = self.pending.as_ref().and_then(|answer| answer.parts.get(index));
            let sent = || pending.map_or(&part.held, |answered| &answered.view);
            let sent = self.stages.after(nonce, part).unwrap_or_else(sent).clone();
            let before = part.before.as_ref().unwrap_or(&part.held);
            let before = match self.nonces.latest() == Some(nonce) {
                true => before,
                false => self.stages.before(nonce, part).unwrap_or(before),
            };
            let before = part.before_rejected(before.clone(), &sent);
            Brought { key: part.key(), before, sent }
        });
        let brought = brought.filter(|brought| brought.before.id() != brought.sent.id()).collect();
        if let Some(nack) = &mut self.nonces.nack {
            nack.brought = brought;
        }
    }

    /// The names of the rejected response in the text of a NACK, in the order of the text.
    pub fn names_in(&self, nack: &Nack) -> Vec<ResourceName> {
        let is_held = |part: &Part, name: &ResourceName| part.held.has(name);
        let is_brought = |name: &ResourceName| {
            nack.brought.iter().any(|brought| brought.sent.has(name) || brought.before.has(name))
        };
        names_in(&nack.status.message, |name| {
            is_brought(name) || self.parts.iter().any(|part| is_held(part, name))
        })
    }

    /// The suspects of a NACK, apart from the versions that other clients accepted.
    pub fn suspects(&self, nack: &Nack) -> Suspects {
        // The client may have other content by now under a name that it gave up before its verdict (QUA-2).
        let version =
            |name: &ResourceName| nack.brought.iter().find_map(|brought| known_version(&brought.sent, name));
        let named = self.names_in(nack);
        if !named.is_empty() {
            let suspect = |name: ResourceName| Suspect { version: version(&name), name };
            let list = named.into_iter().map(suspect).collect();
            return Suspects { list, are_named: true, has_more: false };
        }
        let changed = nack.brought.iter().flat_map(|brought| {
            let names = brought.before.differing(&brought.sent);
            names.map(|name| Suspect { name: name.clone(), version: known_version(&brought.sent, name) })
        });
        let mut list: Vec<_> = changed.take(SUSPECTS_MAX + 1).collect();
        let has_more = list.len() > SUSPECTS_MAX || nack.has_lost_names;
        list.truncate(SUSPECTS_MAX);
        Suspects { list, are_named: false, has_more }
    }
}

impl Nack {
    /// Whether a name is suspected. `named`: the names in the text. Of an older response than the latest the changed names
    /// are not known, so that each is suspected.
    pub fn suspects(&self, name: &ResourceName, named: &[ResourceName]) -> bool {
        if !named.is_empty() {
            return named.contains(name);
        }
        self.brought.is_empty() || self.brought.iter().any(|brought| brought.changes(name))
    }
}

/// The version of a name, unless the record does not tell which one the client has.
fn known_version(view: &View, name: &ResourceName) -> Option<Version> {
    HeldVersion::of(view, name)?.known()
}

/// The names in a text, as whole words.
fn names_in(text: &str, is_known: impl Fn(&ResourceName) -> bool) -> Vec<ResourceName> {
    let is_edge = |c: char| c.is_whitespace() || "'\"`,;()[]{}<>".contains(c);
    let mut found: Vec<ResourceName> = Vec::new();
    for word in text.split(is_edge).filter(|word| !word.is_empty()) {
        let trimmed = word.trim_end_matches([':', '.', '!']);
        for name in [word, trimmed].map(ResourceName::new) {
            if found.len() < NAMED_MAX && !found.contains(&name) && is_known(&name) {
                found.push(name);
            }
        }
    }
    found
}
