//! The catalogue of all metrics, and the handles for counting.
//!
//! Names follow one template: `sluice_<side>_<noun>[_<unit>][_total]`, in OpenMetrics text. Labels have few
//! values only: `type`, `variant`, `server`, `code`, `state`, `reason`, `limit`, `method`, `outcome`,
//! `place`, `result`, `why`; no resource names, node ids or addresses. `docs/metrics.md` explains each
//! metric; a test compares the page with the catalogue.
//!
//! Callers look up a handle once (per type of a stream, per source) and keep it. On the hot path a metric is
//! one relaxed atomic addition, without a look-up or a lock. Handles of open things subtract their part of a
//! gauge when dropped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use tokio::time::Instant;

use self::catalogue::{Catalogue, Counters, SecondsGauge};
use self::types::TypeTable;
use super::events::Events;
pub use super::instruments::{DurationHistogram, GaugePart};
pub use super::limit::{Limit, LimitHits};
use super::process;
use crate::telemetry::traces::Traces;
pub use crate::telemetry::traces::change::ChangeOutcome;
use crate::telemetry::wall_now;
use sluice_xds::TypeUrl;

mod catalogue;
mod checkpoint;
mod client;
mod config;
mod downstream;
mod facts;
mod fallback;
mod rollouts;
mod handover;
mod ledger;
mod load;
mod proof;
mod tls;
mod types;
mod upstream;

pub use checkpoint::CheckpointMetrics;
pub use client::ClientMetrics;
pub use config::{ConfigMetrics, RELOAD_RESULTS};
pub use downstream::{Behind, BehindMetrics, CallKind, DownstreamMetrics};
pub use facts::FactMetrics;
pub use fallback::FallbackMetrics;
pub use handover::HandoverMetrics;
pub use ledger::{LedgerMetrics, OneLedgerMetrics};
pub use load::{LoadMetrics, RequestFate};
pub use proof::{ProofMetrics, ServerProofMetrics};
pub use rollouts::{PlanMetrics, RolloutMetrics};
pub use tls::{TLS_OK, TlsMetrics};
pub use types::{CacheMetrics, TYPES_MAX, TypeMetrics};
pub use upstream::{ServerMetrics, SourceMetrics, UpstreamMetrics, UpstreamTypeMetrics, VersionAnomaly};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of one relay. One per process, shared by `Arc`. Wide because each field is a part that counts.
#[derive(Debug)]
pub struct Metrics {
    pub downstream: Arc<DownstreamMetrics>,
    pub upstream: UpstreamMetrics,
    pub encodings: EncodingMetrics,
    pub checkpoint: Arc<CheckpointMetrics>,
    pub fallback: FallbackMetrics,
    pub rollouts: RolloutMetrics,
    pub proof: ProofMetrics,
    pub load: LoadMetrics,
    pub ledger: LedgerMetrics,
    pub handover: HandoverMetrics,
    pub config: ConfigMetrics,
    pub facts: FactMetrics,
    pub log: LogMetrics,
    pub traces: Arc<Traces>,
    pub events: Events,
    types: TypeTable,
    node_classes: Gauge,
    class_evidence: Counter,
    private_sources: Gauge,
    admin_streams: Gauge,
    unwatched_bytes: Gauge,
    memory_budget: Gauge,
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
        let memory_budget =
            catalogue.sized("sluice_memory_budget", "The budget of resident memory, 0 without one");
        let encodings = EncodingMetrics::new(&mut catalogue);
        let fallback = FallbackMetrics::new(&mut catalogue);
        let rollouts = RolloutMetrics::new(&mut catalogue);
        let proof = ProofMetrics::new(&mut catalogue);
        let load = LoadMetrics::new(&mut catalogue);
        let ledger = LedgerMetrics::new(&mut catalogue);
        let node_classes = catalogue.add("sluice_node_classes", "Node classes with at least one source");
        let class_evidence = catalogue.add(
            "sluice_class_evidence",
            "Types that a server answered otherwise for another client of a class",
        );
        let private_sources =
            catalogue.add("sluice_private_sources", "Sources that serve one client stream alone");
        let admin_streams = catalogue.add("sluice_admin_streams", "Open live streams of the admin listener");
        let log = LogMetrics::new(&mut catalogue);
        let traces = Arc::new(Traces::new(
            catalogue
                .add("sluice_telemetry_spans_dropped", "Spans of traces that did not reach the collector"),
        ));
        let checkpoint = Arc::new(CheckpointMetrics::new(&mut catalogue, traces.clone()));
        let handover = HandoverMetrics::new(&mut catalogue);
        let config = ConfigMetrics::new(&mut catalogue);
        let facts = FactMetrics::new(&mut catalogue);
        let process = ProcessMetrics::new(&mut catalogue);
        Metrics {
            downstream,
            upstream,
            encodings,
            checkpoint,
            handover,
            fallback,
            rollouts,
            proof,
            load,
            ledger,
            config,
            facts,
            log,
            traces,
            events: catalogue.events.clone(),
            types,
            node_classes,
            class_evidence,
            private_sources,
            admin_streams,
            unwatched_bytes,
            memory_budget,
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

    /// A server has answered another client of a class otherwise.
    pub fn class_evidence(&self) {
        self.class_evidence.inc();
    }

    /// Counts a source for a single client stream until the handle is dropped.
    pub fn private_source(&self) -> GaugePart {
        GaugePart::new(&self.private_sources, 1)
    }

    /// Counts a live stream of the admin listener until the handle is dropped.
    pub fn admin_stream(&self) -> GaugePart {
        GaugePart::new(&self.admin_streams, 1)
    }

    /// A source's part of the bytes without a subscriber; starts at 0.
    pub fn unwatched_bytes(&self) -> GaugePart {
        GaugePart::new(&self.unwatched_bytes, 0)
    }

    /// The budget of resident memory in force (FP7).
    /// Shows the ages of the ways to servers (ADR 101).
    pub fn upstream_tiers(&self, ages: impl Iterator<Item = (Arc<str>, Duration)>) {
        self.upstream.tiers(ages);
    }

    pub fn memory_budget(&self, bytes: Option<u64>) {
        self.memory_budget.set(i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX));
    }

    pub fn limit_hit(&self, limit: Limit) {
        self.limits.hit(limit);
    }

    /// As [`LimitHits::delay`].
    pub fn limit_delays(&self, limit: Limit, node: &str, peer: Option<SocketAddr>) {
        self.limits.delay(limit, node, peer);
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
        Ok(self.traces.exemplars().write_into(text))
    }
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
