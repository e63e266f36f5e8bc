//! The glob collections of one type: of each its members, and from when on they are all there (NAM-14 to NAM-16).

use std::collections::{BTreeMap, BTreeSet};

use super::api::{Cause, Changes, Event, Scope};
use super::names::{Held, is_heartbeat};
use super::order::Versions;
use super::response::{Digest, Verdict, is_invalid, means_absence};
use super::said::Said;
use super::settling::Settling;
use super::wildcard::Wildcard;
use crate::engine::Time;
use crate::xds::{Received, ResourceError, ResourceName, TypeUrl, Variant};

/// All globs of one type. No resource timer runs for them: only the server can say that a collection is empty (TMR-9).
#[derive(Debug, Default)]
pub(super) struct Globs {
    wanted: BTreeMap<ResourceName, Wildcard>,
    /// Those whose members may still be on their way.
    settling: BTreeMap<ResourceName, Settling>,
    /// The server speaks SotW, in which globs can't be asked for, and this was told.
    pub(super) is_unserved: bool,
}

impl Globs {
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(super) fn contains(&self, glob: &ResourceName) -> bool {
        self.wanted.contains_key(glob)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.wanted.keys()
    }

    /// Whether the glob is new.
    pub(super) fn insert(&mut self, glob: ResourceName) -> bool {
        let is_new = !self.wanted.contains_key(&glob);
        self.wanted.entry(glob).or_default();
        is_new
    }

    /// Whether the glob was there.
    pub(super) fn remove(&mut self, glob: &ResourceName) -> bool {
        self.settling.remove(glob);
        self.wanted.remove(glob).is_some()
    }

    /// What `initial_resource_versions` says: the members, under their own names (DEL-32).
    pub(super) fn versions(&self) -> BTreeMap<ResourceName, String> {
        let members = self.wanted.values().flat_map(|glob| &glob.members);
        let held = members.filter(|(_, held)| held.restate);
        held.map(|(name, held)| (name.clone(), held.version.to_string())).collect()
    }

    pub(super) fn forget_versions(&mut self) {
        self.each_held(|_, held| held.forget_version());
    }

    pub(super) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut Held)) {
        for (name, held) in self.wanted.values_mut().flat_map(|glob| &mut glob.members) {
            visit(name, held);
        }
    }

    /// The members that a wanted glob had before the relay was restarted, when it was known as a whole.
    pub(super) fn resume(
        &mut self,
        glob: &ResourceName,
        members: impl Iterator<Item = (ResourceName, Held)>,
    ) {
        if let Some(glob) = self.wanted.get_mut(glob) {
            glob.members.extend(members);
            glob.complete = true;
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&ResourceName, &Held)> {
        self.wanted.values().flat_map(|glob| &glob.members)
    }

    /// The first request on a stream, which restates all members, is written now.
    pub(super) fn restated(&mut self) {
        self.wanted.values_mut().for_each(Wildcard::restated);
    }

    /// These stand in the request with this number, of those of the type on the stream.
    pub(super) fn written(&mut self, globs: &BTreeSet<ResourceName>, number: u64) {
        for name in globs {
            if let Some(glob) = self.wanted.get_mut(name) {
                glob.asked = Some(number);
            }
        }
    }

    /// The number of the request that asked for a wanted glob.
    pub(super) fn asked_in(&self, glob: &ResourceName) -> Option<u64> {
        self.wanted.get(glob)?.asked
    }

    /// A mark says of a wanted glob that all of its members were told.
    pub(super) fn mark(&mut self, glob: ResourceName) {
        if self.wanted.get(&glob).is_some_and(|members| !members.is_certain()) {
            self.settling.entry(glob).or_default().mark();
        }
    }

    pub(super) fn stream_ended(&mut self) {
        self.settling.clear();
        self.is_unserved = false;
        self.wanted.values_mut().for_each(Wildcard::stream_ended);
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.settling.values().filter_map(|settling| settling.due()).min()
    }

    pub(super) fn each_settling(&mut self, visit: impl FnMut(&mut Settling)) {
        self.settling.values_mut().for_each(visit);
    }

    /// The globs that are known as a whole by now, if any.
    pub(super) fn settle_proven(&mut self, type_url: &TypeUrl) -> Option<Changes> {
        let proven =
            self.settling.iter_mut().filter_map(|(name, settling)| settling.settle().then_some(name));
        let proven: Vec<_> = proven.cloned().collect();
        if proven.is_empty() {
            return None;
        }
        let mut changes = Changes::new(type_url, Scope::Globs);
        for name in proven {
            self.settle(name, &mut changes);
        }
        Some(changes)
    }

    fn settle(&mut self, name: ResourceName, changes: &mut Changes) {
        self.settling.remove(&name);
        let Some(glob) = self.wanted.get_mut(&name) else { return };
        let gone = glob.settle();
        changes.absent.extend(gone.into_iter().map(|member| (member, Cause::Omitted)));
        changes.settled.push(name);
    }

    /// The time to live of a member ran out (TTL-8).
    pub(super) fn expire(&mut self, member: &ResourceName) {
        if let Some((_, glob)) = self.of(member) {
            glob.remove(member);
        }
    }

    /// The glob that a name is a member of, if it is wanted. What a server sends beyond that is ignored (NAM-15).
    fn of(&mut self, member: &ResourceName) -> Option<(ResourceName, &mut Wildcard)> {
        let name = member.glob()?;
        let glob = self.wanted.get_mut(&name)?;
        Some((name, glob))
    }
}

/// One response, applied to globs.
pub(super) struct GlobsStep<'a> {
    globs: &'a mut Globs,
    said: &'a Said,
    changes: Changes,
    /// Globs of which the response brings or takes members.
    answered: BTreeSet<ResourceName>,
    versions: Versions,
}

impl<'a> GlobsStep<'a> {
    pub(super) fn new(globs: &'a mut Globs, said: &'a Said, type_url: &TypeUrl) -> Self {
        let changes = Changes::new(type_url, Scope::Globs);
        let (answered, versions) = Default::default();
        GlobsStep { globs, said, changes, answered, versions }
    }

    pub(super) fn run(
        mut self,
        digest: Digest,
        verdict: &Verdict,
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
        let Some((name, glob)) = self.globs.of(&received.name) else { return };
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
        glob.hold(&received.name, Held::new(&received, resource, true));
        self.changes.present.push(resource.clone());
        self.answered.insert(name);
    }

    /// Of a glob or of a member (ERR-7). Where a resource came along with its error (against ERR-2), it wins.
    fn take_errors(&mut self, errors: Vec<ResourceError>, events: &mut Vec<Event>) {
        if errors.is_empty() {
            return;
        }
        let brought: BTreeSet<_> =
            self.changes.present.iter().map(|resource| resource.name.clone()).collect();
        for error in errors {
            let is_wanted = self.globs.contains(&error.name) || self.globs.of(&error.name).is_some();
            let is_early = means_absence(&error) && self.said.enter.contains(&error.name);
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

    /// A member that the response mentions without bringing it stays.
    fn confirm(&mut self, member: Option<&ResourceName>) {
        if let Some(member) = member
            && let Some((_, glob)) = self.globs.of(member)
        {
            glob.confirm(member);
        }
    }

    /// A member is gone, or under the glob's own name all of them (NAM-16).
    fn lose(&mut self, name: &ResourceName, cause: Cause) {
        if let Some((glob_name, glob)) = self.globs.of(name) {
            if glob.remove(name) {
                self.changes.absent.push((name.clone(), cause));
            }
            self.answered.insert(glob_name);
            return;
        }
        // One that was not asked for yet can't be meant.
        if self.said.enter.contains(name) {
            return;
        }
        let Some(glob) = self.globs.wanted.get_mut(name) else { return };
        let members: Vec<_> = glob.members.keys().cloned().collect();
        for member in &members {
            glob.remove(member);
        }
        self.changes.absent.extend(members.into_iter().map(|member| (member, cause)));
        self.globs.settle(name.clone(), &mut self.changes);
        self.answered.remove(name);
    }

    fn settle(&mut self, size: usize, now: Time) {
        if self.said.has_marks {
            return;
        }
        // Those that a response without use has interrupted go on, whichever glob the next one is about.
        let interrupted = self.globs.settling.iter().filter(|(_, settling)| !settling.is_running());
        self.answered.extend(interrupted.map(|(name, _)| name.clone()));
        for name in std::mem::take(&mut self.answered) {
            let Some(glob) = self.globs.wanted.get(&name) else { continue };
            if self.said.enter.contains(&name) {
                continue;
            }
            if !glob.is_certain() {
                self.globs.settling.entry(name).or_default().answered(size, true, now);
            }
        }
    }
}
