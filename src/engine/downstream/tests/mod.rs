//! Transcripts of streams: sources, sessions, and clients that apply responses like Envoy and gRPC.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod aliases;
mod bench;
mod by_type;
mod client;
mod delta;
mod errors;
mod fallback;
mod faults;
mod make_before_break;
mod marks;
mod order;
mod owed;
mod kinds;
mod globs;
mod held;
mod located;
mod names;
mod property;
mod realms;
mod relay;
mod rest;
mod sotw;
mod time;
mod unions;
mod wait;
mod whole;
