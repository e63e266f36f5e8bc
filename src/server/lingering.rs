//! The time between our last byte and the peer's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::socket::Plain;

/// The time for a peer on a busy host, or far away, to read our last byte and to close.
const LINGER: Duration = Duration::from_secs(2);

/// The bytes that a well-behaved peer can have on the way: the receive window of a connection, and as much
/// for frames without a window.
const LINGER_BYTES: usize = 2 << 20;

/// Drops the bytes of a peer that has not read our last byte yet.
///
/// The kernel resets a connection that is closed with unread bytes, or that its peer writes to afterwards. A
/// peer that meets the reset in a write, e.g. of an ACK, has lost the bytes that it has not read: the
/// statuses of its streams and the GOAWAY (HND-1; RFC 9112, section 9.6).
pub(super) struct Lingering {
    timer: Pin<Box<Sleep>>,
    dropped: usize,
}

impl Default for Lingering {
    fn default() -> Self {
        Lingering { timer: Box::pin(sleep(LINGER)), dropped: 0 }
    }
}

impl Lingering {
    /// Ready after the last byte of the peer, or when the peer took too long or sent too much.
    pub(super) fn poll(&mut self, socket: &mut Plain, context: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 4096];
        while self.dropped < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *socket).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.dropped += buffer.filled().len(),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.timer.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;
    use tokio::time::Instant;

    use super::*;

    async fn linger(socket: UnixStream) -> Duration {
        let begin = Instant::now();
        let mut socket = Plain::Unix(socket);
        let mut lingering = Lingering::default();
        poll_fn(|context| lingering.poll(&mut socket, context)).await;
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn hnd_1_a_close_waits_for_the_peer_but_not_for_long() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        peer.write_all(b"an ACK").await.unwrap();
        drop(peer);
        assert_eq!(linger(socket).await, Duration::ZERO, "the peer has closed");

        let (mut peer, socket) = UnixStream::pair().unwrap();
        peer.write_all(b"an ACK").await.unwrap();
        let elapsed = linger(socket).await;
        assert!((LINGER..LINGER * 2).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test]
    async fn hnd_1_a_close_does_not_wait_for_a_peer_that_goes_on_sending() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let flood = tokio::spawn(async move { while peer.write_all(&[0; 65_536]).await.is_ok() {} });
        let mut socket = Plain::Unix(socket);
        let mut lingering = Lingering::default();
        poll_fn(|context| lingering.poll(&mut socket, context)).await;
        assert!(lingering.dropped >= LINGER_BYTES);
        drop(socket);
        flood.await.unwrap();
    }
}
