//! The upstream side against scripted control planes and real directories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/kubernetes.rs"]
mod api_server;
#[path = "../support/cluster.rs"]
mod cluster;
mod peer;
mod calls;
mod etcd;
mod files;
mod kubernetes;
mod ledger;
mod ledger_apiserver;
mod ledger_etcd;
mod ledger_kubernetes;
mod liveness;
mod pings;
mod pool;
mod rest;
mod streams;
mod tls;
mod tls_peer;
