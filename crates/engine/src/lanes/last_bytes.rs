//! Last bytes that clients need while they move between lanes: resources of other lanes that a lane lacks
//! (WAV-9).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rule::Stamps;
use crate::cache::Bodies;
use crate::collection::CollectionKind;
use crate::snapshot::{LastVersion, LastVersions, TypeSnapshot};
use sluice_xds::ResourceName;

/// The last bytes of a type in a lane, by kind of collection.
#[derive(Clone, Debug, Default)]
pub(super) struct LastBytes {
    pub bodies: BTreeMap<CollectionKind, Bodies>,
    /// The same of all releases.
    versions: Arc<LastVersions>,
    /// Distinguishes these bytes from others under the same names; 0 if there are none.
    mark: u64,
    /// The source's own mark at the time of `mark`.
    live_mark: u64,
}

impl LastBytes {
    /// Looks the last bytes under these names up again.
    pub fn renew(
        &mut self,
        kind: CollectionKind,
        names: impl Iterator<Item = ResourceName>,
        find: impl Fn(&ResourceName) -> Vec<LastVersion>,
        stamps: &mut Stamps,
    ) {
        let bodies = self.bodies.entry(kind).or_default();
        let mut is_changed = false;
        for name in names {
            let present = find(&name);
            let previous = self.versions.0.get(&kind).and_then(|names| names.get(&name));
            if previous.map_or(&[][..], Vec::as_slice) == present {
                continue;
            }
            is_changed = true;
            let versions = Arc::make_mut(&mut self.versions).0.entry(kind).or_default();
            match present.first() {
                Some(first) => {
                    bodies.insert(name.clone(), first.resource.clone());
                    versions.insert(name, present);
                }
                None => {
                    bodies.remove(&name);
                    versions.remove(&name);
                }
            }
        }
        if is_changed || self.mark == 0 {
            self.mark = stamps.number();
        }
    }

    /// Adds the bytes to a snapshot with the source's last bytes. `is_gated`: the type is held.
    pub fn add_to(
        &mut self,
        content: &mut TypeSnapshot,
        live: Option<&TypeSnapshot>,
        is_gated: bool,
        stamps: &mut Stamps,
    ) {
        content.lasts = is_gated.then(|| self.versions.clone());
        self.bodies.retain(|_, bodies| !bodies.is_empty());
        for kind in CollectionKind::ALL {
            let live_bodies = live.map(|live| live.departed_bodies(kind));
            *content.departed_bodies_mut(kind) = match (self.bodies.get(&kind), live_bodies) {
                (None, None) => Bodies::default(),
                (None, Some(bodies)) => bodies.clone(),
                (Some(bodies), live_bodies) => {
                    let mut bodies = bodies.clone();
                    for (name, body) in live_bodies.into_iter().flatten() {
                        bodies.entry(name.clone()).or_insert_with(|| body.clone());
                    }
                    bodies
                }
            };
        }
        content.evicted = live.map_or(0, |live| live.evicted);
        if self.bodies.is_empty() {
            self.mark = 0;
            return;
        }
        if std::mem::replace(&mut self.live_mark, content.evicted) != content.evicted {
            self.mark = stamps.number();
        }
        // Between the source's own counts, and the marks of servers that stand in.
        content.evicted = 1 << 62 | self.mark;
    }
}
