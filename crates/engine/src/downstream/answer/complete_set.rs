//! Complete sets: the content, and the version without a composition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::downstream::answer::errors_and_ttls::Asides;
use crate::downstream::answer::news::News;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::view::View;
use sluice_xds::{Resource, ResourceName, Status, Version};

type CompleteSet = (Vec<Arc<Resource>>, Vec<(ResourceName, Arc<Status>)>);

impl Answer {
    /// The content of a full-state message: the resources, and all errors each time. The client drops names
    /// that are in neither list (ERR-4).
    pub(super) fn complete_set(&self, news: &News, asides: &Asides) -> CompleteSet {
        let names: BTreeSet<_> = self.parts.iter().flat_map(|part| part.view.names()).collect();
        let put = names.into_iter().filter_map(|name| Some((name.clone(), self.body(name)?.clone())));
        let all = News::complete(put.collect()).put.into_values();
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
        let overlaid =
            self.parts.iter().enumerate().flat_map(|(at, part)| overlaid(part, &self.parts[at + 1..]));
        overlaid.fold(all, Version::minus)
    }
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
