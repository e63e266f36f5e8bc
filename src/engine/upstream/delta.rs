//! What is peculiar to delta requests.

use super::api::WildcardStyle;
use super::subscription::{Subscription, Want};
use crate::engine::planted::{Bug, planted};
use crate::xds::{DeltaRequest, Status};

/// The next request of the type. The first one on the stream states everything and what is held already (DEL-35,
/// RLY-64); later ones tell what changed. Only an answer carries the nonce (DEL-1).
///
/// `must_answer`: one resource is claimed in a version that no server has, so that it is sent again, or told to be gone.
///
/// That nothing is wanted is never the first request of a type: empty, it would be a legacy wildcard (DEL-6).
pub(super) fn request(
    subscription: &Subscription,
    style: WildcardStyle,
    is_answer: bool,
    must_answer: bool,
    error_detail: Option<Status>,
) -> DeltaRequest {
    let said = &subscription.said;
    let is_first = !said.asked;
    let by_omission = style == WildcardStyle::Legacy && matches!(subscription.want, Want::Wildcard(_));
    let subscribe = if by_omission { Vec::new() } else { said.enter.iter().cloned().collect() };
    let claims = is_first || planted(Bug::VersionsRestatedLater);
    let mut initial_resource_versions = if claims { subscription.versions() } else { Vec::new() };
    if must_answer && let Some((_, version)) = initial_resource_versions.first_mut() {
        version.clear();
    }
    DeltaRequest {
        node: None,
        type_url: subscription.type_url.as_str().to_owned(),
        subscribe,
        unsubscribe: said.leave.iter().cloned().collect(),
        initial_resource_versions,
        response_nonce: if is_answer { said.nonce.clone() } else { String::new() },
        error_detail,
    }
}
