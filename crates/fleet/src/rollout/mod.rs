//! Rollouts: the pushes of configuration, and the answers of the clients of a plan (TRU, WAV).
//!
//! A *plan* covers *units*: shared sources. Gated changes at units close together are a *push*. The machine
//! leads a push through the steps of the plan and judges the evidence of clients. In `mode: observe` nothing
//! is held from anybody: the machine tells what it would have done (WAV-19). In `mode: enforce`, clients get
//! a push when they are admitted.
//!
//! In order: the hook, as the operator states it; what replicas share; the plan; the seat of a client; the
//! content of a push; contents that a plan refuses; the evidence of clients, and that of their load; the
//! machine; its reports, and who is admitted; and the commands of operators.

mod hex;
pub mod hook;
pub mod shared;
pub mod plan;
pub mod seat;
pub mod push;
pub mod tally;
pub mod load;
pub mod report;
mod admission;
pub mod command;
pub mod ledger;
mod loosened;
mod digest;
mod machine;
pub mod stored_plans;

pub use admission::Admission;
pub use command::{Command, CommandError};
pub use machine::{Output, PinEnd, PushRecord, Record, Rollout, RolloutEvent, What, record};
pub use plan::{Mode, OnHalt, Plan};
pub use push::{Differs, ReleaseDigest, UnitId, UnitPush};
pub use report::{PushReport, RolloutReport, RolloutState};
pub use seat::Seat;
pub use sluice_engine::gated::Refused;
pub use tally::{ClientState, Counts, Tally};
