//! What the serving room sees of the relay: one handle per downstream stream.
//!
//! The serving room owns sockets, HTTP/2 and gRPC framing; it hands decoded requests in and takes finished messages
//! out. It knows nothing of the machines behind the handle.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub use super::account::{Account, Charge, Polling};
pub use super::delivery::Delivery;
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

/// Something that is said once. Connections wait for such things beside all else, and are polled several times at each
/// update: to find that nothing was said, a poll reads one flag, and takes no lock that others take too.
#[derive(Debug, Default)]
pub struct Signal {
    is_raised: AtomicBool,
    waiting: Notify,
}

impl Signal {
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Resolves when it is raised, or was. Must be polled by one task from its first poll on, as that is the task to be
    /// woken.
    pub fn raised(&self) -> Raised<'_> {
        Raised { signal: self, waiting: self.waiting.notified(), is_registered: false }
    }
}

pin_project! {
    /// See [`Signal::raised`]. Written by hand, since each connection has two, and a generated one takes twice the room.
    #[derive(Debug)]
    pub struct Raised<'a> {
        signal: &'a Signal,
        #[pin]
        waiting: Notified<'a>,
        is_registered: bool,
    }
}

impl Future for Raised<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.signal.is_raised.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if std::mem::replace(this.is_registered, true) {
            return Poll::Pending;
        }
        // What was raised since this future began is noticed.
        this.waiting.poll(context)
    }
}

/// Cuts the connection of a stream. A stream cannot be taken back from a client that does not read: its bytes stand in
/// the HTTP/2 queue of the connection, and go with it only.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCut(Arc<Link>);

/// What the driver knows of a connection.
#[derive(Debug, Default)]
pub struct Link {
    cut: Signal,
    account: Account,
}

impl ConnectionCut {
    /// Of a connection that may make the relay keep so many bytes.
    pub fn with_budget(bytes: u64) -> ConnectionCut {
        ConnectionCut(Arc::new(Link { cut: Signal::default(), account: Account::new(bytes) }))
    }

    pub fn account(&self) -> &Account {
        &self.0.account
    }

    pub(super) fn downgrade(&self) -> Weak<Link> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(link: &Weak<Link>) -> Option<ConnectionCut> {
        link.upgrade().map(ConnectionCut)
    }

    /// Tells it from all others that are open.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub fn cut(&self) {
        self.0.cut.raise();
    }

    /// Which connection this is: no other one that is open has the same number.
    pub(super) fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Resolves when the connection is to be cut, also if that was said before; see [`Signal::raised`].
    pub fn requested(&self) -> Raised<'_> {
        self.0.cut.raised()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    use futures_util::task::noop_waker;
    use tokio::task::yield_now;

    #[tokio::test]
    async fn a_signal_wakes_all_who_wait_and_stays_raised() {
        let signal = Arc::new(Signal::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let signal = signal.clone();
                    async move { signal.raised().await }
                })
            })
            .collect();
        yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        signal.raise();
        for task in waiting {
            assert!(task.await.is_ok());
        }
        signal.raise();
        signal.raised().await;
    }

    #[test]
    fn a_signal_is_seen_by_who_was_polled_before() {
        let (signal, waker) = (Signal::default(), noop_waker());
        let mut context = Context::from_waker(&waker);
        let mut raised = pin!(signal.raised());
        for _ in 0..3 {
            assert!(raised.as_mut().poll(&mut context).is_pending());
        }
        signal.raise();
        assert!(raised.as_mut().poll(&mut context).is_ready());
    }
}
