//! What the relay tells about itself: the catalogue of metrics, and logging.
//!
//! Nothing in here may slow serving down: counters are plain atomics behind handles that their users found once,
//! and a log line that can't be written is dropped and counted (FP14).

pub mod metrics;
pub mod logging;
pub mod throttle;
mod limit;
mod instruments;
mod cgroup;
mod process;
mod source_state;
mod wall_clock;

pub use cgroup::cgroup_memory_limit;
pub use metrics::{Limit, Metrics};
pub use process::resident_bytes;
pub use source_state::SourceState;
pub use throttle::Throttle;
pub use wall_clock::wall_now;
