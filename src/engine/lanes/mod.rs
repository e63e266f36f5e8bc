//! Lanes: the content of a source at two releases beside what its server says now.

mod published;

pub use published::{Published, PublishedLanes};
