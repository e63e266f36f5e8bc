//! One ledger on etcd, as configured.

use std::sync::Arc;

use super::call::{EtcdCaller, EtcdEndpoint};
use crate::ledger::EtcdUser;
use crate::ledger::keeper::LedgerPlace;
use crate::ledger::live::{CurrentSession, LiveSession};

#[derive(Debug)]
pub(super) struct EtcdPlace {
    pub(super) ledger: Arc<LedgerPlace>,
    /// At least one.
    pub(super) endpoints: Vec<Arc<EtcdEndpoint>>,
    pub(super) prefix: String,
    pub(super) user: Option<EtcdUser>,
}

/// The way of a session to etcd.
#[derive(Debug)]
pub(super) struct EtcdLink {
    pub(super) caller: Arc<EtcdCaller>,
    pub(super) cluster: u64,
    pub(super) lease: i64,
}

pub(super) type EtcdLive = LiveSession<EtcdLink>;
pub(super) type CurrentEtcd = CurrentSession<EtcdLink>;
