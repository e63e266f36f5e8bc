//! The content of another unit, for the first answers of a source (WAV-22).
//!
//! Clients come to a source from another server of their list, with the content of the other server. The
//! first answer of the source is no answer for the clients.

use std::sync::Arc;

use super::rule::HoldRule;
use super::stated::{member, stated};
use crate::cache::{CachedResource, Known};
use crate::collection::CollectionKind;
use crate::gated::Refused;
use crate::snapshot::{Snapshot, TypeSnapshot};
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
