//! The bound on the content of a source (ADR 68).
//!
//! A response is judged before its ACK. Resources that would let the content grow beyond the bound become bad
//! elements: the server gets a NACK that names the bound, what is held stays, and nothing is deleted because
//! of the refusal. Removals and resources that do not grow are always taken. A response that fits costs a
//! sum.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::api::StreamIndex;
use super::attachment::Streams;
use super::type_cache::TypeCache;
use crate::Time;
use crate::cache::{KindCache, weight};
use crate::collection::CollectionKind;
use sluice_xds::{BadElement, Element, ResourceName, Response, TypeUrl};

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

fn elements(response: &mut Response) -> &mut Vec<Element> {
    match response {
        Response::Sotw(response) => &mut response.resources,
        Response::Delta(response) => &mut response.resources,
    }
}

fn is_unidentified(element: &Element) -> bool {
    matches!(element, Err(BadElement { name: None, .. }))
}

/// The refused resources of a source, by type.
#[derive(Debug, Default)]
pub(super) struct RefusedContent(BTreeMap<TypeUrl, NoRoom>);

impl RefusedContent {
    pub(super) fn get(&self, type_url: &TypeUrl) -> Option<&NoRoom> {
        self.0.get(type_url)
    }

    pub(super) fn forget_type(&mut self, type_url: &TypeUrl) {
        self.0.remove(type_url);
    }

    /// Remembers refused resources, each with its growth, and forgets resources that found room, or are gone.
    pub(super) fn note(
        &mut self,
        stream: StreamIndex,
        response: &Response,
        refused: &BTreeMap<ResourceName, usize>,
        now: Time,
    ) {
        let type_url = response.type_url();
        if let Some(before) = self.0.get_mut(type_url).filter(|before| before.stream == stream) {
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
            let entry = self.0.entry(type_url.clone()).or_insert_with(new);
            (entry.stream, entry.missing, entry.retry_at) = (stream, refused.values().sum(), now + RETRY);
            let room = NAMES_MAX.saturating_sub(entry.names.len());
            entry.names.extend(refused.keys().take(room).cloned());
        }
        self.0.retain(|_, entry| !entry.names.is_empty());
    }

    /// A new stream begins: its server sends what the source does not hold.
    pub(super) fn forget_stream(&mut self, stream: StreamIndex) {
        self.0.retain(|_, entry| entry.stream != stream);
    }

    /// The operator may have changed the bound.
    pub(super) fn retry_all(&mut self, now: Time) {
        self.0.values_mut().for_each(|entry| entry.retry_at = now);
    }

    /// The time at which refused resources are requested again; `None` while there is no room. `has_room`:
    /// whether this number of bytes fits.
    pub(super) fn retry_at(&self, has_room: impl Fn(usize) -> bool) -> Option<Time> {
        let fitting = self.0.values().filter(|entry| has_room(entry.missing));
        fitting.map(|entry| entry.retry_at).min()
    }

    /// The streams to ask anew, because refused resources have room by now.
    pub(super) fn take_due(&mut self, now: Time, has_room: impl Fn(usize) -> bool) -> BTreeSet<StreamIndex> {
        let due = self.0.values().filter(|entry| entry.retry_at <= now && has_room(entry.missing));
        let due: BTreeSet<_> = due.map(|entry| entry.stream).collect();
        self.0.retain(|_, entry| !due.contains(&entry.stream));
        due
    }
}

/// The bytes of the arriving resources.
pub(super) fn arriving_weight(response: &mut Response) -> usize {
    let resources = elements(response).iter().flatten().filter_map(|received| received.resource.as_ref());
    resources.map(weight).sum()
}

/// Refuses the growth of the content beyond a limit: the resources become bad elements. Returns the refused
/// names, each with its growth. `bytes`: the weight of the content. `is_adopted`: unasked resources of the
/// type are taken.
pub(super) fn refuse_growth(
    cache: &TypeCache,
    streams: &Streams,
    stream: StreamIndex,
    response: &mut Response,
    bytes: usize,
    limit: usize,
    is_adopted: bool,
) -> BTreeMap<ResourceName, usize> {
    let mut refused = BTreeMap::new();
    // The streams that are no place of a collection ask for names (ADR 54).
    let kind = streams.kind_of(stream, response.type_url()).unwrap_or(CollectionKind::Names);
    // A deletion that is held back frees nothing (FU18).
    let is_obeyed = streams.mass_deletion_hold().is_none();
    let is_full = streams.is_full_state(response);
    let freed = if is_obeyed { freed_weight(cache, kind, response, is_full).min(bytes) } else { 0 };
    let mut total = bytes - freed;
    for element in elements(response) {
        let Ok(received) = element else { continue };
        let Some(after) = received.resource.as_ref().map(weight) else { continue };
        let before = cache.of(kind).and_then(|cache| cache.weight_before(received));
        let before = before.or_else(|| (kind == CollectionKind::Names && is_adopted).then_some(0));
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

/// The weight of what a response takes away.
fn freed_weight(cache: &TypeCache, kind: CollectionKind, response: &Response, is_full: bool) -> usize {
    let (elements, removed) = match response {
        Response::Sotw(response) => (&response.resources, &[][..]),
        Response::Delta(response) => (&response.resources, &response.removed[..]),
    };
    let removed: usize = removed.iter().filter_map(|name| cache.resource(kind, name)).map(weight).sum();
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
    let held = cache.of(kind).map(KindCache::omittable).unwrap_or_default();
    let omitted = held.into_iter().filter(|(name, _)| !mentioned.contains(name));
    removed + omitted.map(|(_, resource)| weight(resource)).sum::<usize>()
}
