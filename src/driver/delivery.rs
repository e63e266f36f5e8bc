//! Which messages of a stream its client has not taken yet.
//!
//! Only HTTP/2 knows when the bytes of a message have left. It drops them then, and with them the [`Delivery`] that
//! travelled beside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What stands in the HTTP/2 queue of one stream.
#[derive(Debug)]
pub(super) struct Unread(Arc<Outstanding>);

#[derive(Debug)]
struct Outstanding {
    origin: Instant,
    messages: AtomicU32,
    /// When the last message was taken, or the first of those that stand there was handed out: microseconds from `origin`.
    since: AtomicU64,
}

/// Travels with the bytes of a message; dropped when they have left, or never will.
#[derive(Debug)]
pub struct Delivery(Arc<Outstanding>);

impl Unread {
    pub fn new() -> Unread {
        let (messages, since) = Default::default();
        Unread(Arc::new(Outstanding { origin: Instant::now(), messages, since }))
    }

    /// A message is handed out. Called under the stream's lock, one at a time.
    pub fn hand_out(&self) -> Delivery {
        if self.0.messages.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.touch();
        }
        Delivery(self.0.clone())
    }

    /// For how long the client has taken nothing of what stands there; `None` if nothing does.
    pub fn age(&self) -> Option<Duration> {
        if self.0.messages.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since = Duration::from_micros(self.0.since.load(Ordering::Relaxed));
        Some(self.0.origin.elapsed().saturating_sub(since))
    }
}

impl Outstanding {
    fn touch(&self) {
        let micros = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.since.store(micros, Ordering::Relaxed);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.0.touch();
        self.0.messages.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fd1_a_message_is_unread_until_its_bytes_are_dropped() {
        let unread = Unread::new();
        let second = Duration::from_secs(1);
        assert_eq!(unread.age(), None);
        tokio::time::advance(second).await;
        let first = unread.hand_out();
        assert_eq!(unread.age(), Some(Duration::ZERO));
        tokio::time::advance(second).await;
        let next = unread.hand_out();
        assert_eq!(unread.age(), Some(second));
        // Who takes something is not stalled, though the next one has been waiting for long.
        tokio::time::advance(second).await;
        drop(first);
        tokio::time::advance(second).await;
        assert_eq!(unread.age(), Some(second));
        drop(next);
        assert_eq!(unread.age(), None);
    }
}
