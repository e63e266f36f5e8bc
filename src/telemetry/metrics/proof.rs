//! The proof of the grouping (PRF-26).

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges, Labels, SecondsGauge};
use crate::telemetry::instruments::GaugePart;
use sluice_proof::proof::SampleResult;

#[derive(Clone, Debug)]
pub struct ProofMetrics {
    samples: Counters<2>,
    divergences: Gauges<2>,
    streams: Gauges<2>,
    rotation: Family<Labels<1>, SecondsGauge>,
    impossible: Gauges<1>,
    unproved_clients: Gauge,
}

impl ProofMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> ProofMetrics {
        ProofMetrics {
            samples: catalogue.add(
                "sluice_proof_samples",
                "Clients that the server was asked about directly, by the result",
            ),
            divergences: catalogue.add(
                "sluice_proof_divergences",
                "Classes of which the server tells some client otherwise than the relay does",
            ),
            streams: catalogue
                .add("sluice_proof_streams", "Open streams of the proof to the server, by their kind"),
            rotation: catalogue
                .timed("sluice_proof_rotation", "Time in which each client of the server has its turn"),
            impossible: catalogue
                .add("sluice_proof_impossible", "Classes of the server that cannot be proved"),
            unproved_clients: catalogue
                .add("sluice_proof_unproved_clients", "Clients of which no equal sample speaks"),
        }
    }

    /// The metrics of one server. Its gauges last as long as the handle.
    pub fn server(&self, server: &Arc<str>) -> ServerProofMetrics {
        for result in SampleResult::ALL {
            self.samples.get_or_create_owned(&[("server", server.clone()), ("result", result.name().into())]);
        }
        let by_server = [("server", server.clone())];
        ServerProofMetrics {
            server: server.clone(),
            all: self.clone(),
            divergences: BTreeMap::new(),
            streams: BTreeMap::new(),
            impossible: GaugePart::new(&self.impossible.get_or_create_owned(&by_server), 0),
            unproved_clients: GaugePart::new(&self.unproved_clients, 0),
        }
    }
}

/// The metrics of the proof of one server.
#[derive(Debug)]
pub struct ServerProofMetrics {
    server: Arc<str>,
    all: ProofMetrics,
    divergences: BTreeMap<Arc<str>, GaugePart>,
    streams: BTreeMap<Arc<str>, GaugePart>,
    impossible: GaugePart,
    unproved_clients: GaugePart,
}

impl ServerProofMetrics {
    pub fn sampled(&self, result: SampleResult) {
        let labels = [("server", self.server.clone()), ("result", result.name().into())];
        self.all.samples.get_or_create(&labels).inc();
    }

    /// The number of open streams of each kind. A kind that is left out has none.
    pub fn streams(&mut self, counts: &BTreeMap<Arc<str>, usize>) {
        set_all(&mut self.streams, counts, &self.all.streams, &self.server, "kind");
    }

    /// The number of divergences that stand, by the labels of their types. A type that is left out has none.
    pub fn divergences(&mut self, counts: &BTreeMap<Arc<str>, usize>) {
        set_all(&mut self.divergences, counts, &self.all.divergences, &self.server, "type");
    }

    /// `round`: the time in which each client has its turn.
    pub fn coverage(&mut self, unproved: usize, impossible: usize, round: f64) {
        self.unproved_clients.set(unproved);
        self.impossible.set(impossible);
        self.all.rotation.get_or_create(&[("server", self.server.clone())]).set(round);
    }
}

fn set_all(
    parts: &mut BTreeMap<Arc<str>, GaugePart>,
    counts: &BTreeMap<Arc<str>, usize>,
    family: &Gauges<2>,
    server: &Arc<str>,
    label: &'static str,
) {
    for key in counts.keys() {
        let new = || {
            let labels = [("server", server.clone()), (label, key.clone())];
            GaugePart::new(&family.get_or_create_owned(&labels), 0)
        };
        parts.entry(key.clone()).or_insert_with(new);
    }
    for (key, part) in parts {
        part.set(counts.get(key).copied().unwrap_or_default());
    }
}
