//! Releases of the history (HIS-3), and what a rejected push has to be restated of (WAV-10).

use std::collections::BTreeMap;

use imbl::OrdSet;

use super::lane::Lane;
use crate::engine::collection::CollectionKind;
use crate::engine::rollout::plan::Gated;
use crate::engine::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use crate::xds::{ResourceName, TypeUrl};

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

/// The names that differ between stable and a push that went back, or that was halted. A client that rejected the push may have any part
/// of it, whatever versions the client presents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restated {
    pub push: u64,
    pub types: BTreeMap<TypeUrl, BTreeMap<CollectionKind, OrdSet<ResourceName>>>,
}

fn without_sets(content: &TypeSnapshot) -> TypeSnapshot {
    let (names, globs, wildcard) = (&content.names, &content.globs, &content.wildcard);
    TypeSnapshot {
        names: NamesSnapshot {
            known: names.known.clone(),
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
