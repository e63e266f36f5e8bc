//! The log lines and metrics of published changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Report;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::evidence::EvidenceStatus;
use crate::driver::ground::encoder::BodyTimes;
use crate::driver::source::changes::TrackedChange;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::witness::Testimony;
use crate::telemetry::events::tell;
use crate::telemetry::metrics::ChangeOutcome;
use crate::telemetry::traces::change::{Decoding, Delivery, Encoding, FinishedChange, Skipped};
use sluice_engine::change::{Altered, Change, NameList};
use sluice_engine::downstream::SourceId;

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
        tell!(self, info(Change, "published a change")
            .of_type(&change.type_url).version(change.version).change(name).detail(detail), if self.allow("change");
            { change = %name, server = %self.server_uri, list = %self.list, class = %self.class.digest,
            type_url = %change.type_url, added = altered.added.count, changed = altered.changed.count,
            removed = altered.removed.count, added_names = names(&altered.added), changed_names = names(&altered.changed),
            removed_names = names(&altered.removed), bytes = altered.bytes, clients = change.sessions });
    }

    /// The server answered another member of the class otherwise (RLY-10).
    pub fn testified(&mut self, change: &Change, testimony: Testimony) {
        let Testimony { previous, next, fields } = testimony;
        let Altered { added, changed, removed, .. } = &change.altered;
        let mut all = changed.clone();
        [removed, added].into_iter().for_each(|list| all.merge(list));
        let (differ, type_url) = (fields.join(", "), &change.type_url);
        let listed = names(&all).unwrap_or_default();
        self.shared.metrics.class_evidence();
        tell!(self, warn(Class, "the server answers another client of a class otherwise: this is a push at the same moment, \
            or the two need different classes").of_type(type_url)
            .detail(format_args!("{previous} and {next}, which differ in {differ}: {listed}")), if self.allow("evidence");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, former = previous, next, differ,
            names = names(&all), count = all.count });
        self.evidence = Some(Arc::new(EvidenceStatus {
            at: self.shared.clock.wall(change.at),
            type_url: type_url.clone(),
            names: all.count,
            first: all.names,
            previous,
            next,
            fields,
        }));
    }

    /// All clients have answered the change, or the time for answers is over.
    pub fn change_is_over(&mut self, tracked: &TrackedChange, outcome: ChangeOutcome, source: &SourceHandle) {
        self.of_type(&tracked.change.type_url).types.change(outcome);
        let traces = &self.shared.metrics.traces;
        if traces.is_on() && traces.offer(self.finished(tracked, outcome, source)) {
            tracked.is_traced.store(true, Ordering::Relaxed);
        }
    }

    fn finished(
        &self,
        tracked: &TrackedChange,
        outcome: ChangeOutcome,
        source: &SourceHandle,
    ) -> FinishedChange {
        let (change, tally, clock) = (&tracked.change, tracked.tally(), &self.shared.clock);
        let counts = tracked.counts(u32::MAX);
        let since_receipt = |instant: Instant| clock.time(instant).since(change.at);
        let encoding = |made: &BodyTimes| Encoding {
            begin: since_receipt(made.begin),
            end: since_receipt(made.end),
            bytes: made.bytes,
            messages: made.messages,
        };
        let journal = tracked.journal();
        let skipped = |numbers| self.skipped(numbers, source);
        let with_skipped = |delivery: Delivery| {
            let numbers = journal.skipped_by(delivery.stream, change.number);
            Delivery { skipped: skipped(numbers.collect()), ..delivery }
        };
        let is_unseen =
            |number: &u64| source.changes.with(*number, TrackedChange::is_unseen).unwrap_or(false);
        FinishedChange {
            name: name_of(source, change.number).to_string(),
            server: tracked.server.clone(),
            list: self.list.clone(),
            class: self.class.digest.clone(),
            type_label: self.shared.metrics.of_type(&change.type_url).label().into(),
            type_url: change.type_url.clone(),
            version: change.version.to_string(),
            upstream_version: tracked.upstream_version.clone(),
            received_at: clock.wall(change.at),
            decoding: tracked.arrival.map(|arrival| Decoding {
                before: change.at.since(clock.time(arrival.at)),
                took: arrival.decoding,
            }),
            published: tracked.published_after(),
            encodings: journal.bodies.iter().map(encoding).collect(),
            coalesced: skipped(journal.skipped_by_any(change.number).filter(is_unseen).collect()),
            over: clock.now().since(change.at),
            added: change.altered.added.count,
            changed: change.altered.changed.count,
            removed: change.altered.removed.count,
            bytes: change.altered.bytes,
            outcome,
            streams: counts.total,
            acked: counts.acked,
            rejected: counts.rejected,
            waiting: counts.waiting,
            superseded: counts.superseded,
            p50: tally.percentile(50),
            p99: tally.percentile(99),
            last: tally.slowest(),
            slowest: tally.slowest_clients().into_iter().map(with_skipped).collect(),
            rejections: tracked.first_rejections().into_iter().map(with_skipped).collect(),
        }
    }

    fn skipped(&self, numbers: Vec<u64>, source: &SourceHandle) -> Vec<Skipped> {
        let of_number = |number: u64| Skipped {
            name: name_of(source, number).to_string(),
            is_traced: source.changes.with(number, |change| change.is_traced.load(Ordering::Relaxed))
                == Some(true),
        };
        numbers.into_iter().map(of_number).collect()
    }
}

fn name_of(source: &SourceHandle, number: u64) -> ChangeName {
    ChangeName { source: source.id().0, number }
}

fn names(list: &NameList) -> Option<String> {
    let shown: Vec<_> = list.names.iter().take(NAMES_LOGGED).map(|name| name.as_str()).collect();
    let rest = if list.count > shown.len() { ", ..." } else { "" };
    (list.count > 0).then(|| shown.join(", ") + rest)
}
