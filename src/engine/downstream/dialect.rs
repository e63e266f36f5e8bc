//! The extensions of the protocol that a client understands, and the remarks on names (errors, TTLs) in answers.
//!
//! A control plane and a client may speak different dialects: the control plane may wrap resources for a client that
//! takes bare resources only, and may set a TTL for a client that ignores TTLs. This file translates between the
//! dialects. A resource without a translation is left out and counted (RLY-22, RLY-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, AnswerPart, Chunk, News, open};
use crate::engine::Time;
use crate::engine::interest::Interest;
use crate::engine::view::{Leaving, View, difference};
use crate::xds::{Code, Kind, Node, Resource, ResourceName, Status, TypeUrl, Variant, Version};

/// The feature of clients that take `Resource` messages as elements of a SotW response. Both spellings are in use,
/// and so are the spellings from before `xds.` (TTL-2).
const WRAPPER: &[&str] =
    &["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw", "envoy.config.resource-in-sotw"];

/// The feature of clients that honour `Resource.ttl` (TTL-1).
const TTL: &[&str] = &["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"];

/// The feature of clients that know the list form of LEDS (LED-4).
const ENDPOINT_LISTS: &[&str] = &["xds.endpoint.supports_lb_endpoint_collection"];

/// A late client may be told a remaining time that is too long by 1/8 of the shortest TTL. All clients that are told
/// of a heartbeat within this time share its encoding.
const TTL_PARTS: u32 = 8;

/// The extensions that one client understands for one type. Clients of one dialect share their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dialect {
    /// The client takes `Resource.ttl` and heartbeats (TTL-1).
    pub ttl: bool,
    /// The client takes `Resource` around elements of SotW responses (WIR-8). Meaningless in delta.
    pub wrapper: bool,
    /// A full-state answer may leave out names with errors, and a SotW answer may hold errors alone (ERR-8, SST-7).
    pub errors_alone: bool,
}

impl Dialect {
    /// `errors_alone`: the operator's statement about this client.
    pub fn of(node: &Node, variant: Variant, type_url: &TypeUrl, errors_alone: bool) -> Dialect {
        let has = |features: &[&str]| features.iter().any(|feature| node.has_feature(feature));
        let wraps = variant == Variant::Delta || has(WRAPPER);
        let takes_lists = type_url.kind() != Kind::LbEndpointCollection || has(ENDPOINT_LISTS);
        // gRPC ignores TTLs and rejects heartbeats, whatever features it is configured to state (TTL-7).
        let ttl = wraps && has(TTL) && !node.user_agent_name.starts_with("gRPC");
        let sotw = variant == Variant::Sotw;
        Dialect { ttl, wrapper: sotw && wraps && takes_lists, errors_alone: sotw && errors_alone }
    }
}

impl Dialect {
    /// Whether each unknown name has an error, and the client takes errors for answers (ERR-4, ERR-8).
    pub(super) fn excuses(self, interest: &Interest, view: &View) -> bool {
        let Some(asked) = interest.names().filter(|_| self.errors_alone) else { return false };
        let is_unknown = |name: &&ResourceName| {
            asked.contains(name) && !(view.has(name) || view.knows_absent(name) || view.knows_glob(name))
        };
        let errors = view.remarks().errors().map(|(name, _)| name);
        errors.filter(is_unknown).count() >= view.unknown_len()
    }
}

/// The features that a class shows upstream: the features of its clients (RLY-12), and the wrapper, which the relay
/// removes for clients without support (RLY-22). TTLs are requested only if clients understand TTLs, by the listed
/// name (TTL-2).
pub fn upstream_features(of_class: &[String]) -> Vec<String> {
    let mut features = of_class.to_vec();
    features.push(WRAPPER[0].to_owned());
    if tells_ttl(of_class) {
        features.push(TTL[0].to_owned());
    }
    features.sort();
    features.dedup();
    features
}

/// Whether clients with these features understand a TTL.
pub fn tells_ttl(features: &[String]) -> bool {
    features.iter().any(|feature| TTL.contains(&feature.as_str()))
}

/// The time to which the remaining TTLs of an answer refer: the change of the newest view, moved on in steps.
pub(super) fn told_at<'a>(views: impl Iterator<Item = &'a Arc<View>> + Clone, now: Time) -> Time {
    let shortest = views.clone().filter_map(|view| view.remarks().shortest_ttl()).min();
    let Some(shortest) = shortest else { return Time::ZERO };
    let base = views.map(|view| view.changed_at()).max().unwrap_or(now);
    let step = (shortest / TTL_PARTS).as_micros().max(1_000);
    let steps = now.since(base).as_micros() / step;
    base + Duration::from_micros(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

type CompleteSet = (Vec<Arc<Resource>>, Vec<(ResourceName, Arc<Status>)>);

/// The parts of an answer beside its content.
#[derive(Debug, Default)]
pub(super) struct Asides {
    /// Heartbeats.
    beats: BTreeMap<ResourceName, Arc<Resource>>,
    errors: BTreeMap<ResourceName, Arc<Status>>,
}

impl Answer {
    /// Names whose unchanged resource must be sent again, because the resource ends an error (ERR-3) or a TTL
    /// (TTL-3).
    pub(super) fn restated(&self) -> BTreeSet<ResourceName> {
        let mut names = BTreeSet::new();
        for part in &self.parts {
            let news = part.held.remarks().news(part.view.remarks());
            names.extend(news.over.into_iter().filter(|name| part.held.has(name) && part.view.has(name)));
            let unleased = news.unleased.into_iter().filter(|_| self.dialect.ttl);
            names.extend(unleased.filter(|name| part.held.has(name) && part.view.has(name)));
        }
        names
    }

    /// The errors and heartbeats beside `news`. Heartbeats that must be whole resources join the news.
    pub(super) fn asides(&self, news: &mut News) -> Asides {
        let mut asides = Asides::default();
        for part in &self.parts {
            let remarks = part.held.remarks().news(part.view.remarks());
            asides.errors.extend(remarks.errors);
            for name in remarks.beats.into_iter().filter(|_| self.dialect.ttl) {
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
                if self.dialect.errors_alone && !self.full {
                    self.report_absent(&mut asides);
                }
                // Heartbeats go as whole resources (TTL-6), for every type. Envoy accepts a SotW heartbeat without a
                // resource, but does not restart its timer, so the resource would expire all the same (TTL-4, TTL-5).
                news.put.append(&mut asides.beats);
            }
        }
        // All clients are told of the absence; clients that read errors are told the reason, too (NAM-5).
        if !self.withholds_errors() {
            asides.errors.extend(self.refused.iter().cloned());
        }
        asides
    }

    /// To a client that does not read errors, a response with errors alone is empty, and an empty response completes
    /// the wildcard (DEL-25). So errors wait until the wildcard is complete.
    pub(super) fn withholds_errors(&self) -> bool {
        let is_open =
            |part: &AnswerPart| part.interest.leaving() == Leaving::Wildcard && !part.view.is_complete();
        self.variant == Variant::Delta && self.parts.iter().any(is_open)
    }

    /// A SotW client that takes errors alone is told of an absence by an error (RLY-34). Nothing else could tell the
    /// client (SST-10).
    fn report_absent(&self, asides: &mut Asides) {
        for part in &self.parts {
            for name in difference(&part.held, &part.view, Leaving::Names).gone {
                let text = "the resource does not exist";
                asides.errors.entry(name).or_insert_with(|| Arc::new(Status::new(Code::NotFound, text)));
            }
        }
    }

    /// Removes the resources from the news that need the wrapper, if the client does not take the wrapper (WIR-8,
    /// WIR-9). Each becomes an error, so that no name is silently missing (RLY-23). Returns the number of removed
    /// resources.
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

    fn is_sendable(&self, resource: &Resource) -> bool {
        // A client with parameters takes the wrapper (WIR-10), but not always lists of endpoints (LED-4).
        let takes_wrapper = self.dialect.wrapper
            || (self.located.is_some() && self.type_url.kind() != Kind::LbEndpointCollection);
        self.variant == Variant::Delta || takes_wrapper || resource.names_itself(&self.type_url)
    }

    /// The content of a full-state message: the resources, and all errors each time. The client drops names that are
    /// in neither list (ERR-4).
    pub(super) fn complete_set(&self, news: &News, asides: &Asides) -> CompleteSet {
        let names: BTreeSet<_> = self.parts.iter().flat_map(|part| part.view.names()).collect();
        let put = names.into_iter().filter_map(|name| Some((name.clone(), self.body(name)?.clone())));
        let all = News::complete(put.collect()).put.into_values();
        let mut resources: Vec<_> = all.filter(|resource| self.is_sendable(resource)).collect();
        let standing = self.parts.iter().flat_map(|part| part.view.remarks().errors());
        let mut errors: BTreeMap<_, _> =
            standing.chain(&asides.errors).map(|(name, error)| (name.clone(), error.clone())).collect();
        if !errors.is_empty() {
            let is_told_by_error = |name: &ResourceName| {
                errors.contains_key(name) && !news.put.contains_key(name) && self.is_held(name)
            };
            resources.retain(|resource| !(self.dialect.errors_alone && is_told_by_error(&resource.name)));
            // A name stands in one list only, and the resource wins (ERR-2, ERR-8).
            for resource in &resources {
                errors.remove(&resource.name);
            }
        }
        (resources, errors.into_iter().collect())
    }

    /// Whether the client holds the resource in its present version, so that an error may replace the resource
    /// (ERR-4).
    fn is_held(&self, name: &ResourceName) -> bool {
        let part = self.parts.iter().rev().find(|part| part.view.has(name));
        part.is_some_and(|part| part.held.version_of(name) == part.view.version_of(name))
    }

    /// Sets the remaining TTLs of the resources in each message.
    pub(super) fn state_ttls(&self, chunks: &mut [Chunk]) {
        if !self.dialect.ttl || !self.parts.iter().any(|part| part.view.remarks().shortest_ttl().is_some()) {
            return;
        }
        for chunk in chunks {
            for resource in chunk.resources.iter().chain(&chunk.beats) {
                let lease = std::iter::once(&resource.name).chain(&resource.aliases).find_map(|name| {
                    let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
                    part.view.remarks().lease(name)
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

    /// Adds the errors to the messages of a SotW answer that is not a complete set. `repeats`: the client's version,
    /// for a message without content.
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

impl Chunk {
    fn size(&self) -> usize {
        let resources: usize = self.resources.iter().map(|resource| resource.size()).sum();
        resources + self.removed.iter().map(size_of).sum::<usize>()
    }

    /// The names of its resources, heartbeats included.
    pub(super) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.resources.iter().chain(&self.beats).map(|resource| &resource.name)
    }
}

/// The approximate size of an entry without content on the wire, in bytes.
fn size_of(name: &ResourceName) -> usize {
    name.as_str().len() + 64
}
