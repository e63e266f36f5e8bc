//! The serving side against real sockets: an HTTP/2 client, raw frames, and a scripted relay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait for other processes and sockets, which have no paused clock"
)]

mod kit;
mod raw;
mod web;

mod closing;
mod connections;
mod drain;
mod exhaustion;
mod floods;
mod load_reports;
mod methods;
mod rest;
mod streams;
mod tls;
