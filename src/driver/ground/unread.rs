//! The messages of a stream that its client has not read yet.
//!
//! Only HTTP/2 knows when the bytes of a message have left. It then drops the bytes, and with them the
//! [`UnreadPart`] that belongs to the message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::driver::ground::account::Account;
use crate::driver::ground::connection::ConnectionCut;

/// The messages in the HTTP/2 queue of one stream.
#[derive(Debug)]
pub(crate) struct Unread(Arc<Outstanding>);

#[derive(Debug)]
struct Outstanding {
    connection: ConnectionCut,
    origin: Instant,
    messages: AtomicU32,
    /// When the client last took a message, or, if later, when the first message of the queue was handed out.
    /// In microseconds from `origin`.
    since: AtomicU64,
}

/// Belongs to the bytes of a message, and is dropped together with the bytes.
#[derive(Debug)]
pub struct UnreadPart {
    outstanding: Arc<Outstanding>,
    bytes: u64,
}

impl Unread {
    pub fn new(connection: ConnectionCut) -> Unread {
        let (messages, since) = Default::default();
        Unread(Arc::new(Outstanding { connection, origin: Instant::now(), messages, since }))
    }

    /// Registers a message of this many bytes. Called under the stream's lock, for one message at a time.
    pub fn hand_out(&self, bytes: usize) -> UnreadPart {
        let bytes = bytes as u64;
        self.0.connection.account().leave_unread(bytes);
        if self.0.messages.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.touch();
        }
        UnreadPart { outstanding: self.0.clone(), bytes }
    }

    /// The account of the connection. Each update reads the memory behind it anyway.
    pub fn account(&self) -> &Account {
        self.0.connection.account()
    }

    /// How long the client has taken no message of the queue; `None` if the queue is empty.
    pub fn age(&self) -> Option<Duration> {
        if self.0.messages.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.unused())
    }

    /// Tells whether messages are in the queue, also after the end of the stream.
    pub fn probe(&self) -> impl Fn() -> bool + Send + 'static {
        let outstanding = self.0.clone();
        move || outstanding.messages.load(Ordering::Relaxed) > 0
    }

    /// How long the client has taken no message, also if there was none.
    pub fn unused(&self) -> Duration {
        let since = Duration::from_micros(self.0.since.load(Ordering::Relaxed));
        self.0.origin.elapsed().saturating_sub(since)
    }
}

impl Outstanding {
    fn touch(&self) {
        let micros = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.since.store(micros, Ordering::Relaxed);
    }
}

impl Drop for UnreadPart {
    fn drop(&mut self) {
        self.outstanding.touch();
        self.outstanding.messages.fetch_sub(1, Ordering::Relaxed);
        self.outstanding.connection.account().read(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fd1_a_message_is_unread_until_its_bytes_are_dropped() {
        let unread = Unread::new(ConnectionCut::default());
        let second = Duration::from_secs(1);
        assert_eq!(unread.age(), None);
        tokio::time::advance(second).await;
        let first = unread.hand_out(10);
        assert_eq!(unread.age(), Some(Duration::ZERO));
        tokio::time::advance(second).await;
        let next = unread.hand_out(10);
        assert_eq!(unread.age(), Some(second));
        // A client that takes messages is not stalled, even if the next message has waited for long.
        tokio::time::advance(second).await;
        drop(first);
        tokio::time::advance(second).await;
        assert_eq!(unread.age(), Some(second));
        drop(next);
        assert_eq!(unread.age(), None);
    }
}
