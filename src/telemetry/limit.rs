//! The relay's limits, with the names under which their hits are counted.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tracing::warn;

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
    TlsHandshakesPerSecond = "tls_handshakes_per_second",
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

/// The time in which each client that waits for a limit is named once.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// The clients that are named in that time, for each limit. A crowd is counted.
const NAMED_MAX: usize = 16;

/// The number of hits of each limit. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LimitHits(Arc<[Hits; Limit::ALL.len()]>);

#[derive(Debug)]
struct Hits {
    counter: Counter,
    named: Mutex<NamedClients>,
}

/// The clients of which the log says that they wait for a limit.
#[derive(Debug, Default)]
struct NamedClients {
    since: Option<Instant>,
    clients: Vec<(Box<str>, Option<SocketAddr>)>,
    suppressed: u64,
}

impl NamedClients {
    /// The number of warnings suppressed since the last warning; `None` if no warning is due now.
    fn due(&mut self, node: &str, peer: Option<SocketAddr>, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now >= since + NAMED_FOR) {
            self.since = Some(now);
            self.clients.clear();
        }
        let is_named = self.clients.iter().any(|client| (&*client.0, client.1) == (node, peer));
        if is_named || self.clients.len() >= NAMED_MAX {
            self.suppressed += 1;
            return None;
        }
        self.clients.push((node.into(), peer));
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl LimitHits {
    pub(super) fn new(mut counter: impl FnMut(Limit) -> Counter) -> LimitHits {
        let hits = |limit| Hits { counter: counter(limit), named: Mutex::default() };
        LimitHits(Arc::new(Limit::ALL.map(hits)))
    }

    pub fn hit(&self, limit: Limit) {
        self.add(limit, 1);
    }

    pub fn add(&self, limit: Limit, hits: u64) {
        self.0[limit as usize].counter.inc_by(hits);
    }

    pub fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize].counter.get()
    }

    /// Counts a hit that makes a client wait. Nobody refuses such a client anything, so the log names it:
    /// once a minute and limit, and at most sixteen clients. `node`: empty if unknown.
    pub fn delay(&self, limit: Limit, node: &str, peer: Option<SocketAddr>) {
        self.hit(limit);
        let Some(suppressed) = self.0[limit as usize].named.lock().due(node, peer, Instant::now()) else {
            return;
        };
        let suppressed = NonZeroU64::new(suppressed);
        let peer = peer.map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
        warn!(limit = %format_args!("limits.{}", limit.name()), node, peer, suppressed, "{}", reason(limit));
    }
}

fn reason(limit: Limit) -> &'static str {
    match limit {
        Limit::StreamsPerConnection => {
            "a connection has all streams that it may have; the client's further streams wait in the client"
        }
        Limit::ConnectionBytes => "a client leaves much unread, and is sent nothing more before it reads",
        Limit::TlsHandshakesPerSecond => {
            "many clients begin at once, or the CPU is busy; handshakes wait for their turn for over a second"
        }
        Limit::FirstAnswersPerSecond => "many clients begin at once; their first answers wait for their turn",
        _ => "a client asks often; its further requests wait in the relay, and its updates go on",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_that_waits_is_named_once_a_minute() {
        let (mut named, start) = (NamedClients::default(), Instant::now());
        let peer = |port: usize| Some(SocketAddr::from(([127, 0, 0, 1], port as u16)));
        assert_eq!(named.due("a", peer(1), start), Some(0));
        assert_eq!(named.due("a", peer(1), start), None);
        // Two connections of one node, and behind one address two nodes.
        assert_eq!(named.due("a", peer(2), start), Some(1));
        assert_eq!(named.due("b", peer(1), start), Some(0));
        let more = (3..100).filter(|port| named.due("c", peer(*port), start).is_some());
        assert_eq!(more.count(), NAMED_MAX - 3);
        assert_eq!(named.due("a", peer(1), start + NAMED_FOR), Some(100 - NAMED_MAX as u64));
    }
}
