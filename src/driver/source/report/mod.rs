//! The reports of a source: metrics, log lines, and the status for the admin room.

mod log;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{debug, info, warn};

use super::checkpoint::Confirmed;
use super::contact::{Contact, OutageKind};
use crate::driver::api::evidence::EvidenceStatus;
use crate::driver::api::status::{
    ClassStatus, LostStatus, NoRoomStatus, Refused, RefusedStatus, SilentStatus, SourceState, SourceStatus,
    SourceTypeStatus,
};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::{Attach, ListedServer};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::telemetry::Limit;
use crate::telemetry::events::{Kind, Occurrence, tell};
use crate::telemetry::metrics::{
    CacheMetrics, GaugePart, ServerMetrics, SourceMetrics, TypeMetrics, UpstreamTypeMetrics,
};
use crate::telemetry::wall_now;
use sluice_engine::Time;
use sluice_engine::cache::EntryState;
use sluice_engine::class::NodeClass;
use sluice_engine::downstream::SourceId;
use sluice_engine::last_word::LastWords;
use sluice_engine::reachability::Reachability;
use sluice_engine::source::{Attachment, Source, StreamIndex, is_mass};
use sluice_engine::upstream::Event;
use sluice_xds::{Code, Node, ResourceName, Response, Status, TypeUrl, Variant};

/// The metrics of one type.
struct TypeReport {
    types: Arc<TypeMetrics>,
    upstream: UpstreamTypeMetrics,
    cache: CacheMetrics,
    held_back: GaugePart,
    silent_names: GaugePart,
    /// The last log line about a server that repeats itself.
    told_repeats: Option<Time>,
    /// The last log line about resources that find no room.
    told_no_room: Option<Time>,
    /// The last log line about resources that nobody asked for.
    told_unasked: Option<Time>,
    /// The server refuses the type.
    refused: Option<(Refused, GaugePart)>,
}

/// The reports of one source. Wide because each line, event and metric needs most of the fields beside the
/// contact: the fields say which source is reported.
pub struct SourceReport {
    /// The number of the source.
    id: u64,
    shared: Arc<DriverContext>,
    server_uri: Arc<str>,
    list: Arc<str>,
    /// The servers that may serve.
    uris: Box<[Arc<str>]>,
    stream: Option<u64>,
    is_shadow: bool,
    metrics: SourceMetrics,
    /// In boxes: most sources have few types, and a node of the tree has places for eleven.
    types: BTreeMap<TypeUrl, Box<TypeReport>>,
    unwatched: GaugePart,
    suspects: GaugePart,
    /// The part of [`Source::evicted`] that is counted already.
    evicted: u64,
    _counted: GaugePart,
    class: ClassStatus,
    contact: Contact,
    /// The words of a relay above.
    pub last_words: LastWords,
    /// The node id that the server sees.
    shown: Arc<str>,
    /// The latest other answer for another member.
    evidence: Option<Arc<EvidenceStatus>>,
    /// The server is polled, and gets no NACKs.
    pub is_polled: bool,
    variant: Option<Variant>,
}

/// The maximum number of names in a log line or in a status. The rest is a count.
const NAMES_MAX: usize = 10;

/// A response that removes all of at least this many resources is a mass deletion, too. Smaller removals are
/// everyday changes.
const EMPTIED_MIN: usize = 5;

impl SourceReport {
    pub fn new(
        shared: &Arc<DriverContext>,
        node: &Node,
        digest: String,
        key: &SourceKey,
        id: SourceId,
        listed: ListedServer<'_>,
    ) -> SourceReport {
        let now = shared.clock.now();
        let (server, list) = (listed.server(), &listed.list.label);
        // A source without a server is complete.
        let is_whole = server.is_made_up();
        let mut report = SourceReport {
            id: id.0,
            metrics: shared.metrics.of_server(&server.uri).source(list),
            server_uri: server.uri.clone(),
            list: list.clone(),
            uris: listed.serving().iter().map(|server| server.uri.clone()).collect(),
            stream: match key.owner {
                Owner::Everyone | Owner::Shadow(_) => None,
                Owner::Stream(session) => Some(session.0),
            },
            is_shadow: matches!(key.owner, Owner::Shadow(_)),
            types: BTreeMap::new(),
            unwatched: shared.metrics.unwatched_bytes(),
            suspects: shared.metrics.of_server(&server.uri).suspect_streams(),
            evicted: 0,
            _counted: match key.owner {
                Owner::Everyone => shared.metrics.node_class(),
                Owner::Stream(_) | Owner::Shadow(_) => shared.metrics.private_source(),
            },
            class: ClassStatus { digest: digest.into(), fields: fields_of(&key.class) },
            contact: Contact::new(is_whole, now),
            last_words: LastWords::default(),
            shown: node.id.as_str().into(),
            evidence: None,
            is_polled: matches!(server.attach, Attach::Rest { .. }),
            variant: None,
            shared: shared.clone(),
        };
        report.metrics.state(report.contact.state);
        report
    }

    fn server(&self) -> &Arc<ServerMetrics> {
        self.metrics.server()
    }

    /// A stream is open to this server, numbered from the server of the place.
    fn attached_to(&mut self, number: u16) {
        let Some(uri) = self.uris.get(usize::from(number)) else { return };
        if *uri == self.server_uri {
            return;
        }
        tell!(self, warn(Fallback, "a source moved to another server of its list").detail(format_args!("to {uri}")),
            if self.allow("failover");
            { list = %self.list, class = %self.class.digest, from = %self.server_uri, to = %uri }
            = "a source moved to the other server of its list");
        self.server_uri = uri.clone();
        self.metrics = self.shared.metrics.of_server(uri).source(&self.list);
        self.suspects = self.shared.metrics.of_server(uri).suspect_streams();
        self.metrics.state(self.contact.state);
        self.metrics.stale(self.contact.stale_since.is_some() && self.contact.health.is_any_lost());
        // The other server has its own counters by type.
        self.types.clear();
    }

    fn of_type(&mut self, type_url: &TypeUrl) -> &mut TypeReport {
        self.types.entry(type_url.clone()).or_insert_with(|| {
            let types = self.shared.metrics.of_type(type_url);
            let upstream = self.metrics.server().of_type(&types);
            Box::new(TypeReport {
                held_back: upstream.held_back(),
                silent_names: upstream.silent_names(),
                refused: None,
                told_repeats: None,
                told_no_room: None,
                told_unasked: None,
                upstream,
                cache: types.cache(),
                types,
            })
        })
    }

    // === Events of the server ===

    pub fn response(&mut self, response: &Response, now: Time) {
        self.answers(now);
        self.of_type(response.type_url()).upstream.response();
    }

    /// Compares the number of resources of a type before and after a response. The relay obeys a mass
    /// deletion, because the server may mean it. The log line tells the operator soon (FU18).
    pub fn changed(&mut self, type_url: &TypeUrl, before: usize, after: usize) {
        let removed = before.saturating_sub(after);
        if !is_mass(removed, before) && (after > 0 || removed < EMPTIED_MIN) {
            return;
        }
        self.of_type(type_url).upstream.mass_deletion();
        tell!(self, warn(Deletion, "a mass deletion is passed on to clients").of_type(type_url)
            .detail(format_args!("{removed} removed, {after} left")), if self.allow("mass deletion");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, removed, left = after }
            = "the upstream deleted most resources of a type in one response; passing the deletion on to clients");
    }

    /// Counts like an unreachable server, but has a log line of its own, once (I14).
    pub fn undecodable(&mut self, status: &Status) {
        // Only the length is a limit among the checks before decoding (FU17).
        if status.code == Code::ResourceExhausted {
            self.shared.metrics.limit_hit(Limit::MaxResponseBytes);
        }
        if self.contact.is_first(OutageKind::Unreadable)
            && let Some(suppressed) = self.allow("undecodable")
        {
            tell!(self, warn(UpstreamLost, "cannot read a response of the upstream").detail(status);
                { server = %self.server_uri, list = %self.list, class = %self.class.digest, error = %status, suppressed }
                + "; serving cached configuration; retrying");
        }
    }

    /// Adds an event about this source.
    fn add(&self, event: Occurrence) {
        let event = event.at_server(&self.server_uri, &self.list).of_class(&self.class.digest);
        self.shared.metrics.events.add(event);
    }

    /// Whether a line about this cause and this server may be logged now.
    fn allow(&self, cause: &str) -> Option<Option<NonZeroU64>> {
        self.shared.throttle.allow(&format!("{cause} {}", self.server_uri))
    }

    pub fn files_read(&mut self, now: Time) {
        self.contact.answered = true;
        self.heard(0, now);
        debug!(server = %self.server_uri, list = %self.list, "files read");
    }

    /// The files on disk differ from the served resources (I14, FIL-7).
    pub fn bad_file(&mut self, path: &Path, reason: &str, now: Time) {
        self.server().bad_file();
        let text = format!("{}: {reason}", path.display());
        self.add(
            Occurrence::warn(Kind::Reload, "cannot use a file of resources")
                .place(path.display())
                .detail(reason),
        );
        self.contact.last_error = Some(Status::new(Code::FailedPrecondition, text));
        let Some(suppressed) = self.allow("bad file") else { return self.lose(0, now) };
        if self.contact.answered {
            warn!(file = %path.display(), reason, suppressed, "cannot use a file; serving the last good state");
        } else {
            warn!(file = %path.display(), reason, suppressed, "cannot use a file; there is no good state to \
                serve");
        }
        self.contact.warned = Some(OutageKind::Unreadable);
        self.lose(0, now);
    }

    pub fn event(&mut self, stream: StreamIndex, event: &Event, now: Time) {
        let (server, list) = (self.server_uri.clone(), self.list.clone());
        match event {
            Event::Connected { variant, server } => {
                self.attached_to(*server);
                self.variant = Some(*variant);
                self.contact.health.connected(stream, now);
                self.opened(stream, now);
                debug!(%server, %list, stream, ?variant, "upstream stream opened");
            }
            Event::Disconnected { status, answered, retry_in } => {
                self.contact.last_error = Some(status.clone());
                debug!(%server, %list, stream, %status, answered, ?retry_in, "upstream stream ended");
                self.contact.health.ended(stream);
                self.back_off(stream, *retry_in, now);
            }
            Event::Unreachable { status } => self.unreachable(stream, status, now),
            Event::Heard => self.heard(stream, now),
            Event::Unanswered => self.unanswered(now),
            Event::Acked { type_url } => {
                self.of_type(type_url).upstream.ack();
            }
            Event::Repeated { type_url, count } => self.repeated(type_url, *count, now),
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
            Event::SwitchedToSotw { status } => self.switched_to_sotw(status),
            Event::BackToDelta => self.back_to_delta(),
            Event::Ignored { type_url } => {
                debug!(%server, %list, %type_url, "ignored a response of a type without subscriptions");
            }
            Event::ResourceError { type_url, error } => {
                self.of_type(type_url).upstream.resource_error(error.status.code);
                debug!(%server, %list, %type_url, name = %error.name, status = %error.status, "the upstream reported an error");
            }
            Event::RequestTooLong { type_url, names, limit } => {
                self.request_too_long(type_url, *names, *limit)
            }
            Event::Unasked { type_url, count, limit } => self.unasked(type_url, *count, *limit, now),
            Event::GlobsUnserved { type_url, names } => self.globs_unserved(type_url, names),
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
            Event::NoRoom { type_url, resources, limit } => self.no_room(type_url, *resources, *limit, now),
            Event::NotServed { type_url, status } => self.not_served(stream, type_url, status, now),
            Event::BearsType { type_url } => self.bears(type_url),
            Event::Silenced { .. } | Event::SilentAbout { .. } | Event::SpeaksOf { .. } => self.doubts(event),
            Event::Timeout { type_url, names } => {
                debug!(%server, %list, %type_url, ?names, "the upstream did not answer for these names in time");
            }
        }
    }

    /// From now on, the class shows this node to its server.
    pub fn shows(&mut self, node: &Node) {
        self.shown = node.id.as_str().into();
    }

    // === Resources from before a restart ===

    /// The source serves its resources from before a restart. `since`: their last confirmation by the server.
    pub fn restored(&mut self, since: SystemTime, resources: usize) {
        self.contact.restored = Some(since);
        self.metrics.restored(true);
        self.metrics.stale(true);
        tell!(self, info(Checkpoint, "serving resources from before the restart")
            .detail(format_args!("{resources} resources"));
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, resources }
            = "serving the resources from before the restart until the upstream has answered");
    }

    /// The server has confirmed or replaced all restored resources.
    pub fn confirmed(&mut self, now: Time) {
        self.contact.restored = None;
        self.metrics.restored(false);
        tell!(self, info(Checkpoint, "the upstream has answered for all restored resources");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest }
            = "the upstream has answered for all resources restored from the checkpoint");
        self.refresh(now);
    }

    /// The last confirmation of the content by the server, and whether the content is fresh.
    pub fn confirmed_at(&self, clock: &Clock) -> Confirmed {
        let since = self.contact.restored.or(self.contact.stale_since.map(|since| clock.wall(since)));
        Confirmed { at: since.unwrap_or_else(wall_now), is_fresh: since.is_none() }
    }
}

/// Lost and returned servers: the state of a source, and one log line at each change.
impl SourceReport {
    /// RLY-25: the server is reachable, but does not serve this type.
    fn not_served(&mut self, stream: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        tell!(self, warn(UpstreamLost, "the upstream does not serve a type").of_type(type_url).detail(status),
            if self.allow(&format!("not served {type_url}"));
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, error = %status }
            + " that clients ask for; retrying now and then");
        self.closed(stream, now);
    }

    /// The stream has ended, because it has no subscriptions or because it is renewed.
    pub fn closed(&mut self, stream: StreamIndex, now: Time) {
        let was_lost = self.contact.health.is_any_lost();
        self.last_words.closed(stream);
        self.contact.health.closed(stream);
        if was_lost {
            self.refresh(now);
        }
    }

    /// A source is in backoff once none of its streams is up.
    fn back_off(&mut self, stream: StreamIndex, delay: Duration, now: Time) {
        if self.contact.health.is_any_up() {
            return;
        }
        let state = self.contact.backoff(stream, delay);
        self.enter(state, now);
    }

    /// Notes the type of a lost stream, where each type has its own, and whether the server was lost with the
    /// stream.
    pub fn note_lost_type(&mut self, lost_type: Option<(TypeUrl, bool)>) {
        self.contact.lost_type = lost_type;
    }

    /// Whether a loss is logged: one line at the change, not one for each attempt. Returns the number of
    /// suppressed lines, and the type if only one type is lost.
    fn loss_to_log(
        &mut self,
        cause: &str,
        kind: OutageKind,
        type_url: Option<TypeUrl>,
    ) -> Option<(Option<NonZeroU64>, Option<TypeUrl>)> {
        if !self.contact.is_news(kind, type_url.as_ref()) {
            return None;
        }
        let of_type = type_url.as_ref().map(|type_url| format!("{cause} {type_url}"));
        let suppressed = self.allow(of_type.as_deref().unwrap_or(cause))?;
        Some((suppressed, type_url))
    }

    fn unreachable(&mut self, stream: StreamIndex, status: &Status, now: Time) {
        self.contact.failures += 1;
        self.contact.last_error = Some(status.clone());
        self.lose(stream, now);
        if let Some(lived) = self.contact.health.ended_by_server(stream) {
            return self.ends_streams(status, lived, now);
        }
        let type_url =
            self.contact.lost_type.take().and_then(|(type_url, is_whole)| (!is_whole).then_some(type_url));
        if let Some((suppressed, type_url)) =
            self.loss_to_log("unreachable", OutageKind::Unreachable, type_url)
        {
            let text = match self.contact.has_content() {
                true => "the upstream is unreachable; serving cached configuration",
                false => "the upstream is unreachable; nothing is cached",
            };
            self.tell_loss(text, status, type_url.as_ref());
            let type_url = type_url.map(tracing::field::display);
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status,
                suppressed, "{text}; retrying");
        }
        self.back_off(stream, Duration::ZERO, now);
    }

    fn tell_loss(&self, text: &'static str, status: &Status, type_url: Option<&TypeUrl>) {
        let event = Occurrence::warn(Kind::UpstreamLost, text).detail(status);
        self.add(match type_url {
            Some(type_url) => event.of_type(type_url),
            None => event,
        });
    }

    /// The server is reachable, and ended the stream. For an operator, this differs from a failed connection.
    fn ends_streams(&mut self, status: &Status, lived: Duration, now: Time) {
        let type_url = self.contact.lost_type.take().map(|(type_url, _)| type_url);
        if let Some((suppressed, type_url)) =
            self.loss_to_log("ends streams", OutageKind::EndsStreams, type_url)
        {
            let (text, meanwhile) = match self.contact.has_content() {
                true => (
                    "the upstream ends streams; serving cached configuration",
                    "serving cached configuration",
                ),
                false => ("the upstream ends streams; nothing is cached", "nothing is cached"),
            };
            self.tell_loss(text, status, type_url.as_ref());
            let type_url = type_url.map(tracing::field::display);
            // Servers parse nodes in their own ways, and refuse others with this code.
            let remedy = match status.code == Code::InvalidArgument && !self.contact.answered {
                true => ". If it refuses the node of this class, set `upstream_node` in `node_classes`",
                false => "",
            };
            let node = (!remedy.is_empty()).then(|| tracing::field::display(&self.shown));
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status, node,
                after = ?lived, suppressed, "the upstream accepts connections but ends the stream; {meanwhile}; \
                    retrying{remedy}");
        }
        if !self.contact.health.is_any_up() {
            let (failures, delay) = (self.contact.failures, self.contact.delay());
            self.enter(SourceState::EndsStreams { failures, delay, lived }, now);
        }
    }

    /// A stream is open. If the server ended the previous stream, an open stream alone proves nothing.
    fn opened(&mut self, stream: StreamIndex, now: Time) {
        if !(matches!(self.contact.state, SourceState::EndsStreams { .. })
            && self.contact.health.is_lost(stream))
        {
            self.enter(SourceState::Connected, now);
        }
    }

    /// Records a report about a stream; see `Health::reported`.
    pub fn reported(&mut self, stream: StreamIndex, is_ended_by_server: bool, now: Time) {
        self.contact.health.reported(stream, is_ended_by_server, now);
    }

    /// From now on, nothing confirms the served resources.
    fn lose(&mut self, stream: StreamIndex, now: Time) {
        self.contact.health.unreachable(stream);
        self.contact.stale_since.get_or_insert(now);
        self.metrics.stale(true);
    }

    /// The server answered on a stream. The served resources are fresh again, unless another stream is lost.
    fn heard(&mut self, stream: StreamIndex, now: Time) {
        self.contact.health.answered(stream);
        let state = if self.contact.is_mute { SourceState::Unanswered } else { SourceState::Connected };
        self.enter(state, now);
        self.refresh(now);
    }

    /// The server has sent a response.
    fn answers(&mut self, now: Time) {
        self.contact.answered = true;
        if std::mem::take(&mut self.contact.is_mute) {
            tell!(self, info(UpstreamBack, "the upstream answers");
                { server = %self.server_uri, list = %self.list, class = %self.class.digest });
            self.enter(SourceState::Connected, now);
        }
    }

    /// A stream is open, and the server sends nothing. Without this line, neither an error nor an answer
    /// would tell the operator.
    fn unanswered(&mut self, now: Time) {
        if self.contact.answered {
            return;
        }
        self.enter(SourceState::Unanswered, now);
        if std::mem::replace(&mut self.contact.is_mute, true) {
            return;
        }
        tell!(self, warn(UpstreamLost, "the upstream has answered no request for 10 s"), if self.allow("unanswered");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, node = %self.shown }
            + "; it may have nothing for a node with this id. If it selects by node id, set `split_by: {{ id: true }}` in \
                `node_classes`, or set `upstream_node`");
    }

    fn refresh(&mut self, now: Time) {
        if self.contact.health.is_any_lost() {
            return;
        }
        self.contact.failures = 0;
        self.contact.last_error = None;
        self.metrics.stale(self.contact.restored.is_some());
        self.contact.warned_of.clear();
        let since = self.contact.stale_since.take();
        if self.contact.warned.take().is_some()
            && let Some(suppressed) = self.allow("answers again")
        {
            let outage = since.map(|since| now.since(since));
            let event = Occurrence::info(Kind::UpstreamBack, "the upstream answers again");
            self.add(match outage {
                Some(outage) => event.detail(format_args!("after {outage:.1?}")),
                None => event,
            });
            let outage = outage.map(tracing::field::debug);
            info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, outage, suppressed,
                "the upstream answers again");
        }
    }

    fn enter(&mut self, state: SourceState, now: Time) {
        self.contact.enter(state, now);
        self.metrics.state(state);
    }
}

/// Events of a server that is silent about names of a type (ADR 54).
impl SourceReport {
    fn doubts(&self, event: &Event) {
        match event {
            Event::Silenced { type_url, names, is_cured } => self.silenced(type_url, names, *is_cured),
            Event::SilentAbout { type_url, name } => self.silent_about(type_url, name),
            Event::SpeaksOf { type_url, name } => self.speaks_of(type_url, name),
            _ => {}
        }
    }

    fn silenced(&self, type_url: &TypeUrl, names: &[ResourceName], is_cured: bool) {
        let (server, list, class) = (&self.server_uri, &self.list, &self.class.digest);
        let first = &names[..names.len().min(NAMES_MAX)];
        let count = names.len();
        let text = match is_cured {
            true => "the upstream is silent about a type while it is asked for more names",
            false => "the upstream is silent about a type, and does not answer for a part of its names",
        };
        let event = Occurrence::warn(Kind::UpstreamLost, text).of_type(type_url).count(count as u64);
        self.add(event.detail(format_args!("{first:?}")));
        let Some(suppressed) = self.allow("silent about a type") else { return };
        if is_cured {
            warn!(%server, %list, %class, %type_url, count, ?first, suppressed,
                "the upstream has answered nothing about a type since it was asked for more names, and answers for the \
                    others; requesting the doubtful names on separate streams from now on. Delta \
                    (AGGREGATED_DELTA_GRPC) has no such rule");
        } else {
            warn!(%server, %list, %class, %type_url, count, ?first, suppressed,
                "the upstream has answered nothing about a type since it was asked for more names, and does not answer \
                    for a part of its names either; the requests stay as they are. Delta \
                    (AGGREGATED_DELTA_GRPC) may have no such rule");
        }
    }

    fn silent_about(&self, type_url: &TypeUrl, name: &ResourceName) {
        let text = "the upstream answers no request with this name";
        self.add(Occurrence::warn(Kind::UpstreamLost, text).of_type(type_url).detail(name));
        if let Some(suppressed) = self.allow("silent about a name") {
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, %name, suppressed,
                "the upstream answers no request with this name; the name counts as not there, and is requested alone \
                    now and then");
        } else {
            debug!(server = %self.server_uri, list = %self.list, %type_url, %name, "the upstream answers no request \
                with this name");
        }
    }

    fn speaks_of(&self, type_url: &TypeUrl, name: &ResourceName) {
        tell!(self, info(UpstreamBack, "the upstream answers requests with this name again").of_type(type_url).detail(name);
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, %name }
            = "the upstream answers requests with this name; requesting the name together with the others");
    }
}

/// The status of a source for the admin room, and the gauges of its cache.
impl SourceReport {
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
            id: self.id,
            server: self.server_uri.clone(),
            list: self.list.clone(),
            stream: self.stream,
            is_shadow: self.is_shadow,
            class: self.class.clone(),
            shown: self.shown.clone(),
            evidence: self.evidence.clone(),
            state: self.contact.state,
            since: clock.wall(self.contact.since),
            last_error: self.contact.last_error.clone(),
            answered: self.contact.answered,
            stale_since: self.contact.restored.or(self.contact.stale_since.map(|since| clock.wall(since))),
            confirmed: self.last_words.confirmed(self.contact.confirmed(clock)),
            restored: self.contact.restored.is_some(),
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

    fn silent(&self, source: &Source, type_url: &TypeUrl) -> Option<SilentStatus> {
        let Attachment::Streams(streams) = source.attachment() else { return None };
        let (since, names) = streams.silent_names(type_url)?;
        let first = names.iter().take(NAMES_MAX).map(|name| (*name).clone()).collect();
        Some(SilentStatus { since: self.shared.clock.wall(since), names: names.len(), first })
    }

    fn type_statuses(&mut self, source: &Source) -> Vec<SourceTypeStatus> {
        let mut statuses = Vec::with_capacity(source.types().count());
        for (type_url, counts, wildcard) in source.types() {
            let members = wildcard.map_or(0, |view| view.len());
            let unknown = wildcard.map_or(0, |view| usize::from(!view.is_complete()));
            let refused = self.refused(source, type_url);
            let silent = self.silent(source, type_url);
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
                silent,
                no_room: source.no_room(type_url).map(|entry| NoRoomStatus {
                    since: self.shared.clock.wall(entry.since),
                    names: entry.names.len(),
                    first: entry.names.iter().take(NAMES_MAX).cloned().collect(),
                }),
                lost: match source.reach_of(type_url) {
                    Some(Reachability::Lost { since, status }) => {
                        Some(LostStatus { since: self.shared.clock.wall(since), error: status })
                    }
                    _ => None,
                },
                bytes: counts.bytes + wildcard.map_or(0, |view| view.bytes()),
                version: wildcard.map(|view| view.digest()),
            };
            let report = self.of_type(type_url);
            report.held_back.set(status.held_back);
            report.silent_names.set(status.silent.as_ref().map_or(0, |silent| silent.names));
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
fn fields_of(class: &NodeClass) -> Arc<[(String, String)]> {
    let (node, mut fields) = (&class.node, Vec::new());
    let mut note = |field: &str, value: String| {
        if !value.is_empty() {
            fields.push((field.to_owned(), value));
        }
    };
    note("identity", class.identity.as_deref().unwrap_or_default().to_owned());
    note("id", node.id.clone());
    class.attributes.iter().for_each(|(name, value)| note(name, value.to_string()));
    note("cluster", node.cluster.clone());
    let locality = node.locality.as_ref();
    note("locality", locality.map(|l| format!("{}/{}/{}", l.region, l.zone, l.sub_zone)).unwrap_or_default());
    note("user_agent_name", node.user_agent_name.clone());
    note("client_features", node.client_features.join(","));
    note("metadata", node.metadata.keys().cloned().collect::<Vec<_>>().join(","));
    fields.into()
}
