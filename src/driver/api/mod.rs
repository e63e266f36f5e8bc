//! The relay as other rooms see it.

pub mod downstream;
pub mod emptying;
pub mod why;
pub mod status;
pub mod content;
pub mod clients;
pub mod changes;
pub mod control;
