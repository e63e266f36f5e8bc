//! The socket of a connection, below TLS.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

/// Unread bytes that [`Plain::peek`] shows at most: more than a hybrid ClientHello has.
pub(super) const PEEKED_MAX: usize = 4096;

pub(super) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Waits until `judge` has a result for the unread bytes of the peer, of which it sees the first
    /// [`PEEKED_MAX`]. `None` if the peer has ended before, or if the socket has an error: both show in the
    /// next read. All bytes stay to be read.
    pub(super) async fn peek<T>(&self, judge: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        loop {
            let ready = self.ready().await.ok()?;
            let peeked = self.try_peek(|bytes| judge(bytes).ok_or_else(|| io::ErrorKind::WouldBlock.into()));
            match peeked {
                // More bytes come with a new readiness; after the end there is none.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ready.is_read_closed() => {}
                peeked => return peeked.ok(),
            }
        }
    }

    async fn ready(&self) -> io::Result<Ready> {
        match self {
            Plain::Tcp(stream) => stream.ready(Interest::READABLE).await,
            Plain::Unix(stream) => stream.ready(Interest::READABLE).await,
        }
    }

    /// Shows the unread bytes. The socket is not ready any more if `look` fails with `WouldBlock`.
    fn try_peek<T>(&self, look: impl FnOnce(&[u8]) -> io::Result<T>) -> io::Result<T> {
        let peek = |socket: BorrowedFd<'_>| {
            let mut buffer = [0; PEEKED_MAX];
            let (_, count) = rustix::net::recv(socket, &mut buffer, RecvFlags::PEEK)?;
            look(&buffer[..count])
        };
        match self {
            Plain::Tcp(stream) => stream.try_io(Interest::READABLE, || peek(stream.as_fd())),
            Plain::Unix(stream) => stream.try_io(Interest::READABLE, || peek(stream.as_fd())),
        }
    }

    /// The address of the peer; `None` on a unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Plain::Tcp(stream) => stream.peer_addr().ok(),
            Plain::Unix(_) => None,
        }
    }

    /// Whether the peer has closed the connection, or its sending side, as far as the runtime knows. Bytes
    /// may be left to be read. Makes no system call.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.ready().now_or_never(), Some(Ok(ready)) if ready.is_read_closed())
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Plain::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Plain {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Plain::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Plain::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Plain::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Plain::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixListener};
    use tokio::task::yield_now;

    use super::*;

    /// The first three bytes.
    fn three(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.get(..3)?.to_vec())
    }

    /// A peer that has sent less than its whole hello keeps its handshake from beginning. All bytes stay to
    /// be read.
    async fn begins_with_enough_bytes(mut accepted: Plain, mut peer: impl AsyncWrite + Unpin) {
        {
            let mut peek = pin!(accepted.peek(three));
            for byte in [7, 8] {
                for _ in 0..5 {
                    assert!(peek.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    yield_now().await;
                }
                peer.write_all(&[byte]).await.unwrap();
            }
            assert!(peek.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            peer.write_all(&[9, 10]).await.unwrap();
            assert_eq!(peek.await.unwrap(), [7, 8, 9]);
        }
        assert_eq!(accepted.read_u32().await.unwrap(), 0x0708_090a);
        assert!(!accepted.has_left());
        peer.write_all(&[7]).await.unwrap();
        drop(peer);
        assert_eq!(accepted.peek(three).await, None);
        assert!(accepted.has_left());
        assert_eq!(accepted.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn sec_1_a_handshake_begins_with_enough_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        begins_with_enough_bytes(Plain::Tcp(listener.accept().await.unwrap().0), peer).await;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let peer = UnixStream::connect(&path).await.unwrap();
        begins_with_enough_bytes(Plain::Unix(listener.accept().await.unwrap().0), peer).await;
    }
}
