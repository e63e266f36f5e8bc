//! The hand-over of sockets and state from a process to a successor, over a socketpair (HND-2).
//!
//! The predecessor starts the successor with an end of a socketpair as the standard input. Each message is a
//! head in JSON, with descriptors beside. Both sides skip unknown keys and unknown messages, so that builds
//! of different age understand each other; a number guards against the rest. All calls block, so callers run
//! them outside async tasks.
//!
//! - [`frame`]: bytes and descriptors of a message. [`message`]: the messages, in order.
//! - [`memory`]: state in sealed memory, never on a disk.
//! - [`start`]: the start of the successor, and the first look at the environment. [`supervisor`]: systemd.

pub mod frame;
pub mod message;
pub mod memory;
pub mod start;
pub mod supervisor;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use frame::Channel;
pub use message::HandoverMessage;

use sluice_setting::{Setting, hours, minutes, ms, seconds, time};

/// The window in which the streams of the predecessor end, each at a random moment. Long enough for 10,000
/// clients to come back without a queue for first answers; short enough for an operator to wait for.
pub const DRAIN: Setting<Duration> = Setting::new("drain", seconds(60), time(ms(0)..=hours(1)));

/// The time from the start of the successor until the new process accepts (HND-3). A late successor is ended,
/// and the predecessor serves on.
pub const TIMEOUT: Setting<Duration> = Setting::new("timeout", seconds(30), time(ms(100)..=minutes(10)));

/// `handover` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverSettings {
    /// See [`DRAIN`].
    pub drain: Duration,
    /// See [`TIMEOUT`].
    pub timeout: Duration,
    /// The executable of the successor; `None`: the path of the start.
    pub binary: Option<PathBuf>,
}

impl Default for HandoverSettings {
    fn default() -> HandoverSettings {
        HandoverSettings { drain: DRAIN.default, timeout: TIMEOUT.default, binary: None }
    }
}

/// The reason why a hand-over ended early.
#[derive(Debug, thiserror::Error)]
pub enum HandoverFault {
    #[error("the other process has closed the connection")]
    Closed,
    #[error("the message ends after {got} of {expected} bytes")]
    Cut { got: usize, expected: usize },
    #[error("a message of {0} bytes; at most {max} are read", max = frame::HEAD_BYTES_MAX)]
    TooLong(usize),
    #[error("a message with {0} descriptors; at most {max} are taken", max = frame::DESCRIPTORS_MAX)]
    TooMany(usize),
    #[error("a descriptor is missing")]
    NoDescriptor,
    #[error("the message is not understood: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the message {received} came instead of {expected}")]
    Unexpected { received: &'static str, expected: &'static str },
    #[error("the other process speaks the protocols {theirs_from} to {theirs_to}, this one {from} to {to}",
        from = message::OLDEST, to = message::NEWEST)]
    Protocol { theirs_from: u32, theirs_to: u32 },
    #[error("the state is not sealed")]
    Unsealed,
    #[error("a part of the state has {0} bytes; at most {max} are read", max = memory::PART_BYTES_MAX)]
    PartTooLong(u64),
    #[error("no answer in time")]
    Silent,
    /// The other process says why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}
