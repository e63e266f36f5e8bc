//! The way in: connections, the proof of their peers, and their end. Sockets and TLS are unknown here.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use sluice_identity::Identity;

/// A source of connections.
pub trait Entrance: Send {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection. The result is the proof of its peer, a matter for the connection's own
    /// task: the peer decides how long the proof takes.
    fn accept(&mut self) -> impl Future<Output = Proving<Self::Io>> + Send;
}

/// `None` if the peer was refused, or left.
pub type Proving<Io> = BoxFuture<'static, Option<Guest<Io>>>;

/// A connection with a proved peer.
pub struct Guest<Io> {
    pub io: Io,
    pub peer: AdminPeer,
    /// Whether ALPN selected HTTP/2, and not HTTP/1.1 (TLS-3); `None` without TLS.
    pub selected_http2: Option<bool>,
    /// Resolves when the proof does not carry the connection any more (CRT-8, CRT-9).
    pub end: BoxFuture<'static, ()>,
}

/// The peer of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminPeer {
    /// `None` on a unix socket.
    pub address: Option<SocketAddr>,
    /// The user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// From the client certificate; without one, from the unix socket.
    pub identity: Identity,
}

/// A handle to the end of an admin server. Clones are the same.
#[derive(Clone, Debug)]
pub struct Shutdown {
    all: CancellationToken,
    /// The token of the connections since the last [`Shutdown::hang_up`].
    present: Arc<ArcSwap<CancellationToken>>,
}

impl From<CancellationToken> for Shutdown {
    fn from(all: CancellationToken) -> Shutdown {
        let present = Arc::new(ArcSwap::from_pointee(all.child_token()));
        Shutdown { all, present }
    }
}

impl Shutdown {
    /// Ends the server, and its connections.
    pub fn cancel(&self) {
        self.all.cancel();
    }

    /// Ends all present connections, each after the answer under way. The server accepts others.
    pub fn hang_up(&self) {
        self.present.swap(Arc::new(self.all.child_token())).cancel();
    }

    pub(super) fn all(&self) -> &CancellationToken {
        &self.all
    }

    /// The end of a new connection.
    pub(super) fn of_connection(&self) -> CancellationToken {
        CancellationToken::clone(&self.present.load())
    }
}
