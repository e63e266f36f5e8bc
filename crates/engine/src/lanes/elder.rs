//! The content of another unit, for the first answers of a source (WAV-22).
//!
//! Clients come to a source from another server of their list, with the content of the other server. The first answer of the source is no answer
//! for the clients.

use std::sync::Arc;

use super::lane::Lane;
use super::lane_type::changed_names;
use super::overlay::Lanes;
use super::rule::Rule;
use super::stated::{member, stated};
use crate::cache::{CachedResource, Known};
use crate::collection::CollectionKind;
use crate::rollout::Refused;
use crate::snapshot::{LaneMark, Snapshot, TypeSnapshot};
use crate::upstream::Cause;
use sluice_xds::{ResourceName, TypeUrl};

/// The content for all clients of another unit of the plan: of the same class and list, at another server.
#[derive(Clone, Debug)]
pub struct Elder {
    pub content: Arc<Snapshot>,
    /// Clients come here although the other server is in order, so all that differs is a push. Else only contents that the plan refuses are
    /// held back: fallback waits for nobody (WAV-18).
    pub holds_all: bool,
}

/// A type of an elder.
#[derive(Clone, Copy)]
pub(super) struct TypeElder<'a> {
    pub type_url: &'a TypeUrl,
    pub content: &'a TypeSnapshot,
    pub holds_all: bool,
    pub refused: &'a Refused,
}

impl Elder {
    pub(super) fn of<'a>(&'a self, type_url: &'a TypeUrl, refused: &'a Refused) -> Option<TypeElder<'a>> {
        let content = self.content.of(type_url)?;
        Some(TypeElder { type_url, content, holds_all: self.holds_all, refused })
    }
}

impl TypeElder<'_> {
    /// The elder's state of a name, if the source's first answer for the name is held back. `new`: `None` for a name without a resource.
    pub fn held(
        &self,
        kind: CollectionKind,
        name: &ResourceName,
        new: Option<&CachedResource>,
    ) -> Option<Known> {
        let new = new.map(|new| &*new.resource);
        let is_refused = |of| self.refused.has(self.type_url, of);
        if !self.holds_all && !new.is_some_and(is_refused) {
            return None;
        }
        let as_member = || {
            let member = member(self.content, kind, name)?;
            Some(member.map_or(Known::Absent(Cause::Removed), |of| Known::Present(of.clone())))
        };
        let own = as_member().or_else(|| stated(self.content, name))?;
        let (resource, version) = (own.resource().map(|of| &**of), new.map(|new| new.version));
        // One refused content is no better than another.
        let is_other = resource.map(|of| of.version) != version && !resource.is_some_and(is_refused);
        (is_other && Rule::Gated.holds(name, resource, new)).then_some(own)
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

impl Lanes {
    /// The contents that the plan refuses, from now on.
    pub fn refuse(&mut self, refused: &Refused) {
        self.refused = refused.clone();
    }

    /// The elder for the next [`Lanes::follow`]. Due if that [answers](Lanes::answers_first) something first.
    pub fn look_at(&mut self, elder: Option<Elder>) {
        self.elder = elder;
    }

    /// Whether the source answers for something gated that nobody had an answer for.
    pub fn answers_first(&self, before: &Snapshot, live: &Snapshot) -> bool {
        let nothing = TypeSnapshot::default();
        live.types().filter(|(type_url, _)| self.gated.contains(type_url)).any(|(type_url, live)| {
            let before = before.of(type_url).unwrap_or(&nothing);
            let is_known = |of: &TypeSnapshot, name: &ResourceName| {
                of.names.entries.get(name).is_some_and(|known| !matches!(known, Known::Unknown))
            };
            let is_new = |name: &ResourceName| is_known(live, name) && !is_known(before, name);
            let (globs, former) = (&live.globs, &before.globs);
            !before.wildcard.is_whole() && live.wildcard.view.is_some()
                || !globs.members.ptr_eq(&former.members)
                || !globs.complete.ptr_eq(&former.complete)
                || changed_names(&before.names, &live.names).iter().any(is_new)
        })
    }

    /// Whether a first answer is held back.
    pub(super) fn begins_by_elder(&mut self, before: &Snapshot, live: &Snapshot) -> bool {
        let Some(elder) = &self.elder else { return false };
        let mut lane = Lane::freeze(before, &self.gated, LaneMark::default());
        let elder = Some((elder, &self.refused));
        lane.follow((before, live), &self.gated, None, elder, &mut self.stamps);
        lane.differs(&self.gated)
    }
}
