//! Events of a server that are logged or counted, and change no state of the source.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::SourceReport;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::evidence::EvidenceStatus;
use crate::driver::ground::encoder::BodyTimes;
use crate::driver::source::changes::TrackedChange;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::witness::Testimony;
use crate::telemetry::Limit;
use crate::telemetry::events::{Kind, Occurrence, tell};
use crate::telemetry::metrics::{ChangeOutcome, VersionAnomaly};
use crate::telemetry::traces::change::{Decoding, Delivery, Encoding, FinishedChange, Skipped};
use sluice_engine::Time;
use sluice_engine::change::{Altered, Change, NameList};
use sluice_engine::downstream::SourceId;
use sluice_engine::upstream::{Hold, Lower};
use sluice_xds::{Parameters, ResourceName, Status, TypeUrl, Version};

/// The shortest time between two log lines about the repetitions of a type, or about its lack of room.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The names in a log line, of each kind. `/changes` has more.
const NAMES_LOGGED: usize = 5;

/// Returns true if a line may be logged now, and notes the time.
fn may_tell(last: &mut Option<Time>, now: Time) -> bool {
    let may = last.is_none_or(|last| now >= last + TOLD_EVERY);
    if may {
        *last = Some(now);
    }
    may
}

impl SourceReport {
    pub(super) fn rejected(&self, type_url: &TypeUrl, text: &str, names: &[ResourceName]) {
        let action = if self.is_polled { "left out" } else { "rejected (NACK)" };
        tell!(self, warn(Nack, "the relay rejected resources of the upstream").of_type(type_url).detail(text),
            if self.allow("response rejected");
            { server = %self.server_uri, list = %self.list, %type_url, ?names, error = text }
            = "invalid resources in a response of the upstream were {action}; using the others");
    }

    /// The server was told of clients that reject its resources (`report_rejections`).
    pub fn told_rejections(&mut self, type_url: &TypeUrl, words: &str) {
        self.of_type(type_url).upstream.rejections_told();
        info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, words,
            "told the upstream of clients that reject its resources");
    }

    /// The answers to the server wait (ADR 67).
    pub(super) fn repeated(&mut self, type_url: &TypeUrl, responses: u64, now: Time) {
        let of_type = self.of_type(type_url);
        of_type.upstream.answer_delayed();
        if !may_tell(&mut of_type.told_repeats, now) {
            return;
        }
        tell!(self, warn(Nack, "the upstream repeats the same content without end").of_type(type_url).count(responses),
            if self.allow("repeats");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, responses }
            = "the upstream sends the same content of a type again and again, as if each ACK asked for it; delaying the answers");
    }

    /// The held content is served on (ADR 68).
    pub(super) fn no_room(&mut self, type_url: &TypeUrl, resources: usize, limit: usize, now: Time) {
        self.shared.metrics.limit_hit(Limit::SourceBytes);
        if !may_tell(&mut self.of_type(type_url).told_no_room, now) {
            return;
        }
        tell!(self, warn(Limit, "resources of the upstream find no room")
            .limit(Limit::SourceBytes.name()).of_type(type_url).count(resources as u64)
            .detail(format_args!("the content would take more than {limit} bytes")), if self.allow("no room");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, resources, limit }
            = "the content of the upstream would take more than limits.source_bytes; rejecting the resources that find no \
                room, and serving what is held");
    }

    /// Resources of a type whose clients take more than they asked for (FU15). `limit`: the names of a client
    /// are that many.
    pub(super) fn unasked(&mut self, type_url: &TypeUrl, resources: usize, limit: Option<usize>, now: Time) {
        if limit.is_some() {
            self.shared.metrics.limit_hit(Limit::NamesPerStream);
        }
        if !may_tell(&mut self.of_type(type_url).told_unasked, now) {
            return;
        }
        let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
        if let Some(limit) = limit {
            let event = Occurrence::warn(Kind::Limit, "ignoring resources that the upstream sends unasked");
            let event = event.limit(Limit::NamesPerStream.name()).of_type(type_url).count(resources as u64);
            self.add(event.detail(format_args!("the client has {limit} names")));
        }
        let Some(suppressed) = self.allow("unasked") else { return };
        match limit {
            Some(limit) => warn!(%server, %list, %class, %type_url, resources, limit, suppressed,
                "the upstream sends a client resources that it did not ask for, and with them the client would have more \
                    than limits.names_per_stream names; ignoring them"),
            None => warn!(%server, %list, %class, %type_url, resources, suppressed,
                "the upstream sends a class of clients resources that nobody asked for, and may mean one of them; \
                    ignoring them. A client that needs them, such as an on-demand ztunnel, needs a class of its own: \
                    a rule of node_classes for the type with `split_by: {{ id: true }}`"),
        }
    }

    /// The types on other streams are served on (ADR 15).
    pub(super) fn ends_stream(&self, type_url: &TypeUrl, status: &Status, ends: u32) {
        let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
        if ends == 1 {
            let event =
                Occurrence::warn(Kind::UpstreamLost, "the upstream ends streams after a request for a type");
            self.add(event.of_type(type_url).detail(status));
        }
        if ends == 1
            && let Some(suppressed) = self.allow("ends the stream")
        {
            warn!(%server, %list, %class, %type_url, error = %status, suppressed,
                "the upstream ended the stream soon after a request for a type; requesting the type on a \
                    separate stream from now on");
        } else {
            debug!(%server, %list, %class, %type_url, error = %status, ends, "the upstream ended another stream \
                for a type");
        }
    }

    pub(super) fn bears(&self, type_url: &TypeUrl) {
        tell!(self, info(UpstreamBack, "the upstream serves a type again").of_type(type_url);
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url }
            = "a stream with this type alone stayed open; requesting the type together with the others again");
    }

    pub(super) fn switched_to_sotw(&self, status: &Status) {
        tell!(self, info(Fallback, "the upstream refuses delta; using the state of the world").detail(status);
            { server = %self.server_uri, list = %self.list, %status } + " for an hour");
    }

    pub(super) fn back_to_delta(&self) {
        tell!(self, info(Fallback, "the upstream is silent in the state of the world; trying delta again");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest }
            = "the upstream refused delta and does not answer in the state of the world either; trying delta again");
    }

    pub(super) fn other_bytes(&mut self, type_url: &TypeUrl, contents: &[(ResourceName, Version)]) {
        self.of_type(type_url).upstream.version_anomaly(VersionAnomaly::SameVersionOtherBytes);
        let first = contents.first().map(|(name, _)| name.as_str()).unwrap_or_default();
        debug!(server = %self.server_uri, list = %self.list, %type_url, resources = contents.len(), first,
            "the upstream sent other bytes under the same version; using the new bytes");
    }

    pub(super) fn went_backwards(&mut self, type_url: &TypeUrl, lower: &Lower) {
        self.of_type(type_url).upstream.version_anomaly(VersionAnomaly::WentBackwards);
        let Lower { name, version, before } = lower;
        let name = name.as_ref().map(ResourceName::as_str);
        debug!(server = %self.server_uri, list = %self.list, %type_url, name, version, before,
            "a version of the upstream is lower than the previous version; using the newest response");
    }

    pub(super) fn expired(&mut self, type_url: &TypeUrl, count: usize) {
        self.of_type(type_url).upstream.expired(count);
        tell!(self, warn(Deletion, "resources were removed: the upstream did not refresh their TTL")
            .of_type(type_url).count(count as u64), if self.shared.throttle.allow("resources expired");
            { server = %self.server_uri, list = %self.list, %type_url, count }
            = "the upstream did not refresh resources within their TTL; removed the resources");
    }

    /// FU18: clients keep the deleted resources.
    pub(super) fn deletion_held(&mut self, type_url: &TypeUrl, removed: usize, left: usize, hold: Hold) {
        self.of_type(type_url).upstream.mass_deletion();
        let text = match hold {
            Hold::For(_) => "a mass deletion is held back for a while",
            Hold::UntilConfirmed => "a mass deletion is held back until an operator confirms it",
        };
        let event = Occurrence::warn(Kind::Deletion, text).of_type(type_url);
        self.add(event.detail(format_args!("{removed} removed, {left} left")));
        if let Some(suppressed) = self.allow("mass deletion") {
            let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
            match hold {
                Hold::For(hold) => warn!(%server, %list, %class, %type_url, removed, left, ?hold, suppressed,
                    "the upstream deleted most resources of a type in one response; holding the deletion back \
                        for a while"),
                Hold::UntilConfirmed => warn!(%server, %list, %class, %type_url, removed, left, suppressed,
                    "the upstream deleted most resources of a type in one response; holding the deletion back \
                        until the operator confirms it by POST /confirm_deletions to the admin listener"),
            }
        }
    }

    pub(super) fn deletion_confirmed(&self, type_url: &TypeUrl, removed: usize) {
        tell!(self, info(Deletion, "an operator confirmed a mass deletion")
            .of_type(type_url).detail(format_args!("{removed} removed"));
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed }
            = "the operator confirmed the deletion; passing it on to clients");
    }

    pub(super) fn deletion_withdrawn(&self, type_url: &TypeUrl, count: usize) {
        tell!(self, info(Deletion, "the upstream took a mass deletion back")
            .of_type(type_url).detail(format_args!("{count} restored")), if self.allow("deletion withdrawn");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, count }
            = "the upstream restored resources whose deletion was held back");
    }

    pub(super) fn deletion_carried_out(&self, type_url: &TypeUrl, removed: usize) {
        tell!(self, warn(Deletion, "a mass deletion is passed on to clients")
            .of_type(type_url).detail(format_args!("{removed} removed")), if self.allow("deletion carried out");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed }
            = "the upstream did not restore the deleted resources in time; passing the deletion on to clients");
    }

    pub(super) fn globs_unserved(&self, type_url: &TypeUrl, names: &[ResourceName]) {
        if let Some(suppressed) = self.shared.throttle.allow("globs unserved") {
            let (globs, first) = (names.len(), names.first().map(ToString::to_string).unwrap_or_default());
            warn!(server = %self.server_uri, %type_url, globs, first, suppressed, "the upstream uses the state-of-the-world \
                variant, which has no glob collections; their subscribers get no answer");
        }
    }

    pub(super) fn ambiguous(&self, type_url: &TypeUrl, name: &ResourceName) {
        if let Some(suppressed) = self.shared.throttle.allow("ambiguous variants") {
            let (name, parameters) = name.parameters().unwrap_or((name.as_str(), Parameters::new()));
            warn!(server = %self.server_uri, list = %self.list, %type_url, name, ?parameters, suppressed,
                "several variants of a resource match the same dynamic parameters; using the last in the order \
                    of their constraints");
        }
    }

    /// A request of the state of the world has all names of its type, and cannot be split.
    pub(super) fn request_too_long(&self, type_url: &TypeUrl, names: usize, limit: usize) {
        self.shared.metrics.limit_hit(Limit::MaxRequestBytes);
        tell!(self, warn as error(UpstreamLost, "the names of a type do not fit in one request")
            .of_type(type_url).count(names as u64), if self.allow(&format!("request too long {type_url}"));
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, names, limit }
            + " of the state of the world; `names` of them stay unanswered. Use delta (AGGREGATED_DELTA_GRPC), or raise \
                max_request_bytes here and the longest message of the upstream");
    }

    /// Reports a type that has no service of its own, at a server with one service per type.
    pub fn unserved(&self, type_url: &TypeUrl) {
        if let Some(suppressed) = self.shared.throttle.allow("unserved type") {
            warn!(server = %self.server_uri, list = %self.list, %type_url, suppressed,
                "clients ask for a type without a service of its own, which this `api_type` needs; the type \
                    stays unanswered. An aggregated stream (AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC) may have the \
                    type");
        }
    }
}

/// The log lines and metrics of published changes.
impl SourceReport {
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
