//! The configuration in force, and its reloads (REL-4).

use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters};

/// The results of a reload. Each has its counter from the start, so that the first increase is visible.
pub const RELOAD_RESULTS: [&str; 6] = ["changed", "unchanged", "invalid", "needs_process", "held", "failed"];

/// Metrics of the configuration.
#[derive(Debug)]
pub struct ConfigMetrics {
    generation: Gauge,
    hash: Gauge,
    successful: Gauge,
    success: Gauge<f64, AtomicU64>,
    reloads: Counters<1>,
}

impl ConfigMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> ConfigMetrics {
        let reloads: Counters<1> = catalogue.add("sluice_config_reloads", "Reloads, by their result");
        for result in RELOAD_RESULTS {
            reloads.get_or_create_owned(&[("result", result.into())]);
        }
        ConfigMetrics {
            generation: catalogue.add("sluice_config_generation", "Number of the configuration in force, from 1"),
            hash: catalogue.add(
                "sluice_config_hash",
                "The beginning of the hash of the configuration in force, as a number: replicas with the same file are equal",
            ),
            successful: catalogue.add(
                "sluice_config_last_reload_successful",
                "0 while the last reload has failed and an older configuration is in force, otherwise 1",
            ),
            success: catalogue.timed(
                "sluice_config_last_reload_success_timestamp",
                "When the last good configuration was read, since 1970",
            ),
            reloads,
        }
    }

    /// A configuration is in force. `hash` is in hex digits.
    pub fn in_force(&self, generation: u64, hash: &str, at: SystemTime) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.hash.set(i64::from_str_radix(hash, 16).unwrap_or_default());
        self.successful.set(1);
        self.success.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    /// A reload is over.
    pub fn reloaded(&self, result: &'static str, is_success: bool) {
        self.reloads.get_or_create_owned(&[("result", result.into())]).inc();
        self.successful.set(i64::from(is_success));
    }
}
