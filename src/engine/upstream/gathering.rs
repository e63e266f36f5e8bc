//! Gathers changes of subscriptions before they are written (FLW-5, RLY-62).
//!
//! A starting client asks for listeners, routes, clusters and endpoints in sequence, each after the answer
//! before. A single client should not wait for absent clients. Ten thousand clients that start together
//! should cost few requests all the same. So the first change after a quiet spell is written at once. Later
//! changes are gathered for [`FIRST`], then for twice as long, and so on, up to the setting. No change waits
//! much longer than the burst has lasted already, and a burst costs only a handful of requests more than a
//! constant interval of full length.

use std::time::Duration;

use crate::engine::Time;

/// Some round trips of a nearby network, and the resolution of the process's timers.
pub(super) const FIRST: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Gathering {
    /// Changes wait until then.
    pub(super) until: Option<Time>,
    /// The time of the last write, and the wait of later changes.
    pub(super) last: Option<(Time, Duration)>,
}

impl Gathering {
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Ends an expired wait. Returns true if gathered changes are due.
    pub fn ends(&mut self, now: Time) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Records a write. Later changes wait, at most for `most`.
    pub fn wrote(&mut self, now: Time, most: Duration) {
        let in_burst = self.last.filter(|(at, _)| now.since(*at) < most * 2);
        let wait = in_burst.map_or(FIRST, |(_, wait)| wait * 2).min(most);
        self.last = Some((now, wait));
        self.until = Some(now + wait);
    }
}
