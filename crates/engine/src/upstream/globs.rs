//! The glob collections of one type: the members of each glob, and the completeness of the membership (NAM-14
//! to NAM-16).

use std::collections::{BTreeMap, BTreeSet};

use super::api::{Cause, Changes, Event};
use super::exchange::TypeExchange;
use super::names::{HeldResource, is_heartbeat};
use super::order::VersionCheck;
use super::request_size::PendingNames;
use super::response::{ResponseDigest, ResponseVerdict, is_invalid, means_absence};
use super::settling::Settling;
use super::wildcard::Wildcard;
use crate::Time;
use crate::collection::CollectionKind;
use sluice_xds::{Received, ResourceError, ResourceName, TypeUrl, Variant};

/// All globs of one type. Globs have no resource timer: only the server can report an empty collection
/// (TMR-9).
#[derive(Debug, Default)]
pub(super) struct Globs {
    sets: BTreeMap<ResourceName, Wildcard>,
    /// Globs with members that may still be outstanding.
    settling: BTreeMap<ResourceName, Settling>,
    /// Some glob was given up on this stream.
    has_left: bool,
    /// The server speaks SotW, which has no requests for globs, and an event reported the globs.
    pub(super) is_unserved: bool,
}

impl Globs {
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn contains(&self, glob: &ResourceName) -> bool {
        self.sets.contains_key(glob)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.sets.keys()
    }

    /// Returns true if the glob is new.
    pub(super) fn insert(&mut self, glob: ResourceName) -> bool {
        let is_new = !self.sets.contains_key(&glob);
        self.sets.entry(glob).or_default();
        is_new
    }

    /// Returns true if the glob was wanted.
    pub(super) fn remove(&mut self, glob: &ResourceName) -> bool {
        self.settling.remove(glob);
        let removed = self.sets.remove(glob);
        self.has_left |= removed.as_ref().is_some_and(|glob| glob.asked.is_some());
        removed.is_some()
    }

    /// The content of `initial_resource_versions`: the members, under their own names (DEL-32).
    pub(super) fn versions(&self) -> BTreeMap<ResourceName, String> {
        let members = self.sets.values().flat_map(|glob| &glob.members);
        let held = members.filter(|(_, held)| held.restate);
        held.map(|(name, held)| (name.clone(), held.version.to_string())).collect()
    }

    pub(super) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut HeldResource)) {
        self.sets.values_mut().for_each(|glob| glob.each_held(&mut visit));
    }

    /// Restores the members that a wanted, completely known glob had before the restart of the relay.
    pub(super) fn resume(
        &mut self,
        glob: &ResourceName,
        members: impl Iterator<Item = (ResourceName, HeldResource)>,
    ) {
        if let Some(glob) = self.sets.get_mut(glob) {
            glob.members.extend(members);
            glob.complete = true;
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&ResourceName, &HeldResource)> {
        self.sets.values().flat_map(|glob| &glob.members)
    }

    /// Records the write of the first request on a stream, which restates all members.
    pub(super) fn restate(&mut self) {
        self.sets.values_mut().for_each(Wildcard::restate);
    }

    /// Members that the request does not claim, because it would be too long.
    pub(super) fn doubt(&mut self, members: &BTreeSet<ResourceName>) {
        for member in members {
            if let Some((_, glob)) = self.glob_of(member) {
                glob.doubt([member.clone()]);
            }
        }
    }

    /// Records the number of the request that lists the globs, counted by type and stream.
    pub(super) fn note_request(&mut self, globs: &BTreeSet<ResourceName>, number: u64) {
        for name in globs {
            if let Some(glob) = self.sets.get_mut(name) {
                glob.asked = Some(number);
                if self.has_left {
                    let (has_begun, is_answered) = (false, false);
                    self.settling.insert(name.clone(), Settling::Retaken { has_begun, is_answered });
                }
            }
        }
    }

    /// The number of the request that asked for a wanted glob.
    pub(super) fn request_number(&self, glob: &ResourceName) -> Option<u64> {
        self.sets.get(glob)?.asked
    }

    /// A mark reports that all members of a wanted glob were sent.
    pub(super) fn mark(&mut self, glob: ResourceName) {
        if self.sets.get(&glob).is_some_and(|members| !members.is_certain()) {
            self.settling.entry(glob).or_default().mark();
        }
    }

    pub(super) fn end_stream(&mut self) {
        self.settling.clear();
        self.has_left = false;
        self.is_unserved = false;
        self.sets.values_mut().for_each(Wildcard::end_stream);
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.settling.values().filter_map(|settling| settling.due()).min()
    }

    pub(super) fn each_settling(&mut self, visit: impl FnMut(&mut Settling)) {
        self.settling.values_mut().for_each(visit);
    }

    /// Settles the globs that are completely known by now, if any.
    pub(super) fn settle_proven(&mut self, type_url: &TypeUrl) -> Option<Changes> {
        let proven =
            self.settling.iter_mut().filter_map(|(name, settling)| settling.settle().then_some(name));
        let proven: Vec<_> = proven.cloned().collect();
        if proven.is_empty() {
            return None;
        }
        let mut changes = Changes::new(type_url, CollectionKind::Globs);
        for name in proven {
            self.settle(name, &mut changes);
        }
        Some(changes)
    }

    fn settle(&mut self, name: ResourceName, changes: &mut Changes) {
        self.settling.remove(&name);
        let Some(glob) = self.sets.get_mut(&name) else { return };
        let gone = glob.settle();
        changes.absent.extend(gone.into_iter().map(|member| (member, Cause::Omitted)));
        changes.settled.push(name);
    }

    /// The time to live of a member expired (TTL-8).
    pub(super) fn expire(&mut self, member: &ResourceName) {
        if let Some((_, glob)) = self.glob_of(member) {
            glob.remove(member);
        }
    }

    /// The glob of a member, if the glob is wanted. The machine ignores members of unwanted globs (NAM-15).
    fn glob_of(&mut self, member: &ResourceName) -> Option<(ResourceName, &mut Wildcard)> {
        let name = member.glob()?;
        let glob = self.sets.get_mut(&name)?;
        Some((name, glob))
    }
}

/// One response, applied to globs.
pub(super) struct GlobsStep<'a> {
    globs: &'a mut Globs,
    pending: &'a PendingNames,
    /// The server marks whole sets.
    has_marks: bool,
    changes: Changes,
    /// Globs with added or removed members in the response.
    answered: BTreeSet<ResourceName>,
    versions: VersionCheck,
}

impl<'a> GlobsStep<'a> {
    pub(super) fn new(globs: &'a mut Globs, exchange: &'a TypeExchange, type_url: &TypeUrl) -> Self {
        let changes = Changes::new(type_url, CollectionKind::Globs);
        let (pending, has_marks) = (&exchange.pending, exchange.has_marks);
        let (answered, versions) = Default::default();
        GlobsStep { globs, pending, has_marks, changes, answered, versions }
    }

    pub(super) fn run(
        mut self,
        digest: ResponseDigest,
        verdict: &ResponseVerdict,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Changes {
        let size = digest.size();
        let proves_membership = !verdict.unidentified && !digest.is_heartbeat();
        for element in digest.resources {
            match element {
                Ok(received) => self.take(received),
                Err(bad) => self.confirm(bad.name.as_ref()),
            }
        }
        for name in &digest.removed {
            self.lose(name, Cause::Removed);
        }
        self.take_errors(digest.errors, events);
        if proves_membership {
            self.settle(size, now);
        }
        events.extend(self.versions.events(&self.changes.type_url));
        self.changes
    }

    fn take(&mut self, received: Received) {
        let Some((name, glob)) = self.globs.glob_of(&received.name) else { return };
        let Some(resource) = &received.resource else {
            let held = glob.members.get(&received.name);
            let is_held = held.is_some();
            if !is_heartbeat(Variant::Delta, held, &received) {
                self.lose(&received.name, Cause::Removed);
            } else if is_held {
                glob.confirm(&received.name);
                self.changes.refreshed.push((received.name, received.ttl));
            }
            return;
        };
        let before = glob.members.get(&received.name);
        self.versions.compare(&received.name, before, &received, resource, Variant::Delta);
        glob.hold(&received.name, HeldResource::new(&received, resource, true));
        self.changes.present.push(resource.clone());
        self.answered.insert(name);
    }

    /// Errors of globs or members (ERR-7). A resource in the same response as its error (against ERR-2) wins.
    fn take_errors(&mut self, errors: Vec<ResourceError>, events: &mut Vec<Event>) {
        if errors.is_empty() {
            return;
        }
        let brought: BTreeSet<_> =
            self.changes.present.iter().map(|resource| resource.name.clone()).collect();
        for error in errors {
            let is_wanted = self.globs.contains(&error.name) || self.globs.glob_of(&error.name).is_some();
            let is_early = means_absence(&error) && self.pending.enter.contains(&error.name);
            if !is_wanted || is_early || brought.contains(&error.name) {
                continue;
            }
            if means_absence(&error) {
                self.lose(&error.name, Cause::NotFound);
            } else {
                self.confirm(Some(&error.name));
            }
            if !is_invalid(&error) {
                events.push(Event::ResourceError { type_url: self.changes.type_url.clone(), error });
            }
        }
    }

    /// A member that the response mentions without a resource stays.
    fn confirm(&mut self, member: Option<&ResourceName>) {
        if let Some(member) = member
            && let Some((_, glob)) = self.globs.glob_of(member)
        {
            glob.confirm(member);
        }
    }

    /// A member is gone or, under the glob's own name, all members are gone (NAM-16).
    fn lose(&mut self, name: &ResourceName, cause: Cause) {
        if let Some((glob_name, glob)) = self.globs.glob_of(name) {
            // The removal of an unknown member may have left before the server read the request for the glob:
            // an answer brings members, removes presented members, or removes the glob itself.
            if glob.remove(name) {
                self.changes.absent.push((name.clone(), cause));
                self.answered.insert(glob_name);
            }
            return;
        }
        // The server cannot mean a glob that no request lists.
        if self.pending.enter.contains(name) {
            return;
        }
        let Some(glob) = self.globs.sets.get_mut(name) else { return };
        let members: Vec<_> = glob.members.keys().cloned().collect();
        for member in &members {
            glob.remove(member);
        }
        self.changes.absent.extend(members.into_iter().map(|member| (member, cause)));
        self.globs.settle(name.clone(), &mut self.changes);
        self.answered.remove(name);
    }

    fn settle(&mut self, size: usize, now: Time) {
        if self.has_marks {
            return;
        }
        // Globs that an unusable response interrupted continue, whichever glob the next response is about.
        let interrupted = self.globs.settling.iter().filter(|(_, settling)| !settling.is_running());
        self.answered.extend(interrupted.map(|(name, _)| name.clone()));
        for name in std::mem::take(&mut self.answered) {
            let Some(glob) = self.globs.sets.get(&name) else { continue };
            if self.pending.enter.contains(&name) {
                continue;
            }
            if !glob.is_certain() {
                self.globs.settling.entry(name).or_default().note_response(size, true, now);
            }
        }
    }
}
