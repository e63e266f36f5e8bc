//! The worlds of rollouts: sources with a plan in force, whose pushes reach clients by steps (WAV).
//!
//! The machines of a unit (the source and its lanes), of a stream (the session) and of the plan (the rollout) run together.
//! The worlds have their own judge: the other worlds expect every client to be sent the newest content.

mod acts;
mod anew;
mod claims;
mod client;
mod content;
mod elders;
mod fallback;
mod hook;
mod judge;
mod newcomers;
mod pilot;
mod places;
mod plan;
mod reference;
mod relay;
mod restart;
mod upstream;
mod world;

pub use plan::WavePlan;
pub use world::{Idle, compare_idle, run};
