//! Requests of the delta variant.

use super::api::WildcardStyle;
use super::request_size::Part;
use super::type_request::{TypeRequest, Want};
use crate::xds::{DeltaRequest, Status};

/// The next request of the type. The first request on the stream states all names and the held versions
/// (DEL-35, RLY-64); later requests state changes. Only an answer carries the nonce (DEL-1).
///
/// `must_answer`: the request claims an impossible version for one resource, so that the server sends the
/// resource again or reports its removal.
///
/// A type without wanted names has no first request: an empty first request is a legacy wildcard (DEL-6).
pub(super) fn request(
    subscription: &TypeRequest,
    part: &Part,
    style: WildcardStyle,
    is_answer: bool,
    must_answer: bool,
    error_detail: Option<Status>,
) -> DeltaRequest {
    let said = &subscription.said;
    let by_omission = style == WildcardStyle::Legacy && matches!(subscription.want, Want::Wildcard(_));
    let subscribe = if by_omission { Vec::new() } else { part.subscribe.iter().cloned().collect() };
    let mut initial_resource_versions = part.versions.clone();
    if must_answer && let Some((_, version)) = initial_resource_versions.first_mut() {
        version.clear();
    }
    DeltaRequest {
        node: None,
        type_url: subscription.type_url.as_str().to_owned(),
        subscribe,
        unsubscribe: part.unsubscribe.iter().cloned().collect(),
        initial_resource_versions,
        response_nonce: if is_answer { said.nonce.clone() } else { String::new() },
        error_detail,
    }
}
