//! A source: one server, as one node class sees it.
//!
//! A source consists of the collections of its sessions, the cache, and the upstream streams or files that
//! fill the cache. Sessions pull: a source never hands out an update, but publishes a
//! [`Snapshot`](super::snapshot::Snapshot) and names the sessions to wake. One task owns a source.
//!
//! Drive a source with [`Source::watch`], [`Source::unwatch`], [`Source::handle_upstream`],
//! [`Source::handle_files`] and [`Source::handle_timeout`]. After each call, drain [`Source::poll_output`]
//! and take [`Source::take_snapshot`].
mod attachment;
mod api;
mod linger;
mod type_cache;
mod content_bound;
mod mass_deletion;
mod upkeep;
mod checkpoint;
mod sessions;
mod publication;
mod machine;

pub use super::collection::CollectionKey;
pub use api::{SourceOutput, SourceSettings, StreamIndex, UNWATCHED_BYTES, is_mass};
pub use attachment::{Attachment, Files, Streams, SuspectType};
pub use checkpoint::{Image, Kept, RestoredType};
pub use content_bound::NoRoom;

pub use machine::Source;
