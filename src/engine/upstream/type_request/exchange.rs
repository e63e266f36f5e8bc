//! The state of a type with the other server of a failover pair, stored while the present server is asked.

use crate::engine::upstream::failover::Stash;
use crate::engine::upstream::names::Held;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, Variant};
use std::collections::BTreeMap;

impl TypeRequest {
    /// Stores the versions of one server. Restores the stored versions of the other server, if their variant
    /// is the present variant.
    pub(in crate::engine::upstream) fn exchange(&mut self, before: Variant, now: Variant) {
        let mut held = BTreeMap::new();
        self.each_held(|name, of_name| {
            held.extend(of_name.take_version().map(|version| (name.clone(), version)));
        });
        let stash = Stash { variant: before, accepted: std::mem::take(&mut self.accepted), held };
        let Some(mut other) = self.stash.replace(Box::new(stash)).filter(|other| other.variant == now) else {
            return;
        };
        self.accepted = other.accepted;
        self.each_held(|name, of_name| {
            if let Some(version) = other.held.remove(name) {
                of_name.set_version(version);
            }
        });
    }

    pub(in crate::engine::upstream) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut Held)) {
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => names.each_held(visit),
            Want::Globs(globs) => globs.each_held(visit),
            Want::Wildcard(wildcard) => {
                wildcard.members.iter_mut().for_each(|(name, held)| visit(name, held))
            }
        }
    }
}
