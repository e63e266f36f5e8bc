//! The state that all endpoints share.

use std::sync::Arc;
use std::time::SystemTime;

use super::access::Access;
use super::bound::Places;
use super::census::CensusTaker;
use super::content::ContentMode;
use super::readiness::Readiness;
use super::reloading::Reloading;
use super::upgrade::Upgrading;
use crate::driver::api::control::Controls;
use crate::driver::api::emptying::Emptying;
use crate::telemetry::logging::LogLevel;
use crate::telemetry::{Metrics, Throttle};
use crate::trust::rotation::Watched;
use crate::trust::tokens::Tokens;
use sluice_setting::InForce;

/// The options of the admin listener. Each request reads them (ADR 21).
#[derive(Clone, Default)]
pub struct AdminSettings {
    /// Accepted host names beside IP addresses and `localhost` (ADM-2). In lower case.
    pub hosts: Vec<String>,
    /// Whether `/ready` also requires that an upstream has answered.
    pub ready_requires_upstream: bool,
    /// Whether contents of resources are shown (ADM-12).
    pub content: ContentMode,
    /// The rights of callers.
    pub access: Access,
    /// The tokens that `access` names. `None` if there are none.
    pub tokens: Option<Watched<Tokens>>,
    pub about: About,
}

/// The relay, in answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The relay's own node id.
    pub node: String,
}

/// Everything that an operator can change besides the relay's content.
#[derive(Clone)]
pub struct Process {
    pub readiness: Arc<Readiness>,
    pub emptying: Arc<dyn Emptying>,
    pub log: Arc<LogLevel>,
    pub upgrading: Arc<dyn Upgrading>,
    pub reloading: Arc<dyn Reloading>,
}

/// Places for requests, by kind. Open pages never keep a scrape or an act out.
#[derive(Clone)]
pub(super) struct Budgets {
    /// Requests for metrics and lists (ADM-14).
    pub requests: Places,
    /// Requests that act.
    pub acts: Places,
    /// Open live streams.
    pub live: Places,
    /// Answers with client status.
    pub calls: Places,
}

/// The admin server.
#[derive(Clone)]
pub struct Admin {
    pub(super) relay: Arc<dyn Controls>,
    pub(super) process: Process,
    pub(super) metrics: Arc<Metrics>,
    pub(super) budgets: Budgets,
    pub(super) census: Arc<CensusTaker>,
    /// The beginning of the admin server, and so of the process.
    pub(super) started: SystemTime,
    pub(super) settings: InForce<AdminSettings>,
    /// Spaces out log lines about refused requests.
    pub(super) throttle: Arc<Throttle>,
}
