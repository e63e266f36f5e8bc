//! Logs once when clients begin to use a lower server of a list, and once when the last client has left the
//! server.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::driver::ground::servers::{ListedServer, Place};
use crate::telemetry::Throttle;
use crate::telemetry::events::{Events, tell};
use parking_lot::Mutex;

/// The episodes under way, by the place of the serving server.
#[derive(Debug, Default)]
pub struct FallbackLog(Mutex<HashMap<Place, Weak<FallbackEpisode>>>);

/// The time during which a lower server has clients. Each such stream holds the episode; it ends with the
/// last stream.
#[derive(Debug)]
pub struct FallbackEpisode {
    list: Arc<str>,
    server: Arc<str>,
    events: Events,
}

impl FallbackLog {
    /// Adds a stream that moves from `from` to a server of lower priority.
    pub fn join(
        &self,
        to: ListedServer<'_>,
        from: &str,
        throttle: &Throttle,
        events: &Events,
    ) -> Arc<FallbackEpisode> {
        let mut episodes = self.0.lock();
        let weak = episodes.entry(to.place()).or_default();
        if let Some(episode) = weak.upgrade() {
            return episode;
        }
        let (list, server) = (&to.list.label, &to.server().uri);
        let episode =
            Arc::new(FallbackEpisode { list: list.clone(), server: server.clone(), events: events.clone() });
        *weak = Arc::downgrade(&episode);
        drop(episodes);
        tell!(events, warn(Fallback, "clients moved to another server of their list")
            .at_server(server, list).detail(format_args!("from {from}")), if throttle.allow("fallback");
            { %list, from, to = %server } + ": their server is unreachable, and resources are missing");
        episode
    }
}

impl Drop for FallbackEpisode {
    fn drop(&mut self) {
        tell!(self.events, info(Fallback, "no client uses this fallback server any more")
            .at_server(&self.server, &self.list); { list = %self.list, server = %self.server });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ground::servers::{Attach, Server, ServerLists};
    use crate::telemetry::Metrics;
    use sluice_engine::authority::Authority;
    use sluice_engine::fallback::FallbackSettings;
    use sluice_xds::TypeUrl;

    #[test]
    fn rly_40_all_streams_at_a_server_share_one_episode() {
        let (log, metrics) = (FallbackLog::default(), Metrics::new());
        let throttle = Throttle::new(metrics.log.clone());
        let server = |uri: &str| Arc::new(Server { uri: uri.into(), attach: Attach::Nothing, load: None });
        let lists =
            ServerLists::new(["first", "second", "third"].map(server).into(), FallbackSettings::default());
        let list = lists.route(&TypeUrl::of_message("t"), Authority::None);
        let join = |number| log.join(list.at(number), "first", &throttle, &metrics.events);
        let one = join(1);
        assert!(Arc::ptr_eq(&one, &join(1)));
        assert!(!Arc::ptr_eq(&one, &join(2)));
        let old = Arc::downgrade(&one);
        drop(one);
        assert_eq!(old.strong_count(), 0);
        assert_eq!(Arc::strong_count(&join(1)), 1);
        let events: Vec<_> = metrics.events.after(0, 10, |_| true).events;
        let of_second = events.iter().filter(|event| event.first.server.as_deref() == Some("second"));
        let texts: Vec<_> = of_second.map(|event| event.first.text).collect();
        let (moved, left) =
            ("clients moved to another server of their list", "no client uses this fallback server any more");
        assert_eq!(texts, [moved, left], "an event for each end of an episode; repetitions are counted");
    }
}
