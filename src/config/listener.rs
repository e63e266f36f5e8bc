//! The relay's own addresses, and the xDS listeners.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::address::{PORTS, has_no_such_port, local_path};
use super::error::Problem;
use super::form::{Form, Parsed, Shaped};
use super::reader::Map;
use super::tls::read_server_tls;
use super::tree::Tree;
use super::units::{boolean, text, word};
use crate::driver::api::downstream::WhenUnavailable;
use crate::server::listener::{Compression, REST_HOLD};
use crate::server::{ListenerOptions, LoadReports};
use crate::trust::server::ServerTls;
use sluice_setting::Read;

/// An xDS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The name in logs and metrics.
    pub name: Arc<str>,
    pub address: Address,
    pub options: ListenerOptions,
    /// `None`: plaintext.
    pub tls: Option<ServerTls>,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        ListenerSettings {
            name: Arc::from("main"),
            address: Address::loopback(18000),
            options: ListenerOptions::default(),
            tls: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    Unix {
        path: PathBuf,
        /// The permissions of the socket: at most 0o777.
        mode: u32,
    },
}

impl Address {
    pub fn loopback(port: u16) -> Self {
        Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Whether only this host can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().is_loopback(),
            Address::Unix { .. } => true,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

const WHEN_UNAVAILABLE: &[(&str, WhenUnavailable)] =
    &[("hold", WhenUnavailable::Hold), ("fail", WhenUnavailable::Fail)];

const COMPRESSION: &[(&str, Compression)] =
    &[("relays", Compression::Relays), ("all", Compression::All), ("off", Compression::Off)];

const LOAD_REPORTS: &[(&str, LoadReports)] = &[("drop", LoadReports::Drop), ("refuse", LoadReports::Refuse)];

/// The longest path of a unix socket on Linux, without the final NUL, in bytes.
const UNIX_PATH_MAX: usize = 107;

const MODE_OF_LISTENER: u32 = 0o660;

const PLAINTEXT: &str =
    "open to the network without encryption; anyone with network access can read all served resources";

/// Reads `listeners:`, or returns the default listener.
pub(super) fn read_listeners(map: &mut Map<'_>, directory: &Path) -> Vec<ListenerSettings> {
    let Some(list) = map.item("listeners") else { return vec![ListenerSettings::default()] };
    let Some(items) = list.list() else { return Vec::new() };
    if items.is_empty() {
        list.invalid("at least one listener");
    }
    let mut listeners: Vec<(String, ListenerSettings)> = Vec::new();
    for item in items {
        let Some(Some(listener)) = item.map(|map| ListenerSettings::read(map, directory)) else { continue };
        for (path, other) in &listeners {
            if listener.name == other.name {
                let reason = format!("{:?} is also {path}.name", listener.name);
                item.error_at("name", Problem::Contradiction { reason });
            }
            if listener.address.collides(&other.address) {
                item.error_at("address", listener.address.taken(&format!("{path}.address")));
            }
        }
        listeners.push((item.path.clone(), listener));
    }
    listeners.into_iter().map(|(_, listener)| listener).collect()
}

impl ListenerSettings {
    fn read(map: &mut Map<'_>, directory: &Path) -> Option<ListenerSettings> {
        let name = map.required("name", "a name for logs and metrics").and_then(|item| item.parse(text));
        let tls_item = map.item("tls");
        let warning = tls_item.is_none().then_some(PLAINTEXT);
        let address = Address::read(map, None, MODE_OF_LISTENER, warning, directory);
        let has_tls = tls_item.is_some();
        let tls = tls_item.and_then(|item| item.map(|map| read_server_tls(map, directory)).flatten());
        let d = ListenerOptions::default();
        let options = ListenerOptions {
            v2: map.or("v2", d.v2, boolean()),
            rest_hold: map.value(&REST_HOLD),
            when_unavailable: map.or("when_unavailable", d.when_unavailable, word(WHEN_UNAVAILABLE)),
            load_reports: map.optional("load_reports", word(LOAD_REPORTS)),
            compression: map.or("compression", d.compression, word(COMPRESSION)),
        };
        let name = Arc::from(name?);
        // Nothing ever falls back to plaintext (TLS-8).
        if has_tls && tls.is_none() {
            return None;
        }
        Some(ListenerSettings { name, address: address?, options, tls })
    }
}

impl Address {
    /// Reads `address` and, for a unix socket, `mode`. `warning` is for addresses on the network.
    pub(super) fn read(
        map: &mut Map<'_>,
        default: Option<Address>,
        mode: u32,
        warning: Option<&str>,
        directory: &Path,
    ) -> Option<Address> {
        let item = match &default {
            None => map.required("address", "IP:port or unix:PATH")?,
            Some(_) => match map.item("address") {
                Some(item) => item,
                None => {
                    map.reject_inapplicable(&["mode"], "a TCP address");
                    return default;
                }
            },
        };
        let text = item.text()?;
        let Some(path) = text.strip_prefix("unix:") else {
            map.reject_inapplicable(&["mode"], "a TCP address");
            let Ok(address) = text.parse() else {
                let forms = "IP:port (0.0.0.0 or [::] for every interface) or unix:PATH";
                item.invalid(if has_no_such_port(text) { PORTS } else { forms });
                return None;
            };
            let address = Address::Tcp(address);
            if let (false, Some(warning)) = (address.is_local(), warning) {
                item.warn(warning);
            }
            return Some(address);
        };
        let mode = map.or("mode", mode, Shaped(OCTAL, octal));
        let path = local_path(path).map(|path| directory.join(path));
        match path.filter(|path| path.as_os_str().len() <= UNIX_PATH_MAX) {
            Some(path) => Some(Address::Unix { path, mode }),
            None => {
                item.invalid(format!("unix: and a path of at most {UNIX_PATH_MAX} bytes"));
                None
            }
        }
    }

    /// Whether a process can't listen on both addresses at once.
    pub fn collides(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::Unix { path, .. }, Address::Unix { path: other, .. }) => path == other,
            (Address::Tcp(a), Address::Tcp(b)) => {
                let every = |x: &SocketAddr| x.ip().is_unspecified();
                let same_host = a.ip() == b.ip() || (a.is_ipv4() == b.is_ipv4() && (every(a) || every(b)));
                // Port 0 means any free port.
                a.port() == b.port() && a.port() != 0 && same_host
            }
            _ => false,
        }
    }

    pub(super) fn taken(&self, by: &str) -> Problem {
        Problem::Contradiction { reason: format!("{self} is already used by {by}") }
    }
}

const OCTAL: &[Form] = &[Form::Pattern("^0?[0-7]{3}$")];

/// Permissions, in quotes: YAML 1.2 reads an unquoted 0660 as the decimal number 660.
fn octal(tree: &Tree) -> Parsed<u32> {
    let mode = match tree {
        Tree::Text(text) if (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) => {
            u32::from_str_radix(text, 8).ok()
        }
        _ => None,
    };
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "permissions in octal and in quotes, such as \"0660\"".into())
}
