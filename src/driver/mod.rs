//! Tasks that drive the machines of the engine: the only room that reads the clock and draws entropy.
//!
//! The wings stand in reading order, and each uses only those before it.
//!
//! - `ground`: what every task needs, and needs no task: clock, servers, encoder, accounts of connections.
//! - `api`: the traits and plain data through which the serving room and the admin listener see the relay.
//! - `source`: one task for each source. It alone touches its machine, and publishes immutable snapshots.
//! - `stream`: one downstream stream. Its machine stands under an uncontended lock, which is held for one call: by the task
//!   that reads requests, or by the response body that the connection polls. Nothing is queued for a client: a stream is woken,
//!   and pulls.
//! - `relay`: opens streams, and looks at all of them together.

pub(crate) mod ground;
pub mod api;
mod source;
mod stream;
mod relay;

pub use ground::context::Settings;
pub use relay::hub::Hub;
