//! Tasks that drive one machine each.

pub mod handle;
pub mod status;
