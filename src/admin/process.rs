//! The process of the relay, as an operator sees and steers it.

use std::sync::Arc;

use super::readiness::Readiness;
use super::reloading::Reloading;
use super::upgrade::Upgrading;
use crate::driver::api::emptying::Emptying;
use crate::telemetry::logging::LogLevel;

/// Everything that an operator can change besides the relay's content.
#[derive(Clone)]
pub struct Process {
    pub readiness: Arc<Readiness>,
    pub emptying: Arc<dyn Emptying>,
    pub log: Arc<LogLevel>,
    pub upgrading: Arc<dyn Upgrading>,
    pub reloading: Arc<dyn Reloading>,
}
