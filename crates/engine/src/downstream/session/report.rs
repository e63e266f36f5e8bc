//! The state of a client's types beside the state of its sources, for reports (RLY-71, ADM-7).

use crate::Time;
use crate::downstream::order::turn::Turn;
use crate::downstream::subscription::Subscription;
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

impl TypeReport {
    /// The report on a subscription. `before`: the earlier type that the routing types wait for, since
    /// `held_since`.
    pub(super) fn new(
        subscription: &Subscription,
        before: Option<&TypeUrl>,
        held_since: Option<Time>,
        turn: &Turn<'_>,
    ) -> TypeReport {
        TypeReport {
            unsent: unsent_news(subscription, before, held_since, turn),
            is_known: subscription.is_known(turn),
            should: subscription.version_due(turn),
            changed_at: subscription.changed_at(turn),
        }
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

/// The news of one type that the client is not sent. `before`: the earlier type that the routing types wait
/// for, since `held_since`.
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
