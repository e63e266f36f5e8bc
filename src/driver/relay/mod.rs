//! All streams and sources together. Each file uses only the files before it.

mod newcomers;
pub mod memory;
pub mod reload;
pub mod handle;
pub mod walk;
mod changes;
pub mod inspect;
pub mod content;
pub mod splits;
mod explain;
mod clients;
mod control;
pub mod handover;

pub use handle::Relay;
