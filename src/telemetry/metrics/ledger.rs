//! The ledger that replicas share.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges};
use crate::telemetry::instruments::GaugePart;

/// The results of writes.
const RESULTS: [&str; 4] = ["ok", "conflict", "refused", "failed"];

#[derive(Debug)]
pub struct LedgerMetrics {
    connected: Gauges<1>,
    believed: Gauges<1>,
    lost: Counters<1>,
    writes: Counters<2>,
}

impl LedgerMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> LedgerMetrics {
        LedgerMetrics {
            connected: catalogue
                .add("sluice_ledger_connected", "Whether the ledger is loaded, under watch and with a lease"),
            believed: catalogue.add(
                "sluice_ledger_believed",
                "Whether the ledger is loaded, and the one that is known here",
            ),
            lost: catalogue.add("sluice_ledger_lost", "Losses of a loaded ledger, or of the lease there"),
            writes: catalogue.add("sluice_ledger_writes", "Writes of entries, by the result"),
        }
    }

    /// The metrics of a ledger of this kind. All are shown from now on (OBS-10).
    pub fn ledger(&self, kind: &'static str) -> OneLedgerMetrics {
        let kind: Arc<str> = kind.into();
        for result in RESULTS {
            self.writes.get_or_create_owned(&[("kind", kind.clone()), ("result", result.into())]);
        }
        OneLedgerMetrics {
            connected: self.connected.get_or_create_owned(&[("kind", kind.clone())]),
            lost: self.lost.get_or_create_owned(&[("kind", kind.clone())]),
            writes: self.writes.clone(),
            kind,
        }
    }

    /// Whether the plans act on the ledger of this kind.
    pub fn believed(&self, kind: &'static str) -> Gauge {
        self.believed.get_or_create_owned(&[("kind", kind.into())])
    }
}

/// The metrics of one ledger.
#[derive(Debug)]
pub struct OneLedgerMetrics {
    connected: Gauge,
    lost: Counter,
    writes: Counters<2>,
    kind: Arc<str>,
}

impl OneLedgerMetrics {
    /// The ledger is there until the handle is dropped.
    pub fn connected(&self) -> GaugePart {
        GaugePart::new(&self.connected, 1)
    }

    pub fn lost(&self) {
        self.lost.inc();
    }

    pub fn wrote(&self, result: &'static str) {
        self.writes.get_or_create(&[("kind", self.kind.clone()), ("result", result.into())]).inc();
    }
}
