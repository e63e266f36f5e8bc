//! The results of requests (STR-14), and the types that requests may have.

use crate::downstream::session::router::Watch;
use crate::downstream::subscription::nonces::{Judged, Verdict};
use sluice_xds::service::is_v2_type;
use sluice_xds::xdstp::NameError;
use sluice_xds::{Code, ResourceName, Status, StreamKind, TypeUrl};

/// The result of a request.
#[derive(Debug)]
pub struct RequestOutcome {
    pub type_url: TypeUrl,
    pub verdict: Verdict,
    /// The changes that the verdict settles.
    pub judged: Judged,
    pub watches: Vec<Watch>,
    /// The request changed the subscription, or a resend is due.
    pub changed: bool,
    /// The names that came or went. In delta, all names of the request.
    pub moved_names: usize,
    /// The request only reports something, and changes no collection.
    pub is_report: bool,
    /// The request has an error that rejects no response of the stream.
    pub reports_error: bool,
    /// The request is an ACK that makes nothing due, if the last look found no answer and the sources have
    /// published nothing since.
    pub rests: bool,
    /// A name of the request that cannot be served, with the reason (NAM-5). There may be more such names.
    pub refused: Option<(ResourceName, NameError)>,
}

impl RequestOutcome {
    /// The result of a request that only reports something.
    pub(super) fn report(type_url: TypeUrl, reports_error: bool) -> RequestOutcome {
        RequestOutcome {
            type_url,
            verdict: Verdict::None,
            judged: Judged::default(),
            watches: Vec::new(),
            changed: false,
            moved_names: 0,
            is_report: true,
            reports_error,
            rests: false,
            refused: None,
        }
    }

    /// Whether the rate limit counts the request: changes, rejections and reports count, ACKs do not.
    pub fn counts_as_change(&self) -> bool {
        self.changed || self.rejects_or_reports()
    }

    /// Whether the client could go on like this without a change of its subscription.
    pub fn rejects_or_reports(&self) -> bool {
        self.is_report || self.reports_error || matches!(self.verdict, Verdict::Nack { .. })
    }

    /// Whether the request needs no further work.
    pub fn is_settled(&self) -> bool {
        self.watches.is_empty() && !self.counts_as_change()
    }
}

/// The part of a request to take. Lists of names may have to wait for the rate of changes, verdicts never
/// (ADR 66).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    Whole,
    /// The verdict on a response. The lists wait.
    Verdict,
    /// Lists that waited, of this many requests.
    Waited(u64),
}

impl Portion {
    /// The number of requests that are complete with this part.
    pub(super) fn requests(self) -> u64 {
        match self {
            Portion::Whole => 1,
            Portion::Verdict => 0,
            Portion::Waited(requests) => requests,
        }
    }
}

/// The type of the health reports of Istio's agent. There are no resources of this type.
pub(super) const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// The type of a request on a stream of this kind.
pub(super) fn type_of(kind: StreamKind, url: &str) -> Result<&str, Status> {
    let refused = |text: String| Err(Status::new(Code::InvalidArgument, text));
    match kind.service {
        // On ADS only the request can name the type (RPC-5).
        None if url.is_empty() => {
            refused("type_url is empty: on an aggregated stream every request names its type".to_owned())
        }
        // The method determines the type (RPC-6).
        Some(service) if url.is_empty() => Ok(service.type_url(kind.api)),
        Some(service) if !service.carries(url) => {
            refused(format!("type_url is {url}: this method serves {}", service.type_url(kind.api)))
        }
        _ if is_v2_type(url) && !kind.v2 => Err(Status::new(
            Code::Unimplemented,
            format!("{url} is a type of the v2 API, which `v2: true` on the listener turns on"),
        )),
        _ => Ok(url),
    }
}
