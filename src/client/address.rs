//! Where a control plane is: the `server_uri` of a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A parsed `server_uri`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A gRPC server, reached over a [`crate::client::Pool`].
    Grpc(GrpcAddress),
    /// `file:DIRECTORY`, read by a [`crate::client::FileServer`] (FIL-8).
    File(PathBuf),
}

/// Where a gRPC server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GrpcAddress {
    /// `host:port` or `dns:///host:port`; the host is a name or an address, an IPv6 address without its brackets.
    Tcp { host: String, port: u16 },
    /// `unix:/path` or `unix:///path`.
    Unix(PathBuf),
}

/// A `server_uri` that does not say where a server is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{uri:?} is not the address of a server: {problem}; allowed are host:port, dns:///host:port, unix:/path, unix:///path and file:DIRECTORY"
)]
pub struct AddressError {
    pub uri: String,
    pub problem: &'static str,
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(uri: &str) -> Result<Self, AddressError> {
        parse(uri).map_err(|problem| AddressError { uri: uri.to_owned(), problem })
    }
}

fn parse(uri: &str) -> Result<ServerAddress, &'static str> {
    if let Some(directory) = uri.strip_prefix("file:") {
        return match directory {
            "" => Err("file: is followed by no directory"),
            directory => Ok(ServerAddress::File(PathBuf::from(directory))),
        };
    }
    if let Some(path) = uri.strip_prefix("unix:") {
        // Of the three slashes in `unix:///path` two introduce an empty authority (RFC 3986 section 3).
        let path = if path.starts_with("///") { &path[2..] } else { path };
        if !path.starts_with('/') || path.starts_with("//") || path.len() < 2 {
            return Err("unix: is followed by no absolute path");
        }
        return Ok(ServerAddress::Grpc(GrpcAddress::Unix(PathBuf::from(path))));
    }
    let (host, port) = host_and_port(uri.strip_prefix("dns:///").unwrap_or(uri))?;
    Ok(ServerAddress::Grpc(GrpcAddress::Tcp { host: host.to_owned(), port }))
}

fn host_and_port(text: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed
            .strip_suffix(']')
            .filter(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())
            .ok_or("the brackets hold no IPv6 address")?,
        None if host.contains([':', '/', ']']) => {
            return Err("its scheme is unknown or its host is malformed");
        }
        None => host,
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err("its host is empty or contains a space");
    }
    let number = if port.bytes().all(|b| b.is_ascii_digit()) { port.parse::<u16>().ok() } else { None };
    let port = number.filter(|port| *port != 0).ok_or("its port is not a number from 1 to 65535")?;
    Ok((host, port))
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Grpc(address) => address.fmt(f),
            ServerAddress::File(directory) => write!(f, "file:{}", directory.display()),
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_reads_back_from_what_it_prints() {
        let cases = [
            ("cp-1.example:15010", "cp-1.example:15010"),
            ("dns:///cp-1.example:15010", "cp-1.example:15010"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:65535", "[::1]:65535"),
            ("dns:///[::1]:80", "[::1]:80"),
            ("unix:/run/xds.sock", "unix:/run/xds.sock"),
            ("unix:///run/xds.sock", "unix:/run/xds.sock"),
            ("file:config/xds", "file:config/xds"),
            ("file:/etc/xds", "file:/etc/xds"),
        ];
        for (uri, printed) in cases {
            let address: ServerAddress = uri.parse().unwrap();
            assert_eq!(address.to_string(), printed, "{uri}");
            assert_eq!(printed.parse::<ServerAddress>().unwrap(), address, "{uri}");
        }
    }

    #[test]
    fn a_refused_address_says_what_stood_there_and_what_may() {
        let cases = [
            ("", "no port"),
            ("cp-1.example", "no port"),
            ("cp-1.example:", "1 to 65535"),
            ("cp-1.example:0", "1 to 65535"),
            ("cp-1.example:+80", "1 to 65535"),
            ("cp-1.example:65536", "1 to 65535"),
            (":15010", "host is empty"),
            ("cp 1:15010", "contains a space"),
            ("::1:80", "malformed"),
            ("[localhost]:80", "no IPv6 address"),
            ("https://cp-1.example:443", "scheme is unknown"),
            ("dns:cp-1.example:443", "scheme is unknown"),
            ("unix:run/xds.sock", "no absolute path"),
            ("unix://host/xds.sock", "no absolute path"),
            ("unix:/", "no absolute path"),
            ("file:", "no directory"),
        ];
        for (uri, problem) in cases {
            let error = uri.parse::<ServerAddress>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{uri:?}")), "{error}");
            assert!(error.contains(problem), "{uri}: {error}");
            assert!(error.contains("dns:///host:port"), "{error}");
        }
    }
}
