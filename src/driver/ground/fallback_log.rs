//! Logs once when clients begin to use a lower server of a list, and once when the last client has left the
//! server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tracing::{info, warn};

use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::{ListedServer, Place};
use crate::telemetry::Throttle;

/// The episodes under way, by the place of the serving server.
#[derive(Debug, Default)]
pub struct FallbackLog(Mutex<HashMap<Place, Weak<FallbackEpisode>>>);

/// The time during which a lower server has clients. Each such stream holds the episode; it ends with the last
/// stream.
#[derive(Debug)]
pub struct FallbackEpisode {
    list: Arc<str>,
    server: Arc<str>,
}

impl FallbackLog {
    /// Adds a stream that moves from `from` to a server of lower priority.
    pub fn join(&self, to: ListedServer<'_>, from: &str, throttle: &Throttle) -> Arc<FallbackEpisode> {
        let mut known = lock(&self.0);
        let weak = known.entry(to.place()).or_default();
        if let Some(episode) = weak.upgrade() {
            return episode;
        }
        let (list, server) = (&to.list.label, &to.server().uri);
        let episode = Arc::new(FallbackEpisode { list: list.clone(), server: server.clone() });
        *weak = Arc::downgrade(&episode);
        drop(known);
        if let Some(suppressed) = throttle.allow("fallback") {
            warn!(%list, from, to = %server, suppressed, "clients moved to another server of their list: their \
                server is unreachable, and resources are missing");
        }
        episode
    }
}

impl Drop for FallbackEpisode {
    fn drop(&mut self) {
        info!(list = %self.list, server = %self.server, "no client uses this fallback server any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ground::servers::{Attach, Server, ServerLists};
    use crate::engine::authority::Authority;
    use crate::engine::fallback::FallbackSettings;
    use crate::telemetry::Metrics;
    use crate::xds::TypeUrl;

    #[test]
    fn rly_40_all_streams_at_a_server_share_one_episode() {
        let (log, throttle) = (FallbackLog::default(), Throttle::new(Metrics::new().log.clone()));
        let server = |uri: &str| Arc::new(Server { uri: uri.into(), attach: Attach::Nothing });
        let lists =
            ServerLists::new(["first", "second", "third"].map(server).into(), FallbackSettings::default());
        let list = lists.route(&TypeUrl::of_message("t"), Authority::None);
        let join = |number| log.join(list.at(number), "first", &throttle);
        let one = join(1);
        assert!(Arc::ptr_eq(&one, &join(1)));
        assert!(!Arc::ptr_eq(&one, &join(2)));
        let old = Arc::downgrade(&one);
        drop(one);
        assert_eq!(old.strong_count(), 0);
        assert_eq!(Arc::strong_count(&join(1)), 1);
    }
}
