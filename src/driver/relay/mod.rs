//! All streams and sources together.

pub mod hub;
pub mod memory;
pub mod inspect;
pub mod control;
