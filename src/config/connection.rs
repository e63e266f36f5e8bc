//! The keys of a server that concern its connections.

use super::reader::Map;
use crate::client::{ClientSettings, TcpKeepalive};
use sluice_setting::Backoff;

/// Keys for gRPC only.
pub(super) const GRPC_KEYS: &[&str] = &[
    "server_features",
    "wildcard",
    "resource_timeout",
    "resource_timeouts",
    "report_rejections",
    "settings_timeout",
    "stream_open_timeout",
    "streams_per_connection",
    "ping_interval",
];

/// Keys for REST only.
pub(super) const REST_KEYS: &[&str] = &["refresh_delay", "request_timeout"];

/// The keys of a server's connections.
pub(super) fn read_connection(map: &mut Map<'_>) -> ClientSettings {
    let connection = ClientSettings::read(map);
    ClientSettings {
        tcp_keepalive: map.section("tcp_keepalive", TcpKeepalive::read).unwrap_or_default(),
        backoff: map.section("backoff", read_backoff).unwrap_or_default(),
        ..connection
    }
}

fn read_backoff(map: &mut Map<'_>) -> Backoff {
    let backoff = Backoff::read(map);
    if backoff.initial > backoff.max {
        map.contradiction("initial", "longer than `max`");
    }
    backoff
}
