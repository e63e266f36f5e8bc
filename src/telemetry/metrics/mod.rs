//! The catalogue of all metrics, and the handles for counting.
//!
//! Names follow one template: `sluice_<side>_<noun>[_<unit>][_total]`, in OpenMetrics text. Labels have few
//! values only: `type`, `variant`, `server`, `code`, `state`, `reason`, `limit`, `method`; no resource names,
//! node ids or addresses. `docs/metrics.md` explains each metric; a test compares the page with this file.
//!
//! Callers look up a handle once (per type of a stream, per source) and keep it. On the hot path a metric is
//! one relaxed atomic addition, without a look-up or a lock. Handles of open things subtract their part of a
//! gauge when dropped.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::time::Instant;

use super::instruments::lock;
pub use super::instruments::{DurationHistogram, GaugePart};
pub use super::limit::{Limit, LimitHits};
use super::process;
use crate::engine::cache::EntryState;
use crate::telemetry::wall_now;
use crate::xds::Variant;
use crate::xds::{Code, Kind, TypeUrl};

mod checkpoint;
mod downstream;
mod fallback;
mod upstream;

pub use checkpoint::CheckpointMetrics;
pub use downstream::{BehindMetrics, CallKind, DownstreamMetrics};
pub use fallback::FallbackMetrics;
pub use upstream::{
    ClientMetrics, ServerMetrics, SourceMetrics, UpstreamMetrics, UpstreamTypeMetrics, VersionAnomaly,
};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The maximum number of types with a label of their own; later types share the label `other`. Types with
/// rules of their own (TYP-2) always have a label.
pub const TYPES_MAX: usize = 64;
const KNOWN_TYPES: usize = 13;

/// Longer type names share the label `other`.
const TYPE_NAME_BYTES_MAX: usize = 64;
const OTHER: &str = "other";

type Labels<const N: usize> = [(&'static str, Arc<str>); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type SecondsGauge = Gauge<f64, AtomicU64>;

fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "sotw",
        Variant::Delta => "delta",
    }
}

const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// All metrics of one relay. One per process, shared by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    pub downstream: Arc<DownstreamMetrics>,
    pub upstream: UpstreamMetrics,
    pub encodings: EncodingMetrics,
    pub checkpoint: Arc<CheckpointMetrics>,
    pub fallback: FallbackMetrics,
    pub log: LogMetrics,
    types: TypeTable,
    node_classes: Gauge,
    private_sources: Gauge,
    unwatched_bytes: Gauge,
    limits: LimitHits,
    process: ProcessMetrics,
    catalogue: Catalogue,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let origin = Instant::now();
        let mut catalogue = Catalogue::default();
        let limits: Counters<1> = catalogue.add("sluice_limit_hits", "Hits of a limit");
        let limits = LimitHits::new(|limit| limits.get_or_create_owned(&[("limit", limit.name().into())]));
        let downstream = Arc::new(DownstreamMetrics::new(&mut catalogue, origin, limits.clone()));
        let upstream = UpstreamMetrics::new(&mut catalogue, origin);
        let types = TypeTable::new(&mut catalogue);
        let unwatched_bytes =
            catalogue.sized("sluice_cache_unwatched", "Bytes of cached resources without a subscriber");
        let encodings = EncodingMetrics::new(&mut catalogue);
        let fallback = FallbackMetrics::new(&mut catalogue);
        let node_classes = catalogue.add("sluice_node_classes", "Node classes with at least one source");
        let private_sources =
            catalogue.add("sluice_private_sources", "Sources that serve one client stream alone");
        let log = LogMetrics::new(&mut catalogue);
        let checkpoint = Arc::new(CheckpointMetrics::new(&mut catalogue));
        let process = ProcessMetrics::new(&mut catalogue);
        Metrics {
            downstream,
            upstream,
            encodings,
            checkpoint,
            fallback,
            log,
            types,
            node_classes,
            private_sources,
            unwatched_bytes,
            limits,
            process,
            catalogue,
        }
    }

    /// The handle of one type. Look up once per type of a stream or source, and keep.
    pub fn of_type(&self, type_url: &TypeUrl) -> Arc<TypeMetrics> {
        self.types.slot(type_url)
    }

    /// The handle of one configured server. Look up once per source, and keep.
    pub fn of_server(&self, server: &str) -> Arc<ServerMetrics> {
        self.upstream.server(server)
    }

    /// Counts a node class until the handle is dropped.
    pub fn node_class(&self) -> GaugePart {
        GaugePart::new(&self.node_classes, 1)
    }

    /// Counts a source for a single client stream until the handle is dropped.
    pub fn private_source(&self) -> GaugePart {
        GaugePart::new(&self.private_sources, 1)
    }

    /// A source's part of the bytes without a subscriber; starts at 0.
    pub fn unwatched_bytes(&self) -> GaugePart {
        GaugePart::new(&self.unwatched_bytes, 0)
    }

    pub fn limit_hit(&self, limit: Limit) {
        self.limits.hit(limit);
    }

    /// The hits of all limits.
    pub fn limits(&self) -> &LimitHits {
        &self.limits
    }

    /// The names of all metrics, without the suffixes of samples (`_total`, `_bucket`).
    pub fn families(&self) -> &[String] {
        &self.catalogue.families
    }

    /// All metrics in OpenMetrics text. Updates the metrics that are measured only on demand.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let now = Instant::now();
        self.downstream.refresh(now);
        self.upstream.refresh(now);
        self.process.refresh(now);
        let mut text = String::new();
        encode(&mut text, &self.catalogue.registry)?;
        Ok(text)
    }
}

/// The registry, and the names in it.
#[derive(Debug, Default)]
struct Catalogue {
    registry: Registry,
    families: Vec<String>,
}

impl Catalogue {
    fn register(&mut self, name: &'static str, help: &'static str, unit: Option<Unit>, metric: impl Metric) {
        match unit {
            None => {
                self.families.push(name.to_owned());
                self.registry.register(name, help, metric);
            }
            Some(unit) => {
                self.families.push(format!("{name}_{}", unit.as_str()));
                self.registry.register_with_unit(name, help, unit, metric);
            }
        }
    }

    fn add<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, None, metric.clone());
        metric
    }

    /// Registers a metric in bytes; the unit becomes part of the name.
    fn sized<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, Some(Unit::Bytes), metric.clone());
        metric
    }

    /// Registers a metric in seconds; the unit becomes part of the name.
    fn timed<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, Some(Unit::Seconds), metric.clone());
        metric
    }
}

/// Metrics per resource type.
#[derive(Debug)]
pub struct TypeMetrics {
    label: Arc<str>,
    requests: Counter,
    reports: Counter,
    responses: [Counter; 2],
    response_bytes: Counter,
    acks: Counter,
    nacks: Counter,
    heartbeats: Counter,
    left_out: Counter,
    resource_errors: Counters<2>,
    delivery: DurationHistogram,
    states: [Gauge; EntryState::ALL.len()],
    present: Gauge,
    absent: Gauge,
    unknown: Gauge,
    bytes: Gauge,
}

impl TypeMetrics {
    /// The value of the `type` label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// A client's request was read.
    pub fn request(&self) {
        self.requests.inc();
    }

    /// The request was a report, which is not forwarded.
    pub fn report(&self) {
        self.reports.inc();
    }

    /// A response was passed to a client's connection. `bytes`: as framed.
    pub fn response(&self, variant: Variant, bytes: usize) {
        self.responses[variant as usize].inc();
        self.response_bytes.inc_by(bytes as u64);
    }

    /// A client ACKed a response.
    pub fn ack(&self) {
        self.acks.inc();
    }

    /// A client NACKed a response (RLY-38).
    pub fn nack(&self) {
        self.nacks.inc();
    }

    /// The content of a response beside resources: heartbeats (TTL-4), and errors by their codes (ERR-1).
    pub fn beside(&self, heartbeats: usize, errors: &[Code]) {
        if heartbeats > 0 {
            self.heartbeats.inc_by(heartbeats as u64);
        }
        for code in errors {
            let labels = [("type", self.label.clone()), ("code", code.name().into())];
            self.resource_errors.get_or_create(&labels).inc();
        }
    }

    /// Resources were left out of an answer because the client does not support them (RLY-23).
    pub fn left_out(&self, count: usize) {
        self.left_out.inc_by(count as u64);
    }

    /// The time between the receipt of an update from upstream and a client's ACK. Not for resources that
    /// were cached before the client subscribed.
    pub fn delivered(&self, since_receipt: Duration) {
        self.delivery.observe(since_receipt);
    }

    /// A source's part of the cache metrics of the type; starts empty.
    pub fn cache(&self) -> CacheMetrics {
        CacheMetrics {
            present: GaugePart::new(&self.present, 0),
            absent: GaugePart::new(&self.absent, 0),
            unknown: GaugePart::new(&self.unknown, 0),
            bytes: GaugePart::new(&self.bytes, 0),
            states: self.states.each_ref().map(|state| GaugePart::new(state, 0)),
        }
    }
}

/// The cache of one source for one type; subtracted when dropped.
#[derive(Debug)]
pub struct CacheMetrics {
    present: GaugePart,
    absent: GaugePart,
    unknown: GaugePart,
    bytes: GaugePart,
    states: [GaugePart; EntryState::ALL.len()],
}

impl CacheMetrics {
    /// Names by knowledge (RLY-2), and the bytes of present resources.
    pub fn set(&mut self, present: usize, absent: usize, unknown: usize, bytes: usize) {
        self.present.set(present);
        self.absent.set(absent);
        self.unknown.set(unknown);
        self.bytes.set(bytes);
    }

    /// Resources in each state, in the order of [`EntryState::ALL`] (DAT-8).
    pub fn set_states(&mut self, counts: [usize; EntryState::ALL.len()]) {
        for (state, count) in self.states.iter_mut().zip(counts) {
            state.set(count);
        }
    }
}

#[derive(Debug, Default)]
struct TypeSlots {
    by_label: BTreeMap<Arc<str>, Arc<TypeMetrics>>,
    /// The number of labels for types without rules of their own.
    unknown: usize,
}

/// The slots of the types. Bounded, so that a client that invents types can't grow the catalogue.
#[derive(Debug)]
struct TypeTable {
    slots: Mutex<TypeSlots>,
    requests: Counters<1>,
    reports: Counters<1>,
    responses: Counters<2>,
    response_bytes: Counters<1>,
    acks: Counters<1>,
    nacks: Counters<1>,
    heartbeats: Counters<1>,
    left_out: Counters<1>,
    resource_errors: Counters<2>,
    delivery: Family<Labels<1>, DurationHistogram>,
    resources: Gauges<2>,
    bytes: Gauges<1>,
    states: Gauges<2>,
}

impl TypeTable {
    fn new(catalogue: &mut Catalogue) -> TypeTable {
        TypeTable {
            slots: Mutex::default(),
            requests: catalogue.add("sluice_downstream_requests", "Requests read from clients"),
            reports: catalogue.add("sluice_downstream_reports", "Requests that are only reports of clients"),
            responses: catalogue.add("sluice_downstream_responses", "Responses sent to clients"),
            response_bytes: catalogue.sized(
                "sluice_downstream_response",
                "Bytes of responses sent to clients, as framed for gRPC",
            ),
            acks: catalogue.add("sluice_downstream_acks", "Responses that clients ACKed"),
            nacks: catalogue.add("sluice_downstream_nacks", "Responses that clients NACKed"),
            heartbeats: catalogue.add(
                "sluice_downstream_heartbeats",
                "Heartbeats of resources with a TTL sent to clients in the delta variant",
            ),
            left_out: catalogue.add(
                "sluice_downstream_resources_left_out",
                "Resources left out of answers, because the client lacks a required feature",
            ),
            resource_errors: catalogue.add(
                "sluice_downstream_resource_errors",
                "Errors sent to clients in the place of resources, by gRPC status code",
            ),
            delivery: catalogue.timed(
                "sluice_downstream_delivery",
                "Time from the receipt of an update from upstream to a client's ACK",
            ),
            resources: catalogue.add("sluice_cache_resources", "Names in the caches, by state of knowledge"),
            bytes: catalogue.sized("sluice_cache_resource", "Bytes of the resources that are cached"),
            states: catalogue.add(
                "sluice_cache_resource_states",
                "Resources in the caches by their state in the terms of gRFC A88",
            ),
        }
    }

    fn slot(&self, type_url: &TypeUrl) -> Arc<TypeMetrics> {
        let known = type_url.kind() != Kind::Other;
        let slots = &mut *lock(&self.slots);
        let mut name = type_url.short();
        if !slots.by_label.contains_key(name) && !known {
            // Slots are reserved for the known types and for `other`.
            if is_fit_for_a_label(name) && slots.unknown < TYPES_MAX - KNOWN_TYPES - 1 {
                slots.unknown += 1;
            } else {
                name = OTHER;
            }
        }
        if let Some(slot) = slots.by_label.get(name) {
            return slot.clone();
        }
        let label: Arc<str> = Arc::from(name);
        let slot = Arc::new(self.new_slot(label.clone()));
        slots.by_label.insert(label, slot.clone());
        slot
    }

    fn new_slot(&self, label: Arc<str>) -> TypeMetrics {
        let by_type = [("type", label.clone())];
        let with = |key, value: &str| [("type", label.clone()), (key, Arc::from(value))];
        let cached = |state| self.resources.get_or_create_owned(&with("state", state));
        TypeMetrics {
            requests: self.requests.get_or_create_owned(&by_type),
            reports: self.reports.get_or_create_owned(&by_type),
            responses: VARIANTS
                .map(|variant| self.responses.get_or_create_owned(&with("variant", variant_name(variant)))),
            response_bytes: self.response_bytes.get_or_create_owned(&by_type),
            acks: self.acks.get_or_create_owned(&by_type),
            nacks: self.nacks.get_or_create_owned(&by_type),
            heartbeats: self.heartbeats.get_or_create_owned(&by_type),
            left_out: self.left_out.get_or_create_owned(&by_type),
            resource_errors: self.resource_errors.clone(),
            delivery: self.delivery.get_or_create_owned(&by_type),
            present: cached("present"),
            absent: cached("absent"),
            unknown: cached("unknown"),
            bytes: self.bytes.get_or_create_owned(&by_type),
            states: EntryState::ALL
                .map(|state| self.states.get_or_create_owned(&with("state", state.label()))),
            label: label.clone(),
        }
    }
}

/// Clients choose type names, so only valid protobuf names become labels.
fn is_fit_for_a_label(name: &str) -> bool {
    (1..=TYPE_NAME_BYTES_MAX).contains(&name.len())
        && name != OTHER
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The cache of encoded bodies that clients share.
#[derive(Debug)]
pub struct EncodingMetrics {
    hits: Counter,
    misses: Counter,
    bytes: Gauge,
}

impl EncodingMetrics {
    fn new(catalogue: &mut Catalogue) -> EncodingMetrics {
        EncodingMetrics {
            hits: catalogue.add("sluice_encoding_hits", "Response bodies that were already encoded"),
            misses: catalogue.add("sluice_encoding_misses", "Response bodies that had to be encoded"),
            bytes: catalogue.sized("sluice_encoding_cache", "Bytes of cached encoded response bodies"),
        }
    }

    pub fn hit(&self) {
        self.hits.inc();
    }

    pub fn miss(&self) {
        self.misses.inc();
    }

    /// A part of the cached bytes: of the cache, or of one body. Subtracted when dropped.
    pub fn bytes(&self, bytes: usize) -> GaugePart {
        let mut part = GaugePart::new(&self.bytes, 0);
        part.set(bytes);
        part
    }
}

/// Log lines that were not written.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    /// Suppressed because their cause was logged often enough.
    pub(super) suppressed: Counter,
    /// Lost because the output did not accept them (FP14).
    pub(super) dropped: Counter,
}

impl LogMetrics {
    fn new(catalogue: &mut Catalogue) -> LogMetrics {
        LogMetrics {
            suppressed: catalogue.add(
                "sluice_log_lines_suppressed",
                "Log lines suppressed, because their cause was logged already",
            ),
            dropped: catalogue.add(
                "sluice_log_lines_dropped",
                "Log lines lost, because the output did not accept them in time",
            ),
        }
    }
}

/// The process itself, under the standard names of Prometheus client libraries.
#[derive(Debug)]
struct ProcessMetrics {
    resident: Gauge,
    open_fds: Gauge,
    fds: process::OpenFds,
    max_fds: Gauge,
}

impl ProcessMetrics {
    fn new(catalogue: &mut Catalogue) -> ProcessMetrics {
        let start: SecondsGauge =
            catalogue.timed("process_start_time", "Unix time at which the process started");
        start.set(wall_now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        catalogue.register("sluice_build", "The version of the relay", None, build);
        ProcessMetrics {
            resident: catalogue.sized("process_resident_memory", "Resident memory of the process"),
            open_fds: catalogue.add("process_open_fds", "Open file descriptors"),
            fds: process::OpenFds::default(),
            max_fds: catalogue.add("process_max_fds", "The limit of open file descriptors"),
        }
    }

    fn refresh(&self, now: Instant) {
        let set = |gauge: &Gauge, value: Option<u64>| {
            // The gauge's largest number stands for unlimited.
            value.map(|value| gauge.set(i64::try_from(value).unwrap_or(i64::MAX)))
        };
        set(&self.resident, process::resident_bytes());
        set(&self.open_fds, self.fds.count(now));
        set(&self.max_fds, process::max_fds());
    }
}

#[cfg(test)]
mod tests;
