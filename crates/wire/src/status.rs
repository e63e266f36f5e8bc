//! `google.rpc.Status` in NACKs and resource errors.

use super::fields::{Fields, Malformed, Sink, put_bytes, put_message, put_varint};
use sluice_xds::{Code, Status};

/// The maximum size of a status message, read or written. The text is only for humans, and proxies cut theirs
/// at the same size.
pub(super) const MESSAGE_BYTES: usize = 4 << 10;

/// Reads a status, with at most `max_bytes` bytes of its message. A peer may have cut the message within a
/// character; invalid UTF-8 therefore is replaced, and is no error.
pub(super) fn read(status: &[u8], max_bytes: usize) -> Result<Status, Malformed> {
    let (mut code, mut message) = (Code::Ok, &[][..]);
    for field in Fields::of(status) {
        match field? {
            // Negative numbers are encoded in 64 bits.
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
    // A character that begins before the cut ends at most three bytes after the cut.
    let bytes = &bytes[..bytes.len().min(max_bytes.saturating_add(3))];
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.truncate(text.floor_char_boundary(max_bytes));
    text
}
