//! The socket of a connection, below TLS.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

pub(super) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Waits for bytes of the peer, or for its end. An error shows in the next read.
    ///
    /// Peeks: the runtime takes an accepted socket for readable until the first attempt.
    pub(super) async fn readable(&self) {
        let mut byte = [MaybeUninit::uninit()];
        let _ = match self {
            Plain::Tcp(stream) => {
                stream.async_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)).await
            }
            Plain::Unix(stream) => {
                stream.async_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)).await
            }
        };
    }

    /// Whether the peer has closed the connection and left no bytes. Bytes that wait to be read stay.
    pub(super) fn has_left(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Plain::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            Plain::Unix(stream) => SockRef::from(stream).peek(&mut byte),
        };
        match peeked {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
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

    /// A silent peer keeps its handshake from beginning; its first byte stays to be read.
    async fn begins_with_the_first_byte(mut accepted: Plain, mut peer: impl AsyncWrite + Unpin) {
        {
            let mut readable = pin!(accepted.readable());
            for _ in 0..5 {
                assert!(readable.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                yield_now().await;
            }
            peer.write_all(&[7]).await.unwrap();
            readable.await;
        }
        assert_eq!(accepted.read_u8().await.unwrap(), 7);
        drop(peer);
        accepted.readable().await;
        assert!(accepted.has_left());
    }

    #[tokio::test]
    async fn sec_1_a_fresh_socket_is_readable_with_the_first_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        begins_with_the_first_byte(Plain::Tcp(listener.accept().await.unwrap().0), peer).await;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let peer = UnixStream::connect(&path).await.unwrap();
        begins_with_the_first_byte(Plain::Unix(listener.accept().await.unwrap().0), peer).await;
    }
}
