//! The origin of a wake in the task of a connection: HTTP/2, or a call.
//!
//! HTTP/2 and the calls share a task, and wake each other all the time: a call that sends wakes HTTP/2, and
//! HTTP/2 that received data wakes the call. While the task runs, a wake only marks the part to look at next.
//! So an update or an ACK costs the task one turn, and parts without a wake cost nothing. So do the reasons
//! for the end of the connection ([`Seldom`]).

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::{ArcWake, AtomicWaker};
use pin_project_lite::pin_project;

use crate::server::heard::Heard;

/// A part of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// HTTP/2, with the socket.
    Io = 1,
    /// At least one call.
    Calls = 2,
}

/// The task is running.
const WATCHED: u8 = 4;

/// The woken parts of a connection. As a waker by [`Wake`], wakes [`Part::Io`]; by [`ArcWake`], the first
/// call.
///
/// Has all the state that each turn of the task reads. With thousands of clients, an update finds the memory
/// of a client outside the caches. So one more allocation costs more than some hundred instructions.
#[derive(Debug)]
pub(super) struct Wakes {
    task: AtomicWaker,
    pub(super) heard: Heard,
    /// The number of woken calls, at least.
    calls: AtomicU32,
    /// Bits of the woken parts, and [`WATCHED`].
    state: AtomicU8,
    /// Bits of the woken [`Rarity`]s.
    rarities: AtomicU8,
    /// The first call was woken.
    is_first_woken: AtomicBool,
}

/// A future in a busy task. The task polls the future after the future's own wakes only. A connection has one
/// future of each kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rarity {
    /// The reasons for the end of the connection: see [`Seldom`].
    End = 1,
    /// The timer of PINGs.
    Keepalive = 2,
}

impl Wakes {
    /// All parts begin woken.
    pub(super) fn new() -> Arc<Self> {
        let state = AtomicU8::new(Part::Io as u8 | Part::Calls as u8);
        let rarities = AtomicU8::new(Rarity::End as u8 | Rarity::Keepalive as u8);
        Arc::new(Wakes {
            task: AtomicWaker::new(),
            heard: Heard::new(),
            calls: AtomicU32::new(0),
            state,
            rarities,
            is_first_woken: AtomicBool::new(false),
        })
    }

    /// The task begins a turn. Later wakes reach the task, and earlier wakes are visible now.
    pub(super) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Polls a future after a wake of the future. All futures begin woken.
    pub(super) fn poll_rarity<T>(
        self: &Arc<Self>,
        rarity: Rarity,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let bit = rarity as u8;
        if self.rarities.load(Ordering::Acquire) & bit == 0
            || self.rarities.fetch_and(!bit, Ordering::AcqRel) & bit == 0
        {
            return Poll::Pending;
        }
        let wake = Arc::new(RarityWake { wakes: self.clone(), rarity });
        poll(&mut Context::from_waker(&Waker::from(wake)))
    }

    /// The registered task runs: until [`Wakes::leave`] no wake of a part reaches the task.
    pub(super) fn watch(&self) {
        self.state.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Returns true if the part was woken since the last call.
    pub(super) fn take(&self, part: Part) -> bool {
        // Mostly false, and a load costs less than a write to shared memory.
        self.state.load(Ordering::Acquire) & part as u8 != 0
            && self.state.fetch_and(!(part as u8), Ordering::AcqRel) & part as u8 != 0
    }

    /// The number of calls woken since the last call of this function. A wake under way counts now or later,
    /// and marks [`Part::Calls`] then.
    pub(super) fn take_calls(&self) -> u32 {
        self.calls.swap(0, Ordering::AcqRel)
    }

    /// A first call begins, woken. A late wake of a former first call costs one more poll.
    pub(super) fn begin_first(&self) {
        self.is_first_woken.store(true, Ordering::Release);
        self.woke_call();
    }

    /// Returns true if the first call was woken since the last call of this function.
    pub(super) fn take_first(&self) -> bool {
        take(&self.is_first_woken)
    }

    fn woke_call(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.woke(Part::Calls);
    }

    /// The task is about to wait: from now on wakes reach the task. Returns false if a wake is left.
    #[must_use]
    pub(super) fn leave(&self) -> bool {
        self.state.fetch_and(!WATCHED, Ordering::AcqRel) == WATCHED
    }

    pub(super) fn woke(&self, part: Part) {
        // After an earlier wake the task is running, or will run.
        if self.state.fetch_or(part as u8, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.woke(Part::Io);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woke(Part::Io);
    }
}

/// Wakes the first call. Polled with a waker that is borrowed from the [`Arc`], so that no call needs room
/// for one.
impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        if !wakes.is_first_woken.swap(true, Ordering::AcqRel) {
            wakes.woke_call();
        }
    }
}

/// Records whether a call beside the first was woken.
#[derive(Debug)]
pub(super) struct CallWake {
    is_woken: AtomicBool,
    connection: Arc<Wakes>,
}

impl CallWake {
    /// The call begins woken.
    pub(super) fn new(connection: Arc<Wakes>) -> Arc<Self> {
        connection.woke_call();
        Arc::new(CallWake { is_woken: AtomicBool::new(true), connection })
    }

    /// Returns true if the call was woken since the last call of this function.
    pub(super) fn take(&self) -> bool {
        take(&self.is_woken)
    }
}

impl ArcWake for CallWake {
    fn wake_by_ref(wake: &Arc<Self>) {
        if !wake.is_woken.swap(true, Ordering::AcqRel) {
            wake.connection.woke_call();
        }
    }
}

/// Mostly false, and a load costs less than a write to shared memory.
fn take(is_woken: &AtomicBool) -> bool {
    is_woken.load(Ordering::Acquire) && is_woken.swap(false, Ordering::AcqRel)
}

pin_project! {
    /// A future as a [`Rarity::End`].
    pub(super) struct Seldom<'a, F> {
        wakes: &'a Arc<Wakes>,
        #[pin]
        future: F,
    }
}

#[derive(Debug)]
struct RarityWake {
    wakes: Arc<Wakes>,
    rarity: Rarity,
}

impl<'a, F> Seldom<'a, F> {
    pub(super) fn new(wakes: &'a Arc<Wakes>, future: F) -> Self {
        Seldom { wakes, future }
    }
}

impl<F: Future> Future for Seldom<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let future = this.future;
        this.wakes.register(context.waker());
        this.wakes.poll_rarity(Rarity::End, |context| future.poll(context))
    }
}

impl Wake for RarityWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let bit = self.rarity as u8;
        if self.wakes.rarities.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.wakes.task.wake();
        }
    }
}
