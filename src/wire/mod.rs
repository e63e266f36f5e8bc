//! The codec: bytes of the wire to the words of [`crate::xds`] and back.
//!
//! Everything here is a function of its input: no task, no clock, no socket. What peers send is walked field by
//! field in protobuf's wire format, so that limits are checked before memory is taken, payloads are never decoded
//! (TYP-7), and a message is never held twice. Towards clients a response is encoded once for all of them, behind
//! a small head of each stream's own.

mod fields;
mod dynamic;
mod frame;
mod status;
mod mark;

pub mod proto;
pub mod deframe;
pub mod response;
pub mod version;
pub mod upstream;
pub mod json;

pub use deframe::{NAME_IN_REQUEST_BYTES, ReaderLimits, RequestReader};
pub use fields::Malformed;
pub use frame::{Bound, ReadError, ResponseReader};
pub use mark::read_mark;
