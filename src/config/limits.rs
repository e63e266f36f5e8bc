//! Limits on the resources that any one peer can use.

use std::time::Duration;

use super::reader::Map;
use super::units::{bytes, count, duration, hours, ms, or_off, seconds};

/// Limits that bound the damage of a hostile or broken peer. Each is a key under `limits:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open downstream connections over all listeners.
    pub connections: u64,
    /// Open connections from one IP address; `None`: unlimited.
    pub connections_per_ip: Option<u64>,
    /// From accept to the end of the client's HTTP/2 preface.
    pub preface_timeout: Duration,
    /// From the preface to the first request.
    pub first_request_timeout: Duration,
    /// From the first byte of a request on a stream to its last.
    pub request_timeout: Duration,
    /// Memory held for one connection alone, in bytes. Excludes memory shared between connections.
    pub connection_bytes: u64,
    pub streams_per_connection: u32,
    /// Streams reset by the client and not yet forgotten (CVE-2023-44487).
    pub pending_reset_streams: u32,
    /// Streams reset because of client errors before the connection is closed (CVE-2025-8671).
    pub local_error_reset_streams: u32,
    /// Bytes of one request's headers.
    pub header_list_bytes: u32,
    /// Bytes of one request message.
    pub request_bytes: u64,
    pub names_per_request: u64,
    /// Distinct names over all types of a stream.
    pub names_per_stream: u64,
    /// Bytes of one name.
    pub name_bytes: u64,
    pub types_per_stream: u64,
    /// Bytes of a node on the wire.
    pub node_bytes: u64,
    /// Bytes of a node in a session's memory.
    pub node_retained_bytes: u64,
    /// Nesting of a node's metadata.
    pub metadata_depth: u64,
    /// Bytes kept of a NACK's message.
    pub error_detail_bytes: u64,
    /// Subscription changes and NACKs of one stream per second; ACKs never count.
    pub changes_per_second: u64,
    /// The burst allowed for `changes_per_second`.
    pub changes_burst: u64,
    /// Streams of one listener that get their first answer per second. Spreads a reconnect storm (RLY-56).
    pub first_answers_per_second: u64,
    /// The burst allowed for `first_answers_per_second`.
    pub first_answers_burst: u64,
    /// Time between keepalive PINGs to a silent client.
    pub keepalive_interval: Duration,
    /// How long the answer to a PING may take.
    pub keepalive_timeout: Duration,
    /// The relay sends GOAWAY on a connection older than this, ±20 %; `None`: never.
    pub connection_age: Option<Duration>,
    /// From GOAWAY to the end of the connection.
    pub connection_age_grace: Duration,
    /// Node classes in use at a time. A client that needs one more is refused (RLY-14).
    pub node_classes: u64,
    /// Node classes in use on one connection. A downstream relay brings the classes of its own clients, by
    /// default with 30 streams per connection.
    pub node_classes_per_connection: u64,
    /// Additional node classes in use for Secrets, which split by client. The default is half the maximum of
    /// connections.
    pub secret_classes: u64,
    /// Streams with an upstream stream of their own, for resources that must not be shared (RLY-20).
    pub private_sources: u64,
    /// Resident memory of the process, in bytes. Above 80 % the relay accepts no new connection; above 90 %
    /// it closes the connections with the most memory (FP7). `None`: the limit of the process's control
    /// group, if there is one.
    pub memory_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 20_000,
            connections_per_ip: None,
            preface_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
            connection_bytes: 64 << 20,
            streams_per_connection: 100,
            pending_reset_streams: 20,
            local_error_reset_streams: 64,
            header_list_bytes: 8 << 10,
            request_bytes: 8 << 20,
            names_per_request: 100_000,
            names_per_stream: 200_000,
            name_bytes: 4 << 10,
            types_per_stream: 64,
            node_bytes: 1 << 20,
            node_retained_bytes: 16 << 10,
            metadata_depth: 100,
            error_detail_bytes: 4 << 10,
            changes_per_second: 100,
            changes_burst: 500,
            first_answers_per_second: 20_000,
            first_answers_burst: 10_000,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            connection_age: Some(Duration::from_secs(30 * 60)),
            connection_age_grace: Duration::from_secs(60),
            node_classes: 1_000,
            node_classes_per_connection: 64,
            secret_classes: 10_000,
            private_sources: 10_000,
            memory_bytes: None,
        }
    }
}

/// Keys of limits whose features are not implemented yet.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("accept_rate", "connections are accepted without a rate limit"),
    ("connections_per_identity", "use connections_per_ip; identities need TLS"),
    ("tls_handshakes", "there is no TLS yet"),
    ("tls_handshake_timeout", "there is no TLS yet"),
    ("response_bytes", "use xds_servers[].max_response_bytes"),
];

impl Limits {
    pub(super) fn read(map: &mut Map<'_>) -> Limits {
        let d = Limits::default();
        let some = 1..=1_000_000_000_u64;
        let timeout = || duration(ms(100)..=hours(1));
        let up_to_a_day = || duration(seconds(1)..=hours(24));
        let limits = Limits {
            connections: map.or("connections", d.connections, count(some.clone())),
            connections_per_ip: map.or(
                "connections_per_ip",
                d.connections_per_ip,
                or_off(count(some.clone())),
            ),
            preface_timeout: map.or("preface_timeout", d.preface_timeout, timeout()),
            first_request_timeout: map.or("first_request_timeout", d.first_request_timeout, timeout()),
            request_timeout: map.or("request_timeout", d.request_timeout, timeout()),
            connection_bytes: map.or("connection_bytes", d.connection_bytes, bytes(1 << 20..=1 << 40)),
            streams_per_connection: map.or(
                "streams_per_connection",
                d.streams_per_connection,
                count(1..=1_000_000),
            ),
            pending_reset_streams: map.or(
                "pending_reset_streams",
                d.pending_reset_streams,
                count(1..=10_000),
            ),
            local_error_reset_streams: map.or(
                "local_error_reset_streams",
                d.local_error_reset_streams,
                count(1..=10_000),
            ),
            header_list_bytes: map.or("header_list_bytes", d.header_list_bytes, bytes(1 << 10..=1 << 20)),
            request_bytes: map.or("request_bytes", d.request_bytes, bytes(1 << 10..=1 << 30)),
            names_per_request: map.or("names_per_request", d.names_per_request, count(some.clone())),
            names_per_stream: map.or("names_per_stream", d.names_per_stream, count(some.clone())),
            name_bytes: map.or("name_bytes", d.name_bytes, bytes(64..=1 << 20)),
            types_per_stream: map.or("types_per_stream", d.types_per_stream, count(1..=10_000)),
            node_bytes: map.or("node_bytes", d.node_bytes, bytes(1 << 10..=1 << 30)),
            node_retained_bytes: map.or("node_retained_bytes", d.node_retained_bytes, bytes(256..=1 << 30)),
            metadata_depth: map.or("metadata_depth", d.metadata_depth, count(1..=100)),
            error_detail_bytes: map.or("error_detail_bytes", d.error_detail_bytes, bytes(64..=1 << 20)),
            changes_per_second: map.or("changes_per_second", d.changes_per_second, count(some.clone())),
            changes_burst: map.or("changes_burst", d.changes_burst, count(some.clone())),
            first_answers_per_second: map.or(
                "first_answers_per_second",
                d.first_answers_per_second,
                count(some.clone()),
            ),
            first_answers_burst: map.or("first_answers_burst", d.first_answers_burst, count(some.clone())),
            keepalive_interval: map.or("keepalive_interval", d.keepalive_interval, up_to_a_day()),
            keepalive_timeout: map.or("keepalive_timeout", d.keepalive_timeout, timeout()),
            connection_age: map.or(
                "connection_age",
                d.connection_age,
                or_off(duration(seconds(1)..=hours(24 * 30))),
            ),
            connection_age_grace: map.or(
                "connection_age_grace",
                d.connection_age_grace,
                duration(ms(0)..=hours(1)),
            ),
            memory_bytes: map.or("memory_bytes", d.memory_bytes, or_off(bytes(8 << 20..=1 << 50))),
            ..Limits::read_class_limits(map)
        };
        map.unsupported(UNSUPPORTED);
        limits.check(map);
        limits
    }

    /// The limits on upstream requests; all other fields have their defaults.
    fn read_class_limits(map: &mut Map<'_>) -> Limits {
        let d = Limits::default();
        Limits {
            node_classes: map.or("node_classes", d.node_classes, count(1..=1_000_000)),
            node_classes_per_connection: map.or(
                "node_classes_per_connection",
                d.node_classes_per_connection,
                count(1..=1_000_000),
            ),
            secret_classes: map.or("secret_classes", d.secret_classes, count(1..=1_000_000)),
            private_sources: map.or("private_sources", d.private_sources, count(1..=1_000_000)),
            ..d
        }
    }

    /// Reports limits that contradict each other.
    fn check(&self, map: &Map<'_>) {
        let pairs = [
            ("names_per_request", self.names_per_request, "names_per_stream", self.names_per_stream),
            ("name_bytes", self.name_bytes, "request_bytes", self.request_bytes),
            ("node_bytes", self.node_bytes, "request_bytes", self.request_bytes),
            ("request_bytes", self.request_bytes, "connection_bytes", self.connection_bytes),
            ("node_retained_bytes", self.node_retained_bytes, "node_bytes", self.node_bytes),
        ];
        for (key, value, within, bound) in pairs {
            if value > bound {
                map.contradiction(key, format!("{value} is more than limits.{within}, {bound}"));
            }
        }
    }
}
