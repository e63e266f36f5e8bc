//! The next answer of a stream, by rank (ORD-1, ORD-10).

use std::sync::Arc;

use crate::Time;
use crate::downstream::answer::Answer;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::{Snapshots, Turn};
use crate::downstream::session::Session;
use crate::downstream::session::cluster_side;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::snapshot::Snapshot;

impl Session {
    /// The next answer to send, with the index of its subscription; `None` if nothing is due. The lowest
    /// rank goes first, from the newest snapshot that order allows. `latest` returns the newest snapshot of
    /// a source.
    pub fn poll_answer(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Option<(usize, Answer)> {
        // One snapshot per source for all types, so that no type runs ahead of another.
        let newest = self.serve_from(latest, now);
        self.follow_lanes(&newest, now);
        self.begin_round(&newest, latest, now);
        if let Some(round) = self.round.take() {
            let answer = match self.needs_stand_ins() {
                true => self.poll_from(&self.served_in(&round, latest), true, now),
                false => self.poll_from(&round, true, now),
            };
            if answer.is_some() {
                self.round = Some(round);
                return answer;
            }
            self.held_since = None;
        }
        self.poll_from(&newest, false, now)
    }

    /// Begins a round after the routing types have waited for [`ORDER_WAIT_MAX`] (ORD-10). Until they have
    /// had their turn, answers are built from the present snapshots, and later changes wait. The round begins
    /// anew if a source notes more collections of the client on the cluster side, because no routing type
    /// goes before their clusters (RLY-50).
    fn begin_round(
        &mut self,
        newest: &Snapshots,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) {
        self.round.take_if(|round| cluster_side::has_more_noted(&self.subscriptions, newest, round));
        if self.round.is_some() || self.held_since.is_none_or(|since| since + ORDER_WAIT_MAX > now) {
            return;
        }
        let turn = self.turn(newest, true, now);
        let mut routes = self.subscriptions.iter().filter(|s| s.type_url.kind().refers_to_clusters());
        match routes.any(|subscription| subscription.is_due(&turn)) {
            true => self.round = Some(Box::new(self.newest(latest))),
            false => self.held_since = None,
        }
    }

    pub(super) fn turn<'a>(&'a self, snapshots: &'a Snapshots, overdue: bool, now: Time) -> Turn<'a> {
        Turn { lanes: self.lanes.as_deref(), ..self.turn_without_lanes(snapshots, overdue, now) }
    }

    #[inline]
    fn turn_without_lanes<'a>(&self, snapshots: &'a Snapshots, overdue: bool, now: Time) -> Turn<'a> {
        let moved = self.positions.moved();
        Turn { snapshots, carried: self.carried, now, moved, lanes: None, overdue }
    }

    fn poll_from(&mut self, snapshots: &Snapshots, overdue: bool, now: Time) -> Option<(usize, Answer)> {
        let lanes = self.lanes.take();
        let turn = self.turn_without_lanes(snapshots, overdue, now);
        let answer = self.poll_turn(&Turn { lanes: lanes.as_deref(), ..turn });
        self.lanes = lanes;
        answer
    }

    #[inline]
    fn poll_turn(&mut self, turn: &Turn<'_>) -> Option<(usize, Answer)> {
        let cluster_side = self.subscriptions.partition_point(|s| s.type_url.kind().is_cluster_side());
        self.held_until =
            cluster_side::withhold(&mut self.subscriptions, cluster_side, self.kind.variant, turn);
        let mut held = false;
        for index in 0..self.subscriptions.len() {
            if index == cluster_side {
                held = self.hold_routes(cluster_side, turn);
            }
            if held && self.subscriptions[index].type_url.kind().refers_to_clusters() {
                continue;
            }
            if let Some(answer) = self.subscriptions[index].poll(self.kind.variant, turn) {
                // A routing type that comes later waits from then on.
                if index < cluster_side && cluster_side < self.subscriptions.len() {
                    self.held_since.get_or_insert(turn.now);
                }
                return Some((index, answer));
            }
            let look_at = self.subscriptions[index].look_at();
            self.held_until = self.held_until.into_iter().chain(look_at).min();
        }
        None
    }

    /// Whether the routing types must wait. The time counts from the first response that held the routing
    /// types back, over all later responses: neither endpoints that change all the time nor a client with
    /// slow ACKs holds a route back for ever (ORD-10).
    fn hold_routes(&mut self, cluster_side: usize, turn: &Turn<'_>) -> bool {
        let (clusters, _) = self.subscriptions.split_at(cluster_side);
        let is_held = !turn.overdue && clusters.iter().any(|subscription| subscription.holds_back(turn));
        let look_at = if is_held || turn.overdue { None } else { self.hold_new(cluster_side, turn) };
        if !is_held && look_at.is_none() {
            self.held_since = self.held_since.filter(|_| turn.overdue);
            return false;
        }
        let until = *self.held_since.get_or_insert(turn.now) + ORDER_WAIT_MAX;
        self.held_until = self.held_until.into_iter().chain(look_at).chain([until]).min();
        true
    }

    /// The time of the next look while the routing types wait for the first answers of the cluster side (ORD-12), for a
    /// complete set that waits (ADR 52), or for the endpoints of new clusters (ORD-13); `None` if they wait for none of these.
    fn hold_new(&mut self, cluster_side: usize, turn: &Turn<'_>) -> Option<Time> {
        let (clusters, routes) = self.subscriptions.split_at(cluster_side);
        let is_owed = clusters.iter().any(|subscription| subscription.nonces.latest().is_none());
        if !is_owed && !self.is_returning && self.endpoints_awaited.is_none() {
            return None;
        }
        let is_due = |of: &Subscription| of.type_url.kind().refers_to_clusters() && of.is_due(turn);
        if self.kind.marks || !routes.iter().any(is_due) {
            return None;
        }
        let owed = clusters.iter().filter_map(|subscription| self.owes(subscription, turn)).min();
        owed.into_iter().chain(self.endpoints_until(turn)).min()
    }

    /// The time of the next look while the routing types wait for an answer of a cluster type that is owed.
    pub(super) fn owes(&self, clusters: &Subscription, turn: &Turn<'_>) -> Option<Time> {
        let variant = self.kind.variant;
        let returns = self.is_returning && clusters.owes_returning(variant, turn);
        clusters.owes_first(variant, turn).or_else(|| returns.then(|| turn.now + ORDER_WAIT_MAX))
    }

    /// The time of the next poll if no event comes first: the end of a wait of removals (RLY-51), of the
    /// routing types (ORD-10) or of a complete set (RLY-5).
    pub fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// The start of the routing types' wait for the cluster side.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.held_since
    }
}
