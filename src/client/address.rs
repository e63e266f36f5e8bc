//! The address of a gRPC control plane.

use std::fmt;
use std::path::PathBuf;

/// The address of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GrpcAddress {
    /// The host is a name or an address (IPv6 without brackets).
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl fmt::Display for GrpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrpcAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            GrpcAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            GrpcAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
