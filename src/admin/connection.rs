//! One admin connection: HTTP/1.1 or HTTP/2, with a bound on every wait.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::entrance::{AdminPeer, Guest, Proving};
use super::live::{Closing, LiveMark};
use super::protocol::{AdminProtocol, BegunConnection, HEADER_TIMEOUT};
use super::turn::{AwaitedBody, LIVE_STALL_TIMEOUT, Pieces, RequestTurns, STALL_TIMEOUT};

/// The pause between two looks at the deadlines of answers.
const LOOK: Duration = Duration::from_secs(1);

/// The first byte of a TLS connection (RFC 8446).
const TLS_HANDSHAKE: u8 = 0x16;

/// A scraper with the wrong scheme tries for ever, and one line is enough.
static TLS_ON_PLAINTEXT: Once = Once::new();

/// Waits for the proof of the peer, and serves the connection until its end, or until the peer has missed a
/// deadline. After `shutdown`, only the answer under way is finished.
pub(super) async fn prove_and_drive<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    proving: Proving<Io>,
    router: Router,
    turns: RequestTurns,
    shutdown: CancellationToken,
) {
    if let Some(Some(guest)) = shutdown.run_until_cancelled(proving).await {
        drive(guest, router, turns, shutdown).await;
    }
}

async fn drive<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    Guest { io, peer, selected_http2, end }: Guest<Io>,
    router: Router,
    turns: RequestTurns,
    shutdown: CancellationToken,
) {
    let Ok(Ok((protocol, io))) = timeout(HEADER_TIMEOUT, BegunConnection::begin(io)).await else { return };
    if selected_http2.is_none() && io.begins_with(TLS_HANDSHAKE) {
        TLS_ON_PLAINTEXT.call_once(|| {
            warn!(
                peer = ?peer.address,
                "closed an admin connection: the peer speaks TLS, and there is no `admin.tls` in the configuration"
            );
        });
        return;
    }
    if selected_http2.is_some_and(|http2| http2 != (protocol == AdminProtocol::Http2)) {
        debug!(?protocol, "admin connection closed: its first bytes are not those of the protocol from ALPN");
        return;
    }
    let is_live = Arc::new(AtomicBool::new(false));
    let stalled = Box::pin(sleep(STALL_TIMEOUT));
    let io = WriteTimeout { io, stalled, waiting: false, is_live: is_live.clone() };
    // Live answers end by themselves.
    let closing = Closing::default();
    let close = closing.0.clone();
    let late = deadline(turns.clone());
    let router = followed(router, turns, Arc::new(peer), closing, is_live);
    let server = protocol.server();
    let connection = server.serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    let (mut connection, mut late) = (pin!(connection), pin!(late));
    let mut leave = pin!(async {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = end => {}
        }
    });
    let mut is_leaving = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = late.as_mut() => {
                debug!("closed an admin connection: it does not take its answers");
                return;
            }
            () = leave.as_mut(), if !is_leaving => {
                is_leaving = true;
                close.cancel();
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "admin connection ended");
    }
}

/// Each request knows its peer and its turn, and lasts until the whole answer is taken.
fn followed(
    router: Router,
    turns: RequestTurns,
    peer: Arc<AdminPeer>,
    closing: Closing,
    is_live: Arc<AtomicBool>,
) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let answering = turns.begin();
        let turn = answering.turn.clone();
        let mut request = request.map(|body| Body::new(AwaitedBody { body, turn: turn.clone() }));
        request.extensions_mut().insert(turn.clone());
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(closing.clone());
        let is_live = is_live.clone();
        async move {
            let answer = next.run(request).await;
            let of_answer = answer.extensions().get::<LiveMark>().is_some();
            is_live.store(of_answer, Ordering::Relaxed);
            turn.begin_answer(of_answer);
            answer.map(|body| Body::new(Pieces::new(body, answering, of_answer)))
        }
    }))
}

/// Ends when the peer has missed a deadline, or another request takes the place.
async fn deadline(turns: RequestTurns) {
    let mut looks = interval(LOOK);
    let looks = async {
        while !turns.are_late() {
            looks.tick().await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = turns.cut.cancelled() => {}
    }
}

/// A stream whose writes fail if the peer has taken nothing for [`STALL_TIMEOUT`]. The deadline of a whole
/// answer is that of its turn: a request may wait for the walks of others before its answer begins.
struct WriteTimeout<S> {
    io: S,
    stalled: Pin<Box<Sleep>>,
    /// Whether `stalled` is running, since the first refused write.
    waiting: bool,
    /// The answer is a live one, which has no end.
    is_live: Arc<AtomicBool>,
}

impl<S> WriteTimeout<S> {
    /// Passes a finished write through. A write that has been refused for too long fails.
    fn bound<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = false;
            return polled;
        }
        if !self.waiting {
            self.waiting = true;
            let is_live = self.is_live.load(Ordering::Relaxed);
            let timeout = if is_live { LIVE_STALL_TIMEOUT } else { STALL_TIMEOUT };
            self.stalled.as_mut().reset(Instant::now() + timeout);
        }
        ready!(self.stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.bound(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(context);
        self.bound(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(context);
        self.bound(polled, context)
    }
}
