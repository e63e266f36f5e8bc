//! Releases of the history (HIS-3), and what a push that went back has to be restated of (WAV-10).

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdSet;

use super::lane::Lane;
use crate::engine::cache::Known;
use crate::engine::collection::CollectionKind;
use crate::engine::rollout::plan::Gated;
use crate::engine::snapshot::{GlobsSnapshot, NamesSnapshot, Snapshot, TypeSnapshot, WildcardSnapshot};
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

    /// Whether the known gated content of a snapshot is this release's. Names that only one of them knows do not count.
    pub fn is_content_of(&self, snapshot: &Snapshot, gated: &Gated) -> bool {
        let none = TypeSnapshot::default();
        let types = snapshot.types().map(|(type_url, _)| type_url).chain(self.types.keys());
        let types: BTreeSet<_> = types.filter(|type_url| gated.contains(type_url)).collect();
        types.into_iter().all(|type_url| {
            let own = self.types.get(type_url).unwrap_or(&none);
            is_same(own, snapshot.of(type_url).unwrap_or(&none))
        })
    }
}

/// The names that differ between a push that went back and stable. A client that rejected the push may have any part
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
        evicted: 0,
    }
}

fn is_same(own: &TypeSnapshot, other: &TypeSnapshot) -> bool {
    use imbl::ordmap::DiffItem;
    let are_equal = |one: &Known, other: &Known| match (one, other) {
        (Known::Unknown, _) | (_, Known::Unknown) | (Known::Absent(_), Known::Absent(_)) => true,
        (one, other) => one == other,
    };
    let mut names = own.names.known.diff(&other.names.known);
    let names = names.all(|item| match item {
        DiffItem::Update { old: (_, one), new: (_, other) } => are_equal(one, other),
        DiffItem::Add(..) | DiffItem::Remove(..) => true,
    });
    let is_whole = |of: &TypeSnapshot| super::members::is_whole(&of.wildcard);
    let wildcard = || {
        !(is_whole(own) && is_whole(other))
            || own.wildcard.members.diff(&other.wildcard.members).next().is_none()
    };
    let is_in_both = |name: &ResourceName| {
        let is_complete =
            |glob: ResourceName| [own, other].iter().all(|of| of.globs.complete.contains(&glob));
        name.glob().is_some_and(is_complete)
    };
    let globs = || {
        let differing = super::members::changed_members(&own.globs.members, &other.globs.members);
        !differing.iter().any(is_in_both)
    };
    names && wildcard() && globs()
}
