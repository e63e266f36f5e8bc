//! Transcripts of streams: sources, sessions, and clients that apply responses like Envoy and gRPC.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod aliases;
mod bench;
mod by_type;
mod changes;
mod client;
mod delta;
mod errors;
mod fallback;
mod faults;
mod make_before_break;
mod lanes;
mod set_marks;
mod order;
mod endpoints_due;
mod kinds;
mod globs;
mod isolation;
mod unsent_news;
mod ledger;
mod messages;
mod dynamic;
mod name_sets;
mod names;
mod property;
mod authorities;
mod authorization;
mod refused;
mod rejections;
mod relay;
mod rest;
mod returning;
mod sotw;
mod sotw_subscriptions;
mod standing;
mod time;
mod unasked;
mod unions;
mod unread;
mod versions;
mod wait;
mod without_evidence;
mod complete_set;
