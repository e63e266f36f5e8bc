//! sluice: an xDS aggregating relay.
//!
//! Many clients (Envoy, proxyless gRPC) connect to it as if it were their control plane; it is itself a client of
//! a few control planes. `docs/ARCHITECTURE.md` explains the rooms and their invariants; the modules below stand
//! in reading order, and each uses only those above it: `tests/tidy.rs` holds it to that.

pub mod xds;
pub mod engine;
pub mod wire;
pub mod telemetry;
pub mod client;
pub mod checkpoint;
pub mod driver;
pub mod server;
pub mod admin;
pub mod config;
pub mod bootstrap;
pub mod app;
