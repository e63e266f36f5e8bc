//! A control plane, the server side of the relay's upstream streams: one entry of `xds_servers:` (FED-2).

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::classes::read_type_name;
use super::deletion::MassDeletion;
use super::reader::{Item, Map, Parsed};
use super::rest::{RestServer, web_address};
use super::tree::Tree;
use super::units::{bytes, count, duration, hours, ms, seconds, word};
use crate::xds::TypeUrl;

/// A server entry.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// As written by the operator; names the server in logs, metrics and dumps.
    pub server_uri: String,
    pub kind: ServerKind,
}

#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "there is one per server, for as long as the process lives")]
pub enum ServerKind {
    Grpc(GrpcServer),
    Rest(RestServer),
    /// A directory of files, each with one `DiscoveryResponse` (FIL-4, FIL-8).
    Directory(PathBuf),
}

/// A control plane with gRPC, in plaintext.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcServer {
    pub endpoint: Endpoint,
    pub api_type: ApiType,
    pub wildcard: WildcardForm,
    /// After this time on a connected stream, an unanswered name becomes absent, or gets a transient error
    /// (TMR-1).
    pub resource_timeout: Duration,
    /// Exceptions from `resource_timeout` by type (RLY-29).
    pub resource_timeouts: BTreeMap<TypeUrl, Duration>,
    /// The server declares that it reports absent names itself. Silence then is a transient error (A88,
    /// TMR-5).
    pub resource_timer_is_transient_error: bool,
    /// If the server says that a resource does not exist, the resource is removed, even if another server
    /// supplied it (RLY-42).
    pub fail_on_data_errors: bool,
    pub mass_deletion: MassDeletion,
    pub connect_timeout: Duration,
    /// From the TCP connection to the server's SETTINGS.
    pub settings_timeout: Duration,
    /// How long a stream may wait to be opened.
    pub stream_open_timeout: Duration,
    /// Streams on one connection before another connection is opened.
    pub streams_per_connection: u32,
    /// Time between HTTP/2 PINGs while no answer is outstanding.
    pub ping_interval: Duration,
    /// `None` for a unix socket: its peer can't vanish silently.
    pub tcp_keepalive: Option<TcpKeepalive>,
    pub backoff: Backoff,
    /// The largest response message accepted, in bytes.
    pub max_response_bytes: u64,
}

impl GrpcServer {
    /// A server with all defaults.
    pub fn new(endpoint: Endpoint) -> Self {
        let tcp_keepalive = matches!(endpoint, Endpoint::Tcp { .. }).then(TcpKeepalive::default);
        GrpcServer {
            endpoint,
            api_type: ApiType::AggregatedDeltaGrpc,
            wildcard: WildcardForm::Explicit,
            resource_timeout: Duration::from_secs(10),
            resource_timeouts: BTreeMap::new(),
            resource_timer_is_transient_error: false,
            fail_on_data_errors: false,
            mass_deletion: MassDeletion::default(),
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

    /// The keys that affect streams, in which another server differs.
    pub(super) fn differing_stream_keys(&self, other: &GrpcServer) -> Vec<&'static str> {
        let features =
            |server: &GrpcServer| (server.resource_timer_is_transient_error, server.fail_on_data_errors);
        let differences = [
            ("server_features", features(self) != features(other)),
            ("api_type", self.api_type != other.api_type),
            ("wildcard", self.wildcard != other.wildcard),
            ("resource_timeout", self.resource_timeout != other.resource_timeout),
            ("resource_timeouts", self.resource_timeouts != other.resource_timeouts),
            ("mass_deletion", self.mass_deletion != other.mass_deletion),
            ("backoff", self.backoff != other.backoff),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// The address of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A host name, or an address (IPv6 without brackets).
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

/// The transport protocol of a gRPC server, in Envoy's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiType {
    AggregatedDeltaGrpc,
    AggregatedGrpc,
    /// One stream per type (RPC-2).
    DeltaGrpc,
    Grpc,
}

/// The form of wildcard subscriptions (RLY-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardForm {
    /// `*`.
    Explicit,
    /// An empty list in the first request, for servers that take `*` for a literal name.
    Legacy,
}

/// TCP keepalive towards the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Idle time before the first probe.
    pub time: Duration,
    /// Time between probes.
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

/// The delay between attempts that brought no response: `initial`, multiplied by 1.6 each time, at most
/// `max`, ±20 % (CLI-4).
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

/// Keys without meaning for a directory, which has no connection.
const NETWORK_KEYS: &[&str] = &[
    "channel_creds",
    "server_features",
    "api_type",
    "wildcard",
    "resource_timeout",
    "resource_timeouts",
    "connect_timeout",
    "settings_timeout",
    "stream_open_timeout",
    "streams_per_connection",
    "ping_interval",
    "tcp_keepalive",
    "backoff",
    "mass_deletion",
    "max_response_bytes",
    "refresh_delay",
    "request_timeout",
];

/// Keys for gRPC only.
pub(super) const GRPC_KEYS: &[&str] = &[
    "server_features",
    "wildcard",
    "resource_timeout",
    "resource_timeouts",
    "settings_timeout",
    "stream_open_timeout",
    "streams_per_connection",
    "ping_interval",
];

/// Keys for REST only.
const REST_KEYS: &[&str] = &["refresh_delay", "request_timeout"];

const UNSUPPORTED: &[(&str, &str)] = &[("call_creds", "no tokens are sent upstream yet")];

const URI_FORMS: &str = "host:port, dns:///host:port, unix:PATH, http://host:port[/prefix] or file:DIRECTORY";

/// The parsed form of `server_uri`.
enum Target {
    Grpc(Endpoint),
    Rest { host: String, port: u16, prefix: String },
    Directory(PathBuf),
}

impl UpstreamServer {
    /// Reads one entry; `None` if an error leaves no usable server.
    pub(super) fn read(map: &mut Map<'_>, directory: &Path) -> Option<UpstreamServer> {
        let uri = map.required("server_uri", URI_FORMS);
        let target = uri.as_ref().and_then(|uri| read_uri(uri, directory));
        map.unsupported(UNSUPPORTED);
        let kind = match target {
            Some(Target::Directory(path)) => {
                map.reject_inapplicable(NETWORK_KEYS, "a file: server");
                Some(ServerKind::Directory(path))
            }
            Some(Target::Grpc(endpoint)) => {
                if let (Some(uri), Some(host)) = (&uri, endpoint.host()) {
                    warn_of_plaintext(uri, host);
                }
                Some(ServerKind::Grpc(GrpcServer::read(map, endpoint)))
            }
            Some(Target::Rest { host, port, prefix }) => {
                if let Some(uri) = &uri {
                    warn_of_plaintext(uri, &host);
                }
                Some(ServerKind::Rest(RestServer::read(map, host, port, prefix)?))
            }
            // Read the other keys nevertheless, to report their errors.
            None => {
                let is_web = uri.as_ref().and_then(Item::text).is_some_and(|uri| uri.starts_with("http"));
                if is_web {
                    RestServer::read(map, String::new(), 0, String::new());
                } else {
                    GrpcServer::read(map, Endpoint::Tcp { host: String::new(), port: 0 });
                }
                None
            }
        };
        Some(UpstreamServer { server_uri: uri?.text()?.to_string(), kind: kind? })
    }
}

impl Endpoint {
    fn host(&self) -> Option<&str> {
        match self {
            Endpoint::Tcp { host, .. } => Some(host),
            Endpoint::Unix(_) => None,
        }
    }
}

fn warn_of_plaintext(uri: &Item<'_>, host: &str) {
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_local {
        uri.warn("connection is unencrypted; anyone on the path can read or alter it");
    }
}

pub(super) fn timeout() -> impl Fn(&Tree) -> Parsed<Duration> {
    duration(ms(100)..=seconds(300))
}

pub(super) fn response_bytes() -> impl Fn(&Tree) -> Parsed<u64> {
    bytes(1 << 20..=4 << 30)
}

impl GrpcServer {
    fn read(map: &mut Map<'_>, endpoint: Endpoint) -> GrpcServer {
        let is_unix = matches!(endpoint, Endpoint::Unix(_));
        let d = GrpcServer::new(endpoint);
        read_channel_creds(map);
        let features = read_features(map);
        map.reject_inapplicable(REST_KEYS, "a gRPC server");
        // A88: the feature implies the longer timer, as silence then is an error and not an answer.
        let resource_timeout = if features.transient { seconds(30) } else { d.resource_timeout };
        if is_unix {
            map.reject_inapplicable(&["tcp_keepalive"], "a unix socket");
        }
        GrpcServer {
            api_type: read_api_type(map).unwrap_or(d.api_type),
            wildcard: map.or("wildcard", d.wildcard, word(WILDCARDS)),
            resource_timeout: map.or("resource_timeout", resource_timeout, duration(RESOURCE_TIMEOUTS)),
            resource_timeouts: read_resource_timeouts(map),
            resource_timer_is_transient_error: features.transient,
            fail_on_data_errors: features.fail,
            mass_deletion: map.section("mass_deletion", MassDeletion::read).unwrap_or_default(),
            connect_timeout: map.or("connect_timeout", d.connect_timeout, timeout()),
            settings_timeout: map.or("settings_timeout", d.settings_timeout, timeout()),
            stream_open_timeout: map.or("stream_open_timeout", d.stream_open_timeout, timeout()),
            streams_per_connection: map.or(
                "streams_per_connection",
                d.streams_per_connection,
                count(1..=1_000_000),
            ),
            ping_interval: map.or("ping_interval", d.ping_interval, duration(seconds(10)..=hours(24))),
            tcp_keepalive: if is_unix { None } else { map.section("tcp_keepalive", TcpKeepalive::read) },
            backoff: map.section("backoff", Backoff::read).unwrap_or(d.backoff),
            max_response_bytes: map.or("max_response_bytes", d.max_response_bytes, response_bytes()),
            endpoint: d.endpoint,
        }
    }
}

const RESOURCE_TIMEOUTS: RangeInclusive<Duration> = seconds(1)..=seconds(600);

/// Timers by the message names of types (RLY-29).
fn read_resource_timeouts(map: &mut Map<'_>) -> BTreeMap<TypeUrl, Duration> {
    let entries = map.item("resource_timeouts").and_then(|item| item.entries()).unwrap_or_default();
    let read = |(name, item): (&str, Item<'_>)| {
        let type_url = read_type_name(&item, name);
        let timeout = item.parse(duration(RESOURCE_TIMEOUTS));
        Some((type_url?, timeout?))
    };
    entries.into_iter().filter_map(read).collect()
}

impl TcpKeepalive {
    pub(super) fn read(map: &mut Map<'_>) -> TcpKeepalive {
        let d = TcpKeepalive::default();
        let time = || duration(seconds(1)..=hours(2));
        TcpKeepalive {
            time: map.or("time", d.time, time()),
            interval: map.or("interval", d.interval, time()),
            probes: map.or("probes", d.probes, count(1..=100)),
            user_timeout: map.or("user_timeout", d.user_timeout, time()),
        }
    }
}

impl Backoff {
    pub(super) fn read(map: &mut Map<'_>) -> Backoff {
        let d = Backoff::default();
        let backoff = Backoff {
            initial: map.or("initial", d.initial, duration(ms(10)..=seconds(600))),
            max: map.or("max", d.max, duration(ms(10)..=seconds(600))),
        };
        if backoff.initial > backoff.max {
            map.contradiction("initial", "longer than `max`");
        }
        backoff
    }
}

const WILDCARDS: &[(&str, WildcardForm)] =
    &[("explicit", WildcardForm::Explicit), ("legacy", WildcardForm::Legacy)];

const API_TYPES: &[(&str, ApiType)] = &[
    ("AGGREGATED_DELTA_GRPC", ApiType::AggregatedDeltaGrpc),
    ("AGGREGATED_GRPC", ApiType::AggregatedGrpc),
    ("DELTA_GRPC", ApiType::DeltaGrpc),
    ("GRPC", ApiType::Grpc),
];

fn read_api_type(map: &mut Map<'_>) -> Option<ApiType> {
    let item = map.item("api_type")?;
    if item.text()? == "REST" {
        item.invalid("a gRPC type; for REST, use a server_uri of the form http://host:port[/prefix]");
        return None;
    }
    item.parse(word(API_TYPES))
}

/// Checks that plaintext satisfies the list.
///
/// gRPC takes the first type that it supports (FED-2). This version supports only `insecure`. By gRPC's rule,
/// `[tls, insecure]` would select plaintext, although the operator put TLS first. So an unsupported type is
/// refused, unless `insecure` stands before it.
pub(super) fn read_channel_creds(map: &mut Map<'_>) {
    const EXPECTED: &str = "[{type: insecure}]; plaintext must be explicit";
    let Some(list) = map.required("channel_creds", EXPECTED) else { return };
    let Some(items) = list.list() else { return };
    if items.is_empty() {
        list.invalid(EXPECTED);
    }
    let mut chosen = false;
    for item in items {
        let kind = item.map(|map| {
            // The configuration belongs to the credentials type; `insecure` has none.
            let config = map.item("config");
            map.required("type", "insecure").and_then(|kind| Some((kind.text()?.to_string(), kind, config)))
        });
        let Some(Some((name, kind, config))) = kind else { continue };
        if name == "insecure" {
            chosen = true;
            if let Some(config) = config.filter(|config| !config.is_empty_map()) {
                config.invalid("nothing: `insecure` has no configuration");
            }
        } else if chosen {
            kind.warn("never used: `insecure` comes first");
        } else {
            kind.unsupported("use `insecure` as the first entry if plaintext is acceptable");
        }
    }
}

/// The server features with an effect on sluice.
#[derive(Default)]
struct Features {
    /// `resource_timer_is_transient_error`, in both spellings.
    transient: bool,
    /// `fail_on_data_errors`.
    fail: bool,
}

/// A88, FED-9. Unknown features have no effect, as in gRPC.
fn read_features(map: &mut Map<'_>) -> Features {
    let mut features = Features::default();
    for item in map.list("server_features") {
        match item.text() {
            Some("resource_timer_is_transient_error" | "resource_timer_is_transient_failure") => {
                features.transient = true;
            }
            Some("fail_on_data_errors") => features.fail = true,
            None | Some("xds_v3") => {}
            Some("trusted_xds_server") => {
                item.warn(
                    "has no effect: each client decides whether to trust its own server, here the relay",
                );
            }
            Some("ignore_resource_deletion") => {
                item.warn("has no effect: the relay forwards deletions, and clients decide");
            }
            Some(_) => item.warn("unknown feature, without effect"),
        }
    }
    features
}

fn read_uri(item: &Item<'_>, directory: &Path) -> Option<Target> {
    let text = item.text()?;
    if text.starts_with("https://") {
        item.unsupported("use http:// if plaintext is acceptable");
        return None;
    }
    let target = if let Some(rest) = text.strip_prefix("http://") {
        web_address(rest).map(|(host, port, prefix)| Target::Rest { host, port, prefix })
    } else if let Some(path) = text.strip_prefix("file:") {
        local_path(path).map(|path| Target::Directory(directory.join(path)))
    } else if let Some(path) = text.strip_prefix("unix:") {
        local_path(path).map(|path| Target::Grpc(Endpoint::Unix(directory.join(path))))
    } else {
        let authority = match text.strip_prefix("dns:") {
            Some(rest) => rest.strip_prefix("///").or_else(|| (!rest.starts_with('/')).then_some(rest)),
            None => Some(text),
        };
        authority.and_then(host_and_port).map(|(host, port)| Target::Grpc(Endpoint::Tcp { host, port }))
    };
    if target.is_none() {
        item.invalid(if has_no_such_port(text) { PORTS } else { URI_FORMS });
    }
    target
}

/// The path of `unix:PATH` or `unix:///PATH`, and likewise for `file:`. `None` if there is a host between the
/// slashes.
pub(super) fn local_path(text: &str) -> Option<&str> {
    let path = match text.strip_prefix("//") {
        Some(rest) => rest.starts_with('/').then_some(rest)?,
        None => text,
    };
    (!path.is_empty()).then_some(path)
}

/// The error for an address with an impossible port number.
pub(super) const PORTS: &str = "a port from 1 to 65535";

/// Whether the address would be valid with another port.
pub(super) fn has_no_such_port(text: &str) -> bool {
    let text =
        ["http://", "dns:///", "dns:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let authority = text.split_once('/').map_or(text, |(authority, _)| authority);
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !matches!(port.parse::<u16>(), Ok(1..))
}

pub(super) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
        None => {
            let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            (!host.is_empty() && host.bytes().all(is_name)).then(|| host.to_string())?
        }
    };
    Some((host, port))
}
