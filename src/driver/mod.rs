//! Tasks that drive one machine each: the only place that reads the clock and draws entropy.
//!
//! [`Hub`] opens downstream streams; `sources` has the table of sources, and `servers` says which of the configured servers
//! answers what. What all of them use, and that uses none of them, is `shared`. Each source has one task (`source`), which alone
//! touches its machine and publishes immutable snapshots. A stream's machine stands under one uncontended lock
//! (`stream`), held for one call by whoever has something for it: the task that reads its requests, or the response body
//! that the connection polls. Nothing is queued for a client: it is woken, and pulls.

pub mod handle;
mod holds;
pub mod status;
pub mod control;
pub mod clock;
mod limiter;
mod account;
mod outings;
mod delivery;
mod pressure;
mod flights;
mod alone;
mod encode;
mod registry;
pub mod servers;
mod uncached;
mod presented;
pub mod keep;
mod shared;
mod upstream;
mod identity;
mod source;
mod sources;
mod room;
mod refusals;
mod refused;
mod routes;
mod aside;
mod divert;
mod views;
mod stream;
mod unsent;
mod hub;
mod poll;
mod view;

pub use hub::Hub;
pub use shared::Settings;
