//! Errors and TTLs in answers.
//!
//! A control plane and a client may have different features: the control plane may wrap resources for a
//! client that takes bare resources only, and may set a TTL for a client that ignores TTLs. This file
//! translates between the two. A resource without a translation is left out and counted (RLY-22, RLY-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::collection::CollectionKind;
use crate::downstream::answer::chunk::{Chunk, open, size_of};
use crate::downstream::answer::news::News;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::view::{View, difference};
use sluice_xds::{Code, Kind, Resource, ResourceName, Status, Variant, Version};

/// A late client may be told a remaining time that is too long by 1/8 of the shortest TTL. All clients that
/// are told of a heartbeat within this time share its encoding.
const TTL_PARTS: u32 = 8;

/// The time to which the remaining TTLs of an answer refer: the change of the newest view, moved on in steps.
pub(in crate::downstream) fn told_at<'a>(
    views: impl Iterator<Item = &'a Arc<View>> + Clone,
    now: Time,
) -> Time {
    let shortest = views.clone().filter_map(|view| view.annotations().shortest_ttl()).min();
    let Some(shortest) = shortest else { return Time::ZERO };
    let base = views.map(|view| view.changed_at()).max().unwrap_or(now);
    let step = (shortest / TTL_PARTS).as_micros().max(1_000);
    let steps = now.since(base).as_micros() / step;
    base + Duration::from_micros(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// The parts of an answer beside its content.
#[derive(Debug, Default)]
pub(super) struct Asides {
    /// Heartbeats.
    beats: BTreeMap<ResourceName, Arc<Resource>>,
    pub(super) errors: BTreeMap<ResourceName, Arc<Status>>,
}

impl Answer {
    /// Names whose unchanged resource must be sent again, because the resource ends an error (ERR-3) or a TTL
    /// (TTL-3).
    pub(super) fn restated(&self) -> BTreeSet<ResourceName> {
        let mut names = BTreeSet::new();
        for part in &self.parts {
            let news = part.held.annotations().news(part.view.annotations());
            names.extend(news.over.into_iter().filter(|name| part.held.has(name) && part.view.has(name)));
            let unleased = news.unleased.into_iter().filter(|_| self.features.ttl);
            names.extend(unleased.filter(|name| part.held.has(name) && part.view.has(name)));
        }
        names
    }

    /// The errors and heartbeats beside `news`. Heartbeats that must be whole resources join the news.
    pub(super) fn asides(&self, news: &mut News) -> Asides {
        let mut asides = Asides::default();
        for part in &self.parts {
            let annotations = part.held.annotations().news(part.view.annotations());
            asides.errors.extend(annotations.errors);
            for name in annotations.beats.into_iter().filter(|_| self.features.ttl) {
                let is_held = part.held.version_of(&name) == part.view.version_of(&name);
                let resource = self.body(&name).filter(|_| is_held);
                // An alias stands for the resource under its own name (ALI-1).
                if let Some(resource) = resource.filter(|resource| !news.put.contains_key(&resource.name)) {
                    asides.beats.insert(resource.name.clone(), resource.clone());
                }
            }
        }
        match self.variant {
            Variant::Delta if self.withholds_errors() => asides.errors.clear(),
            // The removal already tells the client that the name is absent (ERR-5).
            Variant::Delta => {
                let is_gone = |name: &ResourceName| {
                    news.removed.contains(name) || self.parts.iter().any(|part| part.view.knows_absent(name))
                };
                asides.errors.retain(|name, _| !is_gone(name));
            }
            Variant::Sotw => {
                if self.features.errors_alone && !self.full {
                    self.report_absent(&mut asides);
                }
                // Heartbeats go as whole resources (TTL-6), for every type. Envoy accepts a SotW heartbeat
                // without a resource, but does not restart its timer, so the resource would expire all the
                // same (TTL-4, TTL-5).
                news.put.append(&mut asides.beats);
            }
        }
        // All clients are told of the absence; clients that read errors are told the reason, too (NAM-5).
        if !self.withholds_errors() {
            asides.errors.extend(self.refused.iter().cloned());
        }
        asides
    }

    /// To a client that does not read errors, a response with errors alone is empty, and an empty response
    /// completes the wildcard (DEL-25). So errors wait until the wildcard is complete.
    pub(in crate::downstream) fn withholds_errors(&self) -> bool {
        let is_open = |part: &AnswerPart| {
            part.collection.kind() == CollectionKind::Wildcard && !part.view.is_complete()
        };
        self.variant == Variant::Delta && self.parts.iter().any(is_open)
    }

    /// A SotW client that takes errors alone is told of an absence by an error (RLY-34). Nothing else could
    /// tell the client (SST-10).
    fn report_absent(&self, asides: &mut Asides) {
        for part in &self.parts {
            for name in difference(&part.held, &part.view, CollectionKind::Names).gone {
                let text = "the resource does not exist";
                asides.errors.entry(name).or_insert_with(|| Arc::new(Status::new(Code::NotFound, text)));
            }
        }
    }

    /// Removes the resources from the news that need the wrapper, if the client does not take the wrapper
    /// (WIR-8, WIR-9). Each becomes an error, so that no name is silently missing (RLY-23). Returns the
    /// number of removed resources.
    pub(super) fn leave_out(&self, news: &mut News, asides: &mut Asides) -> usize {
        let is_sendable = |resource: &Resource| self.is_sendable(resource);
        let out: Vec<_> = news.put.extract_if(.., |_, resource| !is_sendable(resource)).collect();
        asides.beats.retain(|_, resource| is_sendable(resource));
        for (name, _) in &out {
            let text =
                "the resource can be sent to clients with the feature xds.config.resource-in-sotw only";
            asides.errors.insert(name.clone(), Arc::new(Status::new(Code::Unimplemented, text)));
        }
        out.len()
    }

    pub(super) fn is_sendable(&self, resource: &Resource) -> bool {
        // A client with parameters takes the wrapper (WIR-10), but not always lists of endpoints (LED-4).
        let takes_wrapper = self.features.wrapper
            || (self.told_variants.is_some() && self.type_url.kind() != Kind::LbEndpointCollection);
        self.variant == Variant::Delta || takes_wrapper || resource.names_itself(&self.type_url)
    }

    /// Whether the client holds the resource in its present version, so that an error may replace the
    /// resource (ERR-4).
    pub(super) fn is_held(&self, name: &ResourceName) -> bool {
        let part = self.parts.iter().rev().find(|part| part.view.has(name));
        part.is_some_and(|part| part.held.version_of(name) == part.view.version_of(name))
    }

    /// Sets the remaining TTLs of the resources in each message.
    pub(super) fn state_ttls(&self, chunks: &mut [Chunk]) {
        if !self.features.ttl
            || !self.parts.iter().any(|part| part.view.annotations().shortest_ttl().is_some())
        {
            return;
        }
        for chunk in chunks {
            for resource in chunk.resources.iter().chain(&chunk.beats) {
                let lease = std::iter::once(&resource.name).chain(&resource.aliases).find_map(|name| {
                    let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
                    part.view.annotations().lease(name)
                });
                if let Some(lease) = lease {
                    // Zero would mean no TTL.
                    let left = lease.expires.since(self.told_at).max(Duration::from_millis(1));
                    chunk.ttls.insert(resource.name.clone(), left);
                }
            }
        }
    }
}

impl Asides {
    fn is_empty(&self) -> bool {
        self.beats.is_empty() && self.errors.is_empty()
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds the errors to the messages of a SotW answer that is not a complete set. `repeats`: the client's
    /// version, for a message without content.
    pub(super) fn into_sotw(self, chunks: &mut Vec<Chunk>, repeats: Option<Version>, errors_alone: bool) {
        if self.is_empty() {
            return;
        }
        // A name stands in one list only (ERR-2), and the resource wins.
        let sent: BTreeSet<_> = chunks.iter().flat_map(Chunk::names).cloned().collect();
        let errors: Vec<_> = self.errors.into_iter().filter(|(name, _)| !sent.contains(name)).collect();
        if chunks.is_empty() && errors_alone && !errors.is_empty() {
            chunks.push(Chunk { version: repeats.unwrap_or_default(), ..Chunk::default() });
        }
        if let Some(last) = chunks.last_mut() {
            last.errors = errors;
        }
    }

    /// Adds the heartbeats and errors to the messages of a delta answer.
    pub(super) fn into_delta(self, chunks: &mut Vec<Chunk>) {
        if self.is_empty() {
            return;
        }
        let mut bytes = chunks.last().map_or(0, Chunk::size);
        for resource in self.beats.into_values() {
            open(chunks, &mut bytes, size_of(&resource.name)).beats.push(resource);
        }
        let names = |chunk: &Chunk| chunk.names().chain(&chunk.removed).cloned().collect::<Vec<_>>();
        let sent: BTreeSet<_> = chunks.iter().flat_map(names).collect();
        let (behind, beside): (Vec<_>, Vec<_>) =
            self.errors.into_iter().partition(|(name, _)| sent.contains(name));
        for (name, error) in beside {
            let size = size_of(&name) + error.message.len();
            open(chunks, &mut bytes, size).errors.push((name, error));
        }
        // The error of a name that was just sent or removed follows in a message of its own (ERR-2).
        if !behind.is_empty() {
            chunks.push(Chunk::default());
            bytes = 0;
        }
        for (name, error) in behind {
            let size = size_of(&name) + error.message.len();
            open(chunks, &mut bytes, size).errors.push((name, error));
        }
    }
}
