//! The control plane that the relay is a client of: one entry of `xds_servers:` (FED-2).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A server entry.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// As the operator wrote it: the server's name in logs, metrics and dumps.
    pub server_uri: String,
    pub kind: ServerKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServerKind {
    Grpc(GrpcServer),
    /// A directory of files, each one `DiscoveryResponse` (FIL-4, FIL-8).
    Directory(PathBuf),
}

/// A control plane that speaks gRPC, in plaintext.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcServer {
    pub endpoint: Endpoint,
    pub api_type: ApiType,
    pub wildcard: WildcardForm,
    /// After this long on a connected stream, an unanswered name is absent, or in a transient error (TMR-1).
    pub resource_timeout: Duration,
    /// The server stated that it reports absent names itself, so that silence is a transient error (A88, TMR-5).
    pub resource_timer_is_transient_error: bool,
    pub connect_timeout: Duration,
    /// From the TCP connection to the server's SETTINGS.
    pub settings_timeout: Duration,
    /// How long a stream may wait to be opened.
    pub stream_open_timeout: Duration,
    /// Streams on one connection before a further one is made.
    pub streams_per_connection: u32,
    /// Between HTTP/2 PINGs while no name is awaited.
    pub ping_interval: Duration,
    /// `None` on a unix socket, which has no peer that could vanish silently.
    pub tcp_keepalive: Option<TcpKeepalive>,
    pub backoff: Backoff,
    /// The largest response message that is read: bytes.
    pub max_response_bytes: u64,
}

impl GrpcServer {
    /// A server with every default.
    pub fn new(endpoint: Endpoint) -> Self {
        let tcp_keepalive = matches!(endpoint, Endpoint::Tcp { .. }).then(TcpKeepalive::default);
        GrpcServer {
            endpoint,
            api_type: ApiType::AggregatedDeltaGrpc,
            wildcard: WildcardForm::Explicit,
            resource_timeout: Duration::from_secs(10),
            resource_timer_is_transient_error: false,
            connect_timeout: Duration::from_secs(3),
            settings_timeout: Duration::from_secs(5),
            stream_open_timeout: Duration::from_secs(5),
            streams_per_connection: 30,
            ping_interval: Duration::from_secs(5 * 60),
            tcp_keepalive,
            backoff: Backoff::default(),
            max_response_bytes: 256 << 20,
        }
    }
}

/// Where a gRPC server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A name to resolve, or an address (an IPv6 one without its brackets).
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How the server is spoken to, in Envoy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiType {
    AggregatedDeltaGrpc,
    AggregatedGrpc,
}

/// How a wildcard is asked for (RLY-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardForm {
    /// `*`.
    Explicit,
    /// An empty list in the first request, for servers that take `*` for a literal name.
    Legacy,
}

/// TCP's own liveness towards the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Idle time before the first probe.
    pub time: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is lost.
    pub probes: u32,
    /// How long sent bytes may stay unacknowledged (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
}

impl Default for TcpKeepalive {
    fn default() -> Self {
        TcpKeepalive {
            time: Duration::from_secs(5),
            interval: Duration::from_secs(3),
            probes: 3,
            user_timeout: Duration::from_secs(12),
        }
    }
}

/// Between attempts that brought no response: `initial`, times 1.6 each, at most `max`, ±20 % (CLI-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30) }
    }
}
