//! One HTTP/2 connection with all its calls, in one task (ADR 11).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::task::waker_ref;
use pin_project_lite::pin_project;
use thin_vec::ThinVec;
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::body::Piece;
use super::call::{self, Call};
use super::crowd::{ExitTurn, Leaving};
use super::heard::Heard;
use super::http::{ConnectionFault, HttpConnection};
use super::limits::ServerLimits;
use super::service::Service;
use super::transport::{ClientSocket, HttpTransport};
use super::wakes::{CallWake, Part, Rarity, Wakes};
use crate::driver::api::downstream::OpenStreams;
use sluice_setting::InForce;

/// HTTP/2 silently refuses headers longer than this many times the limit. Shorter headers reach the service,
/// which counts the refusal and gives a reason.
const HEADER_LIST_MARGIN: u32 = 4;

/// The time for a peer that sent too many frames to read the current output and the GOAWAY after it.
const CALMED_WITHIN: Duration = Duration::from_millis(500);

type H2 = h2::server::Connection<HttpTransport, Piece>;

pin_project! {
    /// Reads, writes and answers calls while polled. Resolves to the reason for the end.
    pub(super) struct Http2<R: OpenStreams> {
        h2: H2,
        service: Service<R>,
        calls: OpenCalls,
        wakes: Arc<Wakes>,
        // The waker of HTTP/2.
        waker: Waker,
        // The time until which a peer that sent too many frames may read the GOAWAY.
        calmed: Option<Pin<Box<Sleep>>>,
        // The peer has left, beside many others.
        leaving: Option<Box<Leaving>>,
        #[pin]
        keepalive: Keepalive,
    }
}

/// The calls of a connection that are not fully answered. Nearly all connections have one, which needs no
/// memory of its own here.
#[derive(Default)]
struct OpenCalls {
    first: Option<Call>,
    others: ThinVec<OpenCall>,
}

/// A call beside the first.
struct OpenCall {
    call: Call,
    wake: Arc<CallWake>,
}

/// Sends SETTINGS to a client whose preface was received.
///
/// # Errors
/// An error of the transport.
pub(super) async fn open<R: OpenStreams>(
    socket: ClientSocket,
    service: Service<R>,
    wakes: Arc<Wakes>,
) -> Result<Pin<Box<Http2<R>>>, ConnectionFault> {
    let limits = service.shared.limits.epoch();
    let transport = HttpTransport::http2(socket, limits.control_frames_per_second_max, wakes.clone());
    let mut h2 = builder(&limits).handshake(transport).await?;
    let keepalive = Keepalive {
        ping: h2.ping_pong(),
        asked: None,
        timer: sleep_until(Instant::now() + limits.keepalive_interval),
    };
    let waker = Waker::from(wakes.clone());
    let (calls, calmed, leaving) = Default::default();
    Ok(Box::pin(Http2 { h2, service, calls, wakes, waker, calmed, leaving, keepalive }))
}

fn builder(limits: &ServerLimits) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.streams_per_connection)
        .max_local_error_reset_streams(Some(limits.local_error_reset_streams))
        .max_pending_accept_reset_streams(limits.pending_reset_streams)
        .max_header_list_size(limits.header_list_bytes.saturating_mul(HEADER_LIST_MARGIN))
        .initial_connection_window_size(limits.connection_window_bytes)
        .initial_window_size(limits.stream_window_bytes)
        .max_send_buffer_size(limits.send_queue_bytes);
    builder
}

impl<R: OpenStreams> Http2<R> {
    /// The turn to end, if the connection has it already.
    pub(super) fn take_turn(self: Pin<&mut Self>) -> Option<ExitTurn> {
        self.project().leaving.take()?.into_turn()
    }
}

impl<R: OpenStreams> HttpConnection for Http2<R> {
    /// GOAWAY names the last stream only after a round trip.
    const ANSWERS_LATE: bool = true;

    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFault>> {
        let mut this = self.project();
        this.wakes.register(context.waker());
        let heard = &this.wakes.heard;
        let (keepalive, limits) = (this.keepalive.as_mut(), &this.service.shared.limits);
        let poll_lost = |context: &mut Context<'_>| keepalive.poll_lost(heard, limits, context);
        if this.wakes.poll_rarity(Rarity::Keepalive, poll_lost).is_ready() {
            return Poll::Ready(Err(ConnectionFault::KeepaliveTimeout));
        }
        if let Some(leaving) = this.leaving
            && ready!(leaving.poll_turn(context))
        {
            this.wakes.woke(Part::Io);
        }
        let task = context.waker();
        this.wakes.watch();
        loop {
            // Calls first, so that the write below includes their output.
            let was_called = this.wakes.take(Part::Calls);
            if was_called {
                this.calls.poll(this.wakes);
            }
            let was_io = this.wakes.take(Part::Io);
            if was_io {
                let exit = &this.service.shared.exit;
                heard.expect_crowd(this.leaving.is_none() && exit.is_crowded());
                let mut context = Context::from_waker(this.waker);
                while let Poll::Ready(accepted) = this.h2.poll_accept(&mut context) {
                    let (request, respond) = match accepted {
                        Some(Ok(call)) => call,
                        _ if heard.is_flood() => return Poll::Ready(Err(ConnectionFault::ControlFlood)),
                        Some(Err(error)) => return Poll::Ready(Err(error.into())),
                        None => return Poll::Ready(Ok(())),
                    };
                    if let Some(call) = call::answer(this.service, request, respond) {
                        this.calls.begin(call, this.wakes);
                    }
                }
                if heard.is_flood() && this.calmed.is_none() {
                    this.h2.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                    *this.calmed = Some(Box::pin(sleep(CALMED_WITHIN)));
                    // The next turn writes the GOAWAY.
                    this.wakes.woke(Part::Io);
                }
                if heard.take_has_left() {
                    let leaving = this.leaving.insert(Leaving::begin(exit));
                    ready!(leaving.poll_turn(&mut Context::from_waker(task)));
                    this.wakes.woke(Part::Io);
                }
            }
            if !was_called && !was_io {
                break;
            }
            // A task without budget is told to wake itself, and so is one that has read enough. The loop
            // would take each wake for a reason to go on, for ever.
            if !coop::has_budget_remaining() || heard.take_had_turn() {
                break;
            }
        }
        if let Some(calmed) = this.calmed
            && calmed.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(ConnectionFault::ControlFlood));
        }
        this.leaving.as_deref_mut().into_iter().for_each(Leaving::pause);
        if !this.wakes.leave() {
            task.wake_by_ref();
        }
        Poll::Pending
    }

    fn shut_down(self: Pin<&mut Self>) {
        let this = self.project();
        this.h2.graceful_shutdown();
        // The next poll writes the GOAWAY.
        this.wakes.woke(Part::Io);
    }
}

impl OpenCalls {
    fn begin(&mut self, call: Call, wakes: &Arc<Wakes>) {
        if self.first.is_none() {
            wakes.begin_first();
            self.first = Some(call);
            return;
        }
        let wake = CallWake::new(wakes.clone());
        self.others.reserve_exact(1);
        self.others.push(OpenCall { call, wake });
    }

    /// Polls the woken calls. The newest come first: in a connection with a thousand calls, those that begin
    /// do not cost a look at all others.
    fn poll(&mut self, wakes: &Arc<Wakes>) {
        let (mut woken, mut index) = (wakes.take_calls(), self.others.len());
        while woken > 0 && index > 0 {
            index -= 1;
            let Some(OpenCall { call, wake }) = self.others.get_mut(index) else { return };
            if wake.take() {
                woken -= 1;
                if call.as_mut().poll(&mut Context::from_waker(&waker_ref(wake))).is_ready() {
                    self.others.swap_remove(index);
                }
            }
        }
        if woken > 0
            && wakes.take_first()
            && let Some(first) = &mut self.first
            && first.as_mut().poll(&mut Context::from_waker(&waker_ref(wakes))).is_ready()
        {
            self.first = None;
        }
    }
}

pin_project! {
    /// Sends a PING to a peer after a time of silence (KAL-1).
    struct Keepalive {
        ping: Option<h2::PingPong>,
        // The time of the last PING, while an answer is outstanding.
        asked: Option<Instant>,
        #[pin]
        timer: Sleep,
    }
}

impl Keepalive {
    /// Ready if the peer gave no sign of life.
    fn poll_lost(
        self: Pin<&mut Self>,
        heard: &Heard,
        limits: &InForce<ServerLimits>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut this = self.project();
        loop {
            ready!(this.timer.as_mut().poll(context));
            let (limits, heard) = (limits.get(), heard.last());
            match *this.asked {
                // Any bytes count as an answer: a client that sends a lot may be slow to reach the PING.
                Some(asked) if heard < asked => return Poll::Ready(()),
                Some(_) => *this.asked = None,
                None => {}
            }
            let now = Instant::now();
            let due = heard + limits.keepalive_interval;
            if now < due {
                this.timer.as_mut().reset(due);
                continue;
            }
            if let Some(ping) = this.ping {
                // Takes the last PONG, because h2 sends no new PING before. If the PONG is late, the old PING
                // is still outstanding: then any other bytes have to count.
                let _ = ping.poll_pong(context);
                let _ = ping.send_ping(h2::Ping::opaque());
            }
            *this.asked = Some(now);
            this.timer.as_mut().reset(now + limits.keepalive_timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::task::waker;
    use parking_lot::Mutex;

    /// Calls that end while others are woken change places; none is forgotten, and none is looked at twice.
    #[test]
    fn each_woken_call_is_polled_once() {
        let (wakes, polled) = (Wakes::new(), Arc::new(Mutex::new(Vec::new())));
        let mut calls = OpenCalls::default();
        for number in 0..100 {
            let (polled, mut polls) = (polled.clone(), 0);
            let call = std::future::poll_fn(move |_| {
                polls += 1;
                polled.lock().push(number);
                // Every third call ends with its second poll.
                if number % 3 == 0 && polls == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            calls.begin(Box::pin(call), &wakes);
        }
        let mut poll = |wakers: &[Waker]| {
            wakers.iter().for_each(Waker::wake_by_ref);
            assert!(wakes.take(Part::Calls));
            calls.poll(&wakes);
            let mut numbers = std::mem::take(&mut *polled.lock());
            numbers.sort_unstable();
            let others = calls.others.iter().map(|open| waker(open.wake.clone()));
            let first = calls.first.iter().map(|_| waker(wakes.clone()));
            (numbers, first.chain(others).collect::<Vec<_>>())
        };
        let (first, wakers) = poll(&[]);
        assert_eq!(first, (0..100).collect::<Vec<_>>(), "all begin woken");
        let some: Vec<_> = wakers.iter().step_by(2).cloned().collect();
        assert_eq!(poll(&some).0, (0..100).step_by(2).collect::<Vec<_>>());
        let (all, left) = poll(&wakers);
        let is_over = |number: &i32| number % 6 == 0;
        assert_eq!(all, (0..100).filter(|number| !is_over(number)).collect::<Vec<_>>());
        assert_eq!(left.len(), 66, "every third call is over");
        assert_eq!(poll(&left).0.len(), 66);
    }
}
