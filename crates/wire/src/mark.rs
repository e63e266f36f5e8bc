//! A mark (ADR 14) as a field of a `DeltaDiscoveryResponse`. The protocol does not define the field, so other
//! peers skip the field as unknown.
//!
//! ```text
//! message SetMark { uint64 requests = 1; bool whole = 2; repeated string globs = 3; }
//! ```

use super::fields::{Fields, Malformed, Sink, put_bytes, put_message, put_varint};
use sluice_xds::mark::GLOBS_MAX;
use sluice_xds::{ResourceName, SetMark};

/// Far above the field numbers in use by the protocol, and below the numbers that cost one more byte.
const FIELD: u32 = 61_518;

pub(super) fn put(sink: &mut dyn Sink, mark: &SetMark) {
    put_message(sink, FIELD, |message| {
        put_varint(message, 1, mark.requests);
        put_varint(message, 2, u64::from(mark.whole));
        for glob in &mark.globs {
            put_bytes(message, 3, glob.as_str().as_bytes());
        }
    });
}

/// The mark in a `DeltaDiscoveryResponse`. An unreadable mark is ignored.
pub fn read_mark(message: &[u8]) -> Option<SetMark> {
    let field = Fields::of(message).find(|field| matches!(field, Ok((FIELD, _)) | Err(_)))?;
    read(field.ok()?.1.bytes().ok()?).ok()
}

fn read(message: &[u8]) -> Result<SetMark, Malformed> {
    let mut mark = SetMark::default();
    for field in Fields::of(message) {
        match field? {
            (1, payload) => mark.requests = payload.varint()?,
            (2, payload) => mark.whole = payload.varint()? != 0,
            (3, payload) if mark.globs.len() < GLOBS_MAX => {
                mark.globs.push(ResourceName::received(payload.text()?));
            }
            _ => {}
        }
    }
    Ok(mark)
}
