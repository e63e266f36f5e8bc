//! Evidence of sessions and lanes, on the benches of the engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod flowing;
mod halted;
mod known;
mod moves;
mod rejections;
mod standing;
mod without_evidence;
