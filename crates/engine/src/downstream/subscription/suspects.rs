//! The resources that may be the reason for a rejection (TRU-6).
//!
//! The text of a NACK mostly has the names of the bad resources. Without names, each resource that the
//! response changed is suspected. A resource is no suspect if another client of the same program accepted its
//! version: only a walk over the clients knows that, so the caller removes such resources.

use std::sync::Arc;

use crate::Time;
use crate::downstream::subscription::carried::Carried;
use crate::downstream::subscription::ledger::HeldVersion;
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::stages::Stages;
use crate::view::View;
use sluice_xds::{ResourceName, Status, Version};

/// The maximum number of names in one text. A text of 4 KiB names few resources, or all.
const NAMED_MAX: usize = 16;

/// The maximum number of suspects of one rejection without names.
pub const SUSPECTS_MAX: usize = 100;

/// The content of a part before a rejected response, and with the response. The part may have come to another
/// server of its list since (WAV-18).
#[derive(Clone, Debug)]
pub struct Brought {
    pub key: Key,
    pub before: Arc<View>,
    pub sent: Arc<View>,
}

/// A rejection.
#[derive(Clone, Debug)]
pub struct Nack {
    pub version: Version,
    pub status: Status,
    pub at: Time,
    /// The changes in the rejected response (TRU-3).
    pub carried: Carried,
    /// The content that the response brought, by part.
    pub brought: Vec<Brought>,
    /// The client gave up names before its verdict: the response may have brought more than the record has.
    pub has_lost_names: bool,
}

impl Brought {
    /// Whether the response brought this version of the name, or with `None` its removal. A name that the
    /// client gave up is gone, too, and nobody removed it.
    pub fn has(&self, name: &ResourceName, version: Option<Version>) -> bool {
        let is_told = version.is_some() || self.key.0.is_broad() || self.sent.knows_absent(name);
        is_told && self.sent.version_of(name) == version && self.before.version_of(name) != version
    }

    pub(super) fn changes(&self, name: &ResourceName) -> bool {
        self.sent.version_of(name) != self.before.version_of(name)
    }
}

/// A resource that may be the reason for a rejection. Without a version, the response removed it, or the
/// client had given the name up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suspect {
    pub name: ResourceName,
    pub version: Option<Version>,
}

/// The suspects of one rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    pub list: Vec<Suspect>,
    /// The text has these names. Otherwise the list has all that the response changed, up to
    /// [`SUSPECTS_MAX`].
    pub are_named: bool,
    /// The response changed more resources than the list has, or may have.
    pub has_more: bool,
}

impl Suspects {
    /// Whether the client blames each resource of the list (QUA-2): its words name them, or the response
    /// changed nothing else.
    pub fn are_blamed(&self) -> bool {
        self.are_named || self.list.len() == 1 && !self.has_more
    }
}

impl Brought {
    /// The content that a rejected response brought to a part; `None` if the same as before. `newest`: the
    /// content with all messages of an unfinished answer; `is_latest`: no later response is unanswered.
    pub(super) fn by_response(
        part: &Part,
        nonce: u64,
        newest: Option<&Arc<View>>,
        stages: &Stages,
        is_latest: bool,
    ) -> Option<Brought> {
        let sent = stages.after(nonce, part).or(newest).unwrap_or(&part.held).clone();
        let before = part.answered_content();
        let before = match is_latest {
            true => before,
            false => stages.before(nonce, part).unwrap_or(before),
        };
        let before = part.before_rejected(before.clone(), &sent);
        (before.id() != sent.id()).then(|| Brought { key: part.key(), before, sent })
    }
}

impl Nack {
    /// The names of the rejected response in the text, in the order of the text. `has`: whether the client
    /// has a name now.
    pub(super) fn names_in_text(&self, has: impl Fn(&ResourceName) -> bool) -> Vec<ResourceName> {
        let is_brought = |name: &ResourceName| {
            self.brought.iter().any(|brought| brought.sent.has(name) || brought.before.has(name))
        };
        names_in(&self.status.message, |name| is_brought(name) || has(name))
    }

    /// Whether a name is suspected. `named`: the names in the text. Of an older response than the latest the
    /// changed names are not known, so that each is suspected.
    pub fn suspects(&self, name: &ResourceName, named: &[ResourceName]) -> bool {
        if !named.is_empty() {
            return named.contains(name);
        }
        self.brought.is_empty() || self.brought.iter().any(|brought| brought.changes(name))
    }
}

impl Suspects {
    /// The suspects of a NACK, apart from the versions that other clients accepted. `named`: the names in its
    /// text.
    pub(super) fn new(nack: &Nack, named: Vec<ResourceName>) -> Suspects {
        // The client may have other content by now under a name that it gave up before its verdict (QUA-2).
        let version =
            |name: &ResourceName| nack.brought.iter().find_map(|brought| known_version(&brought.sent, name));
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

/// The version of a name, unless the record does not tell which one the client has.
fn known_version(view: &View, name: &ResourceName) -> Option<Version> {
    HeldVersion::of(view, name)?.known()
}

/// The names in a text, as whole words.
fn names_in(text: &str, is_known: impl Fn(&ResourceName) -> bool) -> Vec<ResourceName> {
    let is_edge = |c: char| c.is_whitespace() || "'\"`,;()[]{}<>".contains(c);
    let mut names: Vec<ResourceName> = Vec::new();
    for word in text.split(is_edge).filter(|word| !word.is_empty()) {
        let trimmed = word.trim_end_matches([':', '.', '!']);
        for name in [word, trimmed].map(ResourceName::new) {
            if names.len() < NAMED_MAX && !names.contains(&name) && is_known(&name) {
                names.push(name);
            }
        }
    }
    names
}
