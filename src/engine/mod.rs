//! The pure machines: every decision of the relay, and nothing else.
//!
//! Nothing in here reads a clock, draws entropy, opens a socket or a file, starts a task, waits on a channel, takes
//! a lock or counts a metric. Time is [`Time`], handed in; jitter is a number, handed in. Each machine takes closed
//! enums in and gives closed enums out: `handle(input, now)`, drain `poll_output()`, read `poll_timeout()`, call
//! `handle_timeout(now)`. The same inputs give the same outputs, byte for byte.

pub mod planted;
pub mod time;
pub mod reach;
pub mod interest;
pub mod remarks;
pub mod view;
pub mod snapshot;
pub mod class;
pub mod realm;
pub mod upstream;
pub mod cache;
pub mod source;
pub mod fallback;
pub mod downstream;

pub use time::Time;
