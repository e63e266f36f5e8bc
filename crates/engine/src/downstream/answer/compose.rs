//! Composes answers: from views to resources, removals and messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cache::aliased::Aliased;
use crate::downstream::answer::chunk::{Chunk, split, version_of};
use crate::downstream::answer::composition::Composition;
use crate::downstream::answer::errors_and_ttls::Asides;
use crate::downstream::answer::news::News;
use crate::downstream::answer::targets::targets;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::view::{STAYS, View, difference};
use sluice_xds::{ResourceName, Variant, Version};

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

impl Composition {
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

    /// Compares the client's views with the views that the client should hold, over all parts. A name that is
    /// wanted by itself and by the wildcard is one resource to the client: its own subscription decides, and
    /// the wildcard decides if the subscription has no resource (SUB-12, DEL-22).
    fn news(&self) -> News {
        // In SotW, `departed` has refused names only, and their absence is known at once.
        let told_absent = self.variant == Variant::Sotw && !self.departed.is_empty();
        let mut news = News { told_absent, ..News::default() };
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
            let held = self.parts.iter().rev().find_map(|part| part.held.version_of(&name));
            let due = after.views.iter().rev().find_map(|view| view.version_of(&name));
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
    fn settle_aliases(&self, news: &mut News, after: &After<'_>) {
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
    fn full_state(&self, news: &News, asides: &Asides) -> Vec<Chunk> {
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
}
