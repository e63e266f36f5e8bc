//! The backoff towards a server, for connections (`client`) and for streams (`engine::upstream`) alike.

use std::time::Duration;

use super::{Range, ms, seconds, settings, time};

/// Below 10 ms, attempts would load a server that is down already.
const DELAYS: Range = time(ms(10)..=seconds(600));

settings! {
    /// The delay between attempts without a response: `initial`, multiplied by 1.6 each time, at most `max`,
    /// ±20 % (CLI-4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Backoff {
        /// The delay after the first failure: 1 s, as in gRPC (FU1).
        initial: Duration = seconds(1), DELAYS;
        /// The maximum, before its jitter. Below gRPC's 120 s, as a late relay delays thousands of clients.
        max: Duration = seconds(30), DELAYS;
    }
}
