//! The evidence for and against a push: the content of the push, the answers of clients, and their earlier
//! answers (TRU, QUA).
//!
//! Everything is derived from snapshots and sessions. In order: the content of a push; a memory of contents;
//! the memory of rejections; first answers with refused contents; clients with lost streams whatever the
//! content; suspects with acceptances; and the count of clients.

mod push_set;
mod push_standing;
mod without_evidence;
mod content;
mod known_contents;
mod remembered;
mod rejecters;
mod first_answers;
mod excuses;
mod accepted_suspects;
mod clients;
#[cfg(test)]
mod tests;

pub use clients::{Clients, Ended, LOST_WITHIN, Seen, TallyInMaking};
pub use content::{compare, condemn, is_current, renew, returned, sum_up};
pub use excuses::{Leavers, WINDOW};
pub use first_answers::{GivenContents, condemned_in};
pub use known_contents::{Comparison, KnownContents};
pub use push_set::{Extent, PushSet, PushType, PushUnit, PushedName};
pub use push_standing::{Compared, PushRejection, PushStanding};
pub use rejecters::{Rejecters, RejectingNodes};
pub use remembered::{CONTENTS_MAX, CondemnedContents, Content, REMEMBERED_FOR, Remembered};
pub use without_evidence::WithoutEvidence;
