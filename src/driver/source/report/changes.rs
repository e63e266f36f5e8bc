//! The log lines and metrics of published changes.

use std::sync::Arc;

use tracing::info;

use super::Report;
use crate::driver::api::changes::ChangeName;
use crate::driver::source::changes::TrackedChange;
use crate::engine::change::NameList;
use crate::engine::downstream::SourceId;
use crate::telemetry::metrics::ChangeOutcome;
use crate::xds::TypeUrl;

/// The names in a log line, of each kind. `/changes` has more.
const NAMES_LOGGED: usize = 5;

impl Report {
    /// The server of the latest answer.
    pub fn server_uri(&self) -> Arc<str> {
        self.server_uri.clone()
    }

    /// One line for each change. A server that publishes all the time gets a few lines a second (OBS-13).
    pub fn published(&self, tracked: &TrackedChange, source: SourceId) {
        let change = &tracked.change;
        let Some(suppressed) = self.allow("change") else { return };
        let altered = &change.altered;
        let name = ChangeName { source: source.0, number: change.number };
        info!(change = %name, server = %self.server_uri, list = %self.list, class = %self.class.digest,
            type_url = %change.type_url, added = altered.added.count, changed = altered.changed.count,
            removed = altered.removed.count, added_names = names(&altered.added), changed_names = names(&altered.changed),
            removed_names = names(&altered.removed), bytes = altered.bytes, clients = change.sessions, suppressed,
            "published a change");
    }

    /// All clients have answered the change, or the time for answers is over.
    pub fn change_is_over(&mut self, type_url: &TypeUrl, outcome: ChangeOutcome) {
        self.of_type(type_url).types.change(outcome);
    }
}

fn names(list: &NameList) -> Option<String> {
    let shown: Vec<_> = list.names.iter().take(NAMES_LOGGED).map(|name| name.as_str()).collect();
    let rest = if list.count > shown.len() { ", ..." } else { "" };
    (list.count > 0).then(|| shown.join(", ") + rest)
}
