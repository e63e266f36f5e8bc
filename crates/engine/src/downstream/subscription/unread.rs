//! Content on its way to a delta client that has given it up.
//!
//! A client may give a name up and ask for it again, by itself, by a glob or by the wildcard, before it reads an older
//! response. The client keeps what the response brings then. So the relay counts such content as held in an unknown version:
//! the client is sent the present content, or told that there is none (NAM-16, DEL-11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::authority::{Authority, NameGroup};
use crate::collection::{Collection, CollectionKind, NameSet};
use crate::downstream::memory::weight;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::{Key, Part};
use crate::view::View;
use sluice_xds::{Kind, ResourceName, Version};

/// The number of contents of a client that are searched for aliases. Each search costs as much as the names.
const STAGES_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct Unread {
    /// Names that the client gave up, each with the nonce of the latest response that may bring it.
    given_up: BTreeMap<ResourceName, u64>,
    /// Virtual hosts only: names with content that the client had not read when it asked for further names. The content may
    /// list these, and the client keeps it for them (ALI-1).
    read_late: BTreeSet<ResourceName>,
}

impl Unread {
    pub(super) fn bytes(&self) -> usize {
        self.given_up.keys().chain(&self.read_late).map(weight).sum()
    }
}

impl Subscription {
    /// The client has read the responses up to this one.
    pub(super) fn end_unread(&mut self, nonce: Option<u64>, is_waiting: bool) {
        let Some(unread) = &mut self.unread else { return };
        unread.given_up.retain(|_, brought| is_waiting && Some(*brought) > nonce);
        if unread.given_up.is_empty() && unread.read_late.is_empty() {
            self.unread = None;
        }
    }

    /// Notes a name that the client gives up, if unanswered responses have content of it.
    pub(super) fn note_unread(&mut self, name: &ResourceName) {
        let Some(latest) = self.begin_to_note() else { return };
        let mut named = self.parts.iter().filter(|part| !part.is_broad() && part.held.has(name));
        if named.any(|part| self.is_unanswered(part, name)) {
            self.unread.get_or_insert_default().given_up.insert(name.clone(), latest);
        }
    }

    /// As [`Self::note_unread`], for the members of a glob or of the wildcard.
    pub(super) fn note_unread_members(
        &mut self,
        kind: CollectionKind,
        is_member: impl Fn(&ResourceName) -> bool,
    ) {
        let Some(latest) = self.begin_to_note() else { return };
        let parts = self.parts.iter().filter(|part| part.kind() == kind);
        let names = parts.flat_map(|part| part.held.names().map(move |name| (part, name)));
        let names = names.filter(|(part, name)| is_member(name) && self.is_unanswered(part, name));
        let names: Vec<_> = names.map(|(_, name)| (name.clone(), latest)).collect();
        if !names.is_empty() {
            self.unread.get_or_insert_default().given_up.extend(names);
        }
    }

    /// The client asks for further names, of these authorities. A resource lists names of its own authority only.
    pub(super) fn note_read_late(
        &mut self,
        of: &BTreeSet<Authority>,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
    ) {
        if of.is_empty() || self.type_url.kind() != Kind::VirtualHost || self.begin_to_note().is_none() {
            return;
        }
        let mut late = BTreeSet::new();
        for part in self.parts.iter().filter(|part| !part.is_broad() && of.contains(&part.group.authority)) {
            for view in self.earlier(part) {
                late.extend(view.differing(&part.held).filter(|name| part.held.has(name)).cloned());
            }
        }
        if !late.is_empty() {
            self.unread.get_or_insert_default().read_late.append(&mut late);
        }
        // Content on its way that the client has given up may list the further names, too.
        let given_up = self.unread.iter().flat_map(|unread| unread.given_up.keys());
        let given_up = given_up.filter(|name| of.contains(&group_of(name).authority));
        let given_up: Vec<_> = given_up.cloned().collect();
        given_up.iter().for_each(|name| self.depart(name));
    }

    /// The client gave names up. Returns those that had the same content as another requested name.
    pub(super) fn part_with(&mut self, given_up: &[ResourceName]) -> BTreeSet<ResourceName> {
        let shared = self.shared(given_up);
        self.let_go_unanswered(given_up);
        shared
    }

    /// The client gave up names, or globs with their members. What it had of them before the unanswered responses is nothing that it
    /// has accepted, if it asks for them again (TRU-1).
    pub(super) fn let_go_unanswered(&mut self, given_up: &[ResourceName]) {
        if given_up.is_empty() || !self.nonces.is_waiting() {
            return;
        }
        self.nonces.lose_names();
        let globs: BTreeSet<_> = given_up.iter().filter(|name| name.is_glob()).collect();
        for kind in [CollectionKind::Names, CollectionKind::Globs] {
            let parts = self.parts.iter_mut().filter(|part| part.kind() == kind);
            let before = parts.filter_map(|part| part.before.as_mut());
            for view in before.chain(self.stages.of_kind_mut(kind)) {
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

    /// The nonce of the latest response, if some response is unanswered.
    fn begin_to_note(&mut self) -> Option<u64> {
        let latest = self.nonces.latest().filter(|_| self.nonces.is_waiting())?;
        // The messages sent so far count.
        self.interrupt();
        Some(latest)
    }

    fn is_unanswered(&self, part: &Part, name: &ResourceName) -> bool {
        let held = part.held.version_of(name);
        self.earlier(part).any(|view| view.version_of(name) != held)
    }

    /// The contents of a part before the unanswered responses.
    fn earlier<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a Arc<View>> {
        part.before.iter().chain(self.stages.of(part))
    }

    /// The names among these under which the client may keep a resource for an alias (ALI-2): names with content that the
    /// client has not answered for, or had not when it asked for others, and names that had the same content as another
    /// requested name before. The client keeps the resource until it reads that the alias has moved.
    fn shared(&mut self, given_up: &[ResourceName]) -> BTreeSet<ResourceName> {
        let mut shared = BTreeSet::new();
        if given_up.is_empty() || self.type_url.kind() != Kind::VirtualHost {
            return shared;
        }
        if let Some(unread) = &mut self.unread {
            shared.extend(given_up.iter().filter_map(|name| unread.read_late.take(name)));
        }
        if !self.nonces.is_waiting() {
            return shared;
        }
        let given_up: BTreeSet<_> = given_up.iter().collect();
        for part in self.parts.iter().filter(|part| !part.is_broad()) {
            // Unread content may list any of the names that stay.
            let stays = |names: &Arc<NameSet>| names.iter().any(|name| !given_up.contains(name));
            if part.collection.names().is_some_and(stays) {
                let unread =
                    given_up.iter().filter(|name| part.held.has(name) && self.is_unanswered(part, name));
                shared.extend(unread.map(|name| (*name).clone()));
            }
            for view in self.earlier(part).take(STAGES_MAX) {
                let versions = |name: &ResourceName| view.version_of(name);
                let gone: BTreeSet<_> = given_up.iter().filter_map(|name| versions(name)).collect();
                let stay =
                    view.names().filter(|name| part.collection.covers(name) && !given_up.contains(name));
                let stay: BTreeSet<_> =
                    stay.filter_map(versions).filter(|version| gone.contains(version)).collect();
                let is_shared = |name: &ResourceName| versions(name).is_some_and(|own| stay.contains(&own));
                shared.extend(given_up.iter().filter(|name| is_shared(name)).map(|name| (*name).clone()));
            }
        }
        shared
    }

    /// A part covers more than `before`.
    pub(super) fn expect_unread(&mut self, key: Key, before: Option<&Collection>) {
        let Some(unread) = &self.unread else { return };
        let Some(at) = self.parts.iter().position(|part| part.key() == key) else { return };
        let collection = &self.parts[at].collection;
        let was_covered = |name: &ResourceName| before.is_some_and(|before| before.covers(name));
        let is_new = |name: &&ResourceName| collection.covers(name) && !was_covered(name);
        let holds = |part: &Part, name: &ResourceName| part.collection.covers(name) && part.held.has(name);
        let is_held = |name: &ResourceName| self.parts.iter().any(|part| holds(part, name));
        let names: Vec<_> =
            unread.given_up.keys().filter(is_new).filter(|name| !is_held(name)).cloned().collect();
        if !names.is_empty() {
            self.parts[at].hold_also(names.iter().map(|name| (name, Version::default())));
        }
    }
}
