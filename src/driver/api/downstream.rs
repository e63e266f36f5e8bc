//! What the serving room sees of the relay: one handle per downstream stream.
//!
//! The serving room owns sockets, HTTP/2 and gRPC framing; it hands decoded requests in and takes finished messages
//! out. It knows nothing of the machines behind the handle.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

pub use crate::driver::ground::account::Account;
pub use crate::driver::ground::connection::{Charge, ConnectionCut, Polling};
pub use crate::driver::ground::signal::{Raised, Signal};
pub use crate::driver::ground::unread::Delivery;
pub use crate::xds::Variant;
use crate::xds::{Request, SotwRequest, Status, StreamKind};

/// What a client is told while no server can be asked for what it wants and nothing of it is known (RLY-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// Nothing: its stream waits.
    #[default]
    Hold,
    /// Its stream ends with UNAVAILABLE before a first response, so that a client with a second server turns to that.
    Fail,
}

/// Where a stream came from.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name of the listener in the configuration.
    pub listener: Arc<str>,
    /// `None` on a unix socket.
    pub address: Option<SocketAddr>,
    pub connection: ConnectionCut,
    pub when_unavailable: WhenUnavailable,
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

/// How an answer to a single request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A gRPC message. There is no word for "unchanged", so that the set is given as soon as it is known.
    Grpc,
    /// REST: one JSON document, and only if it is not what the client says it has (RST-4, RST-9).
    Json,
}

/// What came of a single request.
#[derive(Clone, Debug)]
pub enum Polled {
    /// The complete set (RST-12), to be written one after the other: gRPC's header and the nonce, of which JSON has none;
    /// then the body that is shared with all who ask for the same.
    Set { private: Bytes, shared: Bytes },
    /// What the client has is current for the names that it asks for (RST-4).
    Unchanged,
}

/// Opens downstream streams. Implemented by the driver, called by the server.
pub trait Relay: Send + Sync + 'static {
    type Stream: RelayStream;

    /// A new stream, aggregated or of one type. An error ends it at once with that status.
    fn open(&self, kind: StreamKind, peer: Peer) -> Result<Self::Stream, Status>;

    /// A connection begins. It is looked at when memory is short (FP7).
    fn connected(&self, connection: &ConnectionCut) {
        let _ = connection;
    }

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

    /// Answers one request on its own, of a client that keeps no stream (RLY-72): with the complete set, once all of it is
    /// known. Waits for that, or for news, for `hold` at the longest.
    ///
    /// # Errors
    /// UNAVAILABLE if something of the set is still not known then; else why the request is refused, or why the answer
    /// cannot be written in this form.
    fn poll_once(
        &self,
        request: SotwRequest,
        form: Form,
        hold: Duration,
    ) -> impl Future<Output = Result<Polled, Status>> + Send;

    /// Whether a response was ever handed out on this stream (KAL-4, RLY-77).
    fn has_answered(&self) -> bool;
}
