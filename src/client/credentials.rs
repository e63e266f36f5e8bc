//! How the relay and a server prove themselves to each other.

use std::fmt;

use super::calls::MetadataInForce;
use super::tls::UpstreamTls;
use super::{CallMetadata, GrpcAddress};
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::client::{ClientTls, Generation, Protocol};
use crate::trust::fault::Fault;
use crate::trust::rotation::Watched;

/// All but the address of a server. Two credentials for one address are two servers, with connections and
/// sources of their own (ISO-5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// `None`: plaintext.
    pub tls: Option<ClientTls>,
    pub calls: CallMetadata,
}

/// The address of a server, and the credentials with their files in force.
#[derive(Debug)]
pub struct ServerChannel {
    pub(super) address: GrpcAddress,
    pub(super) credentials: Credentials,
    pub(super) calls: MetadataInForce,
    pub(super) tls: Option<UpstreamTls>,
}

impl ServerChannel {
    /// Plaintext, and calls without metadata.
    pub fn plaintext(address: GrpcAddress) -> ServerChannel {
        let (credentials, calls) = (Credentials::default(), MetadataInForce::new(&CallMetadata::default()));
        ServerChannel { address, credentials, calls, tls: None }
    }

    /// For plans, which ask nobody. The certificates of the credentials are not read, and no connection is
    /// made without them.
    pub fn planned(address: GrpcAddress, credentials: Credentials) -> ServerChannel {
        let calls = MetadataInForce::new(&credentials.calls);
        ServerChannel { address, credentials, calls, tls: None }
    }

    /// Reads the certificates of the credentials, and watches their files from then on. `place`: the name of
    /// the files in logs and metrics. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn open(
        address: GrpcAddress,
        credentials: Credentials,
        protocol: Protocol,
        place: &str,
        metrics: &TlsMetrics,
    ) -> Result<ServerChannel, Fault> {
        let calls = MetadataInForce::new(&credentials.calls);
        let host = match &address {
            GrpcAddress::Tcp { host, .. } => Some(host.as_str()),
            GrpcAddress::Unix(_) => None,
        };
        let tls = credentials.tls.as_ref();
        let tls = tls.map(|tls| UpstreamTls::new(tls, host, protocol, place, metrics)).transpose()?;
        Ok(ServerChannel { address, credentials, calls, tls })
    }

    /// The certificate files in force.
    pub fn files(&self) -> Option<Watched<Generation>> {
        self.tls.as_ref().map(UpstreamTls::files)
    }

    /// The beginning of the URI of each request (TLS-9).
    pub(super) fn origin(&self) -> impl fmt::Display {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let name = self.credentials.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let authority = name.unwrap_or_else(|| match &self.address {
            GrpcAddress::Unix(_) => "localhost".to_owned(),
            tcp => tcp.to_string(),
        });
        // An IPv6 address without a port.
        let authority = match authority.parse::<std::net::Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => authority,
        };
        format!("{scheme}://{authority}")
    }
}
