//! Fleet safety: a machine per plan, and the evidence of its clients.
//!
//! Pure, as the engine is. Two seams join the two. The *gate*: a source publishes the releases that it has
//! ([`sluice_engine::lanes::Published`]), and an [`Admission`](rollout::Admission) says which of them a client may be served. The
//! *ledger*: a session tells of each part of its subscriptions what the client was sent, and answered
//! ([`Session::sent_parts`](sluice_engine::downstream::Session::sent_parts)). Streams and sources know nothing else of plans.

pub mod rollout;
pub mod evidence;
