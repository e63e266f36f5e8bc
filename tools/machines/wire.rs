//! The codec: `src/wire` without the messages that a build script makes, and without JSON.

#[path = "../../src/wire/fields.rs"]
mod fields;
#[path = "../../src/wire/dynamic.rs"]
mod dynamic;
#[path = "../../src/wire/frame.rs"]
mod frame;
#[path = "../../src/wire/status.rs"]
mod status;
#[path = "../../src/wire/mark.rs"]
mod mark;
#[path = "../../src/wire/deframe/mod.rs"]
#[allow(unused_imports, reason = "JSON uses one more")]
pub mod deframe;
#[path = "../../src/wire/response/mod.rs"]
pub mod response;
#[path = "../../src/wire/version.rs"]
pub mod version;
#[path = "../../src/wire/own_name.rs"]
pub mod own_name;
#[path = "../../src/wire/upstream/mod.rs"]
pub mod upstream;

pub use deframe::{NAME_IN_REQUEST_BYTES, ReaderLimits, RequestReader};
pub use fields::Malformed;
pub use frame::{Bound, ReadError, ResponseReader};
pub use mark::read_mark;
