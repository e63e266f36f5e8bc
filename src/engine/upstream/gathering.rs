//! How changes of subscriptions are gathered before they are written (FLW-5, RLY-62).
//!
//! A client that starts asks for listeners, routes, clusters and endpoints one after the other, each when the one before was
//! answered. It should not wait for others who are not there. Ten thousand clients that start together should cost few
//! requests all the same. So the first change after a quiet spell leaves at once. What follows is gathered for [`FIRST`], then
//! for twice as long, and so on, up to the setting. No change waits much longer than the burst has lasted already, and a burst
//! costs a handful of requests beside those at the full distance.

use std::time::Duration;

use crate::engine::Time;

/// Some round trips of a network nearby. It is as fine as the timers of the process are.
pub(super) const FIRST: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Gathering {
    /// Changes wait until then.
    pub(super) until: Option<Time>,
    /// When changes were written last, and how long those that came after it had to wait.
    pub(super) last: Option<(Time, Duration)>,
}

impl Gathering {
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Whether a wait ends now. What was gathered is due.
    pub fn ends(&mut self, now: Time) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Changes were written. Those that follow wait, for `most` at the most.
    pub fn wrote(&mut self, now: Time, most: Duration) {
        let in_burst = self.last.filter(|(at, _)| now.since(*at) < most * 2);
        let wait = in_burst.map_or(FIRST, |(_, wait)| wait * 2).min(most);
        self.last = Some((now, wait));
        self.until = Some(now + wait);
    }
}
