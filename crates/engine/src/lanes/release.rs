//! Releases of the history (HIS-3), and what a rejected push has to be restated of (WAV-10).

use std::collections::BTreeMap;

use imbl::OrdSet;

use super::lane::Lane;
use crate::collection::CollectionKind;
use crate::rollout::plan::Gated;
use crate::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The names of earlier pushes that are restated with those of the latest one, at most. Beyond, a client that rejected several pushes in a row
/// is restated the latest.
const CARRIED_MAX: usize = 100_000;

/// The gated content of a source as a push left it. Shares its parts with the lanes.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// 0 for the content before the first push.
    pub push: u64,
    pub types: BTreeMap<TypeUrl, TypeSnapshot>,
}

impl Release {
    pub(super) fn of(push: u64, lane: &Lane, gated: &Gated) -> Release {
        let types = lane.types.iter().filter(|(type_url, _)| gated.contains(type_url));
        let types = types.map(|(type_url, of)| (type_url.clone(), without_sets(&of.content)));
        Release { push, types: types.collect() }
    }
}

/// The names that differ between stable and a push that went back, or that was halted, and those of the pushes before it. A client that
/// rejected a push may have any part of it, whatever versions the client presents, also when it comes back after another push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restated {
    /// The latest push.
    pub push: u64,
    pub types: BTreeMap<TypeUrl, BTreeMap<CollectionKind, OrdSet<ResourceName>>>,
}

impl Restated {
    /// Adds the names of the pushes before.
    pub(super) fn after(mut self, former: Option<&Restated>) -> Restated {
        let former = former.filter(|former| former.count() <= CARRIED_MAX);
        for (type_url, kinds) in former.iter().flat_map(|former| &former.types) {
            let own = self.types.entry(type_url.clone()).or_default();
            for (kind, names) in kinds {
                let all = own.remove(kind).unwrap_or_default().union(names.clone());
                own.insert(*kind, all);
            }
        }
        self
    }

    /// The number of names.
    fn count(&self) -> usize {
        self.types.values().flat_map(BTreeMap::values).map(OrdSet::len).sum()
    }
}

fn without_sets(content: &TypeSnapshot) -> TypeSnapshot {
    let (names, globs, wildcard) = (&content.names, &content.globs, &content.wildcard);
    TypeSnapshot {
        names: NamesSnapshot {
            entries: names.entries.clone(),
            aliases: names.aliases.clone(),
            annotations: names.annotations.clone(),
            ..NamesSnapshot::default()
        },
        globs: GlobsSnapshot {
            members: globs.members.clone(),
            complete: globs.complete.clone(),
            annotations: globs.annotations.clone(),
            ..GlobsSnapshot::default()
        },
        wildcard: WildcardSnapshot {
            members: wildcard.members.clone(),
            view: wildcard.view.clone(),
            ..WildcardSnapshot::default()
        },
        ..TypeSnapshot::default()
    }
}
