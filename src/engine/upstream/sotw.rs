//! Requests of the SotW variant.

use super::api::WildcardStyle;
use super::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, SotwRequest, Status};

/// The next request of the type: first request, change, ACK or NACK, all in one form. Each request has the
/// complete list of names (SUB-1), the newest nonce (ACK-9) and the last accepted version.
///
/// `must_answer`: the first request claims no version, so that the server sends everything again.
///
/// `None` if nothing is wanted of an old server: the server would read the empty list as the wildcard
/// (SUB-10). `None` too if globs are wanted, which SotW cannot express (SUB-21).
///
/// A type without wanted names has no first request: any server reads an empty first request as the wildcard
/// (SUB-9).
/// `listed`: the names that fit.
pub(super) fn request(
    subscription: &TypeRequest,
    listed: Vec<ResourceName>,
    style: WildcardStyle,
    must_answer: bool,
    error_detail: Option<Status>,
) -> Option<SotwRequest> {
    let resource_names = match (&subscription.want, style) {
        (Want::Nothing, WildcardStyle::Legacy) | (Want::Globs(_), _) => return None,
        (Want::Wildcard(_), WildcardStyle::Legacy) => Vec::new(),
        _ => listed,
    };
    let claims_nothing = must_answer && !subscription.said.asked;
    Some(SotwRequest {
        version_info: if claims_nothing { String::new() } else { subscription.accepted.clone() },
        node: None,
        resource_names,
        type_url: subscription.type_url.as_str().to_owned(),
        response_nonce: subscription.said.nonce.clone(),
        error_detail,
    })
}
