//! The reports of a source: metrics, log lines, and the status for the admin room.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{debug, info, warn};

use super::checkpoint::Confirmed;
use super::health::Health;
use crate::driver::api::status::{
    ClassStatus, LostStatus, Refused, RefusedStatus, SourceState, SourceStatus, SourceTypeStatus,
};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::{Attach, Place};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::engine::Time;
use crate::engine::cache::EntryState;
use crate::engine::reach::Reach;
use crate::engine::source::{Attachment, Source, StreamIndex, is_mass};
use crate::engine::upstream::{Event, Hold, Lower};
use crate::telemetry::Limit;
use crate::telemetry::metrics::{
    CacheMetrics, GaugePart, ServerMetrics, SourceMetrics, TypeMetrics, UpstreamTypeMetrics, VersionAnomaly,
};
use crate::telemetry::wall_now;
use crate::xds::{Code, Node, Parameters, ResourceName, Response, Status, TypeUrl, Variant, Version};

/// The metrics of one type.
struct TypeReport {
    types: Arc<TypeMetrics>,
    upstream: UpstreamTypeMetrics,
    cache: CacheMetrics,
    held_back: GaugePart,
    /// The server refuses the type.
    refused: Option<(Refused, GaugePart)>,
}

pub struct Report {
    shared: Arc<DriverContext>,
    server_uri: Arc<str>,
    list: Arc<str>,
    place: Place,
    stream: Option<u64>,
    metrics: SourceMetrics,
    types: BTreeMap<TypeUrl, TypeReport>,
    unwatched: GaugePart,
    suspects: GaugePart,
    /// The part of [`Source::evicted`] that is counted already.
    evicted: u64,
    _counted: GaugePart,
    class: ClassStatus,
    health: Health,
    state: SourceState,
    since: Time,
    failures: u32,
    last_error: Option<Status>,
    /// The node id that the server sees.
    shown: Arc<str>,
    answered: bool,
    /// The server has left all requests unanswered for a while.
    is_mute: bool,
    /// Since when the server is unreachable (I14).
    stale_since: Option<Time>,
    /// The last confirmation of content from before a restart (RLY-7).
    restored: Option<SystemTime>,
    /// The kind of outage that was logged.
    warned: Option<OutageKind>,
    /// The type of the stream that was lost last, and whether the server was lost with the stream.
    lost_type: Option<(TypeUrl, bool)>,
    /// The types with a logged loss.
    warned_of: BTreeSet<TypeUrl>,
    /// The server is polled, and gets no NACKs.
    is_polled: bool,
    variant: Option<Variant>,
}

/// The kind of an outage. Each kind has a log line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutageKind {
    Unreachable,
    EndsStreams,
    /// A response, or a file, cannot be read.
    Unreadable,
}

/// A response that removes all of at least this many resources is a mass deletion, too. Smaller removals are
/// everyday changes.
const EMPTIED_MIN: usize = 5;

impl Report {
    pub fn new(shared: &Arc<DriverContext>, node: &Node, digest: String, key: &SourceKey) -> Report {
        let now = shared.clock.now();
        let server = shared.server(key.place);
        let list = &shared.settings.lists.list(key.place.list).label;
        // A source without a server is complete.
        let is_whole = server.is_made_up();
        let mut report = Report {
            metrics: shared.metrics.of_server(&server.uri).source(list),
            server_uri: server.uri.clone(),
            list: list.clone(),
            place: key.place,
            stream: match key.owner {
                Owner::Everyone => None,
                Owner::Stream(session) => Some(session.0),
            },
            types: BTreeMap::new(),
            unwatched: shared.metrics.unwatched_bytes(),
            suspects: shared.metrics.of_server(&server.uri).suspect_streams(),
            evicted: 0,
            _counted: match key.owner {
                Owner::Everyone => shared.metrics.node_class(),
                Owner::Stream(_) => shared.metrics.private_source(),
            },
            class: ClassStatus { digest: digest.into(), fields: fields_of(&key.class.node) },
            health: Health::default(),
            state: if is_whole { SourceState::Connected } else { SourceState::Connecting },
            since: now,
            failures: 0,
            last_error: None,
            shown: node.id.as_str().into(),
            answered: is_whole,
            is_mute: false,
            stale_since: (!is_whole).then_some(now),
            restored: None,
            warned: None,
            lost_type: None,
            warned_of: BTreeSet::new(),
            is_polled: matches!(server.attach, Attach::Rest { .. }),
            variant: None,
            shared: shared.clone(),
        };
        report.metrics.state(report.state);
        report
    }

    fn server(&self) -> &Arc<ServerMetrics> {
        self.metrics.server()
    }

    /// A stream is open to this server, numbered from the server of the place.
    fn attached_to(&mut self, number: u16) {
        let uri = &self.shared.server(self.place.failover(number)).uri;
        if *uri == self.server_uri {
            return;
        }
        if let Some(suppressed) = self.allow("failover") {
            warn!(list = %self.list, class = %self.class.digest, from = %self.server_uri, to = %uri, suppressed,
                "a source moved to the other server of its list");
        }
        self.server_uri = uri.clone();
        self.metrics = self.shared.metrics.of_server(uri).source(&self.list);
        self.suspects = self.shared.metrics.of_server(uri).suspect_streams();
        self.metrics.state(self.state);
        self.metrics.stale(self.stale_since.is_some() && self.health.is_any_lost());
        // The other server has its own counters by type.
        self.types.clear();
    }

    fn of_type(&mut self, type_url: &TypeUrl) -> &mut TypeReport {
        self.types.entry(type_url.clone()).or_insert_with(|| {
            let types = self.shared.metrics.of_type(type_url);
            let upstream = self.metrics.server().of_type(&types);
            TypeReport {
                held_back: upstream.held_back(),
                refused: None,
                upstream,
                cache: types.cache(),
                types,
            }
        })
    }

    // === Events of the server ===

    pub fn response(&mut self, response: &Response, now: Time) {
        self.answers(now);
        self.of_type(response.type_url()).upstream.response();
    }

    /// Compares the number of resources of a type before and after a response. The relay obeys a mass deletion,
    /// because the server may mean it. The log line tells the operator soon (FU18).
    pub fn changed(&mut self, type_url: &TypeUrl, before: usize, after: usize) {
        let removed = before.saturating_sub(after);
        if !is_mass(removed, before) && (after > 0 || removed < EMPTIED_MIN) {
            return;
        }
        self.of_type(type_url).upstream.mass_deletion();
        if let Some(suppressed) = self.allow("mass deletion") {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed, left = after,
                suppressed, "the upstream deleted most resources of a type in one response; passing the deletion \
                    on to clients");
        }
    }

    /// Counts like an unreachable server, but has a log line of its own, once (I14).
    pub fn undecodable(&mut self, status: &Status) {
        // Only the length is a limit among the checks before decoding (FU17).
        if status.code == Code::ResourceExhausted {
            self.shared.metrics.limit_hit(Limit::MaxResponseBytes);
        }
        if self.warned.replace(OutageKind::Unreadable).is_none()
            && let Some(suppressed) = self.allow("undecodable")
        {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, error = %status, suppressed,
                "cannot read a response of the upstream; serving cached configuration; retrying");
        }
    }

    /// Whether a line about this cause and this server may be logged now.
    fn allow(&self, cause: &str) -> Option<Option<NonZeroU64>> {
        self.shared.throttle.allow(&format!("{cause} {}", self.server_uri))
    }

    pub fn files_read(&mut self, now: Time) {
        self.answered = true;
        self.heard(0, now);
        debug!(server = %self.server_uri, list = %self.list, "files read");
    }

    /// The files on disk differ from the served resources (I14, FIL-7).
    pub fn bad_file(&mut self, path: &Path, reason: &str, now: Time) {
        self.server().bad_file();
        let text = format!("{}: {reason}", path.display());
        self.last_error = Some(Status::new(Code::FailedPrecondition, text));
        let Some(suppressed) = self.allow("bad file") else { return self.lose(0, now) };
        if self.answered {
            warn!(file = %path.display(), reason, suppressed, "cannot use a file; serving the last good state");
        } else {
            warn!(file = %path.display(), reason, suppressed, "cannot use a file; there is no good state to \
                serve");
        }
        self.warned = Some(OutageKind::Unreadable);
        self.lose(0, now);
    }

    pub fn event(&mut self, stream: StreamIndex, event: &Event, now: Time) {
        let (server, list) = (self.server_uri.clone(), self.list.clone());
        match event {
            Event::Connected { variant, server } => {
                self.attached_to(*server);
                self.variant = Some(*variant);
                self.health.connected(stream, now);
                self.opened(stream, now);
                debug!(%server, %list, stream, ?variant, "upstream stream opened");
            }
            Event::Disconnected { status, answered, retry_in } => {
                self.last_error = Some(status.clone());
                debug!(%server, %list, stream, %status, answered, ?retry_in, "upstream stream ended");
                self.health.ended(stream);
                self.back_off(stream, *retry_in, now);
            }
            Event::Unreachable { status } => self.unreachable(stream, status, now),
            Event::Heard => self.heard(stream, now),
            Event::Unanswered => self.unanswered(now),
            Event::Acked { type_url } => {
                self.of_type(type_url).upstream.ack();
            }
            Event::Unchanged { type_url } => {
                self.answers(now);
                self.of_type(type_url).upstream.unchanged();
            }
            Event::Nacked { type_url, text, names } => {
                self.of_type(type_url).upstream.nack();
                self.rejected(type_url, text, names);
            }
            // The log line about the response names them.
            Event::Malformed { .. } => {}
            Event::SwitchedToSotw { status } => {
                info!(%server, %list, %status, "the upstream refuses delta; using the state of the world for an hour");
            }
            Event::Ignored { type_url } => {
                debug!(%server, %list, %type_url, "ignored a response of a type without subscriptions");
            }
            Event::ResourceError { type_url, error } => {
                self.of_type(type_url).upstream.resource_error(error.status.code);
                debug!(%server, %list, %type_url, name = %error.name, status = %error.status, "the upstream reported an error");
            }
            Event::GlobsUnserved { type_url, names } => {
                if let Some(suppressed) = self.shared.throttle.allow("globs unserved") {
                    let (globs, first) =
                        (names.len(), names.first().map(ToString::to_string).unwrap_or_default());
                    warn!(%server, %type_url, globs, first, suppressed, "the upstream uses the state-of-the-world \
                        variant, which has no glob collections; their subscribers get no answer");
                }
            }
            Event::Ambiguous { type_url, name } => self.ambiguous(type_url, name),
            Event::SameVersion { type_url, contents } => self.other_bytes(type_url, contents),
            Event::WentBackwards { type_url, lower } => self.went_backwards(type_url, lower),
            Event::Refreshed { type_url, count } => self.of_type(type_url).upstream.heartbeats(*count),
            Event::Expired { type_url, count } => self.expired(type_url, *count),
            Event::DeletionHeld { type_url, count, left, hold } => {
                self.deletion_held(type_url, *count, *left, *hold);
            }
            Event::DeletionWithdrawn { type_url, count } => self.deletion_withdrawn(type_url, *count),
            Event::DeletionCarriedOut { type_url, count } => self.deletion_carried_out(type_url, *count),
            Event::DeletionConfirmed { type_url, count } => self.deletion_confirmed(type_url, *count),
            Event::EndsStream { type_url, status, ends } => self.ends_stream(type_url, status, *ends),
            Event::NotServed { type_url, status } => self.not_served(stream, type_url, status, now),
            Event::BearsType { type_url } => self.bears(type_url),
            Event::Timeout { type_url, names } => {
                debug!(%server, %list, %type_url, ?names, "the upstream did not answer for these names in time");
            }
        }
    }

    fn rejected(&self, type_url: &TypeUrl, text: &str, names: &[ResourceName]) {
        if let Some(suppressed) = self.allow("response rejected") {
            let action = if self.is_polled { "left out" } else { "rejected (NACK)" };
            warn!(server = %self.server_uri, list = %self.list, %type_url, ?names, error = text, suppressed,
                "invalid resources in a response of the upstream were {action}; using the others");
        }
    }

    /// RLY-25: the server is reachable, but does not serve this type.
    fn not_served(&mut self, stream: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        if let Some(suppressed) = self.allow(&format!("not served {type_url}")) {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, error = %status, suppressed,
                "the upstream does not serve a type that clients ask for; retrying now and then");
        }
        self.closed(stream, now);
    }

    /// The types on other streams are served on (ADR 15).
    fn ends_stream(&self, type_url: &TypeUrl, status: &Status, ends: u32) {
        let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
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

    fn bears(&self, type_url: &TypeUrl) {
        info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url,
            "a stream with this type alone stayed open; requesting the type together with the others again");
    }

    fn other_bytes(&mut self, type_url: &TypeUrl, contents: &[(ResourceName, Version)]) {
        self.of_type(type_url).upstream.version_anomaly(VersionAnomaly::SameVersionOtherBytes);
        let first = contents.first().map(|(name, _)| name.as_str()).unwrap_or_default();
        debug!(server = %self.server_uri, list = %self.list, %type_url, resources = contents.len(), first,
            "the upstream sent other bytes under the same version; using the new bytes");
    }

    fn went_backwards(&mut self, type_url: &TypeUrl, lower: &Lower) {
        self.of_type(type_url).upstream.version_anomaly(VersionAnomaly::WentBackwards);
        let Lower { name, version, before } = lower;
        let name = name.as_ref().map(ResourceName::as_str);
        debug!(server = %self.server_uri, list = %self.list, %type_url, name, version, before,
            "a version of the upstream is lower than the previous version; using the newest response");
    }

    fn expired(&mut self, type_url: &TypeUrl, count: usize) {
        self.of_type(type_url).upstream.expired(count);
        if let Some(suppressed) = self.shared.throttle.allow("resources expired") {
            warn!(server = %self.server_uri, list = %self.list, %type_url, count, suppressed,
                "the upstream did not refresh resources within their TTL; removed the resources");
        }
    }

    /// FU18: clients keep the deleted resources.
    fn deletion_held(&mut self, type_url: &TypeUrl, removed: usize, left: usize, hold: Hold) {
        self.of_type(type_url).upstream.mass_deletion();
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

    fn deletion_confirmed(&self, type_url: &TypeUrl, removed: usize) {
        info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed,
            "the operator confirmed the deletion; passing it on to clients");
    }

    fn deletion_withdrawn(&self, type_url: &TypeUrl, count: usize) {
        if let Some(suppressed) = self.allow("deletion withdrawn") {
            info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, count, suppressed,
                "the upstream restored resources whose deletion was held back");
        }
    }

    fn deletion_carried_out(&self, type_url: &TypeUrl, removed: usize) {
        if let Some(suppressed) = self.allow("deletion carried out") {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed, suppressed,
                "the upstream did not restore the deleted resources in time; passing the deletion on to clients");
        }
    }

    fn ambiguous(&self, type_url: &TypeUrl, name: &ResourceName) {
        if let Some(suppressed) = self.shared.throttle.allow("ambiguous variants") {
            let (name, parameters) = name.parameters().unwrap_or((name.as_str(), Parameters::new()));
            warn!(server = %self.server_uri, list = %self.list, %type_url, name, ?parameters, suppressed,
                "several variants of a resource match the same dynamic parameters; using the last in the order \
                    of their constraints");
        }
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

    /// The stream has ended, because it has no subscriptions or because it is renewed.
    pub fn closed(&mut self, stream: StreamIndex, now: Time) {
        let was_lost = self.health.is_any_lost();
        self.health.closed(stream);
        if was_lost {
            self.refresh(now);
        }
    }

    /// A source is in backoff once none of its streams is up.
    fn back_off(&mut self, stream: StreamIndex, delay: Duration, now: Time) {
        if self.health.is_any_up() {
            return;
        }
        let failures = self.failures;
        let state = match (self.state, self.health.ended_by_server(stream)) {
            // The source is in this state already.
            (SourceState::EndsStreams { .. }, Some(lived)) => {
                SourceState::EndsStreams { failures, delay, lived }
            }
            _ => SourceState::Backoff { failures, delay },
        };
        self.enter(state, now);
    }

    /// Notes the type of a lost stream, where each type has its own, and whether the server was lost with the stream.
    pub fn note_lost_type(&mut self, lost_type: Option<(TypeUrl, bool)>) {
        self.lost_type = lost_type;
    }

    /// Whether a loss is logged: one line at the change, not one for each attempt. Returns the number of suppressed lines, and
    /// the type if only one type is lost.
    fn loss_to_log(
        &mut self,
        cause: &str,
        kind: OutageKind,
        type_url: Option<TypeUrl>,
    ) -> Option<(Option<NonZeroU64>, Option<TypeUrl>)> {
        let before = self.warned.replace(kind);
        let is_other_kind = matches!(
            (before, kind),
            (Some(OutageKind::Unreachable), OutageKind::EndsStreams)
                | (Some(OutageKind::EndsStreams), OutageKind::Unreachable)
        );
        let is_other_type = type_url.as_ref().is_some_and(|type_url| self.warned_of.insert(type_url.clone()));
        if before.is_some() && !is_other_kind && !is_other_type {
            return None;
        }
        let of_type = type_url.as_ref().map(|type_url| format!("{cause} {type_url}"));
        let suppressed = self.allow(of_type.as_deref().unwrap_or(cause))?;
        Some((suppressed, type_url))
    }

    fn unreachable(&mut self, stream: StreamIndex, status: &Status, now: Time) {
        self.failures += 1;
        self.last_error = Some(status.clone());
        self.lose(stream, now);
        if let Some(lived) = self.health.ended_by_server(stream) {
            return self.ends_streams(status, lived, now);
        }
        let type_url = self.lost_type.take().and_then(|(type_url, is_whole)| (!is_whole).then_some(type_url));
        if let Some((suppressed, type_url)) =
            self.loss_to_log("unreachable", OutageKind::Unreachable, type_url)
        {
            let type_url = type_url.map(tracing::field::display);
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status,
                suppressed, "the upstream is unreachable; serving cached configuration; retrying");
        }
        self.back_off(stream, Duration::ZERO, now);
    }

    /// The server is reachable, and ended the stream. For an operator, this differs from a failed connection.
    fn ends_streams(&mut self, status: &Status, lived: Duration, now: Time) {
        let type_url = self.lost_type.take().map(|(type_url, _)| type_url);
        if let Some((suppressed, type_url)) =
            self.loss_to_log("ends streams", OutageKind::EndsStreams, type_url)
        {
            let type_url = type_url.map(tracing::field::display);
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status,
                after = ?lived, suppressed, "the upstream accepts connections but ends the stream; serving cached configuration; \
                    retrying");
        }
        if !self.health.is_any_up() {
            let delay = match self.state {
                SourceState::Backoff { delay, .. } | SourceState::EndsStreams { delay, .. } => delay,
                _ => Duration::ZERO,
            };
            self.enter(SourceState::EndsStreams { failures: self.failures, delay, lived }, now);
        }
    }

    /// A stream is open. If the server ended the previous stream, an open stream alone proves nothing.
    fn opened(&mut self, stream: StreamIndex, now: Time) {
        if !(matches!(self.state, SourceState::EndsStreams { .. }) && self.health.is_lost(stream)) {
            self.enter(SourceState::Connected, now);
        }
    }

    /// Records a report about a stream; see [`Health::reported`].
    pub fn reported(&mut self, stream: StreamIndex, is_ended_by_server: bool, now: Time) {
        self.health.reported(stream, is_ended_by_server, now);
    }

    /// From now on, nothing confirms the served resources.
    fn lose(&mut self, stream: StreamIndex, now: Time) {
        self.health.unreachable(stream);
        self.stale_since.get_or_insert(now);
        self.metrics.stale(true);
    }

    /// The server answered on a stream. The served resources are fresh again, unless another stream is lost.
    fn heard(&mut self, stream: StreamIndex, now: Time) {
        self.health.answered(stream);
        let state = if self.is_mute { SourceState::Unanswered } else { SourceState::Connected };
        self.enter(state, now);
        self.refresh(now);
    }

    /// The server has sent a response.
    fn answers(&mut self, now: Time) {
        self.answered = true;
        if std::mem::take(&mut self.is_mute) {
            info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, "the upstream answers");
            self.enter(SourceState::Connected, now);
        }
    }

    /// A stream is open, and the server sends nothing. Without this line, neither an error nor an answer would
    /// tell the operator.
    fn unanswered(&mut self, now: Time) {
        if self.answered {
            return;
        }
        self.enter(SourceState::Unanswered, now);
        if std::mem::replace(&mut self.is_mute, true) {
            return;
        }
        if let Some(suppressed) = self.allow("unanswered") {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, node = %self.shown, suppressed,
                "the upstream has answered no request for 10 s; it may have nothing for a node with this id. If \
                    it selects by node id, set `split_by: {{ id: true }}` in `node_classes`, or set \
                    `upstream_node`");
        }
    }

    /// From now on, the class shows this node to its server.
    pub fn shows(&mut self, node: &Node) {
        self.shown = node.id.as_str().into();
    }

    fn refresh(&mut self, now: Time) {
        if self.health.is_any_lost() {
            return;
        }
        self.failures = 0;
        self.last_error = None;
        self.metrics.stale(self.restored.is_some());
        self.warned_of.clear();
        let since = self.stale_since.take();
        if self.warned.take().is_some()
            && let Some(suppressed) = self.allow("answers again")
        {
            let outage = since.map(|since| tracing::field::debug(now.since(since)));
            info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, outage, suppressed,
                "the upstream answers again");
        }
    }

    // === Resources from before a restart ===

    /// The source serves its resources from before a restart. `since`: their last confirmation by the server.
    pub fn restored(&mut self, since: SystemTime, resources: usize) {
        self.restored = Some(since);
        self.metrics.restored(true);
        self.metrics.stale(true);
        info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, resources,
            "serving the resources from before the restart until the upstream has answered");
    }

    /// The server has confirmed or replaced all restored resources.
    pub fn confirmed(&mut self, now: Time) {
        self.restored = None;
        self.metrics.restored(false);
        info!(server = %self.server_uri, list = %self.list, class = %self.class.digest,
            "the upstream has answered for all resources restored from the checkpoint");
        self.refresh(now);
    }

    /// The last confirmation of the content by the server, and whether the content is fresh.
    pub fn confirmed_at(&self, clock: &Clock) -> Confirmed {
        let since = self.restored.or(self.stale_since.map(|since| clock.wall(since)));
        Confirmed { at: since.unwrap_or_else(wall_now), is_fresh: since.is_none() }
    }

    fn enter(&mut self, state: SourceState, now: Time) {
        if self.state.index() != state.index() {
            self.since = now;
        }
        self.state = state;
        self.metrics.state(state);
        if matches!(state, SourceState::Backoff { .. } | SourceState::EndsStreams { .. }) {
            self.stale_since.get_or_insert(now);
        }
    }

    // === The status ===

    /// Also updates the gauges of the cache.
    pub fn status(&mut self, source: Option<&Source>, clock: &Clock) -> SourceStatus {
        let types = source.map(|source| self.type_statuses(source)).unwrap_or_default();
        self.unwatched.set(source.map_or(0, Source::lingering_bytes));
        self.suspects.set(match source.map(Source::attachment) {
            Some(Attachment::Streams(streams)) => streams.suspect_streams(),
            Some(Attachment::Files(_)) | None => 0,
        });
        let evicted = source.map_or(0, Source::evicted);
        self.shared.metrics.limits().add(Limit::UnwatchedBytes, evicted.saturating_sub(self.evicted));
        self.evicted = evicted;
        SourceStatus {
            server: self.server_uri.clone(),
            list: self.list.clone(),
            stream: self.stream,
            class: self.class.clone(),
            shown: self.shown.clone(),
            state: self.state,
            since: clock.wall(self.since),
            last_error: self.last_error.clone(),
            answered: self.answered,
            stale_since: self.restored.or(self.stale_since.map(|since| clock.wall(since))),
            restored: self.restored.is_some(),
            variant: self.variant,
            has_marks: matches!(source.map(Source::attachment), Some(Attachment::Streams(streams)) if streams.has_marks()),
            types,
        }
    }

    fn refused(&self, source: &Source, type_url: &TypeUrl) -> Option<RefusedStatus> {
        let Attachment::Streams(streams) = source.attachment() else { return None };
        let (how, since, error) = match (streams.suspect_of(type_url), streams.not_served(type_url)) {
            (Some(suspect), _) => (Refused::EndsStream, suspect.since, suspect.status.clone()),
            (None, Some((since, status))) => (Refused::NotServed, since, status.clone()),
            (None, None) => return None,
        };
        let next_try = streams.next_try(type_url).map(|due| self.shared.clock.wall(due));
        Some(RefusedStatus { how, since: self.shared.clock.wall(since), next_try, error })
    }

    fn type_statuses(&mut self, source: &Source) -> Vec<SourceTypeStatus> {
        let mut statuses = Vec::new();
        for (type_url, counts, wildcard) in source.types() {
            let members = wildcard.map_or(0, |view| view.len());
            let unknown = wildcard.map_or(0, |view| usize::from(!view.is_complete()));
            let refused = self.refused(source, type_url);
            let status = SourceTypeStatus {
                type_url: type_url.clone(),
                names: counts.present + counts.absent + counts.unknown,
                wildcard: wildcard.is_some(),
                present: counts.present + members,
                absent: counts.absent,
                unknown: counts.unknown + unknown,
                held_back: source.held_back(type_url),
                held_back_since: source.held_back_since(type_url).map(|since| self.shared.clock.wall(since)),
                refused,
                lost: match source.reach_of(type_url) {
                    Some(Reach::Lost { since, status }) => {
                        Some(LostStatus { since: self.shared.clock.wall(since), error: status })
                    }
                    _ => None,
                },
                bytes: counts.bytes + wildcard.map_or(0, |view| view.bytes()),
                version: wildcard.map(|view| view.digest()),
            };
            let report = self.of_type(type_url);
            report.held_back.set(status.held_back);
            let how = status.refused.as_ref().map(|refused| refused.how);
            if report.refused.as_ref().map(|(how, _)| *how) != how {
                report.refused = how.map(|how| (how, report.upstream.refused(how.name())));
            }
            let cache = &mut report.cache;
            cache.set(status.present, status.absent, status.unknown, status.bytes);
            cache.set_states(EntryState::ALL.map(|state| counts.states.get(state)));
            statuses.push(status);
        }
        let held: Vec<&TypeUrl> = statuses.iter().map(|status| &status.type_url).collect();
        self.types.retain(|type_url, report| {
            let keep = held.contains(&type_url);
            if !keep {
                report.cache = report.types.cache();
            }
            keep
        });
        statuses
    }
}

/// The fields that make a class. Values that may be confidential are left out: metadata has its keys only.
fn fields_of(node: &Node) -> Arc<[(String, String)]> {
    let mut fields = Vec::new();
    let mut note = |field: &str, value: String| {
        if !value.is_empty() {
            fields.push((field.to_owned(), value));
        }
    };
    note("id", node.id.clone());
    note("cluster", node.cluster.clone());
    let locality = node.locality.as_ref();
    note("locality", locality.map(|l| format!("{}/{}/{}", l.region, l.zone, l.sub_zone)).unwrap_or_default());
    note("user_agent_name", node.user_agent_name.clone());
    note("client_features", node.client_features.join(","));
    note("metadata", node.metadata.keys().cloned().collect::<Vec<_>>().join(","));
    fields.into()
}
