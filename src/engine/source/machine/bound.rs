//! The bound on the content of a source (ADR 68).
//!
//! A response is judged before its ACK. Resources that would let the content grow beyond the bound become bad
//! elements: the server gets a NACK that names the bound, what is held stays, and nothing is deleted because of the
//! refusal. Removals and resources that do not grow are always taken. A response that fits costs a sum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Source;
use crate::engine::Time;
use crate::engine::cache::UNWATCHED_BYTES;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::{Attachment, StreamIndex};
use crate::engine::source::type_cache::TypeCache;
use crate::engine::upstream::{self, Event};
use crate::xds::{BadElement, Element, Received, Resource, ResourceName, Response, TypeUrl};

/// The shortest time between a refusal and a new request for what was refused.
const RETRY: Duration = Duration::from_secs(60);

/// The maximum number of names that are remembered.
const NAMES_MAX: usize = 1000;

/// The resources of a type that found no room.
#[derive(Clone, Debug, PartialEq)]
pub struct NoRoom {
    /// The time of the first refusal.
    pub since: Time,
    /// The refused names; at most [`NAMES_MAX`].
    pub names: BTreeSet<ResourceName>,
    /// The missing room, by the last response with a refusal.
    missing: usize,
    stream: StreamIndex,
    retry_at: Time,
}

/// The bytes of a resource, with its part of all tables.
fn weight(resource: &Arc<Resource>) -> usize {
    resource.size() + UNWATCHED_BYTES
}

fn elements(response: &mut Response) -> &mut Vec<Element> {
    match response {
        Response::Sotw(response) => &mut response.resources,
        Response::Delta(response) => &mut response.resources,
    }
}

fn is_unidentified(element: &Element) -> bool {
    matches!(element, Err(BadElement { name: None, .. }))
}

impl TypeCache {
    /// The weight of all resources.
    fn content_bytes(&self) -> usize {
        let named = self.named.counts();
        let members = self.wildcard.as_ref().map_or(0, |wildcard| wildcard.members().len());
        let bytes = self.wildcard.as_ref().map_or(0, |wildcard| wildcard.view().bytes());
        let count = named.present + self.globs.members().len() + members;
        named.bytes + self.globs.bytes() + bytes + count * UNWATCHED_BYTES
    }

    /// The weight of what an arriving resource replaces; `None` if nobody wants the resource.
    fn weight_before(&self, kind: CollectionKind, received: &Received) -> Option<usize> {
        let name = &received.name;
        match kind {
            CollectionKind::Wildcard => Some(self.wildcard.as_ref()?.member(name).map_or(0, weight)),
            CollectionKind::Globs => Some(self.globs.member(name).map_or(0, weight)),
            CollectionKind::Names => {
                let plain = ResourceName::new(name.plain());
                let is_located = || self.named.located(&plain).next().is_some();
                let aliases = received.resource.iter().flat_map(|resource| resource.aliases.iter());
                let known = [name, &plain].into_iter().chain(aliases);
                let known = known.filter_map(|name| self.named.known().get(name));
                let before = known.map(|known| known.resource().map_or(0, weight)).max();
                before.or_else(|| is_located().then_some(0))
            }
        }
    }

    /// The weight of what a response takes away.
    fn freed(&self, kind: CollectionKind, response: &Response, is_full: bool) -> usize {
        let of = |name: &ResourceName| match kind {
            CollectionKind::Wildcard => self.wildcard.as_ref()?.member(name),
            CollectionKind::Globs => self.globs.member(name),
            CollectionKind::Names => self.named.known().get(name)?.resource(),
        };
        let (elements, removed) = match response {
            Response::Sotw(response) => (&response.resources, &[][..]),
            Response::Delta(response) => (&response.resources, &response.removed[..]),
        };
        let removed: usize = removed.iter().filter_map(of).map(weight).sum();
        if !is_full || elements.iter().any(is_unidentified) {
            return removed;
        }
        let mut mentioned = BTreeSet::new();
        for element in elements {
            match element {
                Ok(received) => {
                    mentioned.insert(&received.name);
                    mentioned.extend(received.resource.iter().flat_map(|resource| resource.aliases.iter()));
                }
                Err(bad) => mentioned.extend(&bad.name),
            }
        }
        let held: Vec<(&ResourceName, &Arc<Resource>)> = match kind {
            CollectionKind::Wildcard => {
                let members = self.wildcard.iter().flat_map(|wildcard| wildcard.members());
                members.map(|(name, cached)| (name, &cached.resource)).collect()
            }
            CollectionKind::Names => {
                let known = self.named.known().iter();
                known.filter_map(|(name, known)| Some((name, known.resource()?))).collect()
            }
            CollectionKind::Globs => Vec::new(),
        };
        let omitted = held.into_iter().filter(|(name, _)| !mentioned.contains(name));
        removed + omitted.map(|(_, resource)| weight(resource)).sum::<usize>()
    }
}

impl Source {
    /// The resources of a type that the bound keeps out.
    pub fn no_room(&self, type_url: &TypeUrl) -> Option<&NoRoom> {
        self.no_room.get(type_url)
    }

    /// The weight of all content. Variants that no client matches count, too.
    pub fn content_bytes(&self) -> usize {
        let variants = match &self.attachment {
            Attachment::Streams(streams) => streams.machines().map(|(_, it)| it.variant_bytes()).sum(),
            Attachment::Files(_) => 0,
        };
        self.types.values().map(TypeCache::content_bytes).sum::<usize>() + variants
    }

    /// Turns the resources of a response that find no room into bad elements.
    pub(super) fn bound_content(&mut self, stream: StreamIndex, response: &mut Response, now: Time) {
        let Some(limit) = self.settings.content_bytes else { return };
        let type_url = response.type_url().clone();
        let arriving = elements(response).iter().flatten().filter_map(|received| received.resource.as_ref());
        let arriving: usize = arriving.map(weight).sum();
        let held = self.content_bytes();
        let mut refused = BTreeMap::new();
        if arriving > 0 && held + arriving > limit {
            refused = self.refuse(stream, response, held, limit);
        }
        self.note_refused(stream, response, &refused, now);
        if !refused.is_empty() {
            self.tell(Event::NoRoom { type_url, resources: refused.len(), limit });
        }
    }

    /// Refuses the growth beyond the limit. Returns the refused names, each with its growth.
    fn refuse(
        &self,
        stream: StreamIndex,
        response: &mut Response,
        held: usize,
        limit: usize,
    ) -> BTreeMap<ResourceName, usize> {
        let mut refused = BTreeMap::new();
        let type_url = response.type_url().clone();
        let (Attachment::Streams(streams), Some(cache)) = (&self.attachment, self.types.get(&type_url))
        else {
            return refused;
        };
        // The streams that are no place of a collection ask for names (ADR 54).
        let kind = streams.kind_of(stream, &type_url).unwrap_or(CollectionKind::Names);
        // A deletion that is held back frees nothing (FU18).
        let is_obeyed = streams.mass_deletion_hold().is_none();
        let is_full = streams.is_full_state(response);
        let is_taken = kind == CollectionKind::Names && self.takes_unasked(&type_url);
        let mut total = held - if is_obeyed { cache.freed(kind, response, is_full).min(held) } else { 0 };
        for element in elements(response) {
            let Ok(received) = element else { continue };
            let Some(after) = received.resource.as_ref().map(weight) else { continue };
            let before = cache.weight_before(kind, received).or_else(|| is_taken.then_some(0));
            let Some(before) = before else { continue };
            let growth = after.saturating_sub(before);
            if growth == 0 || total + growth <= limit {
                total = (total + after).saturating_sub(before);
                continue;
            }
            let name = received.name.clone();
            let reason = format!(
                "no room: the content of the source would take more than limits.source_bytes, {limit} bytes"
            );
            refused.insert(name.clone(), growth);
            *element = Err(BadElement { name: Some(name), reason, is_instance: false });
        }
        refused
    }

    /// Remembers what was refused, and forgets what found room, or is gone.
    fn note_refused(
        &mut self,
        stream: StreamIndex,
        response: &Response,
        refused: &BTreeMap<ResourceName, usize>,
        now: Time,
    ) {
        let type_url = response.type_url();
        if let Some(before) = self.no_room.get_mut(type_url).filter(|before| before.stream == stream) {
            match response {
                // A name that a response of the state of the world leaves out is not asked for, or gone.
                Response::Sotw(response) if !response.resources.is_empty() => before.names.clear(),
                Response::Sotw(_) => {}
                Response::Delta(response) => {
                    let taken = response.resources.iter().flatten().map(|received| &received.name);
                    for name in taken.chain(&response.removed) {
                        before.names.remove(name);
                    }
                }
            }
        }
        if !refused.is_empty() {
            let since = now;
            let new = || NoRoom { since, names: BTreeSet::new(), missing: 0, stream, retry_at: now };
            let entry = self.no_room.entry(type_url.clone()).or_insert_with(new);
            (entry.stream, entry.missing, entry.retry_at) = (stream, refused.values().sum(), now + RETRY);
            let room = NAMES_MAX.saturating_sub(entry.names.len());
            entry.names.extend(refused.keys().take(room).cloned());
        }
        self.no_room.retain(|_, entry| !entry.names.is_empty());
    }

    /// A new stream begins: its server sends what the source does not hold.
    pub(super) fn forget_refused(&mut self, stream: StreamIndex, output: &upstream::Output) {
        if matches!(output, upstream::Output::Event(Event::Connected { .. })) {
            self.no_room.retain(|_, entry| entry.stream != stream);
        }
    }

    /// The operator may have changed the bound.
    pub(super) fn retry_refused(&mut self, now: Time) {
        self.no_room.values_mut().for_each(|entry| entry.retry_at = now);
    }

    fn has_room(&self, entry: &NoRoom) -> bool {
        self.settings.content_bytes.is_none_or(|limit| self.content_bytes() + entry.missing <= limit)
    }

    /// The time at which refused resources are requested again; `None` while there is no room.
    pub(super) fn retry_at(&self) -> Option<Time> {
        let fitting = self.no_room.values().filter(|entry| self.has_room(entry));
        fitting.map(|entry| entry.retry_at).min()
    }

    /// Requests resources again that have room by now: a server does not repeat rejected content by itself (ACK-5).
    pub(super) fn ask_for_refused(&mut self, now: Time) {
        if self.retry_at().is_none_or(|at| at > now) {
            return;
        }
        let due = self.no_room.values().filter(|entry| entry.retry_at <= now && self.has_room(entry));
        let due: BTreeSet<_> = due.map(|entry| entry.stream).collect();
        self.no_room.retain(|_, entry| !due.contains(&entry.stream));
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        for index in due {
            if let Some(machine) = streams.machine(index) {
                machine.ask_anew(now);
            }
        }
    }
}
