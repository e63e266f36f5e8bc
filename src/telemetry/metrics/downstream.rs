//! Connections and streams of clients.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::catalogue::{Catalogue, Counters, Gauges, SecondsGauge, VARIANTS, variant_name};
use super::tls::{self, TlsMetrics};
pub use crate::telemetry::instruments::{Behind, BehindMetrics};
use crate::telemetry::instruments::{BehindTable, GaugePart};
use crate::telemetry::limit::{Limit, LimitHits};
use sluice_xds::Variant;

/// The kind of a call to the discovery services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// An aggregated stream.
    Ads,
    /// A stream of one type.
    PerType,
    Fetch,
    Rest,
    /// A stream of load reports, which are dropped.
    LoadReports,
}

impl CallKind {
    const ALL: [CallKind; 5] =
        [CallKind::Ads, CallKind::PerType, CallKind::Fetch, CallKind::Rest, CallKind::LoadReports];

    fn name(self) -> &'static str {
        match self {
            CallKind::Ads => "ads",
            CallKind::PerType => "per_type",
            CallKind::Fetch => "fetch",
            CallKind::Rest => "rest",
            CallKind::LoadReports => "load_reports",
        }
    }
}

/// Metrics of the serving side: connections and streams from the server, and streams that are behind from the
/// driver.
///
/// Wide because each field is a counter of `docs/metrics.md`: a place that counts names its counter and
/// nothing else.
#[derive(Debug)]
pub struct DownstreamMetrics {
    load_reporters: Gauge,
    pub connections_open: Gauge,
    pub connections_accepted: Counter,
    /// `accept` lacked a kernel resource (EMFILE, ENFILE, ENOBUFS, ENOMEM), and the loop backed off.
    pub accept_failures: Counter,

    /// Closed: no complete preface in time (FD17).
    pub closed_preface_timeout: Counter,
    /// Closed: the first bytes were neither HTTP/2 nor HTTP/1.1, or the peer left before sending enough.
    pub closed_not_http: Counter,
    /// Closed: the client speaks TLS, and the listener does not (SEC-7).
    pub closed_tls_on_plaintext: Counter,
    /// Closed: the protocol after TLS was not the one that ALPN selected (TLS-3).
    pub closed_alpn: Counter,
    /// Closed: an HTTP/1.1 connection was too long without a complete request.
    pub closed_idle: Counter,
    /// Closed: too many control frames (FD19).
    pub closed_control_flood: Counter,
    /// Closed: the peer didn't answer a PING (KAL-1).
    pub closed_keepalive: Counter,
    /// Closed: the peer violated HTTP/2, or vanished.
    pub closed_error: Counter,
    /// Closed after the grace period of a GOAWAY, with streams still open.
    pub closed_cut: Counter,
    /// Closed at once, while an operator empties the relay (HND-9).
    pub closed_draining: Counter,

    /// GOAWAY because of `connection_age` (KAL-4).
    pub goaways_age: Counter,
    /// GOAWAY because the server drains (RLY-77).
    pub goaways_drain: Counter,
    /// GOAWAY because the connection never opened a stream (FD14).
    pub goaways_idle: Counter,
    /// GOAWAY because the peer provoked resets or wasted frames (FD19).
    pub goaways_abuse: Counter,
    /// GOAWAY because the client's certificate ends (CRT-9).
    pub goaways_certificate_expiry: Counter,
    /// GOAWAY because the client's certificate would be refused now (CRT-8).
    pub goaways_certificate_refused: Counter,
    /// A connection exceeded its age, but had a stream without any response yet (KAL-4).
    pub age_exemptions: Counter,

    /// Streams ended by an unreadable request (FD16).
    pub streams_unreadable: Counter,
    /// Calls to unknown paths.
    pub calls_unimplemented: Counter,
    /// DATA bytes of requests.
    pub request_bytes: Counter,

    /// By [`CallKind`].
    calls: [Counter; CallKind::ALL.len()],
    /// Answers to REST requests, by HTTP status.
    rest_responses: Counters<1>,
    /// By [`Variant`]; the health service isn't counted.
    streams: [Gauge; 2],
    streams_opened: [Counter; 2],
    /// By state and reason, as of the last census.
    clients: Gauges<2>,
    pub tls: TlsMetrics,
    denials: Counters<1>,
    limits: LimitHits,
    behind: Arc<BehindTable>,
    streams_behind: Gauge,
    oldest_unacked: SecondsGauge,
}

impl Default for DownstreamMetrics {
    /// Metrics without an exporter.
    fn default() -> DownstreamMetrics {
        let limits = LimitHits::new(|_| Counter::default());
        DownstreamMetrics::new(&mut Catalogue::default(), Instant::now(), limits)
    }
}

fn oldest_unacked(catalogue: &mut Catalogue) -> SecondsGauge {
    catalogue.timed("sluice_downstream_oldest_unacked", "Longest time that an open stream has been behind")
}

fn clients(catalogue: &mut Catalogue) -> Gauges<2> {
    catalogue.add("sluice_clients", "Open streams of clients, each with the most urgent state of its types")
}

fn rest_responses(catalogue: &mut Catalogue) -> Counters<1> {
    let responses: Counters<1> =
        catalogue.add("sluice_downstream_rest_responses", "Answers to REST requests, by HTTP status");
    // The usual codes exist from the start, so that their first increase is visible (OBS-10).
    for code in ["200", "304", "500", "501", "503"] {
        responses.get_or_create_owned(&[("code", code.into())]);
    }
    responses
}

fn denials(catalogue: &mut Catalogue) -> Counters<1> {
    let denials: Counters<1> = catalogue.add(
        "sluice_authorization_denials",
        "Requests and names that authorization denied, or would deny with mode report; and refused admin requests",
    );
    // They exist from the start, so that their first increase is visible.
    for what in ["identity", "node", "type", "wildcard", "name", "admin"] {
        denials.get_or_create_owned(&[("what", what.into())]);
    }
    denials
}

impl DownstreamMetrics {
    pub(super) fn new(catalogue: &mut Catalogue, origin: Instant, limits: LimitHits) -> DownstreamMetrics {
        let closed: Counters<1> = catalogue.add(
            "sluice_downstream_connections_closed",
            "Connections that the relay closed or that failed, by reason",
        );
        let closed = |reason: &str| closed.get_or_create_owned(&[("reason", reason.into())]);
        let goaways: Counters<1> =
            catalogue.add("sluice_downstream_goaways", "Connections with a GOAWAY from the relay, by reason");
        let goaways = |reason: &str| goaways.get_or_create_owned(&[("reason", reason.into())]);
        let calls: Counters<1> = catalogue
            .add("sluice_downstream_calls", "Calls of the discovery services, by the kind of method");
        let call = |kind: CallKind| calls.get_or_create_owned(&[("method", kind.name().into())]);
        let streams: Gauges<1> = catalogue.add("sluice_downstream_streams", "Open streams of clients");
        let opened: Counters<1> =
            catalogue.add("sluice_downstream_streams_opened", "Streams that clients opened");
        let label = |variant| [("variant", variant_name(variant).into())];
        DownstreamMetrics {
            connections_open: catalogue.add("sluice_downstream_connections", "Open connections of clients"),
            load_reporters: catalogue
                .add("sluice_load_reporters", "Open streams of clients that report load"),
            connections_accepted: catalogue
                .add("sluice_downstream_connections_accepted", "Accepted connections of clients"),
            accept_failures: catalogue.add(
                "sluice_downstream_accept_failures",
                "Failed accepts, for lack of file descriptors or memory",
            ),
            closed_preface_timeout: closed("preface_timeout"),
            closed_not_http: closed("not_http"),
            closed_tls_on_plaintext: closed("tls_on_plaintext"),
            closed_alpn: closed("alpn"),
            closed_idle: closed("idle"),
            closed_control_flood: closed("control_flood"),
            closed_keepalive: closed("keepalive"),
            closed_error: closed("error"),
            closed_cut: closed("cut"),
            closed_draining: closed("draining"),
            goaways_age: goaways("age"),
            goaways_drain: goaways("drain"),
            goaways_idle: goaways("idle"),
            goaways_abuse: goaways("abuse"),
            goaways_certificate_expiry: goaways("certificate_expiry"),
            goaways_certificate_refused: goaways("certificate_refused"),
            age_exemptions: catalogue.add(
                "sluice_downstream_age_exemptions",
                "Old connections kept, because a stream had no response yet",
            ),
            streams_unreadable: catalogue.add(
                "sluice_downstream_streams_unreadable",
                "Streams that ended because a request could not be read",
            ),
            calls_unimplemented: catalogue
                .add("sluice_downstream_calls_unimplemented", "Calls to methods that are not served"),
            request_bytes: catalogue
                .sized("sluice_downstream_request", "Bytes of requests read from clients"),
            calls: CallKind::ALL.map(call),
            rest_responses: rest_responses(catalogue),
            streams: VARIANTS.map(|variant| streams.get_or_create_owned(&label(variant))),
            clients: clients(catalogue),
            streams_opened: VARIANTS.map(|variant| opened.get_or_create_owned(&label(variant))),
            tls: TlsMetrics::new(catalogue, &tls::USUAL, limits.clone()),
            denials: denials(catalogue),
            limits,
            behind: Arc::new(BehindTable::new(origin)),
            streams_behind: catalogue.add(
                "sluice_downstream_streams_behind",
                "Open streams with updates that the client has not ACKed",
            ),
            oldest_unacked: oldest_unacked(catalogue),
        }
    }

    /// Counts an accepted connection as open until the handle is dropped. `None` if `max` connections are
    /// open already.
    pub fn connection(&self, max: u64) -> Option<GaugePart> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let enter = |open: i64| (open < max).then_some(open + 1);
        self.connections_open.inner().fetch_update(Relaxed, Relaxed, enter).ok()?;
        self.connections_accepted.inc();
        Some(GaugePart::held(&self.connections_open, 1))
    }

    /// A call of the discovery services began.
    pub fn call(&self, kind: CallKind) {
        self.calls[kind as usize].inc();
    }

    pub fn calls(&self, kind: CallKind) -> u64 {
        self.calls[kind as usize].get()
    }

    /// A REST request was answered with this HTTP status.
    pub fn rest_response(&self, code: u16) {
        self.rest_responses.get_or_create_owned(&[("code", code.to_string().into())]).inc();
    }

    /// Counts a new stream as open until the handle is dropped.
    pub fn stream(&self, variant: Variant) -> GaugePart {
        self.streams_opened[variant as usize].inc();
        GaugePart::new(&self.streams[variant as usize], 1)
    }

    /// The streams in one state for one reason.
    pub fn clients(&self, state: &'static str, why: &'static str, count: usize) {
        let series = self.clients.get_or_create_owned(&[("state", state.into()), ("why", why.into())]);
        series.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a stream of load reports as open until the handle is dropped.
    pub fn load_reporter(&self) -> GaugePart {
        GaugePart::new(&self.load_reporters, 1)
    }

    /// The streams that leave in a drain: also those of load reports.
    pub fn streams_to_leave(&self) -> i64 {
        self.streams_open() + self.load_reporters.get()
    }

    pub fn streams_open(&self) -> i64 {
        self.streams.iter().map(|open| open.get()).sum()
    }

    pub fn streams_opened(&self, variant: Variant) -> u64 {
        self.streams_opened[variant as usize].get()
    }

    /// The lag of a stream, as a part of the stream. Counts as up to date until set otherwise.
    pub fn behind(&self, stream: Weak<dyn Behind>) -> BehindMetrics {
        self.behind.entry(stream)
    }

    /// Authorization denied something: a stream, a type, this many names, or an admin request.
    pub fn denied(&self, what: &'static str, count: u64) {
        self.denials.get_or_create_owned(&[("what", what.into())]).inc_by(count);
    }

    pub fn denials(&self, what: &'static str) -> u64 {
        self.denials.get_or_create_owned(&[("what", what.into())]).get()
    }

    pub fn limit_hit(&self, limit: Limit) {
        self.limits.hit(limit);
    }

    /// As [`LimitHits::delay`].
    pub fn limit_delays(&self, limit: Limit, node: &str, peer: Option<SocketAddr>) {
        self.limits.delay(limit, node, peer);
    }

    pub fn limit_hits(&self, limit: Limit) -> u64 {
        self.limits.of(limit)
    }

    pub(super) fn refresh(&self, now: Instant) {
        let (behind, oldest) = self.behind.summary(now);
        self.streams_behind.set(i64::try_from(behind).unwrap_or(i64::MAX));
        self.oldest_unacked.set(oldest.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_more_connections_come_in_than_the_maximum() {
        let metrics = DownstreamMetrics::default();
        let first = metrics.connection(2).unwrap();
        let _second = metrics.connection(2).unwrap();
        assert!(metrics.connection(2).is_none());
        drop(first);
        let _third = metrics.connection(2).unwrap();
        assert_eq!((metrics.connections_open.get(), metrics.connections_accepted.get()), (2, 3));
    }
}
