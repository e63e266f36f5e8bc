//! The relay's limits, with the names under which their hits are counted.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

/// The limits with a hit counter.
///
/// Configurable limits have the name of their configuration key; the others are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    Connections,
    /// File descriptors are reserved for uses other than clients (FD21).
    FileDescriptors,
    ConnectionsPerIp,
    PrefaceTimeout,
    FirstRequestTimeout,
    RequestTimeout,
    /// An HTTP/1.1 client did not accept its response in time.
    Http1Write,
    ConnectionBytes,
    StreamsPerConnection,
    HeaderListBytes,
    /// Resets, useless frames, or endless headers: the HTTP/2 library does not say which (FD19).
    Http2Abuse,
    ControlFrames,
    KeepaliveTimeout,
    RequestBytes,
    NamesPerRequest,
    NamesPerStream,
    NameBytes,
    TypesPerStream,
    NodeBytes,
    NodeRetainedBytes,
    MetadataDepth,
    NodeClasses,
    NodeClassesPerConnection,
    SecretClasses,
    PrivateSources,
    MemoryBytes,
    ChangesPerSecond,
    FirstAnswersPerSecond,
    UnwatchedBytes,
    FullStateBytes,
    MaxResponseBytes,
    AdminConnections,
    AdminRequests,
}

impl Limit {
    pub const ALL: [Limit; 33] = [
        Limit::Connections,
        Limit::FileDescriptors,
        Limit::ConnectionsPerIp,
        Limit::PrefaceTimeout,
        Limit::FirstRequestTimeout,
        Limit::RequestTimeout,
        Limit::Http1Write,
        Limit::ConnectionBytes,
        Limit::StreamsPerConnection,
        Limit::HeaderListBytes,
        Limit::Http2Abuse,
        Limit::ControlFrames,
        Limit::KeepaliveTimeout,
        Limit::RequestBytes,
        Limit::NamesPerRequest,
        Limit::NamesPerStream,
        Limit::NameBytes,
        Limit::TypesPerStream,
        Limit::NodeBytes,
        Limit::NodeRetainedBytes,
        Limit::MetadataDepth,
        Limit::NodeClasses,
        Limit::NodeClassesPerConnection,
        Limit::SecretClasses,
        Limit::PrivateSources,
        Limit::MemoryBytes,
        Limit::ChangesPerSecond,
        Limit::FirstAnswersPerSecond,
        Limit::UnwatchedBytes,
        Limit::FullStateBytes,
        Limit::MaxResponseBytes,
        Limit::AdminConnections,
        Limit::AdminRequests,
    ];

    /// The value of the `limit` label.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Connections => "connections",
            Limit::FileDescriptors => "file_descriptors",
            Limit::ConnectionsPerIp => "connections_per_ip",
            Limit::PrefaceTimeout => "preface_timeout",
            Limit::FirstRequestTimeout => "first_request_timeout",
            Limit::RequestTimeout => "request_timeout",
            Limit::Http1Write => "http1_write",
            Limit::ConnectionBytes => "connection_bytes",
            Limit::StreamsPerConnection => "streams_per_connection",
            Limit::HeaderListBytes => "header_list_bytes",
            Limit::Http2Abuse => "http2_abuse",
            Limit::ControlFrames => "control_frames",
            Limit::KeepaliveTimeout => "keepalive_timeout",
            Limit::RequestBytes => "request_bytes",
            Limit::NamesPerRequest => "names_per_request",
            Limit::NamesPerStream => "names_per_stream",
            Limit::NameBytes => "name_bytes",
            Limit::TypesPerStream => "types_per_stream",
            Limit::NodeBytes => "node_bytes",
            Limit::NodeRetainedBytes => "node_retained_bytes",
            Limit::MetadataDepth => "metadata_depth",
            Limit::NodeClasses => "node_classes",
            Limit::NodeClassesPerConnection => "node_classes_per_connection",
            Limit::SecretClasses => "secret_classes",
            Limit::PrivateSources => "private_sources",
            Limit::MemoryBytes => "memory_bytes",
            Limit::ChangesPerSecond => "changes_per_second",
            Limit::FirstAnswersPerSecond => "first_answers_per_second",
            Limit::UnwatchedBytes => "unwatched_bytes",
            Limit::FullStateBytes => "full_state_bytes",
            Limit::MaxResponseBytes => "max_response_bytes",
            Limit::AdminConnections => "admin_connections",
            Limit::AdminRequests => "admin_requests",
        }
    }
}

/// The number of hits of each limit. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LimitHits(Arc<[Counter; Limit::ALL.len()]>);

impl LimitHits {
    pub(super) fn new(counter: impl FnMut(Limit) -> Counter) -> LimitHits {
        LimitHits(Arc::new(Limit::ALL.map(counter)))
    }

    pub fn hit(&self, limit: Limit) {
        self.add(limit, 1);
    }

    pub fn add(&self, limit: Limit, hits: u64) {
        self.0[limit as usize].inc_by(hits);
    }

    pub fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize].get()
    }
}
