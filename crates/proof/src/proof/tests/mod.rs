//! The machine against a scripted server.

#![allow(clippy::unwrap_used)]

pub mod bench;
mod fleet;
mod asking;
mod bounds;
mod splits;
mod verdicts;
mod witnesses;
