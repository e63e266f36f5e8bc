//! Connections to servers.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges, Labels};

/// Metrics of the connections to one server. All but the gauge only grow. Wide because each field is a
/// metric.
#[derive(Debug)]
pub struct ClientMetrics {
    /// Gauge: open connections.
    pub connections: Gauge,
    /// Connections that became ready.
    pub connects: Counter,
    /// Connection attempts that failed at every address.
    pub connect_failures: Counter,
    /// Messages that were undecodable or too long (FU11, FU17).
    pub undecodable: Counter,
    /// Bytes read from and written to sockets.
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    /// PINGs sent.
    pub pings: Counter,
    /// Probes of the transport on demand (RLY-29).
    pub probes: Counter,
    /// PINGs and probes without an answer in time; each ended a connection.
    pub unanswered: Counter,
    /// Connections with a GOAWAY from the server, and the part of them with `too_many_pings` (FU32).
    pub goaways: Counter,
    pub too_many_pings: Counter,
    tls_failures: Counters<2>,
    server: Arc<str>,
}

impl ClientMetrics {
    /// Shows these reasons of failed TLS connections from the start: a counter that begins at 1 shows no
    /// increase (OBS-10).
    pub fn expect_tls_failures(&self, reasons: impl IntoIterator<Item = &'static str>) {
        reasons.into_iter().for_each(|reason| drop(self.tls_failures(reason)));
    }

    /// Failed TLS connections with this reason (SEC-11).
    pub fn tls_failures(&self, reason: &'static str) -> Counter {
        let labels = [("server", self.server.clone()), ("reason", Arc::from(reason))];
        self.tls_failures.get_or_create_owned(&labels)
    }
}

impl Default for ClientMetrics {
    /// Metrics without an exporter.
    fn default() -> ClientMetrics {
        ClientFamilies::new(&mut Catalogue::default()).server(&[("server", Arc::from(""))])
    }
}

/// [`ClientMetrics`] by server.
#[derive(Debug)]
pub(super) struct ClientFamilies {
    connections: Gauges<1>,
    connects: Counters<1>,
    connect_failures: Counters<1>,
    undecodable: Counters<1>,
    received: Counters<1>,
    sent: Counters<1>,
    pings: Counters<1>,
    probes: Counters<1>,
    unanswered: Counters<1>,
    goaways: Counters<1>,
    too_many_pings: Counters<1>,
    tls_failures: Counters<2>,
}

impl ClientFamilies {
    pub(super) fn new(catalogue: &mut Catalogue) -> ClientFamilies {
        ClientFamilies {
            connections: catalogue.add("sluice_upstream_connections", "Open connections to the server"),
            connects: catalogue
                .add("sluice_upstream_connects", "Connections to the server that became ready"),
            connect_failures: catalogue
                .add("sluice_upstream_connect_failures", "Connection attempts that failed"),
            undecodable: catalogue.add(
                "sluice_upstream_responses_undecodable",
                "Responses of the server that could not be decoded or were too long",
            ),
            received: catalogue.sized("sluice_upstream_received", "Bytes read from the server"),
            sent: catalogue.sized("sluice_upstream_sent", "Bytes written to the server"),
            pings: catalogue.add("sluice_upstream_pings", "HTTP/2 PINGs sent to the server"),
            probes: catalogue
                .add("sluice_upstream_probes", "Probes of a silent server, because a name stayed unanswered"),
            unanswered: catalogue.add(
                "sluice_upstream_pings_unanswered",
                "PINGs and probes without an answer in time; each ended a connection",
            ),
            goaways: catalogue.add("sluice_upstream_goaways", "Connections with a GOAWAY from the server"),
            too_many_pings: catalogue.add(
                "sluice_upstream_too_many_pings",
                "Connections with a GOAWAY because the server finds PINGs too frequent",
            ),
            tls_failures: catalogue
                .add("sluice_upstream_tls_failures", "TLS connections to the server that failed, by reason"),
        }
    }

    pub(super) fn server(&self, server: &Labels<1>) -> ClientMetrics {
        ClientMetrics {
            connections: self.connections.get_or_create_owned(server),
            connects: self.connects.get_or_create_owned(server),
            connect_failures: self.connect_failures.get_or_create_owned(server),
            undecodable: self.undecodable.get_or_create_owned(server),
            received_bytes: self.received.get_or_create_owned(server),
            sent_bytes: self.sent.get_or_create_owned(server),
            pings: self.pings.get_or_create_owned(server),
            probes: self.probes.get_or_create_owned(server),
            unanswered: self.unanswered.get_or_create_owned(server),
            goaways: self.goaways.get_or_create_owned(server),
            too_many_pings: self.too_many_pings.get_or_create_owned(server),
            tls_failures: self.tls_failures.clone(),
            server: server[0].1.clone(),
        }
    }
}
