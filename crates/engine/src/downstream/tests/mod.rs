//! Transcripts of streams: sources, sessions, and clients that apply responses like Envoy and gRPC.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(test)]
mod aliases;
pub mod bench;
#[cfg(test)]
mod by_type;
#[cfg(test)]
mod changes;
pub mod client;
#[cfg(test)]
mod delta;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod make_before_break;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod set_marks;
#[cfg(test)]
mod order;
#[cfg(test)]
mod endpoints_due;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod globs;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod unsent_news;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod dynamic;
#[cfg(test)]
mod name_sets;
#[cfg(test)]
mod names;
#[cfg(test)]
mod property;
#[cfg(test)]
mod authorities;
#[cfg(test)]
mod authorization;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod returning;
#[cfg(test)]
mod sotw;
#[cfg(test)]
mod sotw_subscriptions;
#[cfg(test)]
mod time;
#[cfg(test)]
mod unasked;
#[cfg(test)]
mod unions;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod versions;
#[cfg(test)]
mod wait;
#[cfg(test)]
mod complete_set;
