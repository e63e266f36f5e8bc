//! An upgrade without a refused connection: the process as a successor, and as a predecessor of the next
//! process (HND-1 to HND-7).
//!
//! 1. [`Start`]: the environment at the start. `pool`: sockets from others.
//! 2. `successor`: takes over from the predecessor.
//! 3. `ways`: the sockets of the process, and the way to a successor. `upgrader`: starts the successor, and
//!    steps back. `attempt`: a single hand-over.
//! 4. `watchdog`: signs of life for the supervisor.

mod attempt;
mod pool;
mod start;
pub(super) mod successor;
pub(super) mod upgrader;
pub(super) mod watchdog;
mod ways;

pub(super) use pool::AdoptedConnections;
pub use start::{Start, StartRefusal};
pub(super) use ways::Ways;
