//! When to open the next stream.

use std::time::Duration;

/// Exponential backoff between streams that were not answered (CLI-4).
#[derive(Clone, Debug)]
pub struct BackoffSettings {
    pub initial: Duration,
    pub multiplier: f64,
    /// The share by which a delay is made shorter or longer at random: 0.2 is ±20 %.
    pub jitter: f64,
    /// The bound of a delay, before jitter.
    pub cap: Duration,
    /// After a stream that was answered the next one is opened within this time (CLI-5).
    pub good_stream_jitter: Duration,
    /// A stream that was answered but ended younger than this is short: the second one in a row and all that
    /// follow back off like streams that were not answered, so that a server that answers and dies over and over
    /// makes no hot loop.
    pub short_life: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            initial: Duration::from_secs(1),
            multiplier: 1.6,
            jitter: 0.2,
            cap: Duration::from_secs(30),
            good_stream_jitter: Duration::from_millis(100),
            short_life: Duration::from_secs(10),
        }
    }
}
