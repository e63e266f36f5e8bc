//! Adopted names: the server sent the resources unasked (DEL-17).
//!
//! The session adopts an unasked name as if the client had asked for the name, so all rules of names apply.
//! After the client was told of a removal, the session gives the adopted name up: Pods come and go under ever
//! new names, and the server sends a resource anew on its return.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::authority::NameGroup;
use crate::authorization::TypeGrant;
use crate::cache::Known;
use crate::downstream::answer::Answer;
use crate::downstream::answer::spelling::key_of;
use crate::downstream::memory::weight;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::part::Part;
use crate::downstream::subscription::parts::PartList;
use crate::snapshot::{Snapshot, TypeSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The adopted names of a subscription.
#[derive(Debug, Default)]
pub struct Unasked {
    /// The latest arrival before the last look of the session, by source.
    seen: BTreeMap<SourceId, u64>,
    names: BTreeSet<ResourceName>,
    /// Adopted names with a removal in a sent answer.
    gone: Vec<ResourceName>,
}

impl Unasked {
    pub(super) fn bytes(&self) -> usize {
        self.names.iter().map(weight).sum()
    }

    /// Whether the source of a part has unasked names from after the last look of the session.
    pub(super) fn is_behind(unasked: Option<&Unasked>, part: &Part, types: &TypeSnapshot) -> bool {
        let seen = || unasked.and_then(|unasked| unasked.seen.get(&part.source())).copied();
        let is_new = |latest: u64| latest > seen().unwrap_or_default();
        // A session on its way to other sources takes its names along.
        let is_open = !part.is_broad() && part.next.is_none();
        is_open && types.names.unasked.as_ref().is_some_and(|unasked| is_new(unasked.latest()))
    }

    /// Whether the session should adopt names of a type, or give some up.
    pub(super) fn is_owed(
        unasked: Option<&Unasked>,
        parts: &PartList,
        type_url: &TypeUrl,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> bool {
        let is_behind = |part: &Part| {
            let snapshot = latest(part.source());
            let types = snapshot.as_ref().and_then(|snapshot| snapshot.of(type_url));
            types.is_some_and(|types| Unasked::is_behind(unasked, part, types))
        };
        parts.iter().any(is_behind) || unasked.is_some_and(Unasked::has_gone)
    }

    /// Whether an answer removed adopted names, which the session is to give up.
    pub(super) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The unasked names since the last look.
    pub(super) fn take_new(
        &mut self,
        parts: &PartList,
        type_url: &TypeUrl,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: Option<&TypeGrant<'_>>,
    ) -> Vec<ResourceName> {
        let mut new = Vec::new();
        for part in parts {
            let Some(snapshot) = latest(part.source()) else { continue };
            let Some(types) = snapshot.of(type_url) else { continue };
            let Some(offered) = types.names.unasked.as_ref() else { continue };
            if !Unasked::is_behind(Some(self), part, types) {
                continue;
            }
            let seen = self.seen.insert(part.source(), offered.latest()).unwrap_or_default();
            let is_present =
                |name: &ResourceName| matches!(types.names.entries.get(name), Some(Known::Present(_)));
            // Names of another source stay away, and so do names without a right of the client.
            let is_served_here = |name: &ResourceName| {
                group_of(name) == part.group && matches!(key_of(name, (type_url, grant)), Ok(None))
            };
            let names = offered.after(seen).filter(|name| is_present(name) && is_served_here(name));
            new.extend(names.filter(|name| parts.holding(name).is_none()).cloned());
        }
        let is_used = |source: &SourceId| parts.iter().any(|part| part.source() == *source);
        self.seen.retain(|source, _| is_used(source));
        new
    }

    /// The adopted names to give up: absent for the client and at the source.
    pub(super) fn take_gone(
        &mut self,
        parts: &PartList,
        type_url: &TypeUrl,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Vec<ResourceName> {
        let mut gone = std::mem::take(&mut self.gone);
        let is_gone = |name: &ResourceName| {
            let mut parts = parts.iter().filter(|part| part.held.knows_absent(name));
            parts.any(|part| {
                let snapshot = latest(part.source());
                let types = snapshot.as_ref().and_then(|snapshot| snapshot.of(type_url));
                types.is_some_and(|types| matches!(types.names.entries.get(name), Some(Known::Absent(_))))
            })
        };
        gone.retain(|name| self.names.contains(name) && is_gone(name));
        gone
    }

    /// Notes adopted names.
    pub(super) fn adopt(&mut self, names: Vec<ResourceName>) {
        self.names.extend(names);
    }

    /// The client stated the name, or gave it up.
    pub(super) fn note_stated(&mut self, name: &ResourceName) {
        self.names.remove(name);
    }

    /// Notes the removals of adopted names by an answer.
    pub(super) fn note_removals(&mut self, answer: &Answer) {
        let Unasked { names, gone, .. } = self;
        for part in answer.parts.iter().filter(|_| !names.is_empty()) {
            let changed = part.held.differing(&part.view);
            let removed = changed.filter(|name| part.view.knows_absent(name) && names.contains(*name));
            gone.extend(removed.cloned());
        }
    }
}
