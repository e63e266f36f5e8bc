//! Connections for a server of another kind, such as the admin server: accepted and proved like those of
//! clients.

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::accept::pause_after;
use super::handshake::certificate::ClientLeaf;
use super::handshake::{Handshakes, ListenerTls, Security};
use super::limits::ServerLimits;
use super::listener::Listener;
use super::passage::Accepted;
use super::socket::Plain;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::rotation::Watched;
use crate::trust::server::ServerFiles;
use sluice_identity::Identity;
use sluice_setting::InForce;

/// A bound socket, and the handshakes of its connections. The places and turns of these handshakes are apart
/// from those of clients, so that neither side waits for a storm on the other.
pub struct Doorway {
    listener: Listener,
    security: DoorwaySecurity,
    handshakes: Arc<Handshakes>,
    metrics: TlsMetrics,
}

/// A byte stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection after the proof of its peer.
pub struct Visitor {
    pub io: Box<dyn Duplex>,
    /// `None` on a unix socket.
    pub address: Option<SocketAddr>,
    /// The user at the other end of a unix socket, also with TLS.
    pub uid: Option<u32>,
    /// From the certificate; without one, from the unix socket.
    pub identity: Identity,
    /// Whether ALPN selected HTTP/2, and not HTTP/1.1 (TLS-3); `None` without TLS.
    pub selected_http2: Option<bool>,
    /// Resolves when the client's certificate does not carry the connection any more; never without one
    /// (CRT-8, CRT-9).
    pub end: BoxFuture<'static, ()>,
}

impl Doorway {
    /// `limits` bound the handshakes.
    pub fn new(listener: Listener, limits: InForce<ServerLimits>, metrics: TlsMetrics) -> Doorway {
        let handshakes = Handshakes::new(limits, metrics.clone());
        let security = DoorwaySecurity(InForce::new(listener.security()));
        Doorway { listener, security, handshakes: Arc::new(handshakes), metrics }
    }

    /// The protection of the connections, for changes while the doorway is open.
    pub fn security(&self) -> DoorwaySecurity {
        self.security.clone()
    }

    /// Accepts a connection. The result is the proof of its peer, which takes as long as the peer likes,
    /// within limits: a matter for the task of the connection. `None` if the peer was refused or left.
    pub async fn accept(&self) -> impl Future<Output = Option<Visitor>> + Send + use<> {
        let mut failures = 0;
        let accepted = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                Err(error) => {
                    let Some(pause) = pause_after(&error, failures) else { continue };
                    tracing::debug!(listener = %self.listener.name(), %error, "accept failed; backing off");
                    failures += 1;
                    sleep(pause).await;
                }
            }
        };
        let security = Security::clone(&self.security.0.get());
        let handshakes = self.handshakes.clone();
        let (name, metrics) = (self.listener.name().clone(), self.metrics.clone());
        async move {
            let (address, user) = (accepted.address(), accepted.user().unwrap_or_default());
            let socket = match accepted {
                Accepted::Tcp(stream, _) => Plain::Tcp(stream),
                Accepted::Unix(stream) => Plain::Unix(stream),
            };
            let uid = match &user {
                Identity::Unix { uid } => Some(*uid),
                _ => None,
            };
            let visitor = |io, selected_http2| Visitor {
                io,
                address,
                uid,
                identity: user,
                selected_http2,
                end: pending().boxed(),
            };
            let Security::Tls(tls) = security else { return Some(visitor(Box::new(socket), None)) };
            let (stream, proved) = handshakes.accept(socket, &tls, &name, address).await?;
            let selected_http2 = Some(stream.get_ref().1.alpn_protocol() == Some(b"h2"));
            let Some(proved) = proved else { return Some(visitor(Box::new(stream), selected_http2)) };
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
            let leaf = ClientLeaf::new(chain, &proved, tls, metrics);
            let end = async move { leaf.end(&name).await }.map(|_| ()).boxed();
            Some(Visitor { identity: proved.identity, end, ..visitor(Box::new(stream), selected_http2) })
        }
    }
}

/// The protection of the connections to come.
#[derive(Clone)]
pub struct DoorwaySecurity(InForce<Security>);

impl DoorwaySecurity {
    /// See [`Listener::with_tls`].
    pub fn put_tls(&self, watched: Watched<ServerFiles>, ends_at_expiry: InForce<bool>) {
        self.0.publish(Security::Tls(ListenerTls::new(watched, ends_at_expiry)));
    }

    pub fn put_plaintext(&self) {
        self.0.publish(Security::Plaintext(Arc::default()));
    }
}
