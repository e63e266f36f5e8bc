//! Lanes: the content of a source at two releases beside what its server says now (WAV-1).
//!
//! A source and its caches know nothing of lanes. A source publishes persistent snapshots. A lane is another
//! snapshot that is made from them: the frozen content of the gated types, and the source's own content of
//! all others. Each publication of the source brings the lanes up to date, at the cost of the change: a lane
//! takes over the names that it does not know, and holds those that it knows. Equal views are shared
//! pointers.
//!
//! In order, each above the files that it uses: the policies of types; the last bytes of other lanes; one
//! content for all ways to ask; the content of another unit for first answers; the content of a type;
//! releases of the history; one lane; the snapshots that a source serves; all lanes of a source; and their
//! way from push to push.

mod rule;
mod last_bytes;
mod stated;
mod elder;
mod lane_type;
mod release;
mod lane;
mod published;
mod lane_set;
mod overlay;
#[cfg(any(test, feature = "bench"))]
pub mod tests;

pub use elder::{Elder, known_wildcard};
pub use overlay::{Differences, Lanes};
pub use published::{Published, PublishedLanes, Waiting, Wakes};
pub use release::{Release, Restated};
pub use stated::{held, held_name};
