//! The turn of a request: the relay's, or the peer's, with its own pace of sending a body and taking an
//! answer (ADM-14, ADR 65).
//!
//! HTTP asks for the next part of an answer once the peer has room for the last. In HTTP/2 a peer without
//! room costs no write, so a deadline of writes alone would never come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The wait for a peer before others may take the place.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The wait for a peer before the connection ends, without others.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for a whole answer, even to a reader of some bytes now and then.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// [`STALL_TIMEOUT`] of a live answer, which costs no memory: a sleeping laptop may come back.
pub(super) const LIVE_STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes for HTTP at once. HTTP takes the next piece after this piece has left, but for the piece in the
/// buffer.
const PIECE_BYTES: usize = 16 << 10;

/// A request, from its head to the last byte of its answer.
#[derive(Debug, Default)]
pub(super) struct RequestTurn {
    state: Mutex<TurnState>,
    /// Ends the connection.
    cut: CancellationToken,
}

#[derive(Debug, Default)]
struct TurnState {
    /// Since when the relay waits for the peer. `None`: the peer waits for the relay.
    waits_since: Option<Instant>,
    /// The begin of the answer; `None` for a live one, and while there is none.
    answer_since: Option<Instant>,
    is_live: bool,
    /// Between two requests of a stream.
    is_idle: bool,
}

impl RequestTurn {
    fn new(cut: CancellationToken) -> RequestTurn {
        RequestTurn { state: Mutex::default(), cut }
    }

    /// The relay waits for the peer from now on, or since before.
    fn wait(&self) {
        self.state.lock().waits_since.get_or_insert_with(Instant::now);
    }

    /// The peer has done its part.
    fn go_on(&self) {
        self.state.lock().waits_since = None;
    }

    /// The head of the answer is made.
    pub fn begin_answer(&self, is_live: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.waits_since = Some(now);
        (state.answer_since, state.is_live) = ((!is_live).then_some(now), is_live);
    }

    /// Begins or ends the time between two requests of a stream, each with an own answer.
    pub fn set_idle(&self, is_idle: bool) {
        let mut state = self.state.lock();
        (state.is_idle, state.waits_since) = (is_idle, None);
        state.answer_since = (!is_idle).then(Instant::now);
    }

    /// The wait for the peer; `None` in the relay's turn.
    pub fn waits(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.waits_since.filter(|_| !state.is_idle).map(|since| since.elapsed())
    }

    fn is_idle(&self) -> bool {
        self.state.lock().is_idle
    }

    fn is_late(&self) -> bool {
        let state = self.state.lock();
        let stall = if state.is_live { LIVE_STALL_TIMEOUT } else { STALL_TIMEOUT };
        let is_over = |since: Option<Instant>, most| since.is_some_and(|since| since.elapsed() >= most);
        !state.is_idle && (is_over(state.waits_since, stall) || is_over(state.answer_since, ANSWER_TIMEOUT))
    }

    /// Ends the connection of the request.
    pub fn cut(&self) {
        self.cut.cancel();
    }
}

/// The requests of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTurns {
    open: Arc<Mutex<Vec<Arc<RequestTurn>>>>,
    /// Ends the connection.
    pub cut: CancellationToken,
}

impl RequestTurns {
    /// Begins a request, which ends with the result.
    pub fn begin(&self) -> Answering {
        let turn = Arc::new(RequestTurn::new(self.cut.clone()));
        self.open.lock().push(turn.clone());
        Answering { turns: self.clone(), turn }
    }

    /// The wait for the connection: for ever without a request; `None` if some request is in the relay's
    /// turn.
    pub fn wait(&self) -> Option<Duration> {
        let open = self.open.lock();
        let wait = |turn: &Arc<RequestTurn>| if turn.is_idle() { Some(Duration::MAX) } else { turn.waits() };
        open.iter().map(wait).min().unwrap_or(Some(Duration::MAX))
    }

    /// Whether the peer has missed the deadline of an answer.
    pub fn are_late(&self) -> bool {
        self.open.lock().iter().any(|turn| turn.is_late())
    }
}

/// A request under way.
pub(super) struct Answering {
    turns: RequestTurns,
    pub turn: Arc<RequestTurn>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.turns.open.lock().retain(|turn| !Arc::ptr_eq(turn, &self.turn));
    }
}

/// The body of a request: the relay waits for its peer.
pub(super) struct AwaitedBody {
    pub body: Body,
    pub turn: Arc<RequestTurn>,
}

impl http_body::Body for AwaitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match polled {
            Poll::Pending => self.turn.wait(),
            Poll::Ready(_) => self.turn.go_on(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, in pieces. The request lasts until the last piece is taken. The messages of a live
/// answer stay whole.
pub(super) struct Pieces {
    body: Body,
    is_live: bool,
    /// The rest of a part.
    rest: Bytes,
    answering: Answering,
}

impl Pieces {
    pub fn new(body: Body, answering: Answering, is_live: bool) -> Pieces {
        Pieces { body, is_live, rest: Bytes::new(), answering }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let most = if self.is_live { usize::MAX } else { PIECE_BYTES };
        Frame::data(self.rest.split_to(self.rest.len().min(most)))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        this.answering.turn.go_on();
        let frame = if this.rest.is_empty() {
            let polled = Pin::new(&mut this.body).poll_frame(context);
            match std::task::ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        this.rest = data;
                        this.piece()
                    }
                    Err(trailers) => trailers,
                },
                other => return Poll::Ready(other),
            }
        } else {
            this.piece()
        };
        this.answering.turn.wait();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
