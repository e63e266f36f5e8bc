//! News that a client is not sent yet, with the reason (RLY-71, ADM-7). Computed for a report only, without
//! state.

use crate::Time;
use crate::downstream::order::turn::Turn;
use crate::downstream::subscription::Subscription;
use sluice_xds::{ResourceName, TypeUrl};

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentNews {
    pub why: WhyUnsent,
    /// `None` if no time is recorded.
    pub since: Option<Time>,
}

impl Subscription {
    pub(in crate::downstream) fn unsent_news(
        &self,
        before: Option<&TypeUrl>,
        held_since: Option<Time>,
        turn: &Turn<'_>,
    ) -> Option<UnsentNews> {
        if let Some(wait) = &self.name_wait {
            return Some(UnsentNews { why: WhyUnsent::Name(wait.name.clone()), since: Some(wait.since) });
        }
        let is_due = self.has_unsent(turn);
        if let Some(before) = before.filter(|_| is_due && self.type_url.kind().refers_to_clusters()) {
            return Some(UnsentNews { why: WhyUnsent::Order(before.clone()), since: held_since });
        }
        if let Some((name, since)) =
            self.parts.iter().find_map(|part| part.withheld_name(&self.type_url, turn))
        {
            return Some(UnsentNews { why: WhyUnsent::Withheld(name), since: Some(since) });
        }
        (is_due && !self.nonces.is_waiting()).then_some(UnsentNews { why: WhyUnsent::Unread, since: None })
    }
}
