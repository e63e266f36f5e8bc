//! Requests of both variants.

use std::collections::BTreeSet;

use super::api::{UpstreamSettings, WildcardStyle};
use super::request_size::{RequestPart, RequestRoom};
use super::type_request::TypeRequest;
use super::want::Want;
use sluice_xds::{DeltaRequest, Kind, Request, ResourceName, SotwRequest, Status, Variant};

/// Room for the version, the nonce and the type of a request with all names.
const VARIABLE: usize = 1024;

/// The reason for a request.
pub(super) enum RequestReason {
    Change,
    Ack,
    Nack(Status),
}

/// The next request of a type, and its effects on the waiting names.
pub(super) struct RequestDraft {
    /// `None` if the variant cannot express the request.
    pub(super) request: Option<Request>,
    pub(super) part: RequestPart,
    /// SotW: names that do not fit.
    pub(super) left: BTreeSet<ResourceName>,
}

/// The state of the stream, as far as requests depend on it.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) settings: &'a UpstreamSettings,
    pub(super) variant: Variant,
    /// The node was sent.
    pub(super) has_node: bool,
    /// The transport has not taken a part of a long request.
    pub(super) is_flushing: bool,
    /// The first request demands an answer: in SotW, it claims no version, so that the server sends
    /// everything again. In delta, it claims an impossible version for one resource, so that the server sends
    /// the resource again or reports its removal.
    pub(super) must_answer: bool,
}

impl RequestContext<'_> {
    /// Drafts a request. `leaving`: names to unsubscribe from, in a request with nothing else.
    pub(super) fn draft(
        self,
        subscription: &mut TypeRequest,
        reason: RequestReason,
        leaving: &[ResourceName],
    ) -> RequestDraft {
        let is_answer = !matches!(reason, RequestReason::Change);
        let error = if let RequestReason::Nack(status) = reason { Some(status) } else { None };
        let (settings, max) = (self.settings, self.settings.request_bytes_max);
        match self.variant {
            Variant::Sotw => {
                // Each request lists the same names, whatever else is in it.
                let fixed = settings.node_bytes + settings.nack_text_max + VARIABLE;
                let (listed, left) = subscription.fitting(RequestRoom::new(max, fixed));
                let request = self.sotw_request(subscription, listed, error).map(Request::Sotw);
                RequestDraft { request, part: RequestPart::default(), left }
            }
            Variant::Delta => {
                let room = RequestRoom::new(max, self.fixed_bytes(subscription, error.as_ref()));
                let part = subscription.next_part(room, leaving, self.is_flushing);
                let request = Some(Request::Delta(self.delta_request(subscription, &part, is_answer, error)));
                RequestDraft { request, part, left: BTreeSet::new() }
            }
        }
    }

    /// The texts of a request beside its names and claims.
    fn fixed_bytes(self, subscription: &TypeRequest, error: Option<&Status>) -> usize {
        let node = if self.has_node { 0 } else { self.settings.node_bytes };
        let error = error.map_or(0, |status| status.message.len());
        let nonce = subscription.exchange.responses.nonce.len();
        node + error + nonce + subscription.accepted.len() + subscription.type_url.as_str().len()
    }

    /// A server of virtual hosts knows the empty list only, with which Envoy opens (VHD-3).
    fn wildcard_style(self, subscription: &TypeRequest) -> WildcardStyle {
        match subscription.type_url.kind() {
            Kind::VirtualHost => WildcardStyle::Legacy,
            _ => self.settings.wildcard,
        }
    }

    /// First request, change, ACK or NACK, all in one form. Each request has the complete list of names
    /// (SUB-1), the newest nonce (ACK-9) and the last accepted version. `listed`: the names that fit.
    ///
    /// `None` if nothing is wanted of an old server: the server would read the empty list as the wildcard
    /// (SUB-10). `None` too if globs are wanted, which SotW cannot express (SUB-21).
    ///
    /// A type without wanted names has no first request: any server reads an empty first request as the
    /// wildcard (SUB-9).
    fn sotw_request(
        self,
        subscription: &TypeRequest,
        listed: Vec<ResourceName>,
        error_detail: Option<Status>,
    ) -> Option<SotwRequest> {
        let resource_names = match (&subscription.want, self.wildcard_style(subscription)) {
            (Want::Nothing, WildcardStyle::Legacy) | (Want::Globs(_), _) => return None,
            (Want::Wildcard(_), WildcardStyle::Legacy) => Vec::new(),
            _ => listed,
        };
        let claims_nothing = self.must_answer && !subscription.is_asked();
        Some(SotwRequest {
            version_info: if claims_nothing { String::new() } else { subscription.accepted.clone() },
            node: None,
            resource_names,
            type_url: subscription.type_url.as_str().to_owned(),
            response_nonce: subscription.exchange.responses.nonce.clone(),
            error_detail,
        })
    }

    /// The first request on the stream states all names and the held versions (DEL-35, RLY-64); later
    /// requests state changes. Only an answer carries the nonce (DEL-1).
    ///
    /// A type without wanted names has no first request: an empty first request is a legacy wildcard (DEL-6).
    fn delta_request(
        self,
        subscription: &TypeRequest,
        part: &RequestPart,
        is_answer: bool,
        error_detail: Option<Status>,
    ) -> DeltaRequest {
        let style = self.wildcard_style(subscription);
        let by_omission = style == WildcardStyle::Legacy && matches!(subscription.want, Want::Wildcard(_));
        let subscribe = if by_omission { Vec::new() } else { part.subscribe.iter().cloned().collect() };
        let mut initial_resource_versions = part.versions.clone();
        if self.must_answer
            && let Some((_, version)) = initial_resource_versions.first_mut()
        {
            version.clear();
        }
        let nonce = &subscription.exchange.responses.nonce;
        DeltaRequest {
            node: None,
            type_url: subscription.type_url.as_str().to_owned(),
            subscribe,
            unsubscribe: part.unsubscribe.iter().cloned().collect(),
            initial_resource_versions,
            response_nonce: if is_answer { nonce.clone() } else { String::new() },
            error_detail,
        }
    }
}

/// Returns true if a first request claims the held versions, and no impossible version.
pub(super) fn claims_all(request: &Request) -> bool {
    match request {
        Request::Sotw(request) => !request.version_info.is_empty(),
        Request::Delta(request) => {
            let mut versions = request.initial_resource_versions.iter().map(|(_, version)| version);
            versions.len() > 0 && versions.all(|version| !version.is_empty())
        }
    }
}
