//! The state of a client's types beside the state of its sources, for reports (RLY-71, ADM-7).

use std::sync::Arc;

use crate::Time;
use crate::downstream::order::turn::Turn;
use crate::downstream::session::Session;
use crate::downstream::session::list_position::ListPosition;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::ledger::Ledger;
use crate::snapshot::Snapshot;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// One subscription beside its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeReport {
    pub unsent: Option<UnsentNews>,
    /// The sources know everything about the collections.
    pub is_known: bool,
    /// The version of the content that the sources have for the client; `None` if they know nothing yet.
    pub should: Option<Version>,
    /// The time of the last change of this content.
    pub changed_at: Option<Time>,
}

impl Session {
    /// A report on each subscription, in the order of the subscriptions. `latest` as in [`Session::poll_answer`].
    pub fn reports(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, now: Time) -> Vec<TypeReport> {
        let snapshots = self.served(latest);
        let turn = self.turn(&snapshots, false, now);
        let clusters = self.subscriptions.iter().filter(|of| of.type_url.kind().is_cluster_side());
        let mut before =
            clusters.filter(|of| of.holds_back(&turn) || !self.kind.marks && self.owes(of, &turn).is_some());
        let before = before.next().map(|of| &of.type_url).or_else(|| self.endpoints_before(now));
        let report = self.subscriptions.iter().map(|of| TypeReport {
            unsent: unsent_news(of, before, self.held_since(), &turn),
            is_known: of.is_known(&turn),
            should: of.version_due(&turn),
            changed_at: of.changed_at(&turn),
        });
        report.collect()
    }

    /// Whether some list serves the type from another server than the preferred one.
    pub fn is_on_fallback(&self, of: &Subscription) -> bool {
        let is_of = |position: &&ListPosition| {
            of.parts.iter().any(|part| position.covers(&of.type_url, part.asked.list))
        };
        self.positions.iter().filter(is_of).any(|position| position.fallback.serving() > 0)
    }

    /// The names of one type; `None` if the client does not ask for the type. `latest` as in
    /// [`Session::poll_answer`].
    pub fn ledger(
        &self,
        type_url: &TypeUrl,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Option<Ledger> {
        let subscription = self.subscriptions.iter().find(|of| of.type_url == *type_url)?;
        let snapshots = self.served(latest);
        Some(subscription.ledger(&self.turn(&snapshots, false, now)))
    }
}

/// News that a client is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentNews {
    pub why: WhyUnsent,
    /// `None` if no time is recorded.
    pub since: Option<Time>,
}

/// The first applicable reason for a delay of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyUnsent {
    /// The relay does not know whether this name exists, and the client may have it (RLY-5).
    Name(ResourceName),
    /// This earlier type waits for the client's ACK (RLY-50).
    Order(TypeUrl),
    /// At least this name is gone, and the routing types may still refer to it (RLY-51).
    Withheld(ResourceName),
    /// No rule delays the news: the client does not read, or the news are about to go.
    Unread,
}

/// The news of one type that the client is not sent. `before`: the earlier type that the routing types wait for, since `held_since`.
fn unsent_news(
    subscription: &Subscription,
    before: Option<&TypeUrl>,
    held_since: Option<Time>,
    turn: &Turn<'_>,
) -> Option<UnsentNews> {
    if let Some(wait) = subscription.name_wait() {
        return Some(UnsentNews { why: WhyUnsent::Name(wait.name.clone()), since: Some(wait.since) });
    }
    let (type_url, is_due) = (&subscription.type_url, subscription.has_unsent(turn));
    if let Some(before) = before.filter(|_| is_due && type_url.kind().refers_to_clusters()) {
        return Some(UnsentNews { why: WhyUnsent::Order(before.clone()), since: held_since });
    }
    let withheld = subscription.parts.iter().find_map(|part| part.withheld_name(type_url, turn));
    if let Some((name, since)) = withheld {
        return Some(UnsentNews { why: WhyUnsent::Withheld(name), since: Some(since) });
    }
    let is_unread = is_due && !subscription.nonces.is_waiting();
    is_unread.then_some(UnsentNews { why: WhyUnsent::Unread, since: None })
}
