//! The cluster side of a stream, before its routing types (RLY-50, RLY-51).

use crate::Time;
use crate::collection::Collection;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::{Snapshots, Turn};
use crate::downstream::order::withheld::Waits;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use sluice_xds::{TypeUrl, Variant};

/// The wait of the routing types for the cluster side.
#[derive(Debug, Default)]
pub(super) struct RoutingHold {
    /// The start of the wait: the cluster side has news to send, or waits for an ACK.
    since: Option<Time>,
    /// The time of the next poll if no event comes first.
    until: Option<Time>,
}

impl RoutingHold {
    pub(super) fn since(&self) -> Option<Time> {
        self.since
    }

    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Begins a poll with this time of the next one.
    pub(super) fn look_again(&mut self, look_at: Option<Time>) {
        self.until = look_at;
    }

    /// Notes that something waits until this time at most.
    pub(super) fn look_at(&mut self, look_at: Option<Time>) {
        if let Some(look_at) = look_at
            && self.until.is_none_or(|until| look_at < until)
        {
            self.until = Some(look_at);
        }
    }

    /// Begins the wait, or continues it. Returns its end (ORD-10).
    pub(super) fn begin(&mut self, now: Time) -> Time {
        *self.since.get_or_insert(now) + ORDER_WAIT_MAX
    }

    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Whether the routing types have waited for the maximum time.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.since.is_some_and(|since| since + ORDER_WAIT_MAX <= now)
    }
}

/// Whether sources have noted more collections of the cluster side since these snapshots were taken.
pub fn has_more_noted(subscriptions: &[Subscription], newest: &Snapshots, taken: &Snapshots) -> bool {
    let is_noted = |snapshots: &Snapshots, type_url: &TypeUrl, part: &Part| {
        let snapshot = snapshots.iter().find(|(id, _)| *id == part.source());
        let types = snapshot.and_then(|(_, snapshot)| snapshot.as_ref()?.of(type_url));
        types.is_some_and(|types| types.view(&part.collection).is_some())
    };
    subscriptions.iter().filter(|subscription| subscription.type_url.kind().is_cluster_side()).any(
        |subscription| {
            let type_url = &subscription.type_url;
            let mut parts = subscription.parts.iter();
            parts.any(|part| !is_noted(taken, type_url, part) && is_noted(newest, type_url, part))
        },
    )
}

/// Notes the removals that the cluster side must withhold: the subscriptions before the index
/// `cluster_side`. Returns the time of the next look if no event comes first.
pub fn withhold(
    subscriptions: &mut [Subscription],
    cluster_side: usize,
    variant: Variant,
    turn: &Turn<'_>,
) -> Option<Time> {
    let (clusters, routes) = subscriptions.split_at_mut(cluster_side.min(subscriptions.len()));
    let mut until = None;
    for index in 0..clusters.len() {
        let (before, rest) = clusters.split_at_mut(index);
        let Some(subscription) = rest.first_mut() else { break };
        // If the client is never told of removals, nothing has to wait (SST-6).
        if variant == Variant::Sotw && !subscription.is_full(variant) {
            continue;
        }
        let (type_url, is_waiting) = (&subscription.type_url, subscription.nonces.is_waiting());
        let may_tell = !is_waiting || subscription.delivery.fresh;
        for part in &mut subscription.parts {
            let source = part.source();
            let types = turn.snapshot(source).and_then(|snapshot| snapshot.of(type_url));
            let Some((types, view)) = types.and_then(|types| Some((types, types.view(&part.collection)?)))
            else {
                continue;
            };
            // Clusters go before their endpoints (ORD-3).
            let follows = |other: &Part| other.source() == source && other.withheld().is_some();
            let may_go = |carried| {
                !before.iter().flat_map(|subscription| &subscription.parts).any(follows)
                    && routes.iter().all(|route| route.has_followed(source, carried, turn))
            };
            let is_leaving = variant == Variant::Sotw && may_be_leaving(part, routes, turn);
            // After a move, the client may have names that are long gone here, because a removal waited at
            // the other server. Between releases of one server, the marks of the views tell (WAV-10).
            let has_moved = turn.moved.contains(&part.asked.list);
            let may_lose = part.held.may_lose(view) || has_moved && part.is_behind(view.id());
            let has_lost = part.withheld.is_some() || may_lose;
            let changed = if has_lost { changed_at(routes, source, turn) } else { None };
            let waits = Waits { may_lose, is_leaving, is_waiting, may_tell, changed, may_go: &may_go };
            let look_at = part.withhold(types, view, &waits, turn);
            until = until.into_iter().chain(look_at).min();
        }
    }
    until
}

/// The last change of a source's content of routing types, among the client's collections; `None` without
/// such collections.
fn changed_at(routes: &[Subscription], source: SourceId, turn: &Turn<'_>) -> Option<Time> {
    let routes = routes.iter().filter(|route| route.type_url.kind().refers_to_clusters());
    let parts = routes.flat_map(|route| route.parts.iter().map(move |part| (&route.type_url, part)));
    let parts = parts.filter(|(_, part)| part.source() == source);
    let views = parts.map(|(type_url, part)| part.view_in(turn, type_url));
    views.map(|view| view.map_or(Time::ZERO, |view| view.changed_at())).max()
}

/// Whether the client asks by name, and may be moving to other names of another server.
fn may_be_leaving(part: &Part, routes: &[Subscription], turn: &Turn<'_>) -> bool {
    let mut hangs_below = routes.iter().flat_map(|subscription| &subscription.parts);
    matches!(part.collection, Collection::Names(_))
        && (turn.moved.contains(&part.asked.list) || turn.has_moved(part.source()))
        && hangs_below.any(|route| route.source() == part.source())
}
