//! sluice: an xDS aggregating relay.
//!
//! Many clients (Envoy, proxyless gRPC) use the relay as their control plane. The relay itself is a client of
//! a few control planes. `docs/ARCHITECTURE.md` explains the rooms, with invariants and dependencies. The
//! modules below stand in reading order: a module uses only earlier modules, as `tests/tidy.rs` checks.

pub mod handover;
pub mod telemetry;
pub mod trust;
pub mod client;
pub mod kubernetes;
pub mod ledger;
pub mod driver;
pub mod server;
pub mod admin;
pub mod config;
pub mod command;
pub mod bootstrap;
pub mod dev_certs;
pub mod app;
