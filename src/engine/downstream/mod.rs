//! The server side of the protocol: a [`Session`] per downstream stream, with a [`Subscription`] per type.
//!
//! SotW and delta share the same core. Requests change a subscription in different ways ([`subscription`]).
//! Responses have different forms, but bring a client from its content to its target in both variants
//! ([`answer`]).

pub mod answer;
#[cfg(feature = "planted")]
mod askew;
pub mod dialect;
pub mod flight;
pub mod order;
pub mod rest;
mod owed;
pub mod spelling;
mod located;
mod marks;
pub mod memory;
pub mod routing;
pub mod session;
pub mod subscription;
pub mod views;
mod served;
mod held;
mod wait;
mod whole;
#[cfg(test)]
mod tests;

pub use answer::{Answer, AnswerKey, Composition};
pub use dialect::Dialect;
pub use flight::Verdict;
pub use held::{HeldNews, Why};
pub use routing::{Router, Watch};
pub use session::{Limits, Session, Taken};
pub use subscription::{SourceId, Subscription};
pub use views::{List, Moved, Shift};
pub use wait::Hold;
