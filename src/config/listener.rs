//! Where the relay listens: the xDS listeners and the admin address.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// A plaintext xDS listener. A client whose names are not yet known is held, never failed (RLY-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in logs and metrics.
    pub name: Arc<str>,
    pub address: Address,
}

impl Default for Listener {
    fn default() -> Self {
        Listener { name: Arc::from("main"), address: Address::loopback(18000) }
    }
}

/// The admin server: health, metrics, dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub address: Address,
    /// Whether `/ready` also asks for an upstream that has answered.
    pub ready_requires_upstream: bool,
}

impl Default for Admin {
    fn default() -> Self {
        Admin { address: Address::loopback(19000), ready_requires_upstream: false }
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

    /// Whether only this host can reach it.
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
