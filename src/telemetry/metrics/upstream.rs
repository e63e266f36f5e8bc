//! Servers, the sources attached to them, and the connections to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::catalogue::{Catalogue, Counters, Gauges, Labels, SecondsGauge, VARIANTS, variant_name};
use super::client::{ClientFamilies, ClientMetrics};
use super::types::TypeMetrics;
use crate::telemetry::SourceState;
use crate::telemetry::instruments::GaugePart;
use sluice_xds::{Code, TypeUrl, Variant};

/// The statuses of a server that the configuration does not fit.
const REFUSALS: [Code; 4] =
    [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::Unimplemented];

/// Servers, and the sources attached to them. Wide because each field is a family of metrics.
#[derive(Debug)]
pub struct UpstreamMetrics {
    origin: Instant,
    /// Bounded by the number of servers in the configuration.
    servers: Mutex<BTreeMap<Arc<str>, Arc<ServerMetrics>>>,
    connected: Gauges<1>,
    sources: Gauges<3>,
    stale: Gauges<2>,
    restored: Gauges<2>,
    streams: Gauges<2>,
    stream_closes: Counters<2>,
    responses: Counters<2>,
    acks: Counters<2>,
    nacks: Counters<2>,
    beside: BesideFamilies,
    bad_files: Counters<1>,
    client: ClientFamilies,
    last_response_age: Family<Labels<1>, SecondsGauge>,
    tier_age: Family<Labels<1>, SecondsGauge>,
    /// The paths with an age. Bounded by their source.
    tiers: Mutex<BTreeSet<Arc<str>>>,
}

impl UpstreamMetrics {
    pub(super) fn new(catalogue: &mut Catalogue, origin: Instant) -> UpstreamMetrics {
        UpstreamMetrics {
            origin,
            servers: Mutex::default(),
            connected: catalogue.add(
                "sluice_upstream_connected",
                "1 while at least one source of the server has a working stream, otherwise 0",
            ),
            sources: catalogue.add("sluice_upstream_sources", "Sources of the server by their state"),
            stale: catalogue
                .add("sluice_upstream_sources_stale", "Sources that serve state they can't confirm now"),
            restored: catalogue.add(
                "sluice_upstream_sources_restored",
                "Sources that serve state restored after a restart, not confirmed yet",
            ),
            streams: catalogue.add("sluice_upstream_streams", "Open streams to the server"),
            stream_closes: catalogue.add(
                "sluice_upstream_stream_closes",
                "Streams to the server that ended, by gRPC status code",
            ),
            responses: catalogue.add("sluice_upstream_responses", "Responses received from the server"),
            acks: catalogue.add("sluice_upstream_acks", "Responses of the server that the relay ACKed"),
            nacks: catalogue.add("sluice_upstream_nacks", "Responses of the server that the relay NACKed"),
            beside: BesideFamilies::new(catalogue),
            bad_files: catalogue
                .add("sluice_upstream_bad_files", "Files ignored because of errors in reading or parsing"),
            client: ClientFamilies::new(catalogue),
            last_response_age: catalogue.timed(
                "sluice_upstream_last_response_age",
                "Time since the server last answered on any stream; absent before the first answer",
            ),
            tier_age: catalogue.timed(
                "sluice_tier_age",
                "Time since the server at the end of the path last confirmed what the relay serves from it",
            ),
            tiers: Mutex::default(),
        }
    }

    /// Shows the ages of these paths, and of no others.
    pub fn tiers(&self, ages: impl Iterator<Item = (Arc<str>, Duration)>) {
        let mut shown = self.tiers.lock();
        let mut gone = std::mem::take(&mut *shown);
        for (path, age) in ages {
            self.tier_age.get_or_create(&[("path", path.clone())]).set(age.as_secs_f64());
            gone.remove(&path);
            shown.insert(path);
        }
        for path in gone {
            self.tier_age.remove(&[("path", path)]);
        }
    }

    pub(super) fn server(&self, server: &str) -> Arc<ServerMetrics> {
        let mut servers = self.servers.lock();
        if let Some(metrics) = servers.get(server) {
            return metrics.clone();
        }
        let label: Arc<str> = Arc::from(server);
        let slot = Arc::new(self.new_server(label.clone()));
        servers.insert(label, slot.clone());
        slot
    }

    fn new_server(&self, label: Arc<str>) -> ServerMetrics {
        let by_server = [("server", label.clone())];
        let with = |key, value: &str| [("server", label.clone()), (key, Arc::from(value))];
        // A counter that begins at 1 shows no increase (OBS-10).
        for code in REFUSALS {
            self.stream_closes.get_or_create_owned(&with("code", code.name()));
        }
        for name in TypeUrl::known() {
            let labels = with("type", name.short());
            for counters in [&self.nacks, &self.beside.expiries, &self.beside.mass_deletions] {
                counters.get_or_create_owned(&labels);
            }
        }
        ServerMetrics {
            origin: self.origin,
            sources: self.sources.clone(),
            stale: self.stale.clone(),
            restored: self.restored.clone(),
            sources_connected: Gauge::default(),
            streams: VARIANTS
                .map(|variant| self.streams.get_or_create_owned(&with("variant", variant_name(variant)))),
            client: Arc::new(self.client.server(&by_server)),
            stream_closes: self.stream_closes.clone(),
            responses: self.responses.clone(),
            acks: self.acks.clone(),
            nacks: self.nacks.clone(),
            beside: self.beside.clone(),
            bad_files: self.bad_files.get_or_create_owned(&by_server),
            last_response: AtomicU64::new(0),
            label,
        }
    }

    pub(super) fn refresh(&self, now: Instant) {
        for (label, server) in self.servers.lock().iter() {
            let by_server = [("server", label.clone())];
            let connected = server.sources_connected.get() > 0;
            self.connected.get_or_create(&by_server).set(i64::from(connected));
            if let Some(age) = server.last_response_age(now) {
                self.last_response_age.get_or_create(&by_server).set(age.as_secs_f64());
            }
        }
    }
}

/// Metrics per server. Wide because each field is a metric, or a family by type.
#[derive(Debug)]
pub struct ServerMetrics {
    label: Arc<str>,
    origin: Instant,
    sources: Gauges<3>,
    stale: Gauges<2>,
    restored: Gauges<2>,
    /// Over all server lists.
    sources_connected: Gauge,
    streams: [Gauge; 2],
    client: Arc<ClientMetrics>,
    stream_closes: Counters<2>,
    responses: Counters<2>,
    acks: Counters<2>,
    nacks: Counters<2>,
    beside: BesideFamilies,
    bad_files: Counter,
    /// Microseconds since the origin plus one; 0 before the first response.
    last_response: AtomicU64,
}

impl ServerMetrics {
    /// Counts a source attached for a server list, in state CONNECTING, until the handle is dropped.
    pub fn source(self: &Arc<Self>, list: &Arc<str>) -> SourceMetrics {
        let (server, list) = (("server", self.label.clone()), ("list", list.clone()));
        let of_state = |state| {
            let labels = [server.clone(), list.clone(), ("state", Arc::from(state))];
            GaugePart::new(&self.sources.get_or_create_owned(&labels), 0)
        };
        let mut states = SourceState::NAMES.map(of_state);
        states[SourceState::Connecting.index()].set(1);
        SourceMetrics {
            states,
            connected: GaugePart::new(&self.sources_connected, 0),
            stale: GaugePart::new(&self.stale.get_or_create_owned(&[server.clone(), list.clone()]), 0),
            restored: GaugePart::new(&self.restored.get_or_create_owned(&[server, list]), 0),
            server: self.clone(),
        }
    }

    /// Counts the streams of one source that carry a suspect type alone (ADR 15), until the handle is
    /// dropped.
    pub fn suspect_streams(&self) -> GaugePart {
        let labels = [("server", self.label.clone())];
        GaugePart::new(&self.beside.suspects.get_or_create_owned(&labels), 0)
    }

    /// Metrics per server and type. Look up once per type of a source, and keep.
    pub fn of_type(self: &Arc<Self>, types: &TypeMetrics) -> UpstreamTypeMetrics {
        let labels = [("server", self.label.clone()), ("type", types.label.clone())];
        UpstreamTypeMetrics {
            responses: self.responses.get_or_create_owned(&labels),
            acks: self.acks.get_or_create_owned(&labels),
            nacks: self.nacks.get_or_create_owned(&labels),
            heartbeats: self.beside.heartbeats.get_or_create_owned(&labels),
            expiries: self.beside.expiries.get_or_create_owned(&labels),
            mass_deletions: self.beside.mass_deletions.get_or_create_owned(&labels),
            rejections_told: self.beside.rejections_told.get_or_create_owned(&labels),
            delayed: self.beside.delayed.get_or_create_owned(&labels),
            label: types.label.clone(),
            server: self.clone(),
        }
    }

    /// Counts a stream as open until the handle is dropped.
    pub fn stream(&self, variant: Variant) -> GaugePart {
        GaugePart::new(&self.streams[variant as usize], 1)
    }

    pub fn stream_closed(&self, code: Code) {
        self.stream_closes
            .get_or_create(&[("server", self.label.clone()), ("code", code.name().into())])
            .inc();
    }

    /// Metrics of the connections to the server.
    pub fn client(&self) -> &Arc<ClientMetrics> {
        &self.client
    }

    /// A file was unusable; the last good state stays in force (FIL-7).
    pub fn bad_file(&self) {
        self.bad_files.inc();
    }

    fn answered(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.origin).as_micros();
        self.last_response.fetch_max(u64::try_from(micros).unwrap_or(u64::MAX - 1) + 1, Relaxed);
    }

    fn last_response_age(&self, now: Instant) -> Option<Duration> {
        let micros = self.last_response.load(Relaxed).checked_sub(1)?;
        Some(now.saturating_duration_since(self.origin + Duration::from_micros(micros)))
    }
}

/// One source of one server.
#[derive(Debug)]
pub struct SourceMetrics {
    server: Arc<ServerMetrics>,
    states: [GaugePart; 5],
    connected: GaugePart,
    stale: GaugePart,
    restored: GaugePart,
}

impl SourceMetrics {
    pub fn server(&self) -> &Arc<ServerMetrics> {
        &self.server
    }

    pub fn state(&mut self, state: SourceState) {
        for (index, part) in self.states.iter_mut().enumerate() {
            part.set(usize::from(index == state.index()));
        }
        self.connected.set(usize::from(state.is_attached()));
    }

    /// Whether the source serves state restored after a restart (RLY-7).
    pub fn restored(&mut self, restored: bool) {
        self.restored.set(usize::from(restored));
    }

    /// Whether the source serves while its server is unreachable (I14).
    pub fn stale(&mut self, stale: bool) {
        self.stale.set(usize::from(stale));
    }
}

/// Metrics per server and resource type.
#[derive(Clone, Debug)]
pub struct UpstreamTypeMetrics {
    server: Arc<ServerMetrics>,
    responses: Counter,
    acks: Counter,
    nacks: Counter,
    heartbeats: Counter,
    expiries: Counter,
    mass_deletions: Counter,
    rejections_told: Counter,
    delayed: Counter,
    label: Arc<str>,
}

impl UpstreamTypeMetrics {
    /// The server answered.
    pub fn response(&self) {
        self.responses.inc();
        self.server.answered(Instant::now());
    }

    /// REST: the server answered "not modified".
    pub fn unchanged(&self) {
        self.server.answered(Instant::now());
    }

    /// The relay ACKed a response.
    pub fn ack(&self) {
        self.acks.inc();
    }

    /// The relay NACKed a response.
    pub fn nack(&self) {
        self.nacks.inc();
    }

    /// Heartbeats arrived (TTL-4).
    pub fn heartbeats(&self, count: usize) {
        self.heartbeats.inc_by(count as u64);
    }

    /// A response removed most resources of the type (FU18).
    pub fn mass_deletion(&self) {
        self.mass_deletions.inc();
    }

    /// The server was told of clients that reject its resources.
    pub fn rejections_told(&self) {
        self.rejections_told.inc();
    }

    /// The answer to a response waits, because the server repeats itself (ADR 67).
    pub fn answer_delayed(&self) {
        self.delayed.inc();
    }

    /// Counts resources of one source that are served although the server removed them (FU18), until the
    /// handle is dropped.
    pub fn held_back(&self) -> GaugePart {
        let labels = [("server", self.server.label.clone()), ("type", self.label.clone())];
        GaugePart::new(&self.server.beside.held_back.get_or_create_owned(&labels), 0)
    }

    /// Counts names of one source that the server answers no request with (ADR 54), until the handle is
    /// dropped.
    pub fn silent_names(&self) -> GaugePart {
        let labels = [("server", self.server.label.clone()), ("type", self.label.clone())];
        GaugePart::new(&self.server.beside.silent_names.get_or_create_owned(&labels), 0)
    }

    /// Counts a source for which the server refuses the type, until the handle is dropped.
    pub fn refused(&self, how: &'static str) -> GaugePart {
        let (server, label) = (&self.server, self.label.clone());
        let labels = [("server", server.label.clone()), ("type", label), ("reason", how.into())];
        GaugePart::new(&server.beside.refused.get_or_create_owned(&labels), 1)
    }

    /// A response contradicts the versions of earlier ones (FU20, FU21).
    pub fn version_anomaly(&self, kind: VersionAnomaly) {
        let (server, label) = (&self.server, self.label.clone());
        let labels = [("server", server.label.clone()), ("type", label), ("kind", kind.label().into())];
        server.beside.version_anomalies.get_or_create(&labels).inc();
    }

    /// Resources expired because the server did not refresh them (TTL-8).
    pub fn expired(&self, count: usize) {
        self.expiries.inc_by(count as u64);
    }

    /// The server reported an error for a resource (ERR-1).
    pub fn resource_error(&self, code: Code) {
        let (server, label) = (&self.server, self.label.clone());
        let labels = [("server", server.label.clone()), ("type", label), ("code", code.name().into())];
        server.beside.errors.get_or_create(&labels).inc();
    }
}

/// A contradiction between the versions of two responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionAnomaly {
    /// A resource has other bytes with the same version (FU20, WIR-2).
    SameVersionOtherBytes,
    /// A version is lower than the previous one, for versions with an order (FU21).
    WentBackwards,
}

impl VersionAnomaly {
    fn label(self) -> &'static str {
        match self {
            VersionAnomaly::SameVersionOtherBytes => "same_version_other_bytes",
            VersionAnomaly::WentBackwards => "went_backwards",
        }
    }
}

/// Metrics of responses' content other than resources, and of problems with servers.
#[derive(Clone, Debug)]
struct BesideFamilies {
    heartbeats: Counters<2>,
    expiries: Counters<2>,
    mass_deletions: Counters<2>,
    rejections_told: Counters<2>,
    delayed: Counters<2>,
    held_back: Gauges<2>,
    silent_names: Gauges<2>,
    refused: Gauges<3>,
    suspects: Gauges<1>,
    version_anomalies: Counters<3>,
    errors: Counters<3>,
}

impl BesideFamilies {
    fn new(catalogue: &mut Catalogue) -> BesideFamilies {
        BesideFamilies {
            heartbeats: catalogue.add(
                "sluice_upstream_heartbeats",
                "Heartbeats of resources with a TTL received from the server",
            ),
            expiries: catalogue.add(
                "sluice_upstream_expiries",
                "Resources removed because the server did not refresh them within their TTL",
            ),
            mass_deletions: catalogue.add(
                "sluice_upstream_mass_deletions",
                "Responses of the server that removed most resources of a type",
            ),
            rejections_told: catalogue.add(
                "sluice_upstream_rejections_told",
                "Requests that told the server of clients that reject its resources",
            ),
            delayed: catalogue.add(
                "sluice_upstream_answers_delayed",
                "Responses of the server that were answered late, because they repeat the same content again and again",
            ),
            held_back: catalogue.add(
                "sluice_upstream_resources_held_back",
                "Resources still served after the server removed them in a mass deletion",
            ),
            silent_names: catalogue.add(
                "sluice_upstream_silent_names",
                "Names that the server answers no request with, and that are requested apart from the others",
            ),
            refused: catalogue.add(
                "sluice_upstream_types_refused",
                "Sources for which the server refuses the type, by reason",
            ),
            suspects: catalogue.add(
                "sluice_upstream_suspect_streams",
                "Streams to the server for one suspect type alone, because the server ended a stream after a request for the type",
            ),
            version_anomalies: catalogue.add(
                "sluice_upstream_version_anomalies",
                "Responses of the server with versions that contradict earlier ones, by kind",
            ),
            errors: catalogue.add(
                "sluice_upstream_resource_errors",
                "Errors from the server in place of resources, by gRPC status code",
            ),
        }
    }
}
