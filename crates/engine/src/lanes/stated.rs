//! One release for all ways to ask (WAV-7): the content of a release under a name that clients come to ask
//! for in another way.

use std::sync::Arc;

use super::rule::HoldRule;
use crate::cache::{CachedResource, Known};
use crate::collection::CollectionKind;
use crate::snapshot::TypeSnapshot;
use sluice_xds::ResourceName;

/// The collections with members.
const MEMBERS: [CollectionKind; 2] = [CollectionKind::Wildcard, CollectionKind::Globs];

/// The release's state of a name that nobody asked for by itself before, if another way to ask tells another
/// state than the source's. `live`: the source's content; `new`: the source's state.
pub fn held_name(
    content: &TypeSnapshot,
    live: &TypeSnapshot,
    name: &ResourceName,
    new: &Known,
) -> Option<Known> {
    match new {
        Known::Unknown => None,
        // A resource has a single content, whatever the aliases.
        Known::Present(new) => held(content, new),
        // The source has lost the member, so the source's word on the name is about a later release.
        Known::Absent(_) => MEMBERS.into_iter().find_map(|kind| {
            let member_here = member(content, kind, name)??;
            let is_lost = member(live, kind, name)?.is_none();
            let is_held = is_lost && HoldRule::Gated.holds(name, Some(&member_here.resource), None);
            is_held.then(|| Known::Present(member_here.clone()))
        }),
    }
}

/// The release's state of a resource, if different from the source's.
pub fn held(content: &TypeSnapshot, new: &CachedResource) -> Option<Known> {
    let new = &new.resource;
    let state = stated(content, &new.name)?;
    let resource = state.resource().map(Arc::as_ref);
    let is_other = resource.is_none_or(|resource| resource.version != new.version);
    (is_other && HoldRule::Gated.holds(&new.name, resource, Some(new))).then_some(state)
}

/// The state of a resource by any way to ask, under its own name or an alias. `None`: no way says anything. A
/// wildcard or a glob without the name says nothing, because members prove nothing about names.
pub(super) fn stated(content: &TypeSnapshot, name: &ResourceName) -> Option<Known> {
    let names = &content.names;
    let by_name = names.entries.get(name).filter(|state| !matches!(state, Known::Unknown));
    let mut aliases = names.aliases.iter().filter(|(_, aliased)| aliased.name() == name);
    let mut by_alias = || aliases.find_map(|(alias, _)| names.entries.get(alias)?.cached());
    let by_member = || MEMBERS.into_iter().find_map(|kind| member(content, kind, name)?);
    let present = || by_alias().or_else(by_member).map(|cached| Known::Present(cached.clone()));
    by_name.cloned().or_else(present)
}

/// A member of the wildcard, or of the name's glob; `None`: not all members are known.
pub(super) fn member<'a>(
    content: &'a TypeSnapshot,
    kind: CollectionKind,
    name: &ResourceName,
) -> Option<Option<&'a CachedResource>> {
    let (wildcard, globs) = (&content.wildcard, &content.globs);
    let is_of_whole_glob = || name.glob().is_some_and(|glob| globs.complete.contains(&glob));
    match kind {
        CollectionKind::Wildcard => wildcard.is_whole().then(|| wildcard.members.get(name)),
        CollectionKind::Globs => is_of_whole_glob().then(|| globs.members.get(name)),
        CollectionKind::Names => None,
    }
}
