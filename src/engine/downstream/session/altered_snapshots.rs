//! Altered snapshots for some planted bugs. The module exists only with the feature `planted`.

use std::sync::Arc;

use crate::engine::cache::Known;
use crate::engine::downstream::order::turn::Snapshots;
use crate::engine::downstream::session::Session;
use crate::engine::downstream::sources::SourceId;
use crate::engine::planted::{Bug, planted};
use crate::engine::snapshot::{Snapshot, TypeSnapshot};
use crate::xds::{Resource, ResourceName};

impl Session {
    pub(super) fn alter_snapshots(&mut self, newest: Snapshots) -> Snapshots {
        if planted(Bug::SnapshotsKept) {
            self.former_snapshots.push(newest.clone());
        }
        let bugs = [
            Bug::OldSnapshotServed,
            Bug::RolledBackAfterNack,
            Bug::PartsOfTwoMoments,
            Bug::NamesOfTwoMoments,
            Bug::MembersOfTwoMoments,
            Bug::NewcomersOfTwoMoments,
        ];
        if !bugs.into_iter().any(planted) {
            return newest;
        }
        let are_the_same = |one: &Snapshots| one.iter().map(pointer).eq(newest.iter().map(pointer));
        if !self.former_snapshots.last().is_some_and(are_the_same) {
            self.former_snapshots.push(newest.clone());
        }
        if self.former_snapshots.len() > 2 {
            self.former_snapshots.remove(0);
        }
        let Some(former) = self.former_snapshots.first() else { return newest };
        let has_nack = || self.subscriptions.iter().any(|subscription| subscription.nonces.nack.is_some());
        let goes_back = planted(Bug::OldSnapshotServed) && self.carried % 3 == 2
            || planted(Bug::RolledBackAfterNack) && has_nack();
        if goes_back {
            return former.clone();
        }
        newest.iter().map(|(source, now)| (*source, mixed(now, former_of(former, *source)))).collect()
    }
}

type Source = (SourceId, Option<Arc<Snapshot>>);

fn pointer((source, snapshot): &Source) -> (SourceId, Option<*const Snapshot>) {
    (*source, snapshot.as_ref().map(Arc::as_ptr))
}

fn former_of(former: &Snapshots, source: SourceId) -> Option<&Arc<Snapshot>> {
    former.iter().find(|(id, _)| *id == source).and_then(|(_, snapshot)| snapshot.as_ref())
}

/// A snapshot with some content of the snapshot before.
fn mixed(now: &Option<Arc<Snapshot>>, former: Option<&Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
    let (Some(now), Some(former)) = (now, former) else { return now.clone() };
    let mut mixed = (**now).clone();
    for (type_url, former) in former.types() {
        if let Some(types) = mixed.of_mut(type_url) {
            mix(types, former);
        }
    }
    Some(Arc::new(mixed))
}

/// Takes back one of several simultaneous changes.
fn mix(types: &mut TypeSnapshot, former: &TypeSnapshot) {
    let (members, named) = (&types.members, &types.named);
    let changed =
        |old: &Arc<Resource>, new: Option<&Arc<Resource>>| new.is_some_and(|new| new.version != old.version);
    let is_other = |(name, old): &(&ResourceName, &Arc<Resource>)| changed(old, members.get(*name));
    let others: Vec<_> = former.members.iter().filter(is_other).collect();
    let has_more = members.iter().any(|(name, _)| !former.members.contains_key(name));
    if planted(Bug::PartsOfTwoMoments) && !others.is_empty() && has_more && types.wildcard.is_some() {
        if let Some(view) = &former.wildcard {
            types.wildcard = Some(view.clone());
        }
        return;
    }
    let is_beside_newcomers = planted(Bug::NewcomersOfTwoMoments) && !others.is_empty() && has_more;
    if planted(Bug::MembersOfTwoMoments) && others.len() > 1 || is_beside_newcomers {
        let (name, resource) = (others[0].0.clone(), others[0].1.clone());
        types.members.insert(name, resource);
        return;
    }
    if planted(Bug::NamesOfTwoMoments) {
        let is_other = |(name, old): &(&ResourceName, &Known)| {
            let new = named.get(*name).and_then(Known::resource);
            old.resource().is_some_and(|old| changed(old, new))
        };
        let others: Vec<_> = former.named.iter().filter(is_other).collect();
        if others.len() > 1 {
            let (name, known) = (others[0].0.clone(), others[0].1.clone());
            types.named.insert(name, known);
        }
    }
}
