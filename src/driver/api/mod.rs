//! The relay as other rooms see it.

pub mod downstream;
pub mod status;
pub mod content;
pub mod control;
