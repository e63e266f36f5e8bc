//! Sources: what one server tells one node class, followed by one task each.

pub mod link;
pub mod handle;
pub mod health;
pub mod member;
pub mod checkpoint;
pub mod report;
pub mod task;
pub mod room;
pub mod refusals;
pub mod table;
