//! The relay as other rooms see it.

pub mod downstream;
pub mod emptying;
pub mod status;
pub mod control;
