//! Composes answers: from views to resources, removals, errors and messages.
//!
//! A control plane and a client may have different features: the control plane may wrap resources for a
//! client that takes bare resources only, and may set a TTL for a client that ignores TTLs. This file
//! translates between the two. A resource without a translation is left out and counted (RLY-22, RLY-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::cache::aliased::Aliased;
use crate::collection::CollectionKind;
use crate::downstream::answer::chunk::{Chunk, open, size_of, split, version_of};
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::answer::targets::targets;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::precedence::{deciding, overriding};
use crate::view::{STAYS, View, difference};
use sluice_xds::{Code, Kind, Resource, ResourceName, Status, Variant, Version};

/// A late client may be told a remaining time that is too long by 1/8 of the shortest TTL. All clients that
/// are told of a heartbeat within this time share its encoding.
const TTL_PARTS: u32 = 8;

/// A composed answer: its messages, none, one or several, and their effects on the client's content.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    pub chunks: Vec<Chunk>,
    /// The EDS names of new and changed clusters. These endpoints must follow, changed or not (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// The views of the client after this answer; empty if they equal the views of the sources.
    pub targets: Vec<Arc<View>>,
    /// The number of resources that the client cannot be sent (RLY-23).
    pub left_out: usize,
    /// The names in each message of several.
    pub told_names: Arc<[ToldNames]>,
}

impl Composition {
    /// Notes the names of the messages, if there are several. `parts`: the number of parts of the answer.
    fn note_told_names(&mut self, parts: usize) {
        if self.chunks.len() > 1 {
            self.told_names = self.chunks.iter().map(|chunk| ToldNames::of(chunk, parts)).collect();
        }
    }

    /// A message never has both the resource and the error of a name (ERR-2), and no second message follows
    /// for the error. So the client does not hold the error, and is not told of its end (ERR-3).
    fn leave_errors_untold(&mut self, answer: &Answer) {
        // A name that stays in the view although the source no longer has the name keeps the errors that the
        // client was told.
        let mut views = answer.parts.iter().map(|part| &part.view).chain(&self.targets);
        if views.all(|view| view.annotations().errors().next().is_none()) {
            return;
        }
        let resources = self.chunks.iter().flat_map(|chunk| &chunk.resources);
        let mut sent: BTreeSet<_> =
            resources.flat_map(|resource| std::iter::once(&resource.name).chain(&resource.aliases)).collect();
        for (name, _) in self.chunks.iter().flat_map(|chunk| &chunk.errors) {
            sent.remove(name);
        }
        let views = answer.parts.iter().enumerate().map(|(index, part)| {
            let view = self.targets.get(index).unwrap_or(&part.view);
            let untold: Vec<_> = view
                .annotations()
                .errors()
                .map(|(name, _)| name)
                .filter(|name| sent.contains(name))
                .collect();
            if untold.is_empty() { view.clone() } else { Arc::new(view.without_errors_of(&untold)) }
        });
        let views: Vec<_> = views.collect();
        let is_own = |(view, part): (&Arc<View>, &AnswerPart)| view.id() == part.view.id();
        if !self.targets.is_empty() || !views.iter().zip(&answer.parts).all(is_own) {
            self.targets = views;
        }
    }
}

/// The difference between the views that the client holds and the views that the client should hold, over all
/// parts.
#[derive(Debug, Default)]
struct NewContent {
    /// New and changed resources by name, each name once (SST-8, DEL-16).
    put: BTreeMap<ResourceName, Arc<Resource>>,
    /// The names of resources that go last, because other resources list the same aliases.
    last: BTreeSet<ResourceName>,
    /// Names whose removal a delta client must be told.
    removed: BTreeSet<ResourceName>,
    /// A resource of the client is gone.
    lost: bool,
    /// Some name is newly known to be absent.
    told_absent: bool,
}

impl NewContent {
    /// A complete set of resources, by the requested names.
    fn complete(put: BTreeMap<ResourceName, Arc<Resource>>) -> NewContent {
        let mut all = NewContent { put, ..NewContent::default() };
        all.by_own_name();
        all
    }

    /// The resources in the order of sending, and the removals.
    fn in_order(mut self) -> (impl Iterator<Item = Arc<Resource>>, BTreeSet<ResourceName>) {
        let last: Vec<_> = self.last.iter().filter_map(|name| self.put.remove(name)).collect();
        (self.put.into_values().chain(last), self.removed)
    }

    /// Merges the entries of a resource with several requested aliases, or with a requested alias and its own
    /// name (SST-8, DEL-16). If different servers supply the alias and the own name, the content of the own
    /// name counts.
    fn by_own_name(&mut self) {
        if self.put.iter().any(|(name, resource)| *name != resource.name) {
            let (by_name, by_alias): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.put)
                .into_iter()
                .partition(|(name, resource)| *name == resource.name);
            self.put = by_alias.into_values().map(|resource| (resource.name.clone(), resource)).collect();
            self.put.extend(by_name);
            self.removed.retain(|name| !self.put.contains_key(name));
        }
    }
}

/// The client's content after an answer.
struct After<'a> {
    views: Vec<Arc<View>>,
    /// The own names of the resources behind the aliases in the views.
    led_to: BTreeSet<&'a ResourceName>,
}

impl After<'_> {
    fn has(&self, name: &ResourceName) -> bool {
        self.views.iter().any(|view| view.has(name))
    }
}

/// The parts of an answer beside its content.
#[derive(Debug, Default)]
struct Asides {
    /// Heartbeats.
    beats: BTreeMap<ResourceName, Arc<Resource>>,
    errors: BTreeMap<ResourceName, Arc<Status>>,
}

impl Asides {
    fn is_empty(&self) -> bool {
        self.beats.is_empty() && self.errors.is_empty()
    }

    fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds the errors to the messages of a SotW answer that is not a complete set. `repeats`: the client's
    /// version, for a message without content.
    fn into_sotw(self, chunks: &mut Vec<Chunk>, repeats: Option<Version>, errors_alone: bool) {
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
    fn into_delta(self, chunks: &mut Vec<Chunk>) {
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

type CompleteSet = (Vec<Arc<Resource>>, Vec<(ResourceName, Arc<Status>)>);

impl Answer {
    pub fn compose(&self) -> Composition {
        let targets = targets(self);
        let mut composition = match targets.is_empty() {
            true => self.difference(),
            false => Composition { targets: targets.clone(), ..self.brought_to(&targets).difference() },
        };
        composition.leave_errors_untold(self);
        composition.note_told_names(self.parts.len());
        composition
    }

    fn difference(&self) -> Composition {
        let mut news = self.news();
        let endpoints: BTreeSet<_> =
            news.put.values().filter_map(|resource| resource.endpoints.clone()).collect();
        let mut asides = self.asides(&mut news);
        let left_out = self.leave_out(&mut news, &mut asides);
        let mut chunks = match (self.variant, self.full) {
            (Variant::Sotw, true) => self.full_state(&news, &asides),
            (Variant::Sotw, false) => {
                let mut chunks = split(news.put.into_values(), BTreeSet::new(), false);
                asides.into_sotw(&mut chunks, self.repeats, self.features.errors_alone);
                chunks
            }
            (Variant::Delta, _) => {
                let (put, removed) = news.in_order();
                let mut chunks = split(put, removed, self.type_url.kind().may_exclude());
                asides.into_delta(&mut chunks);
                if chunks.is_empty() && self.greeting {
                    chunks.push(Chunk::default());
                }
                chunks
            }
        };
        self.state_ttls(&mut chunks);
        let endpoints = endpoints.into_iter().collect();
        Composition { chunks, endpoints, left_out, ..Composition::default() }
    }

    /// Compares the client's views with the views that the client should hold, over all parts. A name that
    /// several parts have is one resource to the client (SUB-12, DEL-22).
    fn news(&self) -> NewContent {
        // In SotW, `departed` has refused names only, and their absence is known at once.
        let told_absent = self.variant == Variant::Sotw && !self.departed.is_empty();
        let mut news = NewContent { told_absent, ..NewContent::default() };
        let after = self.after();
        let mut changed: BTreeSet<ResourceName> = self.departed.iter().cloned().collect();
        for part in &self.parts {
            let difference = difference(&part.held, &part.view, part.collection.kind());
            news.told_absent |= !difference.gone.is_empty();
            changed.extend(difference.put.into_iter().chain(difference.gone));
            changed.extend(self.replaced(part));
            if self.full {
                // Names that the client kept because absence could not be told (SST-6) go with the first
                // complete set.
                let kept = part.held.beside(&part.view).map(|(name, _)| name);
                changed.extend(kept.filter(|name| part.view.knows_absent(name)));
            }
        }
        let restated = self.restated();
        changed.extend(restated.iter().cloned());
        for name in changed {
            let held = deciding(&self.parts, |part| part.held.version_of(&name));
            let due = deciding(&after.views, |view| view.version_of(&name));
            match due {
                Some(version) if held == Some(version) && !restated.contains(&name) => {}
                Some(STAYS) => {}
                Some(_) => {
                    if let Some(resource) = self.body(&name) {
                        news.removed.extend(self.left_behind(&name, held, &after));
                        news.put.insert(name, resource.clone());
                    }
                }
                None => {
                    news.lost |= held.is_some();
                    // A name may be given up, or count as absent after a timer, while an alias still leads to
                    // its resource.
                    let is_left = self.is_left(&name, &after);
                    if !is_left {
                        let held = held.or_else(|| self.is_departed(&name).then(Version::default));
                        let resource = held.and_then(|_| Some(self.aliased(&name)?.name().clone()));
                        news.removed.extend(resource.filter(|name| !self.is_left(name, &after)));
                        news.removed.extend(self.left_behind(&name, held, &after));
                        if !self.is_given_up_alias(&name) {
                            news.removed.insert(name);
                        }
                    }
                }
            }
        }
        self.settle_aliases(&mut news, &after);
        news.by_own_name();
        news
    }

    /// The client's content after this answer.
    fn after(&self) -> After<'_> {
        let views = self
            .parts
            .iter()
            .map(|part| part.held.brought_to(&part.view, |name| self.leaves(part, name), self.deletes()));
        let views: Vec<_> = views.collect();
        let types = self.parts.iter().filter_map(|part| part.snapshot.of(&self.type_url));
        let aliases = types.flat_map(|types| &types.names.aliases);
        let aliases = aliases.filter(|(alias, _)| views.iter().any(|view| view.has(alias)));
        let led_to = aliases.map(|(_, aliased)| aliased.name()).collect();
        After { views, led_to }
    }

    /// If two resources list an alias that the client asks for, the later one in a response has it. So the
    /// one that the alias leads to follows the other, sent before or not (ALI-2).
    fn settle_aliases(&self, news: &mut NewContent, after: &After<'_>) {
        if after.led_to.is_empty() {
            return;
        }
        let mut unsettled: Vec<_> =
            news.put.values().filter(|resource| !resource.aliases.is_empty()).cloned().collect();
        while let Some(resource) = unsettled.pop() {
            for alias in &resource.aliases {
                let Some(leading) = self.body(alias).filter(|_| after.has(alias)) else { continue };
                if leading.name != *alias && !leading.aliases.contains(alias) {
                    // The alias leads there by earlier content: what is sent now would not settle it.
                    continue;
                }
                let newer = self.body(&leading.name).filter(|_| after.has(&leading.name));
                let leading = newer.unwrap_or(leading);
                if leading.name != resource.name && news.last.insert(leading.name.clone()) {
                    news.put.insert(alias.clone(), leading.clone());
                    unsettled.push(leading.clone());
                }
            }
        }
    }

    /// Whether the client gave the name up, and waits for an answer (DEL-19).
    pub(super) fn is_departed(&self, name: &ResourceName) -> bool {
        self.departed.contains(name) && !self.refused.iter().any(|(refused, _)| refused == name)
    }

    /// Whether the client gave an alias up, and nothing else may have the name. The client knows nothing of
    /// that name.
    fn is_given_up_alias(&self, name: &ResourceName) -> bool {
        let is_covered = |part: &AnswerPart| part.collection.covers(name);
        self.is_departed(name) && self.aliased(name).is_some() && !self.parts.iter().any(is_covered)
    }

    /// The names of a part whose source does not know them while the wildcard or a glob supplies them: the
    /// supplied content replaces the part's content, even if it is no news for the wildcard or the glob
    /// (SUB-12).
    fn replaced(&self, part: &AnswerPart) -> impl Iterator<Item = ResourceName> {
        let beside = (self.parts.len() > 1).then(|| part.held.beside(&part.view));
        let unknown = beside.into_iter().flatten().map(|(name, _)| name);
        unknown.filter(move |name| part.collection.covers(name) && !self.leaves(part, name))
    }

    /// The resource behind a name that is or was an alias. Clients hold the resource under its own name
    /// (ALI-1).
    fn aliased(&self, alias: &ResourceName) -> Option<&Arc<Aliased>> {
        self.parts.iter().find_map(|part| part.snapshot.of(&self.type_url)?.names.aliases.get(alias))
    }

    /// The former resources of an alias that moved to another resource (ALI-2), unless a view still covers
    /// the resource.
    fn left_behind(
        &self,
        alias: &ResourceName,
        held: Option<Version>,
        after: &After<'_>,
    ) -> impl Iterator<Item = ResourceName> {
        let aliased = held.and_then(|held| Some((self.aliased(alias)?, held)));
        let left = aliased.into_iter().flat_map(|(aliased, held)| aliased.left_behind(held));
        left.filter(|name| !self.is_left(name, after)).cloned()
    }

    /// Whether the client keeps a resource, under its own name or because another alias leads to it. A name
    /// of its own that is still unknown is no reason for a removal (RLY-2).
    fn is_left(&self, name: &ResourceName, after: &After<'_>) -> bool {
        after.has(name) || self.parts.iter().any(|part| part.is_in_doubt(name)) || after.led_to.contains(name)
    }

    /// The complete set in one message (SST-12); empty if nothing changed.
    fn full_state(&self, news: &NewContent, asides: &Asides) -> Vec<Chunk> {
        // If every name is known to be absent, an empty response says so (SST-14).
        let is_known = |part: &AnswerPart| {
            part.view.is_complete() || self.features.excuses(&part.collection, &part.view)
        };
        let all_absent =
            news.told_absent && self.parts.iter().all(|part| part.view.is_empty() && is_known(part));
        let has_errors = self.features.errors_alone && asides.has_errors();
        if news.put.is_empty() && !(news.lost || all_absent || self.greeting || has_errors) {
            return Vec::new();
        }
        let (resources, errors) = self.complete_set(news, asides);
        let version = version_of(&resources);
        vec![Chunk { resources, errors, version, ..Chunk::default() }]
    }

    // === errors and TTLs ===

    /// Names whose unchanged resource must be sent again, because the resource ends an error (ERR-3) or a TTL
    /// (TTL-3).
    fn restated(&self) -> BTreeSet<ResourceName> {
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
    fn asides(&self, news: &mut NewContent) -> Asides {
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
    fn leave_out(&self, news: &mut NewContent, asides: &mut Asides) -> usize {
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
        let takes_wrapper = self.features.wrapper
            || (self.told_variants.is_some() && self.type_url.kind() != Kind::LbEndpointCollection);
        self.variant == Variant::Delta || takes_wrapper || resource.names_itself(&self.type_url)
    }

    /// Whether the client holds the resource in its present version, so that an error may replace the
    /// resource (ERR-4).
    fn is_held(&self, name: &ResourceName) -> bool {
        self.part_with(name).is_some_and(|part| part.held.version_of(name) == part.view.version_of(name))
    }

    /// Sets the remaining TTLs of the resources in each message.
    fn state_ttls(&self, chunks: &mut [Chunk]) {
        if !self.features.ttl
            || !self.parts.iter().any(|part| part.view.annotations().shortest_ttl().is_some())
        {
            return;
        }
        for chunk in chunks {
            for resource in chunk.resources.iter().chain(&chunk.beats) {
                let lease = std::iter::once(&resource.name)
                    .chain(&resource.aliases)
                    .find_map(|name| self.part_with(name)?.view.annotations().lease(name));
                if let Some(lease) = lease {
                    // Zero would mean no TTL.
                    let left = lease.expires.since(self.told_at).max(Duration::from_millis(1));
                    chunk.ttls.insert(resource.name.clone(), left);
                }
            }
        }
    }

    // === complete sets ===

    /// The content of a full-state message: the resources, and all errors each time. The client drops names
    /// that are in neither list (ERR-4).
    fn complete_set(&self, news: &NewContent, asides: &Asides) -> CompleteSet {
        let names: BTreeSet<_> = self.parts.iter().flat_map(|part| part.view.names()).collect();
        let put = names.into_iter().filter_map(|name| Some((name.clone(), self.body(name)?.clone())));
        let all = NewContent::complete(put.collect()).put.into_values();
        let mut resources: Vec<_> = all.filter(|resource| self.is_sendable(resource)).collect();
        let standing = self.parts.iter().flat_map(|part| part.view.annotations().errors());
        let mut errors: BTreeMap<_, _> =
            standing.chain(&asides.errors).map(|(name, error)| (name.clone(), error.clone())).collect();
        if !errors.is_empty() {
            let is_told_by_error = |name: &ResourceName| {
                errors.contains_key(name) && !news.put.contains_key(name) && self.is_held(name)
            };
            resources.retain(|resource| !(self.features.errors_alone && is_told_by_error(&resource.name)));
            // A name stands in one list only, and the resource wins (ERR-2, ERR-8).
            for resource in &resources {
                errors.remove(&resource.name);
            }
        }
        (resources, errors.into_iter().collect())
    }

    /// The version of a complete set (RLY-31), without a composition: composing takes as long as encoding,
    /// and each poll asks for the version first. Versions of sets are sums, so the result is the sum over
    /// the parts, less the names that several parts have.
    pub fn version_of_complete_set(&self) -> Version {
        let sum = |sum: Version, part: &AnswerPart| sum.plus(part.view.digest());
        let all = self.parts.iter().fold(Version::default(), sum);
        let parts = self.parts.iter().enumerate();
        let overlaid = parts.flat_map(|(at, part)| overlaid(part, overriding(&self.parts, at)));
        overlaid.fold(all, Version::minus)
    }
}

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

/// The versions of names in this part that a later part overrides (SUB-12).
fn overlaid<'a>(part: &'a AnswerPart, later: &'a [AnswerPart]) -> impl Iterator<Item = Version> + 'a {
    // The first later part with a name stands for all later parts with the name.
    later.iter().enumerate().flat_map(move |(at, other)| {
        common(&part.view, &other.view)
            .filter(move |name| !later[..at].iter().any(|between| between.view.has(name)))
            .filter_map(|name| part.view.version_of(name))
    })
}

/// The common names of two views, looked up from the smaller view.
fn common<'a>(one: &'a View, other: &'a View) -> impl Iterator<Item = &'a ResourceName> {
    let (small, large) = if one.len() < other.len() { (one, other) } else { (other, one) };
    small.names().filter(|name| large.has(name))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sluice_xds::{Any, Version};

    fn resource(version: u128) -> Arc<Resource> {
        Arc::new(Resource {
            name: "q".into(),
            version: Version(version),
            body: Any { type_url: Arc::from("t"), value: Bytes::new() },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        })
    }

    #[test]
    fn ali_1_the_content_of_the_own_name_counts_before_that_of_an_alias() {
        let put = [("q".into(), resource(165)), ("z".into(), resource(145))];
        let merged = NewContent::complete(put.into_iter().collect());
        assert_eq!(merged.put.into_values().collect::<Vec<_>>(), [resource(165)]);
    }
}
