//! The checkpoint on disk.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::Catalogue;
use crate::telemetry::events::Events;
use crate::telemetry::instruments::DurationHistogram;
use crate::telemetry::traces::Traces;

/// Metrics of reading and writing the checkpoint.
#[derive(Debug)]
pub struct CheckpointMetrics {
    writes: Counter,
    failures: Counter,
    failing: Gauge,
    written: Counter,
    write: DurationHistogram,
    last_success: Gauge<f64, AtomicU64>,
    sources: Gauge,
    resources: Gauge,
    refused: Gauge,
    pub events: Events,
    pub traces: Arc<Traces>,
}

impl CheckpointMetrics {
    pub(super) fn new(catalogue: &mut Catalogue, traces: Arc<Traces>) -> CheckpointMetrics {
        CheckpointMetrics {
            writes: catalogue.add("sluice_checkpoint_writes", "Sources written to the checkpoint"),
            failures: catalogue.add("sluice_checkpoint_write_failures", "Failed attempts to write a source"),
            failing: catalogue
                .add("sluice_checkpoint_failing", "1 while the checkpoint cannot be used, otherwise 0"),
            written: catalogue.sized("sluice_checkpoint_written", "Bytes written to the checkpoint"),
            write: catalogue.timed("sluice_checkpoint_write", "Time to write a source"),
            last_success: catalogue.timed(
                "sluice_checkpoint_last_success_timestamp",
                "When a source was last written, since 1970; 0 before",
            ),
            sources: catalogue
                .add("sluice_checkpoint_sources_read", "Sources read from the checkpoint at the start"),
            resources: catalogue
                .add("sluice_checkpoint_resources_read", "Resources read from the checkpoint at the start"),
            refused: catalogue
                .add("sluice_checkpoint_files_refused", "Files of the checkpoint ignored at the start"),
            events: catalogue.events.clone(),
            traces,
        }
    }

    pub fn loaded(&self, sources: usize, resources: usize, refused: usize) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.sources.set(count(sources));
        self.resources.set(count(resources));
        self.refused.set(count(refused));
    }

    /// A source's file is up to date. An empty source has no file, hence 0 bytes.
    pub fn wrote(&self, bytes: u64, took: Duration, at: SystemTime) {
        self.writes.inc_by(u64::from(bytes > 0));
        self.written.inc_by(bytes);
        self.write.observe(took);
        self.last_success.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    pub fn failed(&self) {
        self.failures.inc();
    }

    pub fn failing(&self, failing: bool) {
        self.failing.set(i64::from(failing));
    }
}
