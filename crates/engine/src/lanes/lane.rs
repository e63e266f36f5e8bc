//! One lane: the content of a source at a release, edited by interest alone (WAV-5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::elder::RefusingElder;
use super::lane_type::{LaneType, TypeUpdate, changed_members, changed_names};
use super::release::Release;
use super::rule::{HoldRule, Named, Stamps};
use crate::gated::Gated;
use crate::snapshot::{LaneMark, Snapshot, TypeSnapshot};
use sluice_xds::{Kind, ResourceName, TypeUrl};

/// The source's content before and after a publication.
pub(super) struct SourceUpdate<'a> {
    pub before: &'a Snapshot,
    pub live: &'a Snapshot,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub mark: LaneMark,
    /// Clients were given the lane, so they may have its content.
    pub is_given: bool,
    /// The types that do not simply flow.
    pub types: BTreeMap<TypeUrl, LaneType>,
}

impl Lane {
    /// The content of a snapshot as it is. The cost does not depend on the number of resources.
    pub fn freeze(snapshot: &Snapshot, gated: &Gated, mark: LaneMark) -> Lane {
        let types = snapshot.types().filter(|(type_url, _)| is_covered(type_url, gated));
        let types = types.map(|(type_url, content)| (type_url.clone(), LaneType::new(content.clone())));
        Lane { mark, is_given: true, types: types.collect() }
    }

    /// The content of a release, for the present sets of the source. Endpoints, and all that the release does
    /// not know, are those of the `previous` stable content, which clients have: the source's may be the
    /// content of a push that is taken back.
    pub fn of_release(
        release: &Release,
        previous: &Lane,
        live: &Snapshot,
        gated: &Gated,
        mark: LaneMark,
        stamps: &mut Stamps,
    ) -> Lane {
        let endpoints = previous.types.iter().filter(|(type_url, _)| !gated.contains(type_url));
        let mut types: BTreeMap<_, _> = endpoints.map(|(url, held)| (url.clone(), held.clone())).collect();
        let urls = release.types.keys().chain(previous.types.keys());
        let urls = urls.chain(live.types().map(|(type_url, _)| type_url));
        let nothing = TypeSnapshot::default();
        for type_url in urls.filter(|url| gated.contains(url)).collect::<BTreeSet<_>>() {
            let mut held = LaneType::new(release.types.get(type_url).cloned().unwrap_or_default());
            if let Some(view) = &mut held.content.wildcard.view {
                *view = Arc::new(view.marked(stamps.fresh()));
            }
            let previous = previous.types.get(type_url).map_or(&nothing, |previous| &previous.content);
            let update =
                |before, live| TypeUpdate { before, live, rule: &HoldRule::Gated, peer: None, elder: None };
            let changed = changed_names(&held.content.names, &previous.names);
            held.follow_by(&changed, &update(&nothing, previous), stamps);
            held.follow(&update(previous, live.of(type_url).unwrap_or(&nothing)), stamps);
            types.insert(type_url.clone(), held);
        }
        Lane { mark, is_given: true, types }
    }

    /// Takes over from the source all that the lane does not hold. `peer`: the other lane, after the update.
    /// `elder`: for first answers.
    pub fn follow(
        &mut self,
        update: &SourceUpdate<'_>,
        gated: &Gated,
        peer: Option<&Lane>,
        elder: Option<RefusingElder<'_>>,
        stamps: &mut Stamps,
    ) {
        let live_types = update.live.types().map(|(type_url, _)| type_url);
        let types: BTreeSet<_> = self.types.keys().chain(live_types).cloned().collect();
        // Clusters first: they decide about their endpoints.
        let (gated_types, others): (Vec<_>, Vec<_>) = types
            .into_iter()
            .filter(|type_url| is_covered(type_url, gated))
            .partition(|url| gated.contains(url));
        let nothing = TypeSnapshot::default();
        for type_url in gated_types.iter().chain(&others) {
            let [before, live] =
                [update.before, update.live].map(|snapshot| snapshot.of(type_url).unwrap_or(&nothing));
            let rule = match gated.contains(type_url) {
                true => HoldRule::Gated,
                false => HoldRule::Endpoints(self.named(type_url, before, live)),
            };
            let peer = peer.and_then(|peer| peer.types.get(type_url)).map(|peer| &peer.content);
            let held = self.types.entry(type_url.clone()).or_default();
            let elder = elder.and_then(|elder| elder.of(type_url));
            held.follow(&TypeUpdate { before, live, rule: &rule, peer, elder }, stamps);
            if held.is_equal() && update.live.of(type_url).is_none() {
                self.types.remove(type_url);
            }
        }
    }

    /// The endpoints that the lane may name, if the source lost any.
    fn named(&self, type_url: &TypeUrl, before: &TypeSnapshot, live: &TypeSnapshot) -> Named {
        let loses_names = || {
            let is_present = |name: &ResourceName| {
                live.names.entries.get(name).is_some_and(|state| state.resource().is_some())
            };
            !changed_names(&before.names, &live.names).iter().all(is_present)
        };
        let loses_members =
            |before, live| changed_members(before, live).iter().any(|name| !live.contains_key(name));
        let loses = before.wildcard.is_whole() != live.wildcard.is_whole()
            || !before.globs.complete.ptr_eq(&live.globs.complete)
            || loses_names()
            || loses_members(&before.wildcard.members, &live.wildcard.members)
            || loses_members(&before.globs.members, &live.globs.members);
        if !loses {
            return Named::Any(false);
        }
        let of_kind = |is_kind: fn(Kind) -> bool| {
            self.types.iter().filter(move |(type_url, _)| is_kind(type_url.kind())).map(|(_, held)| held)
        };
        match type_url.kind() {
            Kind::ClusterLoadAssignment => {
                let is_cluster = |kind| matches!(kind, Kind::Cluster | Kind::ClusterCollection);
                Named::by(of_kind(is_cluster).map(|clusters| &clusters.content))
            }
            _ => {
                let mut assignments = of_kind(|kind| kind == Kind::ClusterLoadAssignment);
                Named::Any(assignments.any(|assignments| !assignments.is_equal()))
            }
        }
    }

    /// Whether gated content differs from the source's.
    pub fn differs(&self, gated: &Gated) -> bool {
        self.types.iter().any(|(type_url, held)| gated.contains(type_url) && held.differs())
    }

    /// Whether the source has all gated content of the lane.
    pub fn is_equal(&self, gated: &Gated) -> bool {
        self.types.iter().all(|(type_url, held)| !gated.contains(type_url) || held.is_equal())
    }

    /// Whether the lane has endpoints that the source has not (WAV-5).
    pub fn keeps_endpoints(&self, gated: &Gated) -> bool {
        self.types.iter().any(|(type_url, held)| !gated.contains(type_url) && !held.is_equal())
    }

    /// Whether somebody asks the source for gated content of the lane that the source does not know again
    /// yet.
    pub fn is_awaited(&self, live: &Snapshot, gated: &Gated) -> bool {
        let gated = self.types.iter().filter(|(type_url, _)| gated.contains(type_url));
        gated.into_iter().any(|(type_url, held)| live.of(type_url).is_some_and(|live| held.is_awaited(live)))
    }

    /// The snapshot for clients.
    pub fn snapshot(&mut self, live: &Snapshot, gated: &Gated, stamps: &mut Stamps) -> Snapshot {
        let mut types: BTreeMap<_, _> =
            live.types().map(|(type_url, content)| (type_url.clone(), content.clone())).collect();
        for (type_url, held) in &mut self.types {
            let live = live.of(type_url);
            let mut content = held.content.clone();
            held.last_bytes.add_to(&mut content, live, gated.contains(type_url), stamps);
            // No plan holds a subscription back (DEL-17).
            content.names.unasked = live.and_then(|live| live.names.unasked.clone());
            types.insert(type_url.clone(), content);
        }
        live.with_types(types, self.mark)
    }
}

/// Whether the type does not simply flow.
pub(super) fn is_covered(type_url: &TypeUrl, gated: &Gated) -> bool {
    gated.contains(type_url) || is_endpoints(type_url.kind())
}

fn is_endpoints(kind: Kind) -> bool {
    matches!(kind, Kind::ClusterLoadAssignment | Kind::LbEndpoint | Kind::LbEndpointCollection)
}
