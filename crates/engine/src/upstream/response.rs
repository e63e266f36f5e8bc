//! A response of either variant in one form, and the verdict on its structure.

use std::collections::BTreeSet;

use super::api::UnaskedRule;
use sluice_xds::{
    BadElement, Code, DeltaResponse, Element, ResourceError, ResourceName, Response, SotwResponse, Status,
    TypeUrl, Variant,
};

/// The common content of both variants. Rules that differ between the variants check `variant`.
pub(super) struct ResponseDigest {
    pub(super) variant: Variant,
    pub(super) type_url: TypeUrl,
    pub(super) nonce: String,
    /// SotW only.
    pub(super) version_info: String,
    pub(super) resources: Vec<Element>,
    /// Delta only.
    pub(super) removed: Vec<ResourceName>,
    pub(super) errors: Vec<ResourceError>,
    /// The response is the complete answer to a request for everything wanted. A missing resource does not
    /// exist (RST-12).
    pub(super) answers_all: bool,
    /// Data errors remove copies (DAT-2).
    pub(super) fails: bool,
    /// The treatment of unasked resources (DEL-17).
    pub(super) unasked: UnaskedRule,
    /// The response states its type or a version, so that an omission is meant (RST-12).
    pub(super) is_stated: bool,
    /// Another process of the server answers, as far as the server says so. The versions may start again.
    pub(super) is_from_another: bool,
}

impl From<Response> for ResponseDigest {
    fn from(response: Response) -> Self {
        match response {
            Response::Sotw(SotwResponse {
                version_info,
                type_url,
                states_type,
                nonce,
                resources,
                errors,
                ..
            }) => ResponseDigest {
                variant: Variant::Sotw,
                is_stated: states_type || !version_info.is_empty(),
                type_url,
                nonce,
                version_info,
                resources,
                removed: Vec::new(),
                errors,
                answers_all: false,
                fails: false,
                unasked: UnaskedRule::default(),
                is_from_another: false,
            },
            Response::Delta(DeltaResponse { type_url, nonce, resources, removed, errors, .. }) => {
                ResponseDigest {
                    variant: Variant::Delta,
                    is_stated: true,
                    type_url,
                    nonce,
                    version_info: String::new(),
                    resources,
                    removed,
                    errors,
                    answers_all: false,
                    fails: false,
                    unasked: UnaskedRule::default(),
                    is_from_another: false,
                }
            }
        }
    }
}

impl ResponseDigest {
    /// A wildcard and globs have one resource for each name. Resources for some of the subscribers only are
    /// refused.
    pub(super) fn refuse_variants(&mut self) {
        for element in &mut self.resources {
            if let Ok(received) = element
                && received.name.is_variant()
            {
                let reason = "dynamic parameter constraints are not supported in wildcards and globs";
                let name = Some(received.name.plain().into());
                *element = Err(BadElement { name, reason: reason.to_owned(), is_instance: true });
            }
        }
        self.removed.retain(|name| !name.is_variant());
    }

    /// Refuses resources without a name in answers to names and globs. In a wildcard, a nameless resource is
    /// the member with the empty name.
    pub(super) fn refuse_nameless(&mut self) {
        if self.type_url.has_empty_names() {
            return;
        }
        let is_nameless = |name: &ResourceName| name.as_str().is_empty();
        let bad = |is_instance| BadElement { name: None, reason: "it has no name".to_owned(), is_instance };
        for element in &mut self.resources {
            if element.as_ref().is_ok_and(|received| is_nameless(&received.name)) {
                *element = Err(bad(true));
            }
        }
        let removed = self.removed.len();
        self.removed.retain(|name| !is_nameless(name));
        self.resources.extend((self.removed.len()..removed).map(|_| Err(bad(false))));
    }

    /// Heartbeats only. The response says nothing about membership, whatever the type (TTL-6).
    pub(super) fn is_heartbeat(&self) -> bool {
        let payloadless = |element: &Element| matches!(element, Ok(received) if received.resource.is_none());
        !self.resources.is_empty() && self.resources.iter().all(payloadless)
    }

    /// The response has all requested resources, so that omissions are deletions (SST-1, SST-2, RST-12). An
    /// omission means nothing in delta and in SotW responses of other types, not even in responses to a
    /// wildcard (SST-4).
    pub(super) fn is_full_state(&self) -> bool {
        self.answers_all || self.variant == Variant::Sotw && self.type_url.is_full_state()
    }

    /// The size of the payloads, in bytes.
    pub(super) fn size(&self) -> usize {
        let payloads = self.resources.iter().flatten().filter_map(|received| received.resource.as_ref());
        payloads.map(|resource| resource.size()).sum()
    }
}

/// ERR-6: an entry of `resource_errors` without a meaning.
pub(super) fn is_invalid(error: &ResourceError) -> bool {
    error.name.as_str().is_empty() || error.status.code == Code::Ok
}

/// The structural faults of a response (RLY-37). A response without faults is ACKed.
#[derive(Default)]
pub(super) struct ResponseVerdict {
    faults: Vec<(Option<ResourceName>, String)>,
    /// A name occurs twice: the machine uses nothing of the response (SST-8, DEL-16).
    pub(super) void: bool,
    /// An element could not be identified: no deletion may be derived from the response.
    pub(super) unidentified: bool,
}

impl ResponseVerdict {
    pub(super) fn new(digest: &ResponseDigest) -> ResponseVerdict {
        let mut verdict = ResponseVerdict::default();
        let mut seen = BTreeSet::new();
        for element in &digest.resources {
            let name = match element {
                Ok(received) => Some(&received.name),
                Err(bad) => {
                    verdict.unidentified |= bad.name.is_none();
                    verdict.faults.push((bad.name.clone(), bad.reason.clone()));
                    bad.name.as_ref()
                }
            };
            verdict.expect_new(&mut seen, name);
        }
        for name in &digest.removed {
            verdict.expect_new(&mut seen, Some(name));
        }
        for error in digest.errors.iter().filter(|error| is_invalid(error)) {
            let name = Some(error.name.clone()).filter(|name| !name.as_str().is_empty());
            verdict.unidentified |= name.is_none();
            verdict.faults.push((name, "an error without a name or with the status OK".to_owned()));
        }
        verdict
    }

    /// An answer takes something away and states neither its type nor a version: it may be `{}`, from
    /// something that is no control plane (RST-12).
    pub(super) fn mistrust(&mut self) {
        let reason =
            "the answer omits resources and has neither a type_url nor a version_info; it deletes nothing";
        self.unidentified = true;
        self.faults.push((None, reason.to_owned()));
    }

    fn expect_new<'a>(&mut self, seen: &mut BTreeSet<&'a ResourceName>, name: Option<&'a ResourceName>) {
        if let Some(name) = name
            && !seen.insert(name)
        {
            self.void = true;
            self.faults.push((Some(name.clone()), "the name occurs twice".to_owned()));
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    /// The names of the bad elements, sorted, each once.
    pub(super) fn names(&self) -> Vec<ResourceName> {
        let names: BTreeSet<_> = self.faults.iter().filter_map(|(name, _)| name.clone()).collect();
        names.into_iter().collect()
    }

    /// The status of a NACK: the bad names and the reasons, in at most `max` bytes (RLY-37).
    pub(super) fn status(&self, max: usize) -> Status {
        let mut text = String::new();
        for (name, reason) in &self.faults {
            if text.len() > max {
                break;
            }
            let separator = if text.is_empty() { "" } else { "; " };
            let name = name.as_ref().map_or("(unnamed)", ResourceName::as_str);
            text.push_str(separator);
            text.push_str(name);
            text.push_str(": ");
            text.push_str(reason);
        }
        text.truncate(text.floor_char_boundary(max));
        Status::new(Code::InvalidArgument, text)
    }
}

pub(super) fn means_absence(error: &ResourceError) -> bool {
    error.status.code == Code::NotFound
}
