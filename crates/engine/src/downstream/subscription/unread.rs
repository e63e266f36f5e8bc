//! Content on its way to a delta client that has given it up.
//!
//! A client may give a name up and ask for it again, by itself, by a glob or by the wildcard, before it reads
//! an older response. The client keeps what the response brings then. So the relay counts such content as
//! held in an unknown version: the client is sent the present content, or told that there is none (NAM-16,
//! DEL-11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::authority::{Authority, NameGroup};
use crate::collection::{Collection, CollectionKind, NameSet};
use crate::downstream::memory::weight;
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::parts::PartList;
use crate::downstream::subscription::stages::Stages;
use sluice_xds::{ResourceName, Version};

/// The number of contents of a client that are searched for aliases. Each search costs as much as the names.
const STAGES_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct Unread {
    /// Names that the client gave up, each with the nonce of the latest response that may bring it.
    given_up: BTreeMap<ResourceName, u64>,
    /// Virtual hosts only: names with content that the client had not read when it asked for further names.
    /// The content may list these, and the client keeps it for them (ALI-1).
    read_late: BTreeSet<ResourceName>,
}

impl Unread {
    pub(super) fn bytes(&self) -> usize {
        self.given_up.keys().chain(&self.read_late).map(weight).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given_up.is_empty() && self.read_late.is_empty()
    }

    /// The client has read the responses up to this one.
    pub(super) fn end(&mut self, nonce: Option<u64>, is_waiting: bool) {
        self.given_up.retain(|_, brought| is_waiting && Some(*brought) > nonce);
    }

    /// Notes names that the client gives up. `latest`: the nonce of the latest response.
    pub(super) fn note_given_up(&mut self, names: Vec<ResourceName>, latest: u64) {
        self.given_up.extend(names.into_iter().map(|name| (name, latest)));
    }

    /// Notes names whose content the client reads after it asked for further names.
    pub(super) fn note_read_late(&mut self, mut names: BTreeSet<ResourceName>) {
        self.read_late.append(&mut names);
    }

    /// The given-up names of these authorities.
    pub(super) fn given_up_in(
        &self,
        authorities: &BTreeSet<Authority>,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
    ) -> Vec<ResourceName> {
        let names = self.given_up.keys().filter(|name| authorities.contains(&group_of(name).authority));
        names.cloned().collect()
    }

    /// The names among these whose content the client read late.
    pub(super) fn take_read_late(&mut self, names: &[ResourceName]) -> BTreeSet<ResourceName> {
        names.iter().filter_map(|name| self.read_late.take(name)).collect()
    }

    /// A part covers more than `before`: given-up names that it covers now count as held in an unknown
    /// version.
    pub(super) fn expect(&self, parts: &mut PartList, key: Key, before: Option<&Collection>) {
        let Some(at) = parts.iter().position(|part| part.key() == key) else { return };
        let collection = &parts[at].collection;
        let was_covered = |name: &ResourceName| before.is_some_and(|before| before.covers(name));
        let is_new = |name: &&ResourceName| collection.covers(name) && !was_covered(name);
        let holds = |part: &Part, name: &ResourceName| part.collection.covers(name) && part.held.has(name);
        let is_held = |name: &ResourceName| parts.iter().any(|part| holds(part, name));
        let names: Vec<_> =
            self.given_up.keys().filter(is_new).filter(|name| !is_held(name)).cloned().collect();
        if !names.is_empty() {
            parts[at].hold_also(names.iter().map(|name| (name, Version::default())));
        }
    }
}

/// Whether unanswered responses have content of a name.
pub(super) fn is_unread(parts: &PartList, stages: &Stages, name: &ResourceName) -> bool {
    let mut named = parts.iter().filter(|part| !part.is_broad() && part.held.has(name));
    named.any(|part| stages.leave_open(part, name))
}

/// The members of a glob or of the wildcard with content in unanswered responses.
pub(super) fn unread_members(
    parts: &PartList,
    stages: &Stages,
    kind: CollectionKind,
    is_member: impl Fn(&ResourceName) -> bool,
) -> Vec<ResourceName> {
    let parts = parts.iter().filter(|part| part.kind() == kind);
    let names = parts.flat_map(|part| part.held.names().map(move |name| (part, name)));
    let names = names.filter(|(part, name)| is_member(name) && stages.leave_open(part, name));
    names.map(|(_, name)| name.clone()).collect()
}

/// The names of these authorities with content that the client has not answered for. A resource lists names
/// of its own authority only.
pub(super) fn read_late(
    parts: &PartList,
    stages: &Stages,
    authorities: &BTreeSet<Authority>,
) -> BTreeSet<ResourceName> {
    let mut late = BTreeSet::new();
    let named = parts.iter().filter(|part| !part.is_broad());
    for part in named.filter(|part| authorities.contains(&part.group.authority)) {
        for view in stages.earlier(part) {
            late.extend(view.differing(&part.held).filter(|name| part.held.has(name)).cloned());
        }
    }
    late
}

/// The client gave up names, or globs with their members. What it had of them before the unanswered responses
/// is nothing that it has accepted, if it asks for them again (TRU-1).
pub(super) fn let_go_unanswered(
    parts: &mut PartList,
    mut stages: Option<&mut Stages>,
    given_up: &[ResourceName],
) {
    let globs: BTreeSet<_> = given_up.iter().filter(|name| name.is_glob()).collect();
    for kind in [CollectionKind::Names, CollectionKind::Globs] {
        let parts = parts.iter_mut().filter(|part| part.kind() == kind);
        let before = parts.filter_map(|part| part.before.as_mut());
        let staged = stages.as_deref_mut().into_iter().flat_map(|stages| stages.of_kind_mut(kind));
        for view in before.chain(staged) {
            let is_member = |name: &&ResourceName| name.glob().is_some_and(|glob| globs.contains(&glob));
            let names: Vec<_> = match kind {
                CollectionKind::Globs if globs.is_empty() => Vec::new(),
                CollectionKind::Globs => view.names().filter(is_member).cloned().collect(),
                _ => given_up.iter().filter(|name| view.has(name)).cloned().collect(),
            };
            names.iter().for_each(|name| Arc::make_mut(view).let_go(name));
        }
    }
}

/// The names among these under which the client may keep a resource for an alias (ALI-2): names with content
/// that the client has not answered for, and names that had the same content as another requested name
/// before. The client keeps the resource until it reads that the alias has moved.
pub(super) fn shared_by_aliases(
    parts: &PartList,
    stages: &Stages,
    given_up: &[ResourceName],
) -> BTreeSet<ResourceName> {
    let mut shared = BTreeSet::new();
    let given_up: BTreeSet<_> = given_up.iter().collect();
    for part in parts.iter().filter(|part| !part.is_broad()) {
        // Unread content may list any of the names that stay.
        let stays = |names: &Arc<NameSet>| names.iter().any(|name| !given_up.contains(name));
        if part.collection.names().is_some_and(stays) {
            let unread = given_up.iter().filter(|name| part.held.has(name) && stages.leave_open(part, name));
            shared.extend(unread.map(|name| (*name).clone()));
        }
        for view in stages.earlier(part).take(STAGES_MAX) {
            let version = |name: &ResourceName| view.version_of(name);
            let gone: BTreeSet<_> = given_up.iter().filter_map(|name| version(name)).collect();
            let stay = view.names().filter(|name| part.collection.covers(name) && !given_up.contains(name));
            let stay: BTreeSet<_> =
                stay.filter_map(version).filter(|version| gone.contains(version)).collect();
            let is_shared =
                |name: &ResourceName| version(name).is_some_and(|version| stay.contains(&version));
            shared.extend(given_up.iter().filter(|name| is_shared(name)).map(|name| (*name).clone()));
        }
    }
    shared
}
