//! The files of a directory that serve a source.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Time;
use crate::source::api::is_mass;
use crate::time::ReceivedAt;
use crate::upstream::{Event, Hold};
use sluice_xds::{Code, Resource, ResourceName, Status, TypeUrl};

/// The resources of one type by name.
pub type FileMembers = BTreeMap<ResourceName, Arc<Resource>>;

/// The last good state of a directory; `None` until there is a good state.
#[derive(Debug, Default)]
pub struct Files {
    state: Option<BTreeMap<TypeUrl, FileMembers>>,
    /// The same resources by alias (ALI-2).
    by_alias: BTreeMap<TypeUrl, FileMembers>,
    /// The time of the last good state.
    read_at: Time,
    is_nothing: bool,
    refusal: Option<Arc<Status>>,
    /// The treatment of a mass deletion (FU18). `None`: it is obeyed at once.
    hold: Option<Hold>,
    /// The members of the state whose deletion is held back.
    held: BTreeMap<TypeUrl, HeldBack>,
    /// The directory cannot be read, so that it cannot restore a resource either.
    is_bad: bool,
}

#[derive(Debug)]
struct HeldBack {
    /// The start of the current, unbroken hold.
    since: Time,
    /// The end of each hold; `None` until the operator confirms.
    until: BTreeMap<ResourceName, Option<Time>>,
}

impl Files {
    /// No server is asked, for this reason: all names stay unknown.
    pub fn refused(why: Status) -> Files {
        Files { refusal: Some(Arc::new(why)), ..Files::default() }
    }

    /// A server that is known to have no resources.
    pub fn nothing() -> Files {
        Files { state: Some(BTreeMap::new()), is_nothing: true, ..Files::default() }
    }

    /// The reason if no server can be asked for a name (FED-3).
    pub fn asks_nobody(&self, name: &ResourceName) -> Option<Arc<Status>> {
        let text = || match name.authority() {
            Some(authority) => format!("no server is configured for the authority {authority:?}"),
            None => "there is no server that could be asked for it".to_owned(),
        };
        let nothing = || self.is_nothing.then(|| Arc::new(Status::new(Code::NotFound, text())));
        self.refusal.clone().or_else(nothing)
    }

    /// The time of receipt of resources that no session wanted when they were read.
    pub(in crate::source) fn read_at(&self) -> ReceivedAt {
        self.read_at.into()
    }

    /// Whether there has been a good state.
    pub(in crate::source) fn is_read(&self) -> bool {
        self.state.is_some()
    }

    /// Sets the treatment of further mass deletions.
    pub fn set_hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// The directory cannot be read. The state stays.
    pub(in crate::source) fn set_bad(&mut self) {
        self.is_bad = true;
    }

    /// Replaces the state, but for resources whose mass deletion is held back. Indexes the resources by name
    /// and by alias.
    pub fn replace(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>, now: Time) -> Vec<Event> {
        self.read_at = now;
        self.is_bad = false;
        let mut types: BTreeMap<TypeUrl, FileMembers> = BTreeMap::new();
        for (type_url, resources) in state {
            let members = types.entry(type_url).or_default();
            members.extend(resources.into_iter().map(|resource| (resource.name.clone(), resource)));
        }
        let mut events = Vec::new();
        for (type_url, before) in self.state.take().unwrap_or_default() {
            let members = types.entry(type_url.clone()).or_default();
            self.hold_back(&type_url, before, members, now, &mut events);
        }
        self.set_state(types);
        events
    }

    /// Adds the held-back members to the new members of a type.
    fn hold_back(
        &mut self,
        type_url: &TypeUrl,
        before: FileMembers,
        members: &mut FileMembers,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        let mut until = self.held.remove(type_url).map(|held| (held.since, held.until));
        let standing = before.len() - until.as_ref().map_or(0, |(_, until)| until.len());
        if let Some((_, until)) = &mut until {
            let count = until.extract_if(.., |name, _| members.contains_key(name)).count();
            if count > 0 {
                events.push(Event::DeletionWithdrawn { type_url: type_url.clone(), count });
            }
        }
        let mut until = until.filter(|(_, until)| !until.is_empty()).unwrap_or((now, BTreeMap::new()));
        let is_fresh = |name: &&ResourceName| !members.contains_key(*name) && !until.1.contains_key(*name);
        let fresh: Vec<_> = before.keys().filter(is_fresh).cloned().collect();
        if let Some(hold) = self.hold
            && is_mass(fresh.len(), standing)
        {
            let (count, left) = (fresh.len(), standing - fresh.len());
            events.push(Event::DeletionHeld { type_url: type_url.clone(), count, left, hold });
            until.1.extend(fresh.into_iter().map(|name| (name, hold.end(now))));
        }
        if until.1.is_empty() {
            return;
        }
        members.extend(before.into_iter().filter(|(name, _)| until.1.contains_key(name)));
        self.held.insert(type_url.clone(), HeldBack { since: until.0, until: until.1 });
    }

    fn set_state(&mut self, types: BTreeMap<TypeUrl, FileMembers>) {
        self.by_alias.clear();
        for (type_url, members) in &types {
            let until = self.held.get(type_url).map(|held| &held.until);
            let is_held = |resource: &Resource| until.is_some_and(|until| until.contains_key(&resource.name));
            // An alias may have moved from a held resource to another one.
            let (held, other): (Vec<_>, Vec<_>) = members.values().partition(|resource| is_held(resource));
            for resource in held.into_iter().chain(other).filter(|resource| !resource.aliases.is_empty()) {
                let aliases = resource.aliases.iter().map(|alias| (alias.clone(), resource.clone()));
                self.by_alias.entry(type_url.clone()).or_default().extend(aliases);
            }
        }
        self.state = Some(types);
    }

    /// The end of the next hold.
    pub(in crate::source) fn poll_timeout(&self) -> Option<Time> {
        self.held.values().flat_map(|held| held.until.values().copied().flatten()).min()
    }

    /// The number of held-back resources of a type.
    pub(in crate::source) fn held_back(&self, type_url: &TypeUrl) -> usize {
        self.held.get(type_url).map_or(0, |held| held.until.len())
    }

    pub(in crate::source) fn held_back_since(&self, type_url: &TypeUrl) -> Option<Time> {
        self.held.get(type_url).map(|held| held.since)
    }

    /// Drops the resources whose hold is over. While the directory cannot be read, the hold starts anew.
    /// Returns the number of dropped resources of each type.
    pub(in crate::source) fn expire(&mut self, now: Time) -> Vec<(TypeUrl, usize)> {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return Vec::new();
        }
        if let (true, Some(hold)) = (self.is_bad, self.hold) {
            let ends = self.held.values_mut().flat_map(|held| held.until.values_mut());
            ends.filter(|end| end.is_some_and(|due| due <= now)).for_each(|end| *end = hold.end(now));
            return Vec::new();
        }
        self.drop_held(|_, end| end.is_some_and(|due| due <= now))
    }

    /// Drops the held-back resources of these types.
    pub(in crate::source) fn confirm(
        &mut self,
        is_meant: impl Fn(&TypeUrl) -> bool,
    ) -> Vec<(TypeUrl, usize)> {
        self.drop_held(|type_url, _| is_meant(type_url))
    }

    fn drop_held(&mut self, is_over: impl Fn(&TypeUrl, Option<Time>) -> bool) -> Vec<(TypeUrl, usize)> {
        let mut types = self.state.take().unwrap_or_default();
        let mut dropped = Vec::new();
        for (type_url, held) in &mut self.held {
            let over = held.until.extract_if(.., |_, end| is_over(type_url, *end));
            let mut count = 0;
            for (name, _) in over {
                count += 1;
                if let Some(members) = types.get_mut(type_url) {
                    members.remove(&name);
                }
            }
            if count > 0 {
                dropped.push((type_url.clone(), count));
            }
        }
        self.held.retain(|_, held| !held.until.is_empty());
        self.set_state(types);
        dropped
    }

    /// The resource of this name, or the resource with this alias. Files have one resource for all
    /// parameters.
    pub fn named(&self, type_url: &TypeUrl, name: &ResourceName) -> Option<Arc<Resource>> {
        if name.is_located() {
            let resource = self.named(type_url, &name.plain().into())?;
            return Some(Arc::new(Resource { name: name.clone(), ..(*resource).clone() }));
        }
        let member = self.members(type_url).flatten().and_then(|members| members.get(name));
        member.or_else(|| self.by_alias.get(type_url)?.get(name)).cloned()
    }

    /// The number of resources of each type.
    pub fn counts(&self) -> impl Iterator<Item = (TypeUrl, usize)> {
        self.state.iter().flatten().map(|(type_url, members)| (type_url.clone(), members.len()))
    }

    /// The members of a type; `None` before the first good state. A type without a file is known to be empty
    /// (FIL-8).
    pub fn members(&self, type_url: &TypeUrl) -> Option<Option<&FileMembers>> {
        self.state.as_ref().map(|types| types.get(type_url))
    }
}
