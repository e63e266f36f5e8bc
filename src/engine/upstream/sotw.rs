//! What is peculiar to SotW requests.

use super::api::WildcardStyle;
use super::subscription::{Subscription, Want};
use crate::xds::{SotwRequest, Status};

/// The next request of the type: first request, change, ACK or NACK, all in one form. It always tells the complete
/// list of names (SUB-1), the newest nonce (ACK-9) and the version accepted last.
///
/// `None` where an empty list would be sent that is to mean "nothing" but is read as the wildcard: as the first
/// request of the type (SUB-9), or by an old server at any time (SUB-10).
pub(super) fn request(
    subscription: &Subscription,
    style: WildcardStyle,
    error_detail: Option<Status>,
) -> Option<SotwRequest> {
    let resource_names = match (&subscription.want, style) {
        (Want::Nothing, WildcardStyle::Legacy) => return None,
        (Want::Nothing, WildcardStyle::Explicit) if !subscription.said.asked => return None,
        (Want::Wildcard(_), WildcardStyle::Legacy) => Vec::new(),
        _ => subscription.listed(),
    };
    Some(SotwRequest {
        version_info: subscription.accepted.clone(),
        node: None,
        resource_names,
        type_url: subscription.type_url.as_str().to_owned(),
        response_nonce: subscription.said.nonce.clone(),
        error_detail,
    })
}
