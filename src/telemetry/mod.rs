//! Observability: the catalogue of metrics, logging, and traces.
//!
//! Telemetry must not slow down serving. Counters are plain atomics behind handles that callers look up once.
//! A log line that can't be written is dropped and counted (FP14).

pub mod metrics;
pub mod logging;
pub mod events;
pub mod rollouts;
pub mod throttle;
mod warnings;
pub mod traces;
mod counted;
mod limit;
mod instruments;
mod cgroup;
mod process;
mod source_state;
mod wall_clock;

pub use cgroup::cgroup_memory_limit;
pub use counted::count_each_second;
pub use metrics::{Limit, Metrics};
pub use process::resident_bytes;
pub use source_state::SourceState;
pub use throttle::Throttle;
pub use wall_clock::wall_now;
pub use warnings::Warnings;
