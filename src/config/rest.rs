//! A control plane polled by REST-JSON: an entry of `xds_servers:` with an `http://` address.

use std::time::Duration;

use super::deletion::MassDeletion;
use super::reader::Map;
use super::units::{duration, hours, ms};
use super::upstream::{
    Backoff, GRPC_KEYS, TcpKeepalive, host_and_port, read_channel_creds, response_bytes, timeout,
};

/// A control plane polled by REST-JSON, in plaintext (RST-10).
#[derive(Clone, Debug, PartialEq)]
pub struct RestServer {
    /// A host name, or an address (IPv6 without brackets).
    pub host: String,
    pub port: u16,
    /// The path before the protocol's own paths: empty, or `/some/path`.
    pub prefix: String,
    /// The least time between two polls. Jitter adds at most the same again.
    pub refresh_delay: Duration,
    /// How long the head of a response, and each further part, may take.
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
    pub tcp_keepalive: TcpKeepalive,
    pub backoff: Backoff,
    pub mass_deletion: MassDeletion,
    /// The largest response body accepted, in bytes.
    pub max_response_bytes: u64,
}

impl RestServer {
    /// A server with all defaults.
    pub fn new(host: String, port: u16, prefix: String, refresh_delay: Duration) -> Self {
        RestServer {
            host,
            port,
            prefix,
            refresh_delay,
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            tcp_keepalive: TcpKeepalive::default(),
            backoff: Backoff::default(),
            mass_deletion: MassDeletion::default(),
            max_response_bytes: 256 << 20,
        }
    }

    /// `None` without a delay between polls: only the operator can choose the delay (RST-10).
    pub(super) fn read(map: &mut Map<'_>, host: String, port: u16, prefix: String) -> Option<RestServer> {
        const DELAY: &str = "how long to wait between two polls, e.g. 5s";
        let delay = map.required("refresh_delay", DELAY);
        let delay = delay.and_then(|item| item.parse(duration(ms(10)..=hours(24))));
        let d = RestServer::new(host, port, prefix, delay.unwrap_or_default());
        map.reject_inapplicable(GRPC_KEYS, "a REST server");
        if map.has("channel_creds") {
            read_channel_creds(map);
        }
        if let Some(item) = map.item("api_type")
            && item.text().is_some_and(|text| text != "REST")
        {
            item.invalid("REST, for a server with an http:// address");
        }
        let server = RestServer {
            request_timeout: map.or("request_timeout", d.request_timeout, timeout()),
            connect_timeout: map.or("connect_timeout", d.connect_timeout, timeout()),
            tcp_keepalive: map.section("tcp_keepalive", TcpKeepalive::read).unwrap_or_default(),
            backoff: map.section("backoff", Backoff::read).unwrap_or_default(),
            mass_deletion: map.section("mass_deletion", MassDeletion::read).unwrap_or_default(),
            max_response_bytes: map.or("max_response_bytes", d.max_response_bytes, response_bytes()),
            ..d
        };
        delay.map(|_| server)
    }
}

/// Host, port and prefix of `host[:port][/prefix]`, without query and user.
pub(super) fn web_address(text: &str) -> Option<(String, u16, String)> {
    let (authority, prefix) = match text.find('/') {
        Some(slash) => text.split_at(slash),
        None => (text, ""),
    };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let (host, port) = match has_port {
        true => host_and_port(authority)?,
        false => host_and_port(&format!("{authority}:80"))?,
    };
    let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&b);
    let prefix = prefix.trim_end_matches('/');
    prefix.bytes().all(is_path).then(|| (host, port, prefix.to_owned()))
}
