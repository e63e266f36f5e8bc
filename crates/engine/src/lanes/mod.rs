//! Lanes: the content of a source at two releases beside what its server says now (WAV-1).
//!
//! A source and its caches know nothing of lanes. A source publishes persistent snapshots. A lane is another snapshot
//! that is made from them: the frozen content of the gated types, and the source's own content of all others. Each
//! publication of the source brings the lanes up to date, at the cost of the change: a lane takes over what it does not
//! know, and holds what it knows. Equal views are shared pointers.
//!
//! In order: the policies of types; names that only a lane knows; last bytes; one content for all ways to ask; the content
//! of a type; one lane; releases of the history; the lanes of a source; the content of another unit
//! for first answers; and what a source serves.

mod rule;
mod forgotten;
mod lasts;
mod stated;
mod lane_type;
mod members;
mod lane;
mod release;
mod overlay;
mod anew;
mod renew;
mod elder;
mod published;
#[cfg(test)]
mod tests;

pub use elder::Elder;
pub use overlay::{Differences, Lanes};
pub use published::{Published, PublishedLanes, Wakes};
pub use release::{Release, Restated};
pub use stated::{held, held_name, known_wildcard};
