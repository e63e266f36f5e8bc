//! Handshakes of clients, and the certificates of the relay.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges, Labels};
use crate::telemetry::events::Events;
use crate::telemetry::instruments::{DurationHistogram, GaugePart};
use crate::telemetry::limit::LimitHits;

/// Metrics of TLS. No identity and no name of a certificate is a label (SEC-11).
#[derive(Clone, Debug)]
pub struct TlsMetrics {
    handshakes: Counters<1>,
    handshake: DurationHistogram,
    open: Gauge,
    expiry: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    start: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    failing: Gauges<1>,
    expiring: Gauge,
    /// Events of certificate files.
    pub events: Events,
    pub limits: LimitHits,
}

impl Default for TlsMetrics {
    /// Metrics without an exporter.
    fn default() -> TlsMetrics {
        let limits = LimitHits::new(|_| Counter::default());
        TlsMetrics::new(&mut Catalogue::default(), &[], limits)
    }
}

impl TlsMetrics {
    /// `results` are the labels of outcomes; each exists from the start, so that the first increase is
    /// visible.
    pub(super) fn new(catalogue: &mut Catalogue, results: &[&'static str], limits: LimitHits) -> TlsMetrics {
        let handshakes: Counters<1> =
            catalogue.add("sluice_tls_handshakes", "TLS handshakes of clients, by their outcome");
        for result in results {
            handshakes.get_or_create_owned(&[("result", Arc::from(*result))]);
        }
        TlsMetrics {
            limits,
            handshakes,
            handshake: catalogue.timed(
                "sluice_tls_handshake",
                "Time from the accepted connection to the end of its TLS handshake",
            ),
            open: catalogue.add("sluice_tls_handshakes_open", "TLS handshakes in progress"),
            expiry: catalogue.timed(
                "sluice_tls_certificate_expiry_timestamp",
                "When a certificate of the relay, or the first of its trust anchors, expires, since 1970",
            ),
            start: catalogue.timed(
                "sluice_tls_certificate_start_timestamp",
                "Since when that certificate is valid, since 1970",
            ),
            failing: catalogue.add(
                "sluice_tls_reload_failing",
                "1 while new files with certificates or tokens cannot be used and the last good ones are in force, otherwise 0",
            ),
            expiring: catalogue.add(
                "sluice_downstream_certificates_expiring",
                "Open connections whose client certificate expires within ten minutes",
            ),
            events: catalogue.events.clone(),
        }
    }

    /// A handshake ended.
    pub fn handshake(&self, result: &'static str, took: Duration) {
        self.handshakes.get_or_create_owned(&[("result", Arc::from(result))]).inc();
        if result == TLS_OK {
            self.handshake.observe(took);
        }
    }

    pub fn handshakes(&self, result: &'static str) -> u64 {
        self.handshakes.get_or_create_owned(&[("result", Arc::from(result))]).get()
    }

    /// Counts a handshake as open until the handle is dropped.
    pub fn handshake_open(&self) -> GaugePart {
        GaugePart::new(&self.open, 1)
    }

    /// Counts a client certificate as about to expire until the handle is dropped.
    pub fn expiring(&self) -> GaugePart {
        GaugePart::new(&self.expiring, 1)
    }

    /// The life of the certificate at this place.
    pub fn valid(&self, place: &str, from: SystemTime, until: SystemTime) {
        for (gauges, time) in [(&self.start, from), (&self.expiry, until)] {
            let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            gauges.get_or_create_owned(&[("place", place.into())]).set(seconds);
        }
    }

    pub fn reload_failing(&self, place: &str, is_failing: bool) {
        self.failing.get_or_create_owned(&[("place", place.into())]).set(i64::from(is_failing));
    }

    /// The place has no files any more, so that no alert waits for them.
    pub fn forget(&self, place: &str) {
        let labels: Labels<1> = [("place", place.into())];
        for gauges in [&self.start, &self.expiry] {
            gauges.remove(&labels);
        }
        self.failing.remove(&labels);
    }

    /// Whether the files of a place cannot be used.
    pub fn is_reload_failing(&self, place: &str) -> bool {
        self.failing.get_or_create_owned(&[("place", place.into())]).get() == 1
    }
}

/// The outcome of a good handshake.
pub const TLS_OK: &str = "ok";

/// The outcomes that exist from the start.
pub(super) const USUAL: [&str; 6] = [TLS_OK, "timeout", "eof", "not_tls", "no_certificate", "unknown_issuer"];
