//! One ledger on etcd, as configured.

use std::sync::Arc;
use std::time::Duration;

use super::call::EtcdEndpoint;
use crate::ledger::EtcdUser;
use crate::telemetry::Throttle;
use crate::telemetry::metrics::OneLedgerMetrics;

#[derive(Debug)]
pub(super) struct EtcdPlace {
    /// For people.
    pub(super) name: String,
    /// At least one.
    pub(super) endpoints: Vec<Arc<EtcdEndpoint>>,
    pub(super) prefix: String,
    pub(super) user: Option<EtcdUser>,
    pub(super) lease: Duration,
    pub(super) metrics: OneLedgerMetrics,
    pub(super) throttle: Throttle,
}
