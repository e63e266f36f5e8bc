//! The orders that stand, and the age of what is held back, for all answers about plans.

use std::time::SystemTime;

use serde::Serialize;

use super::super::item::rfc_3339;
use crate::driver::api::rollouts::RolloutStatus;
use crate::engine::rollout::command::Until;

/// A release in the place of the newest content.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct Pinned {
    release: u64,
    /// `next_push`, `unpin`, or a time.
    until: String,
}

impl Pinned {
    pub fn of(status: &RolloutStatus) -> Option<Pinned> {
        let pin = status.report.pin?;
        let until = match pin.until {
            Until::NextPush => "next_push".to_owned(),
            Until::Unpin => "unpin".to_owned(),
            Until::Time(until) => rfc_3339(status.wall(until)),
        };
        Some(Pinned { release: pin.release, until })
    }

    /// The pin in a sentence.
    pub fn says(&self) -> String {
        let until = match self.until.as_str() {
            "next_push" => "until the control plane changes something",
            "unpin" => "until `unpin`",
            time => return format!("Pinned: all clients are served release {} until {time}.", self.release),
        };
        format!("Pinned: all clients are served release {} {until}.", self.release)
    }
}

/// The end of a freeze.
pub(in crate::admin) fn frozen_until(status: &RolloutStatus) -> Option<String> {
    status.report.frozen_until.map(|until| rfc_3339(status.wall(until)))
}

/// The age of the oldest change that is held from somebody.
pub(in crate::admin) fn behind_seconds(status: &RolloutStatus) -> f64 {
    status.behind_from().map_or(0.0, seconds_since)
}

fn seconds_since(time: SystemTime) -> f64 {
    time.elapsed().unwrap_or_default().as_secs_f64()
}
