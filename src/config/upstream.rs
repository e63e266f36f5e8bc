//! A control plane, the server side of the relay's upstream streams: one entry of `xds_servers:` (FED-2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::address::{Endpoint, ServerUri, URI_FORMS, WebAddress, read_uri};
use super::classes::read_type_name;
use super::credentials::{read_channel_creds, read_credentials, read_features};
use super::reader::{Item, Map};
use super::rest::RestServerSettings;
use super::server_keys::{REST_KEYS, read_connection, read_mass_deletion};
use super::units::{boolean, number, word};
use crate::client::{ClientSettings, Credentials};
use crate::driver::LoadUse;
use sluice_engine::upstream::{
    Hold, RESOURCE_TIMEOUT, TRANSIENT_RESOURCE_TIMEOUT, Transport, UpstreamSettings, WildcardStyle,
};
use sluice_xds::{TypeUrl, Variant};

/// A server entry.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// As written by the operator; names the server in logs, metrics and dumps.
    pub server_uri: String,
    pub kind: ServerKind,
    /// Where load reports go; `None`: they are dropped.
    pub load: Option<LoadUse>,
}

#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "there is one per server, for as long as the process lives")]
pub enum ServerKind {
    Grpc(GrpcServer),
    Rest(RestServerSettings),
    /// A directory of files, each with one `DiscoveryResponse` (FIL-4, FIL-8).
    Directory {
        path: PathBuf,
        /// `None`: a mass deletion is obeyed at once (FU18).
        mass_deletion_hold: Option<Hold>,
    },
}

/// A control plane with gRPC.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcServer {
    pub endpoint: Endpoint,
    pub credentials: Credentials,
    pub connection: ClientSettings,
    pub stream: UpstreamSettings,
}

impl GrpcServer {
    /// A server with all defaults.
    pub fn new(endpoint: Endpoint) -> Self {
        let (credentials, connection) = (Credentials::default(), ClientSettings::default());
        GrpcServer { endpoint, credentials, connection, stream: UpstreamSettings::default() }
    }

    /// Entries with the same server, credentials and features share their connections (FED-6).
    /// `resource_timeout` and other keys of single streams make no difference.
    pub fn shares_connections_with(&self, other: &GrpcServer) -> bool {
        let features =
            |server: &GrpcServer| (server.stream.timeout_is_transient, server.stream.fails_on_data_errors);
        self.endpoint == other.endpoint
            && self.credentials == other.credentials
            && self.connection == other.connection
            && features(self) == features(other)
    }

    /// Whether connections to the other server can serve this one after a reload: all settings but those of
    /// the connections' identity can change under them.
    pub fn is_same_server(&self, other: &GrpcServer) -> bool {
        self.shares_connections_with(&GrpcServer { connection: self.connection.clone(), ..other.clone() })
    }

    /// The keys that affect streams and differ at another server.
    pub(super) fn differing_stream_keys(&self, other: &GrpcServer) -> Vec<&'static str> {
        let (a, b) = (&self.stream, &other.stream);
        let features = |stream: &UpstreamSettings| (stream.timeout_is_transient, stream.fails_on_data_errors);
        let differences = [
            ("server_features", features(a) != features(b)),
            ("api_type", (a.transport, a.variant) != (b.transport, b.variant)),
            ("wildcard", a.wildcard != b.wildcard),
            ("resource_timeout", a.resource_timeout != b.resource_timeout),
            ("resource_timeouts", a.resource_timeouts != b.resource_timeouts),
            ("mass_deletion", a.mass_deletion_hold != b.mass_deletion_hold),
            ("report_rejections", a.reports_rejections != b.reports_rejections),
            ("backoff", a.backoff != b.backoff),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    fn read(map: &mut Map<'_>, uri: Option<&Item<'_>>, endpoint: Endpoint, directory: &Path) -> GrpcServer {
        let chosen = read_channel_creds(map, directory);
        let features = read_features(map);
        map.reject_inapplicable(REST_KEYS, "a gRPC server");
        if matches!(endpoint, Endpoint::Unix(_)) {
            // The peer of a unix socket can't vanish silently.
            map.reject_inapplicable(&["tcp_keepalive"], "a unix socket");
        }
        // A88: the feature implies the longer timer, as silence then is an error and not an answer.
        let silence = if features.transient { TRANSIENT_RESOURCE_TIMEOUT } else { RESOURCE_TIMEOUT.default };
        let d = UpstreamSettings::default();
        let api_type = read_api_type(map);
        let (transport, variant) = api_type.unwrap_or((d.transport, d.variant));
        let stream = UpstreamSettings {
            transport,
            variant,
            fall_back_to_sotw: api_type.is_none(),
            wildcard: map.or("wildcard", d.wildcard, word(WILDCARDS)),
            resource_timeout: map.value_or(&RESOURCE_TIMEOUT, silence),
            resource_timeouts: read_resource_timeouts(map),
            timeout_is_transient: features.transient,
            fails_on_data_errors: features.fail,
            mass_deletion_hold: read_mass_deletion(map),
            reports_rejections: map.or("report_rejections", d.reports_rejections, boolean()),
            ..d
        };
        let connection = read_connection(map);
        let host = endpoint.host();
        let (credentials, connection) = read_credentials(map, uri, chosen, host, directory, connection);
        let request_bytes_max = connection.max_request_bytes;
        let stream = UpstreamSettings { backoff: connection.backoff.into(), request_bytes_max, ..stream };
        GrpcServer { endpoint, credentials, connection, stream }
    }
}

/// Keys without meaning for a directory, which has no connection.
const NETWORK_KEYS: &[&str] = &[
    "channel_creds",
    "tls",
    "call_creds",
    "initial_metadata",
    "server_features",
    "api_type",
    "wildcard",
    "resource_timeout",
    "resource_timeouts",
    "report_rejections",
    "connect_timeout",
    "settings_timeout",
    "stream_open_timeout",
    "streams_per_connection",
    "ping_interval",
    "tcp_keepalive",
    "backoff",
    "max_response_bytes",
    "max_request_bytes",
    "refresh_delay",
    "request_timeout",
];

impl UpstreamServer {
    /// Reads one entry; `None` if an error leaves no usable server.
    pub(super) fn read(map: &mut Map<'_>, directory: &Path) -> Option<UpstreamServer> {
        let uri = map.required("server_uri", URI_FORMS);
        let target = uri.as_ref().and_then(|uri| read_uri(uri, directory));
        let kind = match target {
            Some(ServerUri::Directory(path)) => {
                map.reject_inapplicable(NETWORK_KEYS, "a file: server");
                Some(ServerKind::Directory { path, mass_deletion_hold: read_mass_deletion(map) })
            }
            Some(ServerUri::Grpc(endpoint)) => {
                Some(ServerKind::Grpc(GrpcServer::read(map, uri.as_ref(), endpoint, directory)))
            }
            Some(ServerUri::Rest(address)) => {
                Some(ServerKind::Rest(RestServerSettings::read(map, uri.as_ref(), address, directory)?))
            }
            // Read the other keys nevertheless, to report their errors.
            None => {
                let is_web = uri.as_ref().and_then(Item::text).is_some_and(|uri| uri.starts_with("http"));
                if is_web {
                    let is_tls =
                        uri.as_ref().and_then(Item::text).is_some_and(|uri| uri.starts_with("https"));
                    let (host, prefix) = (String::new(), String::new());
                    RestServerSettings::read(
                        map,
                        None,
                        WebAddress { host, port: 0, prefix, is_tls },
                        directory,
                    );
                } else {
                    GrpcServer::read(map, None, Endpoint::Tcp { host: String::new(), port: 0 }, directory);
                }
                None
            }
        };
        let load = map.optional("lrs", word(LOAD_USES));
        if !matches!(kind, Some(ServerKind::Grpc(_)) | None)
            && load.is_some_and(|load| load != LoadUse::Local)
        {
            let reason =
                "load reports go over gRPC, so that a server of files or REST can have `lrs: local` only";
            map.contradiction("lrs", reason.to_owned());
        }
        Some(UpstreamServer { server_uri: uri?.text()?.to_string(), kind: kind?, load })
    }
}

/// Timers by the message names of types (RLY-29).
fn read_resource_timeouts(map: &mut Map<'_>) -> BTreeMap<TypeUrl, Duration> {
    let entries = map.item("resource_timeouts").and_then(|item| item.entries()).unwrap_or_default();
    let read = |(name, item): (&str, Item<'_>)| {
        let type_url = read_type_name(&item, name);
        let timeout = item.parse(number(RESOURCE_TIMEOUT.range));
        Some((type_url?, timeout?))
    };
    entries.into_iter().filter_map(read).collect()
}

/// Where load reports go (LRS-14).
const LOAD_USES: &[(&str, LoadUse)] =
    &[("aggregate", LoadUse::Aggregate), ("forward", LoadUse::Forward), ("local", LoadUse::Local)];

/// The form of wildcard subscriptions (RLY-18).
const WILDCARDS: &[(&str, WildcardStyle)] =
    &[("explicit", WildcardStyle::Explicit), ("legacy", WildcardStyle::Legacy)];

/// The transport protocols of a gRPC server, in Envoy's terms.
const API_TYPES: &[(&str, (Transport, Variant))] = &[
    ("AGGREGATED_DELTA_GRPC", (Transport::Aggregated, Variant::Delta)),
    ("AGGREGATED_GRPC", (Transport::Aggregated, Variant::Sotw)),
    ("DELTA_GRPC", (Transport::PerType, Variant::Delta)),
    ("GRPC", (Transport::PerType, Variant::Sotw)),
];

fn read_api_type(map: &mut Map<'_>) -> Option<(Transport, Variant)> {
    let item = map.item("api_type")?;
    if item.is_word("REST") {
        item.invalid("a gRPC type; for REST, use a server_uri of the form http[s]://host:port[/prefix]");
        return None;
    }
    item.parse(word(API_TYPES))
}
