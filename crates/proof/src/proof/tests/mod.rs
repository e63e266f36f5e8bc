//! The machine against a scripted server.

#![allow(clippy::unwrap_used)]

pub mod bench;
mod asking;
mod bounds;
mod verdicts;
mod witnesses;
