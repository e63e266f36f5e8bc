//! Rules for trust domains that no listener proves.

use super::super::listener::ListenerSettings;
use super::super::reader::Map;
use super::Authorization;
use crate::trust::anchors::AnchorFiles;
use sluice_engine::authorization::{IdentityPattern, Rule};

/// Warns of rules that no client can match: their trust domain is none of their listeners'. `map` is the
/// whole file.
pub(in super::super) fn warn_of_domains(
    map: &Map<'_>,
    authorization: &Authorization,
    listeners: &[ListenerSettings],
) {
    let rules = authorization.policy().map_or(&[][..], |policy| policy.rules());
    for (index, rule) in rules.iter().enumerate() {
        let (IdentityPattern::Spiffe { trust_domain, .. } | IdentityPattern::TrustDomain(trust_domain)) =
            &rule.identity
        else {
            continue;
        };
        let Some(proved) = proved_to(rule, listeners) else { continue };
        if proved.is_empty() || proved.contains(&&**trust_domain) {
            continue;
        }
        let text = format!(
            "rule {:?} matches nobody: its trust domain is {trust_domain}, and its listeners prove {} only",
            rule.name,
            proved.join(", ")
        );
        match authorization {
            Authorization::File(file, _) => {
                map.warn_at("authorization.file", format!("{}: {text}", file.display()));
            }
            _ => map.warn_at(&format!("authorization.rules[{index}].match.identity"), text),
        }
    }
}

/// The trust domains of a rule's listeners; `None` if the domains are in a file.
fn proved_to<'a>(rule: &Rule, listeners: &'a [ListenerSettings]) -> Option<Vec<&'a str>> {
    let is_of = |listener: &&ListenerSettings| {
        rule.listeners.is_empty() || rule.listeners.iter().any(|name| **name == *listener.name)
    };
    let mut proved = Vec::new();
    for listener in listeners.iter().filter(is_of) {
        match listener.tls.as_ref().and_then(|tls| tls.anchors.as_ref()) {
            Some(AnchorFiles::BundleMap(_)) => return None,
            anchors => proved.extend(anchors.and_then(AnchorFiles::trust_domain)),
        }
    }
    Some(proved)
}
