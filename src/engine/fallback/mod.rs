//! Which server of a list serves (A71, A95).

mod settings;

pub use settings::{Policy, Settings};
