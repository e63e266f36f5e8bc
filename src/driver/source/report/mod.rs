//! The reports of a source: metrics, log lines, and the status for the admin room.

mod changes;
mod doubts;
mod log;
mod outage;
mod status;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::{debug, warn};

use super::checkpoint::Confirmed;
use super::contact::{Contact, OutageKind};
use crate::driver::api::evidence::EvidenceStatus;
use crate::driver::api::status::{ClassStatus, Refused};
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
use sluice_engine::class::NodeClass;
use sluice_engine::downstream::SourceId;
use sluice_engine::source::{StreamIndex, is_mass};
use sluice_engine::upstream::Event;
use sluice_xds::{Code, Node, Response, Status, TypeUrl, Variant};

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

/// Wide because each line, event and metric needs most of the fields beside the contact: the fields say which
/// source is reported.
pub struct Report {
    /// The number of the source.
    id: u64,
    shared: Arc<DriverContext>,
    server_uri: Arc<str>,
    list: Arc<str>,
    /// The servers that may serve.
    uris: Box<[Arc<str>]>,
    stream: Option<u64>,
    metrics: SourceMetrics,
    types: BTreeMap<TypeUrl, TypeReport>,
    unwatched: GaugePart,
    suspects: GaugePart,
    /// The part of [`Source::evicted`] that is counted already.
    evicted: u64,
    _counted: GaugePart,
    class: ClassStatus,
    contact: Contact,
    /// The node id that the server sees.
    shown: Arc<str>,
    /// The latest other answer for another member.
    evidence: Option<Arc<EvidenceStatus>>,
    /// The server is polled, and gets no NACKs.
    is_polled: bool,
    variant: Option<Variant>,
}

/// A response that removes all of at least this many resources is a mass deletion, too. Smaller removals are
/// everyday changes.
const EMPTIED_MIN: usize = 5;

impl Report {
    pub fn new(
        shared: &Arc<DriverContext>,
        node: &Node,
        digest: String,
        key: &SourceKey,
        id: SourceId,
        listed: ListedServer<'_>,
    ) -> Report {
        let now = shared.clock.now();
        let (server, list) = (listed.server(), &listed.list.label);
        // A source without a server is complete.
        let is_whole = server.is_made_up();
        let mut report = Report {
            id: id.0,
            metrics: shared.metrics.of_server(&server.uri).source(list),
            server_uri: server.uri.clone(),
            list: list.clone(),
            uris: listed.serving().iter().map(|server| server.uri.clone()).collect(),
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
            class: ClassStatus { digest: digest.into(), fields: fields_of(&key.class) },
            contact: Contact::new(is_whole, now),
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
            TypeReport {
                held_back: upstream.held_back(),
                silent_names: upstream.silent_names(),
                refused: None,
                told_repeats: None,
                told_no_room: None,
                told_unasked: None,
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
