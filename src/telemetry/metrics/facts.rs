//! The facts of clients, which split node classes.

use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::Catalogue;

/// Metrics of the table of facts.
#[derive(Debug)]
pub struct FactMetrics {
    entries: Gauge,
    failing: Gauge,
    confirmed: Gauge<f64, AtomicU64>,
    missed: Counter,
}

impl FactMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> FactMetrics {
        FactMetrics {
            entries: catalogue.add("sluice_facts_entries", "Clients with facts in the table in force"),
            failing: catalogue.add(
                "sluice_facts_failing",
                "1 while the source of the facts cannot be used and the last good ones are in force, otherwise 0",
            ),
            confirmed: catalogue.timed(
                "sluice_facts_confirmed_timestamp",
                "When the source of the facts last confirmed those in force, since 1970",
            ),
            missed: catalogue
                .add("sluice_facts_missed", "Classes of one client that were opened because the client has no facts"),
        }
    }

    pub fn in_force(&self, entries: usize) {
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// The source has the facts in force.
    pub fn confirmed(&self, at: SystemTime) {
        self.failing.set(0);
        self.confirmed.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    pub fn failing(&self) {
        self.failing.set(1);
    }

    pub fn missed(&self) {
        self.missed.inc();
    }
}
