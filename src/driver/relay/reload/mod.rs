//! The effects of another configuration, before it is in force (REL-7).

mod loosened;
pub mod plan;
