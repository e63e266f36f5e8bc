//! How changes of subscriptions are gathered before they are written (FLW-5, RLY-62).
//!
//! A client that starts asks for listeners, routes, clusters and endpoints one after the other, each when the one before was
//! answered. It should not wait for others who are not there. Ten thousand clients that start together should cost few
//! requests all the same. So the first change after a quiet spell leaves at once. What follows is gathered for [`FIRST`], then
//! for twice as long, and so on, up to the setting. No change waits much longer than the burst has lasted already, and a burst
//! costs a handful of requests beside those at the full distance.

use crate::engine::Time;
use crate::engine::upstream::machine::Occasion;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;

impl Upstream {
    /// FLW-5: the first change leaves at once, what follows soon is gathered.
    pub(super) fn write_changes_gathered(&mut self, now: Time) {
        let is_gathering = match &self.phase {
            Phase::Open(stream) => stream.gathering.until().is_some(),
            _ => true,
        };
        if !is_gathering
            && self.write_changes(now)
            && let Phase::Open(stream) = &mut self.phase
        {
            stream.gathering.wrote(now, self.settings.gather);
        }
    }

    /// Whether there was something to write.
    pub(super) fn write_changes(&mut self, now: Time) -> bool {
        let with_news = self.subscriptions.values().filter(|subscription| subscription.has_news());
        let type_urls: Vec<_> = with_news.map(|subscription| subscription.type_url.clone()).collect();
        let mut wrote = false;
        for type_url in &type_urls {
            wrote |= self.write(type_url, Occasion::Change, now);
        }
        wrote
    }
}
