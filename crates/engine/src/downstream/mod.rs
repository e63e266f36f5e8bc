//! The server side of the protocol: a [`Session`] per downstream stream, with a [`Subscription`] per type.
//!
//! SotW and delta share the same core. Requests change a subscription in different ways ([`subscription`]).
//! Responses have different forms, but bring a client from its content to its target in both variants
//! ([`answer`]). Each folder uses only the folders before it.

mod memory;
mod sources;
mod order;
mod answer;
mod subscription;
mod session;
#[cfg(any(test, feature = "bench"))]
pub mod tests;

pub use answer::AnswerKey;
pub use answer::chunk::Chunk;
pub use answer::client_features::{ClientFeatures, tells_ttl, upstream_features};
pub use answer::compose::Composition;
pub use answer::rest::ToldNames;
pub use answer::{Answer, AnswerPart};
pub use memory::SUBSCRIBED_NAME_BYTES;
pub use session::Session;
pub use session::entitlement::{Excess, Limits, Regrant};
pub use session::report::{TypeReport, UnsentNews, WhyUnsent};
pub use session::request::{Portion, RequestOutcome};
pub use session::router::{List, Router, Watch};
pub use session::routing::{Adopted, Look, Moved, NoRoomFor, Shift};
pub use session::standing::{ClientState, ClientTypeState, SILENT_AFTER, SentPart, SentPlace};
pub use sources::{ChangeId, ListId, SourceId};
pub use subscription::Subscription;
pub use subscription::carried::{Passed, Unsettled};
pub use subscription::ledger::{HeldVersion, Ledger, NameEntry, NameKnowledge, NameStanding};
pub use subscription::name_wait::NameWait;
pub use subscription::nonces::Verdict;
pub use subscription::part::Part;
pub use subscription::parts::PartList;
pub use subscription::suspects::{Nack, Suspect, Suspects};
