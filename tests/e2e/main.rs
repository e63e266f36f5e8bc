//! The built binary from an operator's view: command line, files, outages, drain, limits, admin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait for other processes and sockets, which have no paused clock"
)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "the tests of the store need more of it")]
#[path = "../client/peer.rs"]
mod peer;
#[allow(dead_code, reason = "the tests of the store need more of it")]
#[path = "../client/etcd.rs"]
mod etcd;

mod admin;
mod admin_access;
mod attacks;
mod authorization;
mod canaries;
mod changes;
mod classes;
mod client_status;
mod clients;
mod command_line;
mod commands;
mod compression;
mod configure;
mod credentials;
mod documents;
mod facts;
mod failover;
mod enforced;
mod fallback;
mod files;
mod isolation;
mod joining;
mod learn;
mod learn_live;
mod lifecycle;
mod load_judges;
mod load_reports;
mod memory;
mod observe_events;
mod limits;
mod listed_names;
mod observed;
mod outages;
mod proof;
mod proof_splits;
mod recipes;
mod reload;
mod replicas;
mod restart;
mod rollouts;
mod rollout_commands;
mod rollout_condemned;
mod rollout_guards;
mod rollout_hook;
mod rollout_nights;
mod rollout_lists;
mod rollout_orders;
mod rollout_outages;
mod rollout_places;
mod rollout_rejecters;
mod rollout_reloads;
mod rollout_replaced;
mod rollout_restarts;
mod rollout_strangers;
mod rollout_units;
mod rollout_ways;
mod routing;
mod shared_certificate;
mod silence;
mod suspects;
mod tail;
mod tiers;
mod told_rejections;
mod traces;
mod ui;
mod unasked;
mod uncached;
mod upgrade;
