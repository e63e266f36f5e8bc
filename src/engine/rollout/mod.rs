//! Rollouts: what the clients of a plan say about each push of configuration (TRU, WAV).
//!
//! A *plan* covers *units*: shared sources. The gated changes that reach its units close together are a *push*. The
//! machine leads a push through the steps of the plan and judges the evidence of its clients. In `mode: observe`
//! nothing is held from anybody: the machine tells what it would have done (WAV-19).
//!
//! In order: the plan, as the operator states it; the seat of a client; the content of a push; the evidence of its
//! clients; the machine; and its reports.

pub mod plan;
pub mod seat;
pub mod push;
pub mod tally;
pub mod report;
mod machine;

pub use machine::{Admission, Output, Rollout, RolloutEvent, What};
pub use plan::Plan;
pub use push::{UnitId, UnitPush};
pub use report::{PushReport, RolloutReport, RolloutState};
pub use seat::Seat;
pub use tally::{ClientState, Counts, Tally};
