//! A control plane polled by REST-JSON: an entry of `xds_servers:` with an `http://` or `https://` address.

use std::path::Path;
use std::time::Duration;

use super::address::WebAddress;
use super::credentials::{ChosenCredentials, read_channel_creds, read_credentials};
use super::reader::{Item, Map};
use super::server_keys::{GRPC_KEYS, read_connection, read_mass_deletion};
use super::units::number;
use crate::client::{ClientSettings, Credentials};
use crate::trust::client::ClientTls;
use sluice_engine::upstream::{REFRESH_DELAY, Transport, UpstreamSettings, WildcardStyle};
use sluice_xds::Variant;

/// A control plane polled by REST-JSON (RST-10).
#[derive(Clone, Debug, PartialEq)]
pub struct RestServerSettings {
    /// A host name, or an address (IPv6 without brackets).
    pub host: String,
    pub port: u16,
    /// The path before the protocol's own paths: empty, or `/some/path`.
    pub prefix: String,
    pub credentials: Credentials,
    pub connection: ClientSettings,
    pub stream: UpstreamSettings,
}

impl RestServerSettings {
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
        RestServerSettings { host, port, prefix, credentials, connection, stream }
    }

    /// Whether connections to the other server can serve this one after a reload.
    pub fn is_same_server(&self, other: &RestServerSettings) -> bool {
        let address = |server: &RestServerSettings| (server.host.clone(), server.port, server.prefix.clone());
        address(self) == address(other) && self.credentials == other.credentials
    }

    /// `None` without a delay between polls: only the operator can choose the delay (RST-10).
    pub(super) fn read(
        map: &mut Map<'_>,
        uri: Option<&Item<'_>>,
        address: WebAddress,
        directory: &Path,
    ) -> Option<RestServerSettings> {
        const DELAY: &str = "how long to wait between two polls, e.g. 5s";
        let delay = map.required("refresh_delay", DELAY);
        let delay = delay.and_then(|item| item.parse(number(REFRESH_DELAY)));
        let WebAddress { host, port, prefix, is_tls } = address;
        let d = RestServerSettings::new(host, port, prefix, delay.unwrap_or_default());
        map.reject_inapplicable(GRPC_KEYS, "a REST server");
        let chosen = read_chosen(map, is_tls, directory);
        if let Some(item) = map.item("api_type")
            && !item.is_word("REST")
        {
            item.invalid("REST, for a server with an http:// or https:// address");
        }
        let connection = read_connection(map);
        let (credentials, connection) =
            read_credentials(map, uri, chosen, Some(&d.host), directory, connection);
        let mass_deletion_hold = read_mass_deletion(map);
        let stream = UpstreamSettings {
            backoff: connection.backoff.into(),
            request_bytes_max: connection.max_request_bytes,
            mass_deletion_hold,
            ..d.stream
        };
        delay.map(|_| RestServerSettings { credentials, connection, stream, ..d })
    }
}

/// The scheme decides; `channel_creds` may agree, and have the files of TLS.
fn read_chosen(map: &mut Map<'_>, is_tls: bool, directory: &Path) -> Option<ChosenCredentials> {
    if !map.has("channel_creds") {
        return Some(if is_tls {
            ChosenCredentials::Tls(ClientTls::default())
        } else {
            ChosenCredentials::Plaintext
        });
    }
    let chosen = read_channel_creds(map, directory)?;
    match (&chosen, is_tls) {
        (ChosenCredentials::Tls(_), false) => {
            map.contradiction("channel_creds", "an http:// address is plaintext; expected https:// for TLS");
            None
        }
        (ChosenCredentials::Plaintext, true) => {
            map.contradiction("channel_creds", "an https:// address needs `tls`; plaintext has http://");
            None
        }
        _ => Some(chosen),
    }
}
