//! The names that wait for requests, and the size of requests (FU33, ADR 53).
//!
//! A control plane refuses longer messages than it is configured for, by ending the stream: gRPC's default is
//! 4 MiB. A delta request that would be longer is split. Each part waits until the transport has taken the
//! part before ([`Output::Flush`]): a waiting name has no text but the shared one. The parts after the first
//! subscribe only: versions are claimed in the first request of a type on a stream, and the server sends
//! resources without a claim again. A request of the other variant has all names of its type and cannot be
//! split, so that names are left out, and an event reports them.
//!
//! [`Output::Flush`]: super::Output::Flush

use std::collections::{BTreeMap, BTreeSet};

use crate::collection::CollectionKind;
use sluice_xds::{ResourceName, Variant};

/// Bytes around the text of a name: tags and lengths, for names with parameters the fields of a locator.
const AROUND_NAME: usize = 16;
/// Bytes around the texts of a claim.
const AROUND_CLAIM: usize = 24;
/// Bytes around all other fields.
const AROUND: usize = 128;

/// The maximum number of unsubscribed names that the stream remembers.
const UNSUBSCRIBED_MAX: usize = 1000;

/// The bytes left in a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRoom(usize);

impl RequestRoom {
    /// `fixed`: the texts of fields that every part has.
    pub(super) fn new(max: usize, fixed: usize) -> RequestRoom {
        RequestRoom(max.saturating_sub(fixed + AROUND))
    }

    /// Takes the bytes if there is room.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The content of one delta request.
#[derive(Debug, Default)]
pub(super) struct RequestPart {
    pub(super) subscribe: BTreeSet<ResourceName>,
    pub(super) unsubscribe: BTreeSet<ResourceName>,
    pub(super) versions: Vec<(ResourceName, String)>,
    /// Held resources that the first request of the type does not claim.
    pub(super) unclaimed: BTreeSet<ResourceName>,
}

/// The rules of a type for the parts of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartRules {
    /// The kind of the wanted resources; `None` if nothing is wanted.
    pub(super) kind: Option<CollectionKind>,
    /// Names that leave wait for a request with names that enter. istiod takes a request of such a type that
    /// names nothing new for one of nothing at all, and answers by removing all that the stream has.
    pub(super) leaves_in_company: bool,
}

/// The names of one type that wait for the next request on the present stream.
#[derive(Debug, Default)]
pub(super) struct PendingNames {
    /// Wanted names (`*` for the wildcard) that no request lists yet.
    pub(super) enter: BTreeSet<ResourceName>,
    /// The names of `enter` that go before all later ones, in the parts of a long request.
    turn: BTreeSet<ResourceName>,
    /// Unwanted names that the last request lists.
    pub(super) leave: BTreeSet<ResourceName>,
    /// Types with unasked resources: the unsubscribed names of the stream.
    pub(super) unsubscribed: UnsubscribedNames,
    /// SotW: no more names fit into a request.
    pub(super) is_full: bool,
}

impl PendingNames {
    /// The names that a new stream has to ask for.
    pub(super) fn of_new_stream(names: Vec<ResourceName>) -> PendingNames {
        PendingNames { enter: names.into_iter().collect(), ..PendingNames::default() }
    }

    /// A name is no longer wanted. Returns true if no request has listed the name.
    pub(super) fn withdraw(&mut self, name: &ResourceName) -> bool {
        self.turn.remove(name);
        self.enter.remove(name)
    }

    /// Returns true if a change waits for a request.
    pub(super) fn has_news(&self, rules: PartRules) -> bool {
        let leaves = !self.leave.is_empty() && !self.holds_leaving(rules);
        !(self.enter.is_empty() || self.is_full) || leaves
    }

    fn holds_leaving(&self, rules: PartRules) -> bool {
        rules.leaves_in_company && self.enter.is_empty()
    }

    /// The next part of the waiting changes. `versions`: the claims of the request.
    pub(super) fn next_part(
        &mut self,
        rules: PartRules,
        versions: impl FnOnce() -> BTreeMap<ResourceName, String>,
        mut room: RequestRoom,
    ) -> RequestPart {
        if self.holds_leaving(rules) {
            return RequestPart::default();
        }
        let versions = versions();
        let claims = versions.iter().map(|(name, version)| claim_bytes(name, version));
        if room.take(total_bytes(&self.enter) + total_bytes(&self.leave) + claims.sum::<usize>()) {
            self.turn.clear();
            return RequestPart {
                subscribe: std::mem::take(&mut self.enter),
                unsubscribe: std::mem::take(&mut self.leave),
                versions: versions.into_iter().collect(),
                unclaimed: BTreeSet::new(),
            };
        }
        let mut part = RequestPart::default();
        if !rules.leaves_in_company {
            part.unsubscribe = take_some(&mut self.leave, &mut room, true);
        }
        if rules.kind == Some(CollectionKind::Names) {
            self.take_names(&mut part, versions, &mut room);
        } else {
            self.take_sets(&mut part, rules.kind, versions, &mut room);
        }
        part
    }

    /// A claim needs its name in the same request.
    fn take_names(
        &mut self,
        part: &mut RequestPart,
        versions: BTreeMap<ResourceName, String>,
        room: &mut RequestRoom,
    ) {
        for (name, version) in versions {
            let bytes = claim_bytes(&name, &version) + name_bytes(&name);
            if self.enter.contains(&name) && room.take(bytes) {
                self.enter.remove(&name);
                part.subscribe.insert(name.clone());
                part.versions.push((name, version));
            }
        }
        let is_empty = part.subscribe.is_empty() && part.unsubscribe.is_empty();
        part.subscribe.extend(self.take_in_turn(room, is_empty));
    }

    /// A claim needs its glob, or the wildcard, in the same request.
    fn take_sets(
        &mut self,
        part: &mut RequestPart,
        kind: Option<CollectionKind>,
        versions: BTreeMap<ResourceName, String>,
        room: &mut RequestRoom,
    ) {
        part.subscribe = take_some(&mut self.enter, room, part.unsubscribe.is_empty());
        for (name, version) in versions {
            let is_listed = kind == Some(CollectionKind::Wildcard)
                || name.glob().is_some_and(|glob| part.subscribe.contains(&glob));
            if is_listed && room.take(claim_bytes(&name, &version)) {
                part.versions.push((name, version));
            } else {
                part.unclaimed.insert(name);
            }
        }
    }

    /// Takes wanted names while there is room, and earlier ones before later ones: a client that asks for
    /// more and more does not keep the names of others waiting. `is_empty` as in [`take_some`].
    fn take_in_turn(&mut self, room: &mut RequestRoom, is_empty: bool) -> BTreeSet<ResourceName> {
        let mut taken = BTreeSet::new();
        loop {
            if self.turn.is_empty() {
                self.turn.clone_from(&self.enter);
            }
            let Some(name) = self.turn.pop_first() else { break };
            if !self.enter.contains(&name) {
                continue;
            }
            let is_first = is_empty && taken.is_empty();
            if !room.take(name_bytes(&name)) && !is_first {
                self.turn.insert(name);
                break;
            }
            taken.extend(self.enter.take(&name));
        }
        taken
    }

    /// A part that only unsubscribes from these names.
    pub(super) fn leaving_part(&mut self, names: &[ResourceName], mut room: RequestRoom) -> RequestPart {
        let mut leaving = names.iter().filter_map(|name| self.leave.take(name)).collect();
        let unsubscribe = take_some(&mut leaving, &mut room, true);
        self.leave.append(&mut leaving);
        RequestPart { unsubscribe, ..RequestPart::default() }
    }

    /// The names that a request newly lists. `left`: names that stay out of a request with all names.
    pub(super) fn entering(
        &mut self,
        variant: Variant,
        part: RequestPart,
        left: &BTreeSet<ResourceName>,
    ) -> RequestPart {
        if variant == Variant::Delta {
            return part;
        }
        self.leave.clear();
        let mut subscribe = std::mem::take(&mut self.enter);
        for name in left {
            if let Some(name) = subscribe.take(name) {
                self.enter.insert(name);
            }
        }
        RequestPart { subscribe, ..part }
    }

    /// The names of `listed` that fit into a request with all names, and the names that stay out. Names that
    /// the stream has requested go first.
    pub(super) fn fitting(
        &self,
        listed: Vec<ResourceName>,
        mut room: RequestRoom,
    ) -> (Vec<ResourceName>, BTreeSet<ResourceName>) {
        if room.take(total_bytes(&listed)) {
            return (listed, BTreeSet::new());
        }
        let (mut fits, mut left) = (Vec::new(), BTreeSet::new());
        let (new, requested): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|name| self.enter.contains(name));
        for name in requested.into_iter().chain(new) {
            if room.take(name_bytes(&name)) {
                fits.push(name);
            } else {
                left.insert(name);
            }
        }
        (fits, left)
    }

    /// Notes whether names stay out of a request with all names. Returns true if no name stayed out before.
    pub(super) fn is_newly_full(&mut self, left: &BTreeSet<ResourceName>) -> bool {
        let is_full = !left.is_empty();
        std::mem::replace(&mut self.is_full, is_full) != is_full && is_full
    }
}

/// The unsubscribed names of the stream. A late update looks like an unasked resource, and the server no
/// longer counts the name as subscribed (RLY-61).
#[derive(Debug, Default)]
pub(super) struct UnsubscribedNames {
    names: BTreeSet<ResourceName>,
    /// There were more than [`UNSUBSCRIBED_MAX`] names: any name may be one of them.
    is_full: bool,
}

impl UnsubscribedNames {
    pub(super) fn note(
        &mut self,
        unsubscribed: &BTreeSet<ResourceName>,
        subscribed: &BTreeSet<ResourceName>,
    ) {
        self.names.extend(unsubscribed.iter().cloned());
        self.names.retain(|name| !subscribed.contains(name));
        if self.names.len() > UNSUBSCRIBED_MAX {
            (self.names, self.is_full) = (BTreeSet::new(), true);
        }
    }

    pub(super) fn may_have(&self, name: &ResourceName) -> bool {
        self.is_full || self.names.contains(name)
    }
}

fn total_bytes<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> usize {
    names.into_iter().map(name_bytes).sum()
}

fn name_bytes(name: &ResourceName) -> usize {
    name.as_str().len() + AROUND_NAME
}

fn claim_bytes(name: &ResourceName, version: &str) -> usize {
    name.as_str().len() + version.len() + AROUND_CLAIM
}

/// Takes names in order while there is room. `is_empty`: the request has nothing yet, and is to have one name
/// in any case.
fn take_some(
    names: &mut BTreeSet<ResourceName>,
    room: &mut RequestRoom,
    is_empty: bool,
) -> BTreeSet<ResourceName> {
    let mut taken = BTreeSet::new();
    while let Some(name) = names.first() {
        let is_first = is_empty && taken.is_empty();
        if !room.take(name_bytes(name)) && !is_first {
            break;
        }
        taken.extend(names.pop_first());
    }
    taken
}
