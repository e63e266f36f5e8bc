//! What becomes of a response that takes most resources of a type away: `mass_deletion` of a server (FU18).

use std::time::Duration;

use super::reader::Map;
use super::units::{duration, hours, seconds, word};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MassDeletion {
    /// It is obeyed at once, as the protocol has it.
    #[default]
    Honour,
    /// It is obeyed after this time, unless the server brings the resources back.
    HoldThenHonour { hold: Duration },
    /// It is obeyed when the operator says that it was meant, unless the server brings the resources back.
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
                map.meaningless(&["hold"], "`policy: honour`");
                MassDeletion::Honour
            }
            Policy::HoldThenHonour => {
                MassDeletion::HoldThenHonour { hold: map.or("hold", HOLD, duration(seconds(1)..=hours(24))) }
            }
            Policy::HoldUntilConfirmed => {
                map.meaningless(&["hold"], "`policy: hold_until_confirmed`");
                MassDeletion::HoldUntilConfirmed
            }
        }
    }
}
