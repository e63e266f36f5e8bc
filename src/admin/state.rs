//! The state that all endpoints share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::readiness::Readiness;
use crate::driver::api::control::Controls;
use crate::telemetry::Metrics;

/// The admin server.
#[derive(Clone)]
pub struct Admin {
    pub(super) relay: Arc<dyn Controls>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) requests: Arc<Semaphore>,
    /// Accepted names beside IP addresses and `localhost` (ADM-2).
    pub(super) hosts: Arc<[String]>,
}
