//! sluice: an xDS aggregating relay.
//!
//! Many clients (Envoy, proxyless gRPC) use the relay as their control plane. The relay itself is a client of
//! a few control planes. `docs/ARCHITECTURE.md` explains the rooms, with invariants and dependencies. The
//! modules below stand in reading order.

pub mod xds;
pub mod engine;
pub mod wire;
pub mod driver;
pub mod server;
pub mod client;
pub mod checkpoint;
pub mod admin;
pub mod telemetry;
pub mod config;
pub mod bootstrap;
pub mod app;
