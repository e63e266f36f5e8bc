//! The signs of a peer, between the socket of an HTTP/2 connection and its task.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Before every sign of life. One time for all connections, so that a connection stores only a number.
#[expect(
    clippy::disallowed_methods,
    reason = "each test has a clock of its own, and none is before this time"
)]
static ORIGIN: LazyLock<Instant> = LazyLock::new(|| Instant::from_std(std::time::Instant::now()));

/// The last sign of life from the peer, and the reasons of the socket to read no further for the moment.
#[derive(Debug)]
pub(super) struct Heard {
    /// Nanoseconds after [`ORIGIN`].
    last: AtomicU64,
    /// The peer sent too many control frames; its connection is not read any more.
    is_flood: AtomicBool,
    /// The connection has read enough for this turn.
    had_turn: AtomicBool,
    /// Many connections end: the last bytes of a peer that has left wait for the connection's turn to end.
    is_crowded: AtomicBool,
    /// The peer has left, and its last bytes wait.
    has_left: AtomicBool,
}

impl Heard {
    /// The peer gave a sign of life.
    pub(super) fn new() -> Heard {
        let [is_flood, had_turn, is_crowded, has_left] = std::array::from_fn(|_| AtomicBool::new(false));
        let heard = Heard { last: AtomicU64::new(0), is_flood, had_turn, is_crowded, has_left };
        heard.now();
        heard
    }

    /// The peer gave a sign of life.
    pub(super) fn now(&self) {
        let nanos = u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> Instant {
        *ORIGIN + self.age()
    }

    /// The time of the last sign of life, after a time before all of them.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    pub(super) fn is_flood(&self) -> bool {
        self.is_flood.load(Ordering::Relaxed)
    }

    /// The peer sent too many control frames.
    pub(super) fn flooded(&self) {
        self.is_flood.store(true, Ordering::Relaxed);
    }

    /// The connection has read enough for this turn.
    pub(super) fn ended_turn(&self) {
        self.had_turn.store(true, Ordering::Relaxed);
    }

    /// Whether other connections are to have their turn now. The next call is about the next turn.
    pub(super) fn take_had_turn(&self) -> bool {
        self.had_turn.load(Ordering::Relaxed) && self.had_turn.swap(false, Ordering::Relaxed)
    }

    /// Sets whether many connections end now. While they do, the last bytes of a peer that has left are not
    /// read.
    pub(super) fn expect_crowd(&self, is_crowded: bool) {
        if self.is_crowded.load(Ordering::Relaxed) != is_crowded {
            self.is_crowded.store(is_crowded, Ordering::Relaxed);
        }
    }

    /// Whether the last bytes of a peer that has left must wait.
    pub(super) fn defers_end(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// The last bytes of the peer wait to be read.
    pub(super) fn left(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Whether the peer has left, and its last bytes wait to be read.
    pub(super) fn take_has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed) && self.has_left.swap(false, Ordering::Relaxed)
    }
}
