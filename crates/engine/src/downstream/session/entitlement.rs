//! The rights and limits of a session: judges requests, and judges subscriptions again (AUT-11, AUT-12).

use std::sync::Arc;

use crate::authorization::{Denial, Denials, Grant, TypeGrant};
use crate::downstream::answer::spelling::{Refusals, SPELLINGS_MAX};
use crate::downstream::subscription::{InterestChange, Subscription};
use sluice_setting::{SOME, count, settings};
use sluice_xds::{Code, Request, ResourceName, Status, TypeUrl};

settings! {
    /// The limits of one stream's requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Names subscribed to, over all types (SUB-20): the sum of two full requests.
        names_per_stream: usize = 200_000, SOME;
        /// Types subscribed to. Envoy has a dozen; each costs a subscription.
        types_per_stream: usize = 64, count(1..=10_000);
    }
}

/// The limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Names,
    Types,
}

/// A new grant for the subscriptions of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regrant {
    /// The session keeps all of its subscriptions.
    Kept,
    /// A subscription is denied now. The stream must end, so that nothing is removed (AUT-12).
    Lost(Denial),
    /// A denied name is allowed now. The client was told that it is absent, and asks again on a new stream
    /// only.
    Gained,
}

/// The denials of one request.
pub(super) struct DenialLedger(pub(super) Option<Box<Denials>>);

impl DenialLedger {
    fn note(&mut self, first: Denial) {
        match &mut self.0 {
            Some(denials) => denials.count += 1,
            none => *none = Some(Box::new(Denials { first, count: 1 })),
        }
    }
}

/// The rights and limits of one stream.
#[derive(Debug)]
pub(super) struct Entitlement {
    pub(super) limits: Limits,
    /// The types, names and wildcards that the client may ask for.
    pub(super) grant: Arc<Grant>,
    /// The limit for which the session refused a request.
    pub(super) excess: Option<Excess>,
    /// The client is a relay: most plans hold nothing back from it (TIR-1).
    pub(super) is_relay: bool,
}

impl Entitlement {
    pub(super) fn new(limits: Limits, grant: Arc<Grant>) -> Entitlement {
        Entitlement { limits, grant, excess: None, is_relay: false }
    }

    /// Judges the number of types with a further one.
    pub(super) fn judge_types(&mut self, types: usize) -> Result<(), Status> {
        if types < self.limits.types_per_stream {
            return Ok(());
        }
        self.excess = Some(Excess::Types);
        let text = format!("more than {} types on one stream", self.limits.types_per_stream);
        Err(Status::new(Code::ResourceExhausted, text))
    }

    /// Judges the number of names after a change of a subscription, and its spellings. `names`: those of the
    /// stream.
    pub(super) fn judge_names(&mut self, subscription: &Subscription, names: usize) -> Result<(), Status> {
        let text = if names > self.limits.names_per_stream {
            format!(
                "{names} names on one stream, of which {} is the last; at most {} are served",
                subscription.type_url, self.limits.names_per_stream
            )
        } else if let Some(name) = subscription.crowded() {
            format!("{name} is asked for in more than {SPELLINGS_MAX} spellings")
        } else {
            return Ok(());
        };
        self.excess = Some(Excess::Names);
        Err(Status::new(Code::ResourceExhausted, text))
    }

    /// Judges a type at its first request.
    pub(super) fn judge_type(&self, type_url: &TypeUrl, ledger: &mut DenialLedger) -> Result<(), Status> {
        let reported = self.grant.reported_of_type(type_url).and_then(Result::err);
        if let Some(denial) = reported {
            ledger.note(denial);
        }
        let judged = self.grant.of_type(type_url).map(|_| ());
        judged.map_err(|denial| self.deny(denial, ledger))
    }

    /// Judges the outcome of a request: the wildcard, and denied names where their absence would delete
    /// (AUT-9).
    pub(super) fn judge(
        &self,
        subscription: &Subscription,
        request: &Request,
        change: &InterestChange,
        ledger: &mut DenialLedger,
    ) -> Result<(), Status> {
        if self.grant.allows_all() || is_idle(request, change) {
            return Ok(());
        }
        self.report(subscription, request, change, ledger);
        let type_url = &subscription.type_url;
        let of_type = self.grant.of_type(type_url).map_err(|denial| self.deny(denial, ledger))?;
        if change.wildcard == Some(true) && !of_type.allows_wildcard() {
            return Err(self.deny(Denial::Wildcard(type_url.clone()), ledger));
        }
        let Some(refusals) = subscription.refusals() else { return Ok(()) };
        let denied: Vec<_> = refusals.denied_news().cloned().collect();
        let is_wildcard = change.wildcard.unwrap_or_else(|| subscription.is_wildcard());
        // A removal of the name would take something from the client, or may do so.
        let deletes = |name: &&ResourceName| match request {
            Request::Sotw(_) => type_url.kind().is_full_state() || is_wildcard,
            Request::Delta(request) => {
                let name = canonical(name, type_url);
                let is_it = |(stated, _): &(ResourceName, String)| canonical(stated, type_url) == name;
                request.initial_resource_versions.iter().any(is_it) || has_been_sent(subscription, &name)
            }
        };
        let fatal = denied.iter().find(deletes).cloned();
        if let Some(first) = fatal.clone().or_else(|| denied.first().cloned()) {
            let first = Denial::Name(type_url.clone(), first);
            let status = fatal.map(|_| first.status(self.grant.who()));
            ledger.0 = Some(Box::new(Denials { first, count: denied.len() as u64 }));
            return status.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Notes a denial that ends the stream.
    fn deny(&self, denial: Denial, ledger: &mut DenialLedger) -> Status {
        let status = denial.status(self.grant.who());
        ledger.note(denial);
        status
    }

    /// Notes the denials that the rules would give, with `mode: report`.
    fn report(
        &self,
        subscription: &Subscription,
        request: &Request,
        change: &InterestChange,
        ledger: &mut DenialLedger,
    ) {
        let type_url = &subscription.type_url;
        let Some(Ok(reported)) = self.grant.reported_of_type(type_url) else { return };
        if change.wildcard == Some(true) && !reported.allows_wildcard() {
            ledger.note(Denial::Wildcard(type_url.clone()));
        }
        let names = match request {
            Request::Sotw(request) => &request.resource_names,
            Request::Delta(request) => &request.subscribe,
        };
        // A repeated list is not reported again.
        if change.names.is_empty() {
            return;
        }
        for name in names.iter().filter(|name| !name.is_wildcard() && is_denied(name, &reported, type_url)) {
            ledger.note(Denial::Name(type_url.clone(), name.clone()));
        }
    }
}

/// Whether a request asks for nothing new, like nearly all ACKs.
fn is_idle(request: &Request, change: &InterestChange) -> bool {
    let asks = matches!(request, Request::Delta(request) if !request.subscribe.is_empty());
    !asks && *change == InterestChange::default()
}

/// The name as a key; a malformed name as it is.
fn canonical(name: &ResourceName, type_url: &TypeUrl) -> ResourceName {
    name.canonical(type_url.message()).ok().flatten().unwrap_or_else(|| name.clone())
}

fn is_denied(name: &ResourceName, grant: &TypeGrant<'_>, type_url: &TypeUrl) -> bool {
    match name.canonical(type_url.message()) {
        Ok(Some(canonical)) => !grant.allows(&canonical),
        Ok(None) => !grant.allows(name),
        // No server can have the name, so nothing is denied.
        Err(_) => false,
    }
}

/// Puts a grant beside everything that the client asks for.
pub(super) fn judge_again(subscription: &Subscription, grant: &Grant) -> Regrant {
    let type_url = &subscription.type_url;
    let of_type = match grant.of_type(type_url) {
        Ok(of_type) => of_type,
        Err(denial) => return Regrant::Lost(denial),
    };
    if subscription.is_wildcard() && !of_type.allows_wildcard() {
        return Regrant::Lost(Denial::Wildcard(type_url.clone()));
    }
    if !of_type.has_every_name() {
        let sets = subscription.parts.iter().filter_map(|part| part.names());
        if let Some(lost) = sets.flat_map(|names| names.iter()).find(|name| !of_type.allows(name)) {
            return Regrant::Lost(Denial::Name(type_url.clone(), lost.clone()));
        }
    }
    let mut denied = subscription.refusals().into_iter().flat_map(Refusals::denied);
    match denied.any(|name| !is_denied(name, &of_type, type_url)) {
        true => Regrant::Gained,
        false => Regrant::Kept,
    }
}

/// Whether the client may hold a resource under the name.
fn has_been_sent(subscription: &Subscription, name: &ResourceName) -> bool {
    subscription.parts.iter().any(|part| part.held.has(name))
}
