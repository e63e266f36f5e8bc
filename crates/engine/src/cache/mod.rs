//! The states of the resources of one source: PRESENT, ABSENT or UNKNOWN (RLY-2).
//!
//! Named resources, the wildcard's members and the members of globs are in separate caches that never answer
//! for each other (RLY-13).

pub mod aliased;
mod content;
mod unasked;
pub mod departed;
pub mod expiry;
pub(super) mod members;
pub mod kind;
pub mod slots;
pub mod watchers;
pub mod state;
mod news;
pub mod named;
pub mod wildcard;
pub mod globs;
#[cfg(test)]
mod tests;

pub use departed::Departed;
pub use expiry::Expiry;
pub use globs::GlobCache;
pub use kind::{Entry, KindCache, PrivateNames};
pub use named::NamedCache;
pub use news::{CacheChange, News, SessionId, Stamp};
pub use state::{
    Bodies, CacheCounts, CachedBodies, CachedResource, EntryState, Known, Names, StateCounts,
    UNWATCHED_BYTES, weight,
};
pub use unasked::UnaskedNames;
pub use wildcard::WildcardCache;
