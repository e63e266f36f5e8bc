//! A control plane polled by REST-JSON: an entry of `xds_servers:` with an `http://` address.

use std::path::Path;
use std::time::Duration;

use super::address::is_local;
use super::calls::{Way, read_calls};
use super::connection::{GRPC_KEYS, read_connection};
use super::credentials::read_channel_creds;
use super::deletion::read_mass_deletion;
use super::reader::Map;
use super::units::number;
use crate::client::{ClientSettings, Credentials};
use crate::engine::upstream::{REFRESH_DELAY, Transport, UpstreamSettings, WildcardStyle};
use crate::xds::Variant;

/// A control plane polled by REST-JSON, in plaintext (RST-10).
#[derive(Clone, Debug, PartialEq)]
pub struct RestServer {
    /// A host name, or an address (IPv6 without brackets).
    pub host: String,
    pub port: u16,
    /// The path before the protocol's own paths: empty, or `/some/path`.
    pub prefix: String,
    pub credentials: Credentials,
    pub connection: ClientSettings,
    pub stream: UpstreamSettings,
}

impl RestServer {
    /// A server with all defaults.
    pub fn new(host: String, port: u16, prefix: String, refresh_delay: Duration) -> Self {
        let stream = UpstreamSettings {
            transport: Transport::Rest { refresh_delay },
            variant: Variant::Sotw,
            // A poll has no state: the empty list can only mean the wildcard, and every server supports it.
            wildcard: WildcardStyle::Legacy,
            ..UpstreamSettings::default()
        };
        let (credentials, connection) = (Credentials::default(), ClientSettings::default());
        RestServer { host, port, prefix, credentials, connection, stream }
    }

    /// `None` without a delay between polls: only the operator can choose the delay (RST-10).
    pub(super) fn read(
        map: &mut Map<'_>,
        host: String,
        port: u16,
        prefix: String,
        directory: &Path,
    ) -> Option<RestServer> {
        const DELAY: &str = "how long to wait between two polls, e.g. 5s";
        let delay = map.required("refresh_delay", DELAY);
        let delay = delay.and_then(|item| item.parse(number(REFRESH_DELAY)));
        let d = RestServer::new(host, port, prefix, delay.unwrap_or_default());
        map.reject_inapplicable(GRPC_KEYS, "a REST server");
        if map.has("channel_creds") {
            read_channel_creds(map);
        }
        let way = Way { is_private: d.host.is_empty() || is_local(&d.host), host: d.host.clone(), directory };
        let credentials = Credentials { calls: read_calls(map, &way) };
        if let Some(item) = map.item("api_type")
            && item.text().is_some_and(|text| text != "REST")
        {
            item.invalid("REST, for a server with an http:// address");
        }
        let connection = read_connection(map);
        let mass_deletion_hold = read_mass_deletion(map);
        let stream = UpstreamSettings { backoff: connection.backoff.into(), mass_deletion_hold, ..d.stream };
        delay.map(|_| RestServer { credentials, connection, stream, ..d })
    }
}
