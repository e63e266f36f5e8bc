//! What the serving room sees of the relay: one handle per downstream stream.
//!
//! The serving room owns sockets, HTTP/2 and gRPC framing; it hands decoded requests in and takes finished messages
//! out. It knows nothing of the machines behind the handle.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::Notify;

pub use super::delivery::Delivery;
pub use crate::xds::Variant;
use crate::xds::{Request, Status, StreamKind};

/// Where a stream came from.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name of the listener in the configuration.
    pub listener: Arc<str>,
    /// `None` on a unix socket.
    pub address: Option<SocketAddr>,
    pub connection: ConnectionCut,
}

/// Cuts the connection of a stream. A stream cannot be taken back from a client that does not read: its bytes stand in
/// the HTTP/2 queue of the connection, and go with it only.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCut(Arc<Notify>);

impl ConnectionCut {
    pub fn cut(&self) {
        self.0.notify_one();
    }

    /// Resolves when the connection is to be cut, also if that was said before.
    pub async fn requested(&self) {
        self.0.notified().await;
    }
}

/// One message of a response stream, framed for gRPC and ready to be written: the private part first (gRPC header
/// and nonce), then the body that every client of the same selection shares.
#[derive(Debug)]
pub struct Message {
    pub private: Bytes,
    pub shared: Bytes,
    /// To be dropped when the last byte has left.
    pub delivery: Option<Delivery>,
}

/// Opens downstream streams. Implemented by the driver, called by the server.
pub trait Relay: Send + Sync + 'static {
    type Stream: RelayStream;

    /// A new stream, aggregated or of one type. An error ends it at once with that status.
    fn open(&self, kind: StreamKind, peer: Peer) -> Result<Self::Stream, Status>;

    /// No further connection should be let in, for want of memory (FP7).
    fn is_out_of_memory(&self) -> bool {
        false
    }
}

/// One downstream stream. Dropping the last clone ends its subscriptions (after the linger).
pub trait RelayStream: Clone + Send + Sync + 'static {
    /// Takes the next request, in arrival order (STR-14). An error is the status with which the stream must end.
    fn request(&self, request: Request) -> impl Future<Output = Result<(), Status>> + Send;

    /// The client ended its side: the stream finishes with OK (STR-13).
    fn half_close(&self);

    /// The stream must end with this status: the request could not be read, a limit was passed, or the process
    /// drains. What is already being written is finished first.
    fn fail(&self, status: Status);

    /// The next message to write; `None` when the stream ends with OK, an error when it ends with that status.
    /// Called only when the connection can take a message, so that the newest state is built at the last moment
    /// (FLW-2).
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>>;

    /// Whether a response was ever handed out on this stream (KAL-4, RLY-77).
    fn has_answered(&self) -> bool;
}
