//! sluice: an xDS aggregating relay.
//!
//! Many clients (Envoy, proxyless gRPC) connect to it as if it were their control plane; it is itself a client of
//! a few control planes. `docs/ARCHITECTURE.md` explains the rooms and their invariants; the modules below stand
//! in reading order, and each may use those above it.

pub mod admin;
pub mod app;
pub mod client;
pub mod config;
pub mod driver;
pub mod engine;
pub mod server;
pub mod telemetry;
pub mod wire;
pub mod xds;
