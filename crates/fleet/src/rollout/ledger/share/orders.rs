//! The orders of operators, at all replicas and at this one alone (LDG-7).

use serde::{Deserialize, Serialize};

use crate::rollout::shared::order_change::OrderChange;
use crate::rollout::shared::record::Orders;

#[derive(Debug, Default)]
pub(super) struct FollowedOrders {
    /// The orders of operators here, until the record has them.
    pub unwritten: Option<OrderChange>,
    /// They are orders for this replica alone: the others are restrained by them, and nothing is loosened.
    pub is_of_here: bool,
    /// The orders of the record that this replica follows, with the unwritten ones. `None`: no record has
    /// come yet, so this replica has its own.
    pub followed: Option<Orders>,
    /// In words, how this replica acts otherwise.
    pub apart: Vec<Box<str>>,
}

/// The orders of a plan over a restart: what the record says otherwise then is news.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptOrders {
    pub(super) followed: Orders,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unwritten: Option<OrderChange>,
    #[serde(default)]
    pub(super) is_of_here: bool,
}
