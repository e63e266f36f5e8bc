//! Releases of the history (HIS-3), and the names of a rejected push that are restated (WAV-10).

use std::collections::{BTreeMap, VecDeque};

use imbl::OrdSet;

use super::lane_type::LaneType;
use crate::collection::CollectionKind;
use crate::gated::Gated;
use crate::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The names of earlier pushes that are restated with those of the latest one, at most. Beyond, a client that
/// rejected several pushes in a row is restated the latest.
const CARRIED_MAX: usize = 100_000;

/// The gated content of a source as a push left it. Shares its parts with the lanes.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// 0 for the content before the first push.
    pub push: u64,
    pub types: BTreeMap<TypeUrl, TypeSnapshot>,
}

/// The types of a lane.
type LaneTypes = BTreeMap<TypeUrl, LaneType>;

impl Release {
    fn new(push: u64, lane: &LaneTypes, gated: &Gated) -> Release {
        let types = lane.iter().filter(|(type_url, _)| gated.contains(type_url));
        let types = types.map(|(type_url, held)| (type_url.clone(), without_sets(&held.content)));
        Release { push, types: types.collect() }
    }
}

/// The releases of a source.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// The release that everybody may have.
    pub current: u64,
    /// The number of releases so far.
    pub count: u64,
    /// The oldest first.
    pub history: VecDeque<Release>,
    /// The number of releases that are kept.
    pub most: usize,
}

impl Releases {
    /// The number of another release.
    pub fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Everybody has the content of a push, in the place of `previous` content.
    pub fn add(&mut self, push: u64, lane: &LaneTypes, previous: Option<&LaneTypes>, gated: &Gated) {
        if let Some(previous) = previous.filter(|_| self.history.is_empty()) {
            self.history.push_back(Release::new(0, previous, gated));
        }
        self.history.push_back(Release::new(push, lane, gated));
        self.history.drain(..self.history.len().saturating_sub(self.most));
    }
}

/// The names that differ between stable and a push that went back, or that was halted, and those of the
/// pushes before it. A client that rejected a push may have any part of it, whatever versions the client
/// presents, also when the client comes back after another push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restated {
    /// The latest push.
    pub push: u64,
    pub types: BTreeMap<TypeUrl, BTreeMap<CollectionKind, OrdSet<ResourceName>>>,
}

impl Restated {
    /// Adds the names of the pushes before.
    pub(super) fn after(mut self, earlier: Option<&Restated>) -> Restated {
        let earlier = earlier.filter(|earlier| earlier.count() <= CARRIED_MAX);
        for (type_url, kinds) in earlier.iter().flat_map(|earlier| &earlier.types) {
            let by_kind = self.types.entry(type_url.clone()).or_default();
            for (kind, names) in kinds {
                let all = by_kind.remove(kind).unwrap_or_default().union(names.clone());
                by_kind.insert(*kind, all);
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
