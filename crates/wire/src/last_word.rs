//! A last word (ADR 101) as a message in the place of a response. Its only field is none of the protocol.
//!
//! ```text
//! message LastWord { bool is_known = 1; uint64 milliseconds = 2; }
//! ```

use std::time::Duration;

use bytes::Bytes;

use super::fields::{Fields, Malformed, build, put_message, put_varint};
use super::frame::{self, HEADER_LEN};
use sluice_xds::LastWord;

/// Beside the field of marks ([`super::mark`]).
const FIELD: u32 = 61_519;

/// The message, framed for gRPC.
pub fn encode_last_word(word: LastWord) -> Bytes {
    let mut message = build(HEADER_LEN, |sink| {
        put_message(sink, FIELD, |fields| {
            let LastWord(age) = word;
            put_varint(fields, 1, u64::from(age.is_some()));
            let milliseconds = age.unwrap_or_default().as_millis();
            put_varint(fields, 2, u64::try_from(milliseconds).unwrap_or(u64::MAX));
        });
    });
    let length = message.len() - HEADER_LEN;
    message[..HEADER_LEN].copy_from_slice(&frame::header(length).unwrap_or_default());
    message.into()
}

/// The last word in a message; `None` for a response.
pub fn read_last_word(message: &[u8]) -> Option<LastWord> {
    match Fields::of(message).next()?.ok()? {
        (FIELD, payload) => read(payload.bytes().ok()?).ok(),
        _ => None,
    }
}

fn read(message: &[u8]) -> Result<LastWord, Malformed> {
    let (mut is_known, mut milliseconds) = (false, 0);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => is_known = payload.varint()? != 0,
            (2, payload) => milliseconds = payload.varint()?,
            _ => {}
        }
    }
    Ok(LastWord(is_known.then(|| Duration::from_millis(milliseconds))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tir_2_a_last_word_is_read_as_written_and_no_response_is_one() {
        let ages = [None, Some(Duration::ZERO), Some(Duration::from_millis(61_001))];
        for age in ages {
            let message = encode_last_word(LastWord(age));
            assert_eq!(read_last_word(&message[HEADER_LEN..]), Some(LastWord(age)));
        }
        let longest = encode_last_word(LastWord(Some(Duration::MAX)));
        let longest = read_last_word(&longest[HEADER_LEN..]);
        assert_eq!(longest, Some(LastWord(Some(Duration::from_millis(u64::MAX)))));
        for other in [&b""[..], b"\x0a\x011", b"\xfa\x83\x1e\x01", b"\xfa"] {
            assert_eq!(read_last_word(other), None, "{other:?}");
        }
    }
}
