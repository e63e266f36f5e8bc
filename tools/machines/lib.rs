//! The machines of the relay and the codec for their bytes, without the crates of I/O.
//!
//! The rooms are the files under `src`, and `wire` is a part of its room.

// The rooms' own tests run in the relay's package, which has the crates for them.
#![cfg(not(test))]

#[path = "../../src/xds/mod.rs"]
pub mod xds;
#[path = "../../src/setting/mod.rs"]
pub mod setting;
#[path = "../../src/identity/mod.rs"]
pub mod identity;
#[path = "../../src/engine/mod.rs"]
pub mod engine;
#[path = "../../src/checkpoint/mod.rs"]
pub mod checkpoint;
pub mod wire;
