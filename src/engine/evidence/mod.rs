//! The evidence for and against a push: the content of the push, what clients say about it, and what they said before
//! (TRU, QUA).
//!
//! Everything is derived from snapshots and sessions. In order: the content of a push; the memory of rejections; and the
//! count of clients.

mod content;
mod rejecters;
mod clients;

pub use clients::{Clients, Ended, LOST_WITHIN, Leavers, Seen, TallyInMaking, WINDOW};
pub use content::{compare, condemn, is_current, renew, unit_of};
pub use rejecters::{Content, Rejecters};
