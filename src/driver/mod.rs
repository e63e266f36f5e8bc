//! The tasks that run the state machines of the engine. No other room reads the clock or draws random
//! numbers.
//!
//! The wings stand in reading order. Each wing uses only earlier wings.
//!
//! - `ground`: parts that every task needs and that need no task: clock, servers, encoder, accounts of
//!   connections.
//! - `api`: the traits and plain data through which the serving room and the admin listener see the relay.
//! - `source`: one task for each source. Only the task touches the source's machine; it publishes immutable
//!   snapshots.
//! - `stream`: one downstream stream. An uncontended lock guards the stream's machine. The reader of
//!   requests, or the response body that a connection polls, takes the lock for one call. Nothing is queued
//!   for a client: a stream is woken, and pulls.
//! - `load`: one task for each node class at a server that takes load reports, and the streams of clients
//!   that report.
//! - `rollout`: one task for each plan. It reads snapshots and streams, and changes neither.
//! - `proof`: one task for each server with `proof:`. It asks the server in the place of clients, and
//!   compares.
//! - `study`: a task for each study that an operator orders. It asks a server as each client, and proposes
//!   rules.
//! - `relay`: opens streams, and iterates over all of them.

pub(crate) mod ground;
pub mod api;
mod source;
mod stream;
mod load;
mod rollout;
mod proof;
pub(crate) mod study;
mod relay;

pub use api::study::AskedTypes;
pub use ground::checkpoint_writer::CheckpointSettings;
pub use ground::context::DriverSettings;
pub use ground::limits::{ENCODED_BYTES, RelayLimits};
pub use ground::servers::LoadUse;
pub use relay::Relay;
pub use relay::handle::PreparedSources;
pub use relay::handover::Heritage;
pub use source::asker::Asker;
