//! The relay's limits, with the names under which their hits are counted.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

/// Declares the limits with a hit counter, each with the value of its `limit` label.
macro_rules! limits {
    ($($(#[$attribute:meta])* $limit:ident = $name:literal,)+) => {
        /// The limits with a hit counter.
        ///
        /// Configurable limits have the name of their configuration key; the others are fixed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Limit {
            $($(#[$attribute])* $limit,)+
        }

        impl Limit {
            pub const ALL: [Limit; [$($name),+].len()] = [$(Limit::$limit),+];

            /// The value of the `limit` label.
            pub fn name(self) -> &'static str {
                match self {
                    $(Limit::$limit => $name,)+
                }
            }
        }
    };
}

limits! {
    Connections = "connections",
    /// File descriptors are reserved for uses other than clients (FD21).
    FileDescriptors = "file_descriptors",
    ConnectionsPerIp = "connections_per_ip",
    ConnectionsPerIdentity = "connections_per_identity",
    PrefaceTimeout = "preface_timeout",
    FirstRequestTimeout = "first_request_timeout",
    RequestTimeout = "request_timeout",
    /// An HTTP/1.1 client did not accept its response in time.
    Http1Write = "http1_write",
    ConnectionBytes = "connection_bytes",
    UnfinishedBytes = "unfinished_bytes",
    StreamsPerConnection = "streams_per_connection",
    HeaderListBytes = "header_list_bytes",
    /// Resets, useless frames, or endless headers: the HTTP/2 library does not say which (FD19).
    Http2Abuse = "http2_abuse",
    ControlFrames = "control_frames",
    KeepaliveTimeout = "keepalive_timeout",
    RequestBytes = "request_bytes",
    NamesPerRequest = "names_per_request",
    NamesPerStream = "names_per_stream",
    NameBytes = "name_bytes",
    TypesPerStream = "types_per_stream",
    NodeBytes = "node_bytes",
    NodeRetainedBytes = "node_retained_bytes",
    MetadataDepth = "metadata_depth",
    NodeClasses = "node_classes",
    NodeClassesPerConnection = "node_classes_per_connection",
    SecretClasses = "secret_classes",
    PrivateSources = "private_sources",
    MemoryBytes = "memory_bytes",
    ChangesPerSecond = "changes_per_second",
    FirstAnswersPerSecond = "first_answers_per_second",
    SourceBytes = "source_bytes",
    UnwatchedBytes = "unwatched_bytes",
    FullStateBytes = "full_state_bytes",
    MaxResponseBytes = "max_response_bytes",
    MaxRequestBytes = "max_request_bytes",
    AdminConnections = "admin_connections",
    AdminRequests = "admin_requests",
    AdminStreams = "admin_streams",
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
