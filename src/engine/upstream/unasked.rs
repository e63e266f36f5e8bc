//! Unasked resources, of types with clients that take them (DEL-17, FU15).
//!
//! istiod answers an on-demand ztunnel with unnamed resources too: the workloads of the node, and the workloads behind an
//! address. From then on istiod counts the names as subscribed on the stream. So does the machine: the name is wanted, and stands
//! in no request before the first request of the next stream, with its version.

use std::collections::BTreeSet;

use super::api::Event;
use super::names::Names;
use super::said::Said;
use crate::xds::{Received, ResourceName, TypeUrl, Variant};

/// The treatment of unasked resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unasked {
    /// Several clients share the stream, and the server may mean a single client.
    #[default]
    Ignored,
    /// The stream is of one client. A type takes unasked resources up to a number of names.
    Taken { names_max: usize },
}

/// The maximum number of remembered names.
const LEFT_MAX: usize = 1000;

/// The unsubscribed names of the stream. A late update looks like an unasked resource, and the server no longer counts the name as
/// subscribed (RLY-61).
#[derive(Debug, Default)]
pub(super) struct Left {
    names: BTreeSet<ResourceName>,
    /// After more than [`LEFT_MAX`] names: any name may be among the names.
    is_full: bool,
}

impl Left {
    pub(super) fn note(
        &mut self,
        unsubscribed: &BTreeSet<ResourceName>,
        subscribed: &BTreeSet<ResourceName>,
    ) {
        self.names.extend(unsubscribed.iter().cloned());
        self.names.retain(|name| !subscribed.contains(name));
        if self.names.len() > LEFT_MAX {
            (self.names, self.is_full) = (BTreeSet::new(), true);
        }
    }

    fn has(&self, name: &ResourceName) -> bool {
        self.is_full || self.names.contains(name)
    }
}

/// The unasked resources of one response.
#[derive(Debug)]
pub(super) struct UnaskedStep {
    rule: Unasked,
    /// The number of ignored resources.
    ignored: usize,
    /// Taken names to subscribe to again.
    pub(super) again: Vec<ResourceName>,
}

impl UnaskedStep {
    /// `None` for types without unasked resources.
    pub(super) fn new(rule: Unasked, type_url: &TypeUrl, variant: Variant) -> Option<UnaskedStep> {
        let is_sent = type_url.is_sent_unasked() && variant == Variant::Delta;
        is_sent.then_some(UnaskedStep { rule, ignored: 0, again: Vec::new() })
    }

    /// Makes the name of an unasked resource wanted, if the resource may be taken.
    pub(super) fn take(&mut self, names: &mut Names, said: &Said, received: &Received) -> bool {
        let name = &received.name;
        let is_plain =
            received.resource.as_ref().is_some_and(|of| of.constraints.is_none() && !of.do_not_cache);
        // The server has not read the unsubscription.
        if !is_plain || name.is_glob() || name.is_wildcard() || said.leave.contains(name) {
            return false;
        }
        match self.rule {
            Unasked::Taken { names_max } if names.len() < names_max => {
                names.insert(name.clone());
                if said.left.has(name) {
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
            Unasked::Ignored => None,
            Unasked::Taken { names_max } => Some(names_max),
        };
        let (type_url, count) = (type_url.clone(), self.ignored);
        (count > 0).then_some(Event::Unasked { type_url, count, limit })
    }
}
