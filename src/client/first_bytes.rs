//! The first bytes of a server: they tell a server that does not speak TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::ByteStream;

/// The head of an HTTP/2 frame.
const HEAD: usize = 9;

/// The types of TLS records: change_cipher_spec, alert, handshake, application_data (RFC 8446, section 5.1).
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;

/// A socket that keeps the first bytes it has received.
pub(super) struct FirstBytes {
    socket: Box<dyn ByteStream>,
    bytes: [u8; HEAD],
    length: usize,
}

impl FirstBytes {
    pub(super) fn new(socket: Box<dyn ByteStream>) -> FirstBytes {
        FirstBytes { socket, bytes: [0; HEAD], length: 0 }
    }

    /// A description of the first bytes, unless they are TLS or there are none.
    pub(super) fn not_tls(&self) -> Option<String> {
        describe(self.bytes.get(..self.length).unwrap_or_default())
    }
}

fn describe(bytes: &[u8]) -> Option<String> {
    let first = bytes.first()?;
    if RECORDS.contains(first) {
        return None;
    }
    if bytes.starts_with(b"HTTP/") {
        return Some("an HTTP/1 response".to_owned());
    }
    // Type and stream of a frame; stream 0 is the connection.
    if let [0, _, _, kind @ (4 | 7), _, 0, 0, 0, 0] = bytes {
        let kind = if *kind == 4 { "SETTINGS" } else { "GOAWAY" };
        return Some(format!("an HTTP/2 {kind} frame"));
    }
    let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(text.join(" "))
}

impl AsyncRead for FirstBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(context, buffer);
        if self.length < HEAD {
            let at = self.length;
            let new = buffer.filled().get(before..).unwrap_or_default();
            let count = new.len().min(HEAD - at);
            for (kept, byte) in self.bytes.iter_mut().skip(at).zip(new) {
                *kept = *byte;
            }
            self.length += count;
        }
        result
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn tls_7_plaintext_is_named_by_its_first_bytes() {
        for (bytes, text) in [
            (&b""[..], None),
            (&[0x16, 3, 3], None),
            (&[0x15, 3, 3], None),
            (&[0, 0, 18, 4, 0, 0, 0, 0, 0], Some("an HTTP/2 SETTINGS frame")),
            (&[0, 0, 8, 7, 0, 0, 0, 0, 0], Some("an HTTP/2 GOAWAY frame")),
            (b"HTTP/1.1 ", Some("an HTTP/1 response")),
            (b"SSH-", Some("53 53 48 2d")),
        ] {
            assert_eq!(describe(bytes).as_deref(), text);
        }
    }
}
