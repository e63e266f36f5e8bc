//! Parts that the driver's tasks share. None of them uses a task.

pub mod limits;
pub mod clock;
pub mod registry;
pub mod rate;
pub mod signal;
pub mod account;
pub mod connection;
pub mod unread;
pub mod servers;
pub mod class_identity;
pub mod source_key;
pub mod encoder;
pub mod checkpoint_writer;
pub mod inheritance;
pub mod presented_views;
pub mod shared_content;
pub mod fallback_log;
pub mod once_logs;
pub mod memory_gauge;
pub mod tails;
pub mod leavers;
pub mod plans;
pub mod proof_rules;
pub mod durable;
pub mod context;
