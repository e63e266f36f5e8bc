//! Tasks that drive one machine each: the only place that reads the clock and draws entropy.
//!
//! [`Hub`] opens downstream streams and owns the table of sources. Each source has one task (`source`), which alone
//! touches its machine and publishes immutable snapshots. A stream's machine stands under one uncontended lock
//! (`stream`), held for one call by whoever has something for it: the task that reads its requests, or the response body
//! that the connection polls. Nothing is queued for a client: it is woken, and pulls.

pub mod handle;
pub mod status;
pub mod clock;
mod limiter;
mod encode;
mod hub;
mod source;
mod upstream;
mod stream;
mod poll;
mod view;

pub use hub::{Attach, Hub, Settings};
