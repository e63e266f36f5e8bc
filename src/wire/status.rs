//! `google.rpc.Status`, as NACKs and resource errors carry it.

use super::fields::{Fields, Malformed, Sink, put_bytes, put_message, put_varint};
use crate::xds::{Code, Status};

/// Bytes of a status message that are kept and sent: it is for people only, and proxies cut theirs there too.
pub(super) const MESSAGE_BYTES: usize = 4 << 10;

/// Of the message the first `max_bytes` bytes are kept. Bytes that are no text, such as a peer leaves that cuts
/// within a character, do not make it unreadable.
pub(super) fn read(status: &[u8], max_bytes: usize) -> Result<Status, Malformed> {
    let (mut code, mut message) = (Code::Ok, &[][..]);
    for field in Fields::of(status) {
        match field? {
            // Negative numbers travel as 64 bits.
            (1, payload) => code = Code::from_number(payload.varint()? as i32),
            (2, payload) => message = payload.bytes()?,
            _ => {}
        }
    }
    Ok(Status::new(code, truncated(message, max_bytes)))
}

pub(super) fn put(sink: &mut dyn Sink, number: u32, status: &Status) {
    let message = truncated(status.message.as_bytes(), MESSAGE_BYTES);
    put_message(sink, number, |sink| {
        put_varint(sink, 1, status.code as u64);
        put_bytes(sink, 2, message.as_bytes());
    });
}

/// The beginning of a text, cut between characters.
fn truncated(bytes: &[u8], max_bytes: usize) -> String {
    // A character that begins before the cut ends at most three bytes after it.
    let bytes = &bytes[..bytes.len().min(max_bytes.saturating_add(3))];
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.truncate(text.floor_char_boundary(max_bytes));
    text
}
