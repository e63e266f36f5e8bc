//! Sources. A source has the resources of one server for one node class, and a task of its own.

pub mod link;
pub mod changes;
pub mod losses;
pub mod lane_order;
pub mod handle;
pub mod silent;
pub mod keeper;
pub mod contact;
pub mod member;
pub mod witness;
pub mod checkpoint;
pub mod report;
mod anew;
mod task;
mod start;
pub mod class_users;
pub mod refusals;
pub mod rejected;
pub mod table;
pub mod shadow;
pub mod asker;
