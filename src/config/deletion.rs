//! `mass_deletion` of a server: the treatment of a response that removes most resources of a type (FU18).

use std::time::Duration;

use super::reader::Map;
use super::units::{duration, hours, seconds, word};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MassDeletion {
    /// Apply the deletion at once, as the protocol says.
    #[default]
    Honour,
    /// Apply the deletion after this time, unless the server restores the resources.
    HoldThenHonour { hold: Duration },
    /// Apply the deletion once the operator confirms, unless the server restores the resources.
    HoldUntilConfirmed,
}

#[derive(Clone, Copy)]
enum Policy {
    Honour,
    HoldThenHonour,
    HoldUntilConfirmed,
}

const POLICIES: &[(&str, Policy)] = &[
    ("honour", Policy::Honour),
    ("hold_then_honour", Policy::HoldThenHonour),
    ("hold_until_confirmed", Policy::HoldUntilConfirmed),
];

const HOLD: Duration = Duration::from_secs(5 * 60);

impl MassDeletion {
    pub(super) fn read(map: &mut Map<'_>) -> MassDeletion {
        match map.or("policy", Policy::Honour, word(POLICIES)) {
            Policy::Honour => {
                map.reject_inapplicable(&["hold"], "`policy: honour`");
                MassDeletion::Honour
            }
            Policy::HoldThenHonour => {
                MassDeletion::HoldThenHonour { hold: map.or("hold", HOLD, duration(seconds(1)..=hours(24))) }
            }
            Policy::HoldUntilConfirmed => {
                map.reject_inapplicable(&["hold"], "`policy: hold_until_confirmed`");
                MassDeletion::HoldUntilConfirmed
            }
        }
    }
}
