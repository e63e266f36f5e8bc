//! `server_uri` and its forms (FED-2).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::reader::Item;

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

pub(super) const URI_FORMS: &str =
    "host:port, dns:///host:port, unix:PATH, http[s]://host:port[/prefix] or file:DIRECTORY";

/// The address of a REST server.
pub(super) struct WebAddress {
    pub host: String,
    pub port: u16,
    pub prefix: String,
    /// `https://`.
    pub is_tls: bool,
}

/// The parsed form of `server_uri`.
pub(super) enum ServerUri {
    Grpc(Endpoint),
    Rest(WebAddress),
    Directory(PathBuf),
}

impl Endpoint {
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Endpoint::Tcp { host, .. } => Some(host),
            Endpoint::Unix(_) => None,
        }
    }
}

/// Whether connections to the host stay on this host.
pub(super) fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn warn_of_plaintext(uri: &Item<'_>, host: &str) {
    if !is_local(host) {
        uri.warn("connection is unencrypted; anyone on the path can read or alter it");
    }
}

pub(super) fn read_uri(item: &Item<'_>, directory: &Path) -> Option<ServerUri> {
    let text = item.text()?;
    let target = if text.starts_with("http://") || text.starts_with("https://") {
        read_web_address(text).map(ServerUri::Rest)
    } else if let Some(path) = text.strip_prefix("file:") {
        local_path(path).map(|path| ServerUri::Directory(directory.join(path)))
    } else if let Some(path) = text.strip_prefix("unix:") {
        local_path(path).map(|path| ServerUri::Grpc(Endpoint::Unix(directory.join(path))))
    } else {
        let authority = match text.strip_prefix("dns:") {
            Some(rest) => rest.strip_prefix("///").or_else(|| (!rest.starts_with('/')).then_some(rest)),
            None => Some(text),
        };
        authority.and_then(host_and_port).map(|(host, port)| ServerUri::Grpc(Endpoint::Tcp { host, port }))
    };
    if target.is_none() {
        item.invalid(if has_no_such_port(text) { PORTS } else { URI_FORMS });
    }
    target
}

/// The address of a gRPC server or of a relay: `HOST:PORT` or `unix:PATH`.
pub fn parse_endpoint(text: &str) -> Option<Endpoint> {
    match text.strip_prefix("unix:") {
        Some(path) => local_path(path).map(|path| Endpoint::Unix(path.into())),
        None => host_and_port(text).map(|(host, port)| Endpoint::Tcp { host, port }),
    }
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
    let text = ["http://", "https://", "dns:///", "dns:"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
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

/// The parts of `http[s]://host[:port][/prefix]`.
pub(super) fn read_web_address(text: &str) -> Option<WebAddress> {
    let (rest, default_port, is_tls) = match text.strip_prefix("https://") {
        Some(rest) => (rest, 443, true),
        None => (text.strip_prefix("http://")?, 80, false),
    };
    let (host, port, prefix) = web_address(rest, default_port)?;
    Some(WebAddress { host, port, prefix, is_tls })
}

/// Host, port and prefix of `host[:port][/prefix]`, without query and user.
fn web_address(text: &str, default_port: u16) -> Option<(String, u16, String)> {
    let (authority, prefix) = match text.find('/') {
        Some(slash) => text.split_at(slash),
        None => (text, ""),
    };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let (host, port) = match has_port {
        true => host_and_port(authority)?,
        false => host_and_port(&format!("{authority}:{default_port}"))?,
    };
    let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&b);
    let prefix = prefix.trim_end_matches('/');
    prefix.bytes().all(is_path).then(|| (host, port, prefix.to_owned()))
}
