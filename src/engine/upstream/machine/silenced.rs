//! Finds types about which the server is silent since a request for more names (ADR 54).
//!
//! Some servers answer a SotW request only if they have every name in it. One unknown name then ends the updates of
//! all other names of the type. This machine notices the silence, and tells the names that may be the reason.
//! [`crate::engine::source::Streams`] finds out whether they are.

use std::collections::BTreeSet;

use crate::engine::upstream::api::Output;
use crate::engine::upstream::machine::resume::Former;
use crate::engine::upstream::machine::{Phase, Upstream};
use crate::engine::upstream::names::{Held, Names};
use crate::engine::upstream::type_request::Want;
use crate::xds::{ResourceName, TypeUrl};

impl Upstream {
    /// The types without a response since a request for more names, for the time of the resource timer, on a
    /// stream that is alive.
    pub(in crate::engine) fn silenced(&self) -> Vec<TypeUrl> {
        let Phase::Open(stream) = &self.phase else { return Vec::new() };
        let silenced = self.subscriptions.values().filter(|of_type| {
            let is_alive = !stream.is_receiving && !stream.has_marks;
            is_alive && of_type.said.silence.is_proven(stream.signs)
        });
        silenced.map(|of_type| of_type.type_url.clone()).collect()
    }

    /// The server may be silent about the type: no name is in doubt.
    pub(in crate::engine) fn forgive(&mut self, type_url: &TypeUrl) {
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            subscription.said.silence.end();
        }
    }

    /// The names that may be the reason of a silence: those without a resource, and those that were added since the
    /// last response. Names with parameters are for servers of another kind.
    pub(in crate::engine) fn doubtful(&self, type_url: &TypeUrl) -> BTreeSet<ResourceName> {
        let Some(subscription) = self.subscriptions.get(type_url) else { return BTreeSet::new() };
        let Want::Names(names) = &subscription.want else { return BTreeSet::new() };
        let added = &subscription.said.silence.added;
        let is_doubtful = |name: &&ResourceName| {
            (names.held(name).is_none() || added.contains(*name)) && !name.is_located()
        };
        names.iter().filter(is_doubtful).cloned().collect()
    }

    /// The names without a resource, but for those with parameters.
    pub(in crate::engine) fn unheld(&self, type_url: &TypeUrl) -> Vec<ResourceName> {
        let Some(names) = self.wanted_names(type_url) else { return Vec::new() };
        names.iter().filter(|name| names.held(name).is_none() && !name.is_located()).cloned().collect()
    }

    /// A name with a resource under its own name, beside the doubtful names.
    pub(in crate::engine) fn witness(
        &self,
        type_url: &TypeUrl,
        doubtful: &BTreeSet<ResourceName>,
    ) -> Option<ResourceName> {
        let names = self.wanted_names(type_url)?;
        let is_sound = |name: &&ResourceName| {
            !doubtful.contains(*name) && names.held(name).is_some_and(|held| held.is_of(name, name))
        };
        names.iter().find(is_sound).cloned()
    }

    /// The names with resources, for another stream of the same server.
    pub(in crate::engine) fn formers(&self, type_url: &TypeUrl) -> Vec<Former> {
        let Some(names) = self.wanted_names(type_url) else { return Vec::new() };
        let held = names.iter().filter_map(|name| Some((name, names.held(name)?)));
        let former = |(name, held): (&ResourceName, &Held)| {
            let (name, own) = (name.clone(), held.own(name).clone());
            Former { name, own, version: Box::default() }
        };
        held.map(former).collect()
    }

    fn wanted_names(&self, type_url: &TypeUrl) -> Option<&Names> {
        match &self.subscriptions.get(type_url)?.want {
            Want::Names(names) => Some(names),
            Want::Nothing | Want::Wildcard(_) | Want::Globs(_) => None,
        }
    }

    /// The server has answered something on the open stream.
    pub(in crate::engine) fn is_answered(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.answered.is_some())
    }

    /// Bytes of a message have arrived, and the rest is outstanding.
    pub(in crate::engine) fn is_receiving(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.is_receiving)
    }

    /// The number of signs of life of the open stream.
    pub(in crate::engine) fn signs(&self) -> u64 {
        match &self.phase {
            Phase::Open(stream) => stream.signs,
            Phase::Closed | Phase::Waiting { .. } | Phase::Opening => 0,
        }
    }

    /// Checks the transport.
    pub(in crate::engine) fn probe(&mut self) {
        if let Phase::Open(stream) = &mut self.phase
            && !std::mem::replace(&mut stream.is_probing, true)
        {
            self.outputs.push_back(Output::Probe);
        }
    }
}
