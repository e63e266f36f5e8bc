//! Fleet safety: a machine per plan, and the evidence of its clients.
//!
//! Pure, as the engine is. Two seams join the two. The *gate*: a source publishes all of its releases
//! ([`sluice_engine::lanes::Published`]), and an [`Admission`](rollout::Admission) chooses the release for a
//! client. The *ledger*: a session tells the sent and the answered content of each part of a subscription
//! ([`Session::sent_parts`](sluice_engine::downstream::Session::sent_parts)). Streams and sources know
//! nothing else of plans.

pub mod rollout;
pub mod evidence;
