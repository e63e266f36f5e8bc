//! What any one peer may cost (reliability §4.5).

use std::time::Duration;

/// The bounds that hold a hostile or broken peer to its share. Every one is a key under `limits:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open downstream connections over all listeners.
    pub connections: u64,
    /// Open connections from one IP address; `None`: not bounded.
    pub connections_per_ip: Option<u64>,
    /// From accept to the end of the client's HTTP/2 preface.
    pub preface_timeout: Duration,
    /// From the preface to the first request.
    pub first_request_timeout: Duration,
    pub streams_per_connection: u32,
    /// Streams that the client reset and that are not yet forgotten (CVE-2023-44487).
    pub pending_reset_streams: u32,
    /// Streams that had to be reset for the client's errors before its connection is closed (CVE-2025-8671).
    pub local_error_reset_streams: u32,
    /// Of one request's headers: bytes.
    pub header_list_bytes: u32,
    /// One request message: bytes.
    pub request_bytes: u64,
    pub names_per_request: u64,
    /// Distinct names over all types of a stream.
    pub names_per_stream: u64,
    /// Of one name: bytes.
    pub name_bytes: u64,
    pub types_per_stream: u64,
    /// A node on the wire: bytes.
    pub node_bytes: u64,
    /// A node as a session keeps it: bytes.
    pub node_retained_bytes: u64,
    /// Nesting of a node's metadata.
    pub metadata_depth: u64,
    /// What is kept of a NACK's message: bytes.
    pub error_detail_bytes: u64,
    /// Subscription changes and NACKs of one stream per second; ACKs never count.
    pub changes_per_second: u64,
    /// How many of those may come at once.
    pub changes_burst: u64,
    /// Between keepalive PINGs to a client that sends nothing.
    pub keepalive_interval: Duration,
    /// How long the answer to a PING may take.
    pub keepalive_timeout: Duration,
    /// A connection older than this, ±20 %, is asked to go (GOAWAY); `None`: never.
    pub connection_age: Option<Duration>,
    /// From GOAWAY to the end of the connection.
    pub connection_age_grace: Duration,
    /// What is encoded for one stream alone and not yet written: bytes.
    pub private_bytes_per_stream: u64,
    /// Node classes at a time; a client that would need one more is refused (RLY-14).
    pub node_classes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 20_000,
            connections_per_ip: None,
            preface_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(15),
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
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            connection_age: Some(Duration::from_secs(30 * 60)),
            connection_age_grace: Duration::from_secs(60),
            private_bytes_per_stream: 64 << 10,
            node_classes: 1_000,
        }
    }
}
