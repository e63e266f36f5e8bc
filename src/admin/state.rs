//! The state that all endpoints share: the settings, the process, and the budgets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use axum::http::{Extensions, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
pub use sluice_admin_api::acts::{PredecessorStatus, Upgraded};

use super::access::{Access, Area};
use super::bound::{RequestPlace, RequestPlaces, turn_of};
use super::census::CensusTaker;
use super::reloading::Reloading;
use crate::driver::api::control::Controls;
use crate::driver::api::emptying::Emptying;
use crate::telemetry::logging::LogLevel;
use crate::telemetry::{Limit, Metrics, Throttle};
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

/// `admin.content`. Content with secrets is shown in no mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentMode {
    #[default]
    Redacted,
    Off,
}

impl ContentMode {
    pub fn name(self) -> &'static str {
        match self {
            ContentMode::Redacted => "redacted",
            ContentMode::Off => "off",
        }
    }
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

/// The state of the process; it only moves forward, except that an operator's drain ends, and that a
/// successor of the process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Starting = 0,
    /// Listeners are bound, and the checkpoint and files are loaded.
    Ready = 1,
    Draining = 2,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Draining => "draining",
        }
    }
}

/// The state behind `/ready`.
pub struct Readiness {
    state: AtomicU8,
    certificate_expired: Box<dyn Fn() -> bool + Send + Sync>,
    is_emptying: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Readiness {
    fn default() -> Readiness {
        let (certificate_expired, is_emptying) = (Box::new(|| false), Box::new(|| false));
        Readiness { state: AtomicU8::new(State::Starting as u8), certificate_expired, is_emptying }
    }
}

impl Readiness {
    /// A relay whose own certificate has expired is not ready: clients refuse it (CRT-7).
    #[must_use]
    pub fn with_certificates(self, have_expired: impl Fn() -> bool + Send + Sync + 'static) -> Readiness {
        Readiness { certificate_expired: Box::new(have_expired), ..self }
    }

    /// A relay that an operator empties is not ready (HND-9).
    #[must_use]
    pub fn with_drain(self, is_emptying: impl Fn() -> bool + Send + Sync + 'static) -> Readiness {
        Readiness { is_emptying: Box::new(is_emptying), ..self }
    }

    /// Moves on to a later state; an earlier state changes nothing.
    pub fn advance(&self, state: State) {
        self.state.fetch_max(state as u8, Relaxed);
    }

    /// The process serves again after [`State::Draining`]: its successor has died.
    pub fn return_to_service(&self) {
        self.state.store(State::Ready as u8, Relaxed);
    }

    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Starting,
            1 if (self.is_emptying)() => State::Draining,
            1 => State::Ready,
            _ => State::Draining,
        }
    }

    /// Whether a certificate of the relay itself has expired.
    pub(super) fn has_expired_certificate(&self) -> bool {
        (self.certificate_expired)()
    }
}

/// The process, as it takes over from another and is taken over.
pub trait Upgrading: Send + Sync + 'static {
    /// Starts a successor, and resolves when it accepts in place of this process, or has failed.
    fn upgrade(&self, wish: UpgradeWish) -> BoxFuture<'static, Result<Upgraded, NotUpgraded>>;

    /// The process before the last upgrade, while it drains.
    fn predecessor(&self) -> Option<PredecessorStatus>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeWish {
    /// Ends a predecessor that still drains.
    pub now: bool,
    /// Goes as far as the new process can without serving, and ends it.
    pub dry_run: bool,
    /// Another executable than that of the configuration.
    pub binary: Option<PathBuf>,
}

/// The reason why this process serves on.
#[derive(Clone, Debug, PartialEq)]
pub enum NotUpgraded {
    /// The relay is in no state for an upgrade.
    Conflict { reason: String, left: Option<Duration> },
    /// The new process could not take over.
    Failed(String),
}

impl NotUpgraded {
    pub fn text(&self) -> String {
        match self {
            NotUpgraded::Conflict { reason, left: None } => reason.clone(),
            NotUpgraded::Conflict { reason, left: Some(left) } => {
                format!("{reason}; {:.1} s left", left.as_secs_f64())
            }
            NotUpgraded::Failed(reason) => {
                format!("{reason}; this process serves on, and nothing has changed")
            }
        }
    }
}

/// Places for requests, by kind. Open pages never keep a scrape or an act out.
#[derive(Clone)]
pub(super) struct Budgets {
    /// Requests for metrics and lists (ADM-14).
    pub requests: RequestPlaces,
    /// Requests that act.
    pub acts: RequestPlaces,
    /// Open live streams.
    pub live: RequestPlaces,
    /// Answers with client status.
    pub calls: RequestPlaces,
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

impl Admin {
    /// A place for a request of this area.
    ///
    /// # Errors
    /// The answer to one request too many.
    #[expect(clippy::result_large_err, reason = "the error is the answer")]
    pub(super) fn permit(&self, area: Area, request: &Extensions) -> Result<RequestPlace, Response> {
        let places = if area == Area::Act { &self.budgets.acts } else { &self.budgets.requests };
        places.take(&turn_of(request)).ok_or_else(|| {
            self.metrics.limit_hit(Limit::AdminRequests);
            let retry = [(header::RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, retry, "too many admin requests at once\n").into_response()
        })
    }
}
