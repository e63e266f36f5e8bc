//! Finds the last bytes of the lanes: after a change of the source, and when lanes begin and end.

use std::collections::BTreeSet;

use super::lane::{Lane, is_covered};
use super::lane_type::changed_names;
use super::members::changed_members;
use super::overlay::Lanes;
use crate::collection::CollectionKind;
use crate::snapshot::{LastVersion, Snapshot, TypeSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

impl Lanes {
    /// The types of the source that some lane lacks so far.
    pub(super) fn new_types(&self) -> Vec<TypeUrl> {
        let lanes = || [&self.stable, &self.candidate].into_iter().flatten();
        let is_new = |type_url: &&TypeUrl| {
            self.keeps_lasts(type_url) && lanes().any(|lane| !lane.types.contains_key(*type_url))
        };
        self.live.types().map(|(type_url, _)| type_url).filter(is_new).cloned().collect()
    }

    /// Finds the last bytes of the lanes again, after a change of the source. Of `new` types a lane has none yet.
    pub(super) fn renew_changed(&mut self, before: &Snapshot, new: &[TypeUrl]) {
        let live = self.live.clone();
        let nothing = TypeSnapshot::default();
        for (type_url, lives) in live.types() {
            if !self.keeps_lasts(type_url) {
                continue;
            }
            if new.contains(type_url) {
                self.renew_type(type_url);
                continue;
            }
            let before = before.of(type_url).unwrap_or(&nothing);
            for (kind, names) in [
                (CollectionKind::Names, changed_names(&before.names, &lives.names)),
                (
                    CollectionKind::Wildcard,
                    changed_members(&before.wildcard.members, &lives.wildcard.members),
                ),
                (CollectionKind::Globs, changed_members(&before.globs.members, &lives.globs.members)),
            ] {
                self.renew(type_url, kind, &names);
            }
        }
    }

    fn keeps_lasts(&self, type_url: &TypeUrl) -> bool {
        type_url.kind().is_cluster_side() && is_covered(type_url, &self.gated)
    }

    /// Finds all last bytes of the lanes again.
    pub(super) fn renew_all(&mut self) {
        let lanes = || [&self.stable, &self.candidate].into_iter().flatten();
        let of_ended = self.ended.iter().flat_map(|of| of.types.keys());
        let types = lanes().flat_map(|lane| lane.types.keys()).chain(of_ended);
        let types: BTreeSet<_> = types.filter(|type_url| self.keeps_lasts(type_url)).cloned().collect();
        types.iter().for_each(|type_url| self.renew_type(type_url));
    }

    fn renew_type(&mut self, type_url: &TypeUrl) {
        for kind in CollectionKind::ALL {
            let names = self.names_with_lasts(type_url, kind);
            self.renew(type_url, kind, &names);
        }
    }

    /// The names that may have last bytes.
    fn names_with_lasts(&self, type_url: &TypeUrl, kind: CollectionKind) -> Vec<ResourceName> {
        let mut names = BTreeSet::new();
        let lanes = [&self.stable, &self.candidate].into_iter().flatten();
        for of in lanes.filter_map(|lane| lane.types.get(type_url)) {
            names.extend(of.differing(kind, self.live.of(type_url)));
            names.extend(of.lasts.bodies.get(&kind).into_iter().flat_map(|of| of.keys()).cloned());
        }
        let ended = self.ended.iter().filter_map(|of| of.types.get(type_url)?.get(&kind));
        names.extend(ended.flat_map(|of| of.keys()).cloned());
        names.into_iter().collect()
    }

    fn renew(&mut self, type_url: &TypeUrl, kind: CollectionKind, names: &[ResourceName]) {
        if names.is_empty() {
            return;
        }
        let content = |lane: &Option<Lane>| Some(lane.as_ref()?.types.get(type_url)?.content.clone());
        let (stable, candidate) = (content(&self.stable), content(&self.candidate));
        // A client may go back from a candidate that still stands: it had equal content from the beginning, and was sent nothing of
        // the push.
        let of_candidate = candidate.clone().filter(|_| self.gated.contains(type_url));
        let ended = &self.ended;
        for (lane, own, other, is_open) in [
            (&mut self.stable, &stable, &of_candidate, false),
            (&mut self.candidate, &candidate, &stable, true),
        ] {
            let Some(lane) = lane else { continue };
            let body = |of: &Option<TypeSnapshot>, name: &ResourceName| {
                of.as_ref().and_then(|of| of.body(kind, name)).cloned()
            };
            let find = |name: &ResourceName| {
                if body(own, name).is_some() {
                    return Vec::new();
                }
                let of_other = body(other, name).map(|resource| LastVersion { resource, is_open });
                let (of_stable, of_candidate) = if is_open { (of_other, None) } else { (None, of_other) };
                let ended = ended.iter().rev().filter_map(|of| of.last(type_url, kind, name));
                of_stable.into_iter().chain(ended).chain(of_candidate).collect()
            };
            let Some(of) = lane.types.get_mut(type_url) else { continue };
            of.lasts.renew(kind, names.iter().cloned(), find, &mut self.stamps);
        }
    }
}
