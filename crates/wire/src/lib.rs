//! The codec between the bytes of the wire and the types of [`sluice_xds`].
//!
//! Every function here depends on its input only: no task, no clock, no socket. Input from peers is read
//! field by field in protobuf's wire format. Limits are checked before memory is allocated, payloads are
//! never decoded (TYP-7), and no message is held twice. A response to clients is encoded once for all of
//! them; each stream adds only a small head.

pub mod fields;
mod dynamic;
pub mod frame;
mod status;
mod mark;
mod last_word;
pub mod coding;

pub mod deframe;
pub mod response;
pub mod version;
pub mod own_name;
pub mod upstream;

pub use deframe::{NAME_IN_REQUEST_BYTES, ReaderLimits, RequestReader, read_node};
pub use fields::Malformed;
pub use frame::{Bound, ReadError, ResponseReader};
pub use last_word::{encode_last_word, read_last_word};
pub use mark::read_mark;
