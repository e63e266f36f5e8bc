//! The rules of `docs/rules`, each as a case against the running relay. `README.md` in this folder maps rules
//! to tests.
//!
//! With `SLUICE_CONFORMANCE_TARGET=origin` the cases for plain control planes run straight against the kit's
//! own obedient control plane, as a check of the cases. With an address there, the cases judge the server at
//! the address: `tests/conformance/run`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait for other processes and sockets, which have no paused clock"
)]

#[path = "../support/mod.rs"]
mod support;

mod attachments;
mod authorities;
mod bench;
mod delta;
mod dynamic;
mod errors;
mod istio;
mod judged;
mod matrix;
mod names;
mod order;
mod pace;
mod per_type;
mod private;
mod rest;
mod sharing;
mod sotw;
mod stream;
mod suites;
mod time;
mod upstream;
mod v2;
mod versions;
