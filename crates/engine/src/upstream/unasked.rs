//! Unasked resources, of types with clients that take them (DEL-17, FU15).
//!
//! istiod answers an on-demand ztunnel with unnamed resources too: the workloads of the node, and the
//! workloads behind an address. From then on istiod counts the names as subscribed on the stream. So does the
//! machine: the name is wanted, and stands in no request before the first request of the next stream, with
//! its version.

use super::api::{Event, UnaskedRule};
use super::names::WantedNames;
use super::request_size::PendingNames;
use sluice_xds::{Received, ResourceName, TypeUrl, Variant};

/// The unasked resources of one response.
#[derive(Debug)]
pub(super) struct UnaskedStep {
    rule: UnaskedRule,
    /// The number of ignored resources.
    ignored: usize,
    /// Taken names to subscribe to again.
    pub(super) again: Vec<ResourceName>,
}

impl UnaskedStep {
    /// `None` for types without unasked resources.
    pub(super) fn new(rule: UnaskedRule, type_url: &TypeUrl, variant: Variant) -> Option<UnaskedStep> {
        let is_sent = type_url.is_sent_unasked() && variant == Variant::Delta;
        is_sent.then_some(UnaskedStep { rule, ignored: 0, again: Vec::new() })
    }

    /// Makes the name of an unasked resource wanted, if the resource may be taken.
    pub(super) fn take(
        &mut self,
        names: &mut WantedNames,
        pending: &PendingNames,
        received: &Received,
    ) -> bool {
        let name = &received.name;
        let is_plain =
            received.resource.as_ref().is_some_and(|body| body.constraints.is_none() && !body.do_not_cache);
        // The server has not read the unsubscription.
        if !is_plain || name.is_glob() || name.is_wildcard() || pending.leave.contains(name) {
            return false;
        }
        match self.rule {
            UnaskedRule::Taken { names_max } if names.len() < names_max => {
                names.insert(name.clone());
                if pending.unsubscribed.may_have(name) {
                    self.again.push(name.clone());
                }
                true
            }
            _ => {
                self.ignored += 1;
                false
            }
        }
    }

    pub(super) fn event(&self, type_url: &TypeUrl) -> Option<Event> {
        let limit = match self.rule {
            UnaskedRule::Ignored => None,
            UnaskedRule::Taken { names_max } => Some(names_max),
        };
        let (type_url, count) = (type_url.clone(), self.ignored);
        (count > 0).then_some(Event::Unasked { type_url, count, limit })
    }
}
