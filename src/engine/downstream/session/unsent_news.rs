//! News that a client is not sent yet, for reports (RLY-71, ADM-7).

use std::sync::Arc;

use crate::engine::Time;
use crate::engine::downstream::session::Session;
use crate::engine::downstream::sources::SourceId;
use crate::engine::downstream::subscription::unsent_news::UnsentNews;
use crate::engine::snapshot::Snapshot;

impl Session {
    /// The unsent news of each subscription, in the order of the subscriptions. `latest` as in
    /// [`Session::poll_answer`].
    pub fn unsent_news(
        &self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Vec<Option<UnsentNews>> {
        let snapshots = self.served(latest);
        let turn = self.turn(&snapshots, false, now);
        let clusters = self.subscriptions.iter().filter(|of| of.type_url.kind().is_cluster_side());
        let before = clusters.filter(|of| of.holds_back(&turn)).map(|of| &of.type_url).next();
        self.subscriptions.iter().map(|of| of.unsent_news(before, self.held_since(), &turn)).collect()
    }
}
