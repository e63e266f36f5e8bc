//! The built binary under each fault of its upstreams and of its process: the effect on clients (usually
//! none), the operator's view, the recovery, and the time bound.
//!
//! Between relay and control plane stands a proxy that breaks connections (`support/proxy.rs`); settings are
//! shortened. `FU` and `FP` with a number are the faults of the catalogue.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait for other processes and sockets, which have no paused clock"
)]

#[path = "../support/mod.rs"]
mod support;

mod site;
mod connecting;
mod resolving;
mod connected;
mod streams;
mod responses;
mod sets;
mod fallback;
mod by_type;
mod process;
mod times;
mod page;
