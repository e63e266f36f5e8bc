//! The log lines and metrics of published changes.

use std::sync::Arc;

use tracing::info;

use super::Report;
use crate::driver::api::change_name::ChangeName;
use crate::driver::source::changes::TrackedChange;
use crate::engine::change::NameList;
use crate::engine::downstream::SourceId;
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::metrics::ChangeOutcome;
use crate::telemetry::traces::change::FinishedChange;

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
        let altered = &change.altered;
        let name = ChangeName { source: source.0, number: change.number };
        let lists = [("added", &altered.added), ("changed", &altered.changed), ("removed", &altered.removed)];
        let lists = lists.into_iter().filter_map(|(verb, list)| Some(format!("{verb} {}", names(list)?)));
        let detail = format!("{}: {}", change.type_url.short(), lists.collect::<Vec<_>>().join("; "));
        let event = Occurrence::info(Kind::Change, "published a change").of_type(&change.type_url);
        self.tell(event.version(change.version).change(name).detail(detail));
        let Some(suppressed) = self.allow("change") else { return };
        info!(change = %name, server = %self.server_uri, list = %self.list, class = %self.class.digest,
            type_url = %change.type_url, added = altered.added.count, changed = altered.changed.count,
            removed = altered.removed.count, added_names = names(&altered.added), changed_names = names(&altered.changed),
            removed_names = names(&altered.removed), bytes = altered.bytes, clients = change.sessions, suppressed,
            "published a change");
    }

    /// All clients have answered the change, or the time for answers is over.
    pub fn change_is_over(&mut self, tracked: &TrackedChange, outcome: ChangeOutcome, source: SourceId) {
        self.of_type(&tracked.change.type_url).types.change(outcome);
        let traces = &self.shared.metrics.traces;
        if traces.is_on() {
            traces.offer(self.finished(tracked, outcome, source));
        }
    }

    fn finished(&self, tracked: &TrackedChange, outcome: ChangeOutcome, source: SourceId) -> FinishedChange {
        let (change, tally, clock) = (&tracked.change, tracked.tally(), &self.shared.clock);
        let counts = tracked.counts(u32::MAX);
        FinishedChange {
            name: ChangeName { source: source.0, number: change.number }.to_string(),
            server: tracked.server.clone(),
            list: self.list.clone(),
            class: self.class.digest.clone(),
            type_url: change.type_url.clone(),
            version: change.version.to_string(),
            upstream_version: tracked.upstream_version.clone(),
            received_at: clock.wall(change.at),
            published: tracked.published_after(),
            over: clock.now().since(change.at),
            added: change.altered.added.count,
            changed: change.altered.changed.count,
            removed: change.altered.removed.count,
            bytes: change.altered.bytes,
            outcome,
            wanted: counts.wanted,
            acked: counts.acked,
            rejected: counts.rejected,
            waiting: counts.waiting,
            superseded: counts.superseded,
            p50: tally.percentile(50),
            p99: tally.percentile(99),
            last: tally.slowest(),
            slowest: tally.slowest_clients(),
            rejections: tracked.first_rejections(),
        }
    }
}

fn names(list: &NameList) -> Option<String> {
    let shown: Vec<_> = list.names.iter().take(NAMES_LOGGED).map(|name| name.as_str()).collect();
    let rest = if list.count > shown.len() { ", ..." } else { "" };
    (list.count > 0).then(|| shown.join(", ") + rest)
}
