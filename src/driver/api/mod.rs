//! The relay as other rooms see it.

pub mod downstream;
pub mod emptying;
pub mod why;
pub mod evidence;
pub mod status;
pub mod content;
pub mod estate;
pub mod clients;
pub mod change_name;
pub mod changes;
pub mod rollouts;
pub mod proof;
pub mod study;
pub mod load;
pub mod tail;
pub mod control;
pub mod reload;
