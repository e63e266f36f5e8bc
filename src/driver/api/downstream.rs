//! The relay as the serving room sees it: one handle per downstream stream.
//!
//! The serving room owns sockets, HTTP/2 and gRPC framing. It passes decoded requests in and takes finished
//! messages out. It knows nothing of the machines behind the handle.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

pub use crate::driver::ground::account::Account;
pub use crate::driver::ground::connection::{Charge, ConnectionCut, Polling};
pub use crate::driver::ground::signal::{Raised, Signal};
pub use crate::driver::ground::unread::UnreadPart;
use sluice_engine::authorization::Claimant;
use sluice_identity::Identity;
use sluice_wire::ReaderLimits;
pub use sluice_xds::Variant;
use sluice_xds::{RelayPath, Request, SotwRequest, Status, StreamKind};

/// The treatment of a client for whom no server is reachable and nothing is cached (RLY-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// The client's stream waits.
    #[default]
    Hold,
    /// The client's stream ends with UNAVAILABLE before a first response, so that the client can use its next
    /// server.
    Fail,
}

/// The origin of a stream.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name of the listener in the configuration.
    pub listener: Arc<str>,
    /// `None` on a unix socket.
    pub address: Option<SocketAddr>,
    /// The proved identity of the client (IDN-1).
    pub identity: Arc<Identity>,
    pub connection: ConnectionCut,
    /// The option of the listener at the start of the stream.
    pub when_unavailable: WhenUnavailable,
    /// The relays on the way, if the client is a relay (TIR-2).
    pub relays: Option<Arc<RelayPath>>,
}

impl Peer {
    /// The client, as the rules of authorization see it.
    pub fn claimant(&self) -> Claimant<'_> {
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        Claimant {
            listener: &self.listener,
            identity: &self.identity,
            is_local: self.address.is_none_or(is_loopback),
        }
    }
}

/// One message of a response stream, framed for gRPC and ready to be written. The private part comes first,
/// with the gRPC header and the nonce. All clients with the same selection share the body.
#[derive(Debug)]
pub struct Message {
    pub private: Bytes,
    pub shared: Bytes,
    /// Dropped when the last byte has left.
    pub delivery: Option<UnreadPart>,
}

/// The encoding of an answer to a single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// A gRPC message. Such an answer cannot say "unchanged", so a complete set is always sent.
    Grpc,
    /// REST: one JSON document. A client that has the current version gets none (RST-4, RST-9).
    Json,
}

/// The answer to a single request.
#[derive(Clone, Debug)]
pub enum Polled {
    /// The complete set (RST-12), written in two parts. The first part has gRPC's header and the nonce, and
    /// is empty in JSON. All clients with the same request share the second part, the body.
    Set { private: Bytes, shared: Bytes },
    /// The client is up to date for the requested names (RST-4).
    Unchanged,
}

/// Opens downstream streams. The driver implements this trait for the serving room.
pub trait OpenStreams: Send + Sync + 'static {
    type Stream: RelayStream;

    /// Opens a stream, aggregated or of one type.
    ///
    /// # Errors
    /// The status with which the stream ends at once.
    fn open(&self, kind: StreamKind, peer: impl Into<Arc<Peer>>) -> Result<Self::Stream, Status>;

    /// Opens a stream of load reports.
    ///
    /// # Errors
    /// The status with which the stream ends at once.
    fn open_load(&self, peer: Arc<Peer>) -> Result<Box<dyn LoadStream>, Status>;

    /// Registers a new connection, so that the connection can be cut when memory is short (FP7).
    fn connected(&self, connection: &ConnectionCut) {
        let _ = connection;
    }

    /// The memory that the process may use (FP7); `None` without a bound.
    fn memory_budget(&self) -> Option<u64> {
        None
    }

    /// Whether memory is too short for another connection (FP7). Asked once for each: those who make room
    /// look at the number of refusals.
    fn is_out_of_memory(&self) -> bool {
        false
    }
}

/// A downstream stream. After the last clone is dropped, the subscriptions end (after the linger).
pub trait RelayStream: Clone + Send + Sync + 'static {
    /// Takes the next request, in the order of arrival (STR-14).
    ///
    /// # Errors
    /// The status with which the stream must end.
    fn request(&self, request: Request) -> impl Future<Output = Result<(), Status>> + Send;

    /// The client has ended its side: the stream ends with OK (STR-13).
    fn half_close(&self);

    /// Ends the stream with this status: the request was invalid, a limit was exceeded, or the process
    /// drains. A message whose writing has begun is finished first, if the client reads.
    fn fail(&self, status: Status);

    /// The next message to write. `None` when the stream ends with OK, an error when the stream ends with the
    /// error's status. Called only after HTTP/2 has taken the message before, so that a message has the
    /// newest state (FLW-2).
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>>;

    /// Answers a single request of a client without a stream (RLY-72). The answer is a complete set, sent
    /// once all of its resources are known. In JSON, the relay also waits until the client is out of date.
    /// The wait takes at most `hold`.
    ///
    /// # Errors
    /// UNAVAILABLE if some of the resources are still unknown after `hold`. Other errors refuse the request,
    /// or report that the answer cannot be encoded in this form.
    fn poll_once(
        &self,
        request: SotwRequest,
        form: Codec,
        hold: Duration,
    ) -> impl Future<Output = Result<Polled, Status>> + Send;

    /// Whether the stream has sent a response (KAL-4, RLY-77).
    fn has_answered(&self) -> bool;

    /// Whether the stream ends with an error, which [`RelayStream::poll_message`] returns next.
    fn has_failed(&self) -> bool {
        false
    }

    /// Tells whether HTTP/2 has messages of the stream that the client has not read, also after the end of
    /// the stream.
    fn unread(&self) -> impl Fn() -> bool + Send + 'static {
        || false
    }

    /// The id of the client's node, for the log; `None` before the first request.
    fn node_id(&self) -> Option<String> {
        None
    }
}

/// The next thing to say on a stream of load reports.
#[derive(Debug)]
pub enum LoadWord {
    /// A message, framed for gRPC.
    Answer(Bytes),
    /// The stream ends with this status.
    End(Status),
}

/// A stream of load reports (LRS). Dropping the stream takes its gauges back.
pub trait LoadStream: Send {
    /// Whether the listener drops reports; false for a new stream.
    fn set_dropped(&mut self, is_dropped: bool);

    /// Bytes arrived, of a message or of a part of one.
    ///
    /// # Errors
    /// The client sends more than `limits.request_bytes` in an interval.
    fn arrived(&mut self, bytes: usize, limits: &ReaderLimits) -> Result<(), Status>;

    /// Ready when the next message may be read.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// A message was read to the end.
    ///
    /// # Errors
    /// The status with which the stream must end.
    fn report(&mut self, message: Bytes, limits: &ReaderLimits) -> Result<(), Status>;

    /// The client has ended its side. [`LoadWord::End`] follows.
    fn half_close(&mut self);

    /// The next word. Called only after HTTP/2 has taken the word before.
    fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<LoadWord>;
}
