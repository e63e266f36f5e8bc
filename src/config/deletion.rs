//! `mass_deletion` of a server: the treatment of a response that removes most resources of a type (FU18).

use super::reader::Map;
use super::units::word;
use sluice_engine::upstream::{Hold, MASS_DELETION_HOLD};
use sluice_setting::Read;

#[derive(Clone, Copy)]
enum DeletionPolicy {
    Honour,
    HoldThenHonour,
    HoldUntilConfirmed,
}

const POLICIES: &[(&str, DeletionPolicy)] = &[
    ("honour", DeletionPolicy::Honour),
    ("hold_then_honour", DeletionPolicy::HoldThenHonour),
    ("hold_until_confirmed", DeletionPolicy::HoldUntilConfirmed),
];

/// `None`: the relay obeys at once, as the protocol says.
pub(super) fn read_mass_deletion(map: &mut Map<'_>) -> Option<Hold> {
    let read = |map: &mut Map<'_>| match map.or("policy", DeletionPolicy::Honour, word(POLICIES)) {
        DeletionPolicy::Honour => {
            map.reject_inapplicable(&["hold"], "`policy: honour`");
            None
        }
        DeletionPolicy::HoldThenHonour => Some(Hold::For(map.value(&MASS_DELETION_HOLD))),
        DeletionPolicy::HoldUntilConfirmed => {
            map.reject_inapplicable(&["hold"], "`policy: hold_until_confirmed`");
            Some(Hold::UntilConfirmed)
        }
    };
    map.section("mass_deletion", read).flatten()
}
