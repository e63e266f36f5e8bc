//! The content of another unit, for the first answers of a source (WAV-22).
//!
//! Clients come to a source from another server of their list, with the content of the other server. The
//! first answer of the source is no answer for the clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rule::HoldRule;
use super::stated::{held, member, stated};
use crate::cache::{CachedResource, Known, members};
use crate::collection::CollectionKind;
use crate::gated::Refused;
use crate::snapshot::{Snapshot, TypeSnapshot, WildcardSnapshot};
use crate::upstream::Cause;
use sluice_xds::{ResourceName, TypeUrl};

/// The content for all clients of another unit of the plan: of the same class and list, at another server.
#[derive(Clone, Debug)]
pub struct Elder {
    pub content: Arc<Snapshot>,
    /// Clients come here although the other server is in order, so all that differs is a push. Else only
    /// contents that the plan refuses are held back: fallback waits for nobody (WAV-18).
    pub holds_all: bool,
}

/// An elder with the contents that the plan refuses.
#[derive(Clone, Copy)]
pub(super) struct RefusingElder<'a> {
    pub elder: &'a Elder,
    pub refused: &'a Refused,
}

/// A type of an elder.
#[derive(Clone, Copy)]
pub(super) struct TypeElder<'a> {
    type_url: &'a TypeUrl,
    content: &'a TypeSnapshot,
    holds_all: bool,
    refused: &'a Refused,
}

impl<'a> RefusingElder<'a> {
    pub fn of(self, type_url: &'a TypeUrl) -> Option<TypeElder<'a>> {
        let content = self.elder.content.of(type_url)?;
        Some(TypeElder { type_url, content, holds_all: self.elder.holds_all, refused: self.refused })
    }
}

impl TypeElder<'_> {
    /// The elder's state of a name, if the source's first answer for the name is held back. `live`: the
    /// source's resource; `None` for a name without one.
    pub fn held(
        &self,
        kind: CollectionKind,
        name: &ResourceName,
        live: Option<&CachedResource>,
    ) -> Option<Known> {
        let live = live.map(|live| &*live.resource);
        let is_refused = |resource| self.refused.has(self.type_url, resource);
        if !self.holds_all && !live.is_some_and(is_refused) {
            return None;
        }
        let as_member = || {
            let member = member(self.content, kind, name)?;
            Some(member.map_or(Known::Absent(Cause::Removed), |cached| Known::Present(cached.clone())))
        };
        let state = as_member().or_else(|| stated(self.content, name))?;
        let resource = state.resource().map(|resource| &**resource);
        let is_other = resource.map(|resource| resource.version) != live.map(|live| live.version);
        // One refused content is no better than another.
        let is_held =
            is_other && !resource.is_some_and(is_refused) && HoldRule::Gated.holds(name, resource, live);
        is_held.then_some(state)
    }

    /// The members that the source lacks, once the source has stated all.
    pub fn lost_members<'a>(
        &'a self,
        kind: CollectionKind,
        has: impl Fn(&ResourceName) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a ResourceName, &'a CachedResource)> {
        let members = match kind {
            CollectionKind::Wildcard => &self.content.wildcard.members,
            CollectionKind::Globs | CollectionKind::Names => &self.content.globs.members,
        };
        let all = self.holds_all.then(|| members.iter()).into_iter().flatten();
        all.filter(move |(name, _)| !has(name) && self.held(kind, name, None).is_some())
    }
}

/// The state of a release for a first answer under a name, if different from the source's. Where the release
/// states nothing, another unit may.
pub(super) fn held_or_elders(
    content: &TypeSnapshot,
    elder: Option<&TypeElder<'_>>,
    kind: CollectionKind,
    name: &ResourceName,
    new: &CachedResource,
) -> Option<Known> {
    match stated(content, &new.resource.name) {
        Some(_) => held(content, new),
        None => elder?.held(kind, name, Some(new)),
    }
}

/// The source's wildcard in a release that does not have it as a whole yet, and the names with another state
/// in the release than at the source. The view has the source's ids.
pub(super) fn first_wildcard(
    content: &TypeSnapshot,
    live: &WildcardSnapshot,
    elder: Option<&TypeElder<'_>>,
) -> (WildcardSnapshot, BTreeSet<ResourceName>) {
    let (mut first, mut differing) = (live.clone(), BTreeSet::new());
    if content.names.entries.is_empty() && content.globs.members.is_empty() && elder.is_none() {
        return (first, differing);
    }
    let Some(view) = &mut first.view else { return (first, differing) };
    for (name, new) in &live.members {
        let state = held_or_elders(content, elder, CollectionKind::Wildcard, name, new);
        let Some(state) = state else { continue };
        let view = Arc::make_mut(view);
        view.drop_annotations(name);
        match state {
            Known::Present(cached) => {
                members::put(view, Some(&new.resource), &cached.resource);
                first.members.insert(name.clone(), cached);
            }
            Known::Absent(_) | Known::Unknown => {
                view.take(&new.resource);
                first.members.remove(name);
            }
        }
        differing.insert(name.clone());
    }
    let is_there = |name: &ResourceName| live.members.contains_key(name);
    let lost = elder.filter(|_| live.is_whole()).into_iter();
    for (name, cached) in lost.flat_map(|elder| elder.lost_members(CollectionKind::Wildcard, is_there)) {
        members::put(Arc::make_mut(view), None, &cached.resource);
        first.members.insert(name.clone(), cached.clone());
        differing.insert(name.clone());
    }
    (first, differing)
}

/// A wildcard that a halted content comes to know, with the halted content's own resources.
pub fn known_wildcard(content: &TypeSnapshot, live: &WildcardSnapshot) -> WildcardSnapshot {
    first_wildcard(content, live, None).0
}
