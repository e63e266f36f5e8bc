//! Downstream streams.

pub mod private_part;
pub mod refusal;
pub mod diversions;
pub mod state;
pub mod subscriber;
pub mod routes;
pub mod authorization;
pub mod requests;
pub mod divert;
pub mod refused_types;
pub mod fallback;
pub mod hold_log;
pub mod unsent;
pub mod responses;
pub mod poll;
pub mod handle;
