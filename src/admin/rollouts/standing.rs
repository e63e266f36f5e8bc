//! The orders that stand, and the age of what is held back, for all answers about plans.

use std::time::SystemTime;

use sluice_admin_api::rollouts::Pinned;

use super::super::item::rfc_3339;
use crate::driver::api::rollouts::RolloutStatus;
use crate::engine::rollout::command::Until;

pub(in crate::admin) fn pinned(status: &RolloutStatus) -> Option<Pinned> {
    let pin = status.report.pin?;
    let until = match pin.until {
        Until::NextPush => "next_push".to_owned(),
        Until::Unpin => "unpin".to_owned(),
        Until::Time(until) => rfc_3339(status.wall(until)),
    };
    Some(Pinned { release: pin.release, until })
}

/// The end of a freeze.
pub(in crate::admin) fn frozen_until(status: &RolloutStatus) -> Option<String> {
    status.report.frozen_until.map(|until| rfc_3339(status.wall(until)))
}

/// The age of the oldest change that is held from somebody.
pub(in crate::admin) fn behind_seconds(status: &RolloutStatus) -> f64 {
    let age = |since: SystemTime| since.elapsed().unwrap_or_default().as_secs_f64();
    status.behind_from().map_or(0.0, age)
}
