//! The pure state machines: every decision of the relay, and nothing else.
//!
//! The engine reads no clock, draws no entropy, opens no socket or file, starts no task, waits on no channel,
//! takes no lock and counts no metric. The driver passes time as [`Time`] and jitter as a number. Each
//! machine has closed enums for inputs and outputs: `handle(input, now)`, drain `poll_output()`, read
//! `poll_timeout()`, call `handle_timeout(now)`. Equal inputs give equal outputs, byte for byte.

pub mod time;
pub mod reachability;
pub mod last_word;
mod filling;
pub mod commons;
pub mod collection;
pub mod precedence;
pub mod annotations;
pub mod change;
pub mod view;
pub mod gated;
pub mod snapshot;
pub mod class;
pub mod authority;
pub mod authorization;
pub mod upstream;
pub mod cache;
pub mod lanes;
pub mod source;
pub mod fallback;
pub mod downstream;

pub use time::Time;

/// Debug builds check the tables of names after each step. A check visits all names, so larger tables are not
/// checked.
const CHECKED_NAMES_MAX: usize = 2_000;
