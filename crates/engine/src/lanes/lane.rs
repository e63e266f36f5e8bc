//! One lane: the content of a source at a release, edited by interest alone (WAV-5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::elder::Elder;
use super::lane_type::{LaneType, Step, changed_names};
use super::members::changed_members;
use super::release::Release;
use super::rule::{Named, Rule, Stamps};
use crate::rollout::Refused;
use crate::rollout::plan::Gated;
use crate::snapshot::{LaneMark, Snapshot, TypeSnapshot};
use sluice_xds::{Kind, ResourceName, TypeUrl};

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
        let types = types.map(|(type_url, content)| (type_url.clone(), LaneType::of(content.clone())));
        Lane { mark, is_given: true, types: types.collect() }
    }

    /// The content of a release, for the present sets of the source. Endpoints, and all that the release does not know, are those of
    /// `former`, which clients have: the source's may be the content of a push that is taken back.
    pub fn of_release(
        release: &Release,
        former: &Lane,
        live: &Snapshot,
        gated: &Gated,
        mark: LaneMark,
        stamps: &mut Stamps,
    ) -> Lane {
        let endpoints = former.types.iter().filter(|(type_url, _)| !gated.contains(type_url));
        let mut types: BTreeMap<_, _> = endpoints.map(|(url, of)| (url.clone(), of.clone())).collect();
        let of_live = live.types().map(|(type_url, _)| type_url);
        let gated =
            release.types.keys().chain(former.types.keys()).chain(of_live).filter(|url| gated.contains(url));
        let nothing = TypeSnapshot::default();
        for type_url in gated.collect::<BTreeSet<_>>() {
            let mut own = LaneType::of(release.types.get(type_url).cloned().unwrap_or_default());
            if let Some(view) = &mut own.content.wildcard.view {
                *view = Arc::new(view.marked(stamps.fresh()));
            }
            let former = former.types.get(type_url).map_or(&nothing, |of| &of.content);
            let step = |before, live| Step { before, live, rule: &Rule::Gated, peer: None, elder: None };
            let changed = changed_names(&own.content.names, &former.names);
            own.follow_by(&changed, &step(&nothing, former), stamps);
            own.follow(&step(former, live.of(type_url).unwrap_or(&nothing)), stamps);
            types.insert(type_url.clone(), own);
        }
        Lane { mark, is_given: true, types }
    }

    /// Takes over from the source what the lane does not hold. `peer`: the other lane, after the change. `elder`: for first answers, with
    /// the contents that the plan refuses.
    pub fn follow(
        &mut self,
        (before, live): (&Snapshot, &Snapshot),
        gated: &Gated,
        peer: Option<&Lane>,
        elder: Option<(&Elder, &Refused)>,
        stamps: &mut Stamps,
    ) {
        let types: BTreeSet<_> =
            self.types.keys().chain(live.types().map(|(type_url, _)| type_url)).cloned().collect();
        // Clusters first: they decide about their endpoints.
        let (own, others): (Vec<_>, Vec<_>) = types
            .into_iter()
            .filter(|type_url| is_covered(type_url, gated))
            .partition(|url| gated.contains(url));
        let nothing = TypeSnapshot::default();
        for type_url in own.iter().chain(&others) {
            let [before, lives] = [before, live].map(|snapshot| snapshot.of(type_url).unwrap_or(&nothing));
            let rule = match gated.contains(type_url) {
                true => Rule::Gated,
                false => Rule::Endpoints(self.named(type_url, before, lives)),
            };
            let peer = peer.and_then(|peer| peer.types.get(type_url)).map(|of| &of.content);
            let of = self.types.entry(type_url.clone()).or_default();
            let elder = elder.and_then(|(elder, refused)| elder.of(type_url, refused));
            of.follow(&Step { before, live: lives, rule: &rule, peer, elder }, stamps);
            if of.is_equal() && live.of(type_url).is_none() {
                self.types.remove(type_url);
            }
        }
    }

    /// The endpoints that the lane may name, if the source lost any.
    fn named(&self, type_url: &TypeUrl, before: &TypeSnapshot, live: &TypeSnapshot) -> Named {
        let loses_names = || {
            let is_present =
                |name: &ResourceName| live.names.entries.get(name).is_some_and(|of| of.resource().is_some());
            !changed_names(&before.names, &live.names).iter().all(is_present)
        };
        let loses_members =
            |before, of| changed_members(before, of).iter().any(|name| !of.contains_key(name));
        let loses = before.wildcard.is_whole() != live.wildcard.is_whole()
            || !before.globs.complete.ptr_eq(&live.globs.complete)
            || loses_names()
            || loses_members(&before.wildcard.members, &live.wildcard.members)
            || loses_members(&before.globs.members, &live.globs.members);
        if !loses {
            return Named::Any(false);
        }
        let of_kind = |is_kind: fn(Kind) -> bool| {
            self.types.iter().filter(move |(type_url, _)| is_kind(type_url.kind())).map(|(_, of)| of)
        };
        match type_url.kind() {
            Kind::ClusterLoadAssignment => {
                let is_cluster = |kind| matches!(kind, Kind::Cluster | Kind::ClusterCollection);
                Named::by(of_kind(is_cluster).map(|of| &of.content))
            }
            _ => Named::Any(of_kind(|kind| kind == Kind::ClusterLoadAssignment).any(|of| !of.is_equal())),
        }
    }

    /// Whether gated content differs from the source's.
    pub fn differs(&self, gated: &Gated) -> bool {
        self.types.iter().any(|(type_url, of)| gated.contains(type_url) && of.differs())
    }

    /// Whether the source has all gated content of the lane.
    pub fn is_equal(&self, gated: &Gated) -> bool {
        self.types.iter().all(|(type_url, of)| !gated.contains(type_url) || of.is_equal())
    }

    /// Whether the lane has endpoints that the source has not (WAV-5).
    pub fn keeps_endpoints(&self, gated: &Gated) -> bool {
        self.types.iter().any(|(type_url, of)| !gated.contains(type_url) && !of.is_equal())
    }

    /// Whether somebody asks the source for gated content of the lane that the source does not know again yet.
    pub fn is_awaited(&self, live: &Snapshot, gated: &Gated) -> bool {
        let gated = self.types.iter().filter(|(type_url, _)| gated.contains(type_url));
        gated.into_iter().any(|(type_url, of)| live.of(type_url).is_some_and(|live| of.is_awaited(live)))
    }

    /// The snapshot for clients.
    pub fn snapshot(&mut self, live: &Snapshot, gated: &Gated, stamps: &mut Stamps) -> Snapshot {
        let mut types: BTreeMap<_, _> =
            live.types().map(|(type_url, of)| (type_url.clone(), of.clone())).collect();
        for (type_url, own) in &mut self.types {
            let lives = live.of(type_url);
            let mut of = own.content.clone();
            own.lasts.add_to(&mut of, lives, gated.contains(type_url), stamps);
            // No plan holds a subscription back (DEL-17).
            of.names.unasked = lives.and_then(|live| live.names.unasked.clone());
            types.insert(type_url.clone(), of);
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
