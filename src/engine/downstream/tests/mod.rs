//! Transcripts of streams: sources, sessions, and clients that do with the responses what Envoy and gRPC do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod client;
mod delta;
mod errors;
mod faults;
mod property;
mod relay;
mod sotw;
mod time;
mod unions;
