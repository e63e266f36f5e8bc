//! The identity of the content of a unit, for contents that come back and for records (WAV-8, WAV-17).

use std::sync::Arc;

use crate::rollout::plan::{Gated, flows};
use crate::rollout::push::ReleaseDigest;
use sluice_engine::cache::{CachedBodies, Known};
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_xds::{Resource, ResourceName};

/// Names the use of the hash.
const CONTEXT: &str = "sluice 2026 gated content";

/// The first byte of each name, and the last of each part: no name counts for another part.
const PRESENT: u8 = 1;
const ABSENT: u8 = 2;
const END: u8 = 0;
const UNKNOWN: u8 = 3;

impl ReleaseDigest {
    /// The digest of the known content of the gated types, but for the resources that flow. An absent name
    /// counts: a push with the removal of all resources differs from the time without known names. Takes time
    /// proportional to the number of resources.
    pub fn of(snapshot: &Snapshot, gated: &Gated) -> ReleaseDigest {
        let mut hash = Hash(blake3::Hasher::new_derive_key(CONTEXT));
        for (type_url, content) in snapshot.gated_types(gated) {
            hash.text(type_url.message());
            hash.whole(content);
        }
        let bytes = hash.0.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&bytes.as_bytes()[..16]);
        ReleaseDigest(u128::from_le_bytes(first))
    }
}

struct Hash(blake3::Hasher);

impl Hash {
    fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    fn whole(&mut self, content: &TypeSnapshot) {
        let is_complete = content.wildcard.is_whole();
        self.members(&content.wildcard.members, is_complete);
        self.members(&content.globs.members, true);
        for (name, state) in
            content.names.entries.iter().filter(|(_, state)| !matches!(state, Known::Unknown))
        {
            self.name(name, state.resource());
        }
        self.0.update(&[END]);
    }

    fn members(&mut self, bodies: &CachedBodies, is_known: bool) {
        for (name, cached) in bodies.iter().filter(|_| is_known) {
            self.name(name, Some(&cached.resource));
        }
        self.0.update(&[if is_known { END } else { UNKNOWN }]);
    }

    /// `None`: the name is known to have no resource. What flows is part of no release (WAV-3).
    fn name(&mut self, name: &ResourceName, resource: Option<&Arc<Resource>>) {
        if resource.is_some_and(|resource| flows(resource)) {
            return;
        }
        self.0.update(&[if resource.is_some() { PRESENT } else { ABSENT }]);
        self.text(name.as_str());
        self.0.update(&resource.map_or(0, |resource| resource.version.0).to_le_bytes());
    }
}
