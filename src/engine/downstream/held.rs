//! What news of a type a client is not sent yet, and why (RLY-71, ADM-7). Found out for who looks; nothing is kept for it.

use std::sync::Arc;

use super::order::Turn;
use super::session::Session;
use super::subscription::{SourceId, Subscription};
use crate::engine::Time;
use crate::engine::snapshot::Snapshot;
use crate::xds::{ResourceName, TypeUrl};

/// Why news wait, the first that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not known whether this name exists, which the client may have (RLY-5).
    Name(ResourceName),
    /// The client has not ACKed this type, which goes before (RLY-50).
    Order(TypeUrl),
    /// This name, or more, is gone, and the routing types may still refer to it (RLY-51).
    Withheld(ResourceName),
    /// They could go, but the client does not read, or they are just about to.
    Unread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNews {
    pub why: Why,
    /// `None`: nobody counts it.
    pub since: Option<Time>,
}

impl Session {
    /// Of each subscription, in their order, the news that it is not sent. `latest` as in [`Session::poll_answer`].
    pub fn held_news(
        &self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Vec<Option<HeldNews>> {
        let snapshots = self.served(latest);
        let turn = self.turn(&snapshots, false, now);
        let clusters = self.subscriptions.iter().filter(|of| of.type_url.kind().is_cluster_side());
        let before = clusters.filter(|of| of.holds_back(&turn)).map(|of| &of.type_url).next();
        self.subscriptions.iter().map(|of| of.held_news(before, self.held_since(), &turn)).collect()
    }
}

impl Subscription {
    fn held_news(
        &self,
        before: Option<&TypeUrl>,
        held_since: Option<Time>,
        turn: &Turn<'_>,
    ) -> Option<HeldNews> {
        if let Some(hold) = &self.hold {
            return Some(HeldNews { why: Why::Name(hold.name.clone()), since: Some(hold.since) });
        }
        let is_due = self.has_unsent(turn);
        if let Some(before) = before.filter(|_| is_due && self.type_url.kind().refers_to_clusters()) {
            return Some(HeldNews { why: Why::Order(before.clone()), since: held_since });
        }
        if let Some((name, since)) =
            self.parts.iter().find_map(|part| part.withheld_name(&self.type_url, turn))
        {
            return Some(HeldNews { why: Why::Withheld(name), since: Some(since) });
        }
        (is_due && !self.flight.is_waiting()).then_some(HeldNews { why: Why::Unread, since: None })
    }
}
