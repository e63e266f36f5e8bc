//! The grant of a session: judges requests, and judges subscriptions again (AUT-11, AUT-12).

use std::sync::Arc;

use crate::authorization::{Denial, Denials, Grant, TypeGrant};
use crate::downstream::answer::spelling::Refusals;
use crate::downstream::session::Session;
use crate::downstream::subscription::{Change, Subscription};
use sluice_xds::{Request, ResourceName, Status, TypeUrl};

/// A new grant for the subscriptions of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regrant {
    /// The session keeps all of its subscriptions.
    Kept,
    /// A subscription is denied now. The stream must end, so that nothing is removed (AUT-12).
    Lost(Denial),
    /// A denied name is allowed now. The client was told that it is absent, and asks again on a new stream only.
    Gained,
}

impl Session {
    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// Puts another grant in force. Without [`Regrant::Kept`] the stream must end.
    pub fn regrant(&mut self, grant: Arc<Grant>) -> Regrant {
        let judged = self.subscriptions.iter().map(|subscription| subscription.judge_again(&grant));
        let mut result = Regrant::Kept;
        for regrant in judged {
            match regrant {
                Regrant::Kept => {}
                Regrant::Lost(_) => return regrant,
                Regrant::Gained => result = Regrant::Gained,
            }
        }
        self.grant = grant;
        result
    }

    /// Takes the grant away, so that the client may ask for nothing more.
    pub fn revoke(&mut self) {
        self.grant = Grant::nothing();
    }

    /// The denials of the latest request, also of one that ends the stream.
    pub fn take_denials(&mut self) -> Option<Denials> {
        self.denials.take().map(|denials| *denials)
    }

    /// Notes a denial that ends the stream.
    pub(super) fn deny(&mut self, denial: Denial) -> Status {
        let status = denial.status(self.grant.who());
        self.note_denial(denial);
        status
    }

    fn note_denial(&mut self, first: Denial) {
        match &mut self.denials {
            Some(denials) => denials.count += 1,
            None => self.denials = Some(Box::new(Denials { first, count: 1 })),
        }
    }

    /// Judges a type at its first request.
    pub(super) fn judge_type(&mut self, type_url: &TypeUrl) -> Result<(), Status> {
        let reported = self.grant.reported_of_type(type_url).and_then(Result::err);
        if let Some(denial) = reported {
            self.note_denial(denial);
        }
        let judged = self.grant.of_type(type_url).map(|_| ());
        judged.map_err(|denial| self.deny(denial))
    }

    /// Judges the outcome of a request: the wildcard, and denied names where their absence would delete (AUT-9).
    pub(super) fn judge(&mut self, index: usize, request: &Request, change: &Change) -> Result<(), Status> {
        if self.grant.allows_all() || is_idle(request, change) {
            return Ok(());
        }
        self.report(index, request, change);
        let grant = self.grant.clone();
        let Some(type_url) = self.subscriptions.get(index).map(|found| found.type_url.clone()) else {
            return Ok(());
        };
        let of_type = grant.of_type(&type_url).map_err(|denial| self.deny(denial))?;
        if change.wildcard == Some(true) && !of_type.allows_wildcard() {
            return Err(self.deny(Denial::Wildcard(type_url.clone())));
        }
        let Some(subscription) = self.subscriptions.get(index) else { return Ok(()) };
        let Some(refusals) = subscription.refusals() else { return Ok(()) };
        let denied: Vec<_> = refusals.denied_news().cloned().collect();
        let is_wildcard = change.wildcard.unwrap_or_else(|| subscription.is_wildcard());
        // A removal of the name would take something from the client, or may do so.
        let deletes = |name: &&ResourceName| match request {
            Request::Sotw(_) => type_url.kind().is_full_state() || is_wildcard,
            Request::Delta(request) => {
                let name = canonical(name, &type_url);
                let is_it = |(known, _): &(ResourceName, String)| canonical(known, &type_url) == name;
                request.initial_resource_versions.iter().any(is_it) || subscription.has_been_sent(&name)
            }
        };
        let fatal = denied.iter().find(deletes).cloned();
        if let Some(first) = fatal.clone().or_else(|| denied.first().cloned()) {
            let first = Denial::Name(type_url, first);
            let status = fatal.map(|_| first.status(grant.who()));
            self.denials = Some(Box::new(Denials { first, count: denied.len() as u64 }));
            return status.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Notes the denials that the rules would give, with `mode: report`.
    fn report(&mut self, index: usize, request: &Request, change: &Change) {
        let Some(subscription) = self.subscriptions.get(index) else { return };
        let type_url = subscription.type_url.clone();
        let grant = self.grant.clone();
        let Some(Ok(reported)) = grant.reported_of_type(&type_url) else { return };
        if change.wildcard == Some(true) && !reported.allows_wildcard() {
            self.note_denial(Denial::Wildcard(type_url.clone()));
        }
        let names = match request {
            Request::Sotw(request) => &request.resource_names,
            Request::Delta(request) => &request.subscribe,
        };
        // A repeated list is not reported again.
        if change.names.is_empty() {
            return;
        }
        for name in names.iter().filter(|name| !name.is_wildcard() && is_denied(name, &reported, &type_url)) {
            self.note_denial(Denial::Name(type_url.clone(), name.clone()));
        }
    }
}

/// Whether a request asks for nothing new, like nearly all ACKs.
fn is_idle(request: &Request, change: &Change) -> bool {
    let asks = matches!(request, Request::Delta(request) if !request.subscribe.is_empty());
    !asks && *change == Change::default()
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

impl Subscription {
    /// Judges everything that the client asks for.
    fn judge_again(&self, grant: &Grant) -> Regrant {
        let of_type = match grant.of_type(&self.type_url) {
            Ok(of_type) => of_type,
            Err(denial) => return Regrant::Lost(denial),
        };
        if self.is_wildcard() && !of_type.allows_wildcard() {
            return Regrant::Lost(Denial::Wildcard(self.type_url.clone()));
        }
        if !of_type.has_every_name() {
            let mut names = self.parts.iter().filter_map(|part| part.names()).flat_map(|names| names.iter());
            if let Some(lost) = names.find(|name| !of_type.allows(name)) {
                return Regrant::Lost(Denial::Name(self.type_url.clone(), lost.clone()));
            }
        }
        let mut denied = self.refusals().into_iter().flat_map(Refusals::denied);
        match denied.any(|name| !is_denied(name, &of_type, &self.type_url)) {
            true => Regrant::Gained,
            false => Regrant::Kept,
        }
    }

    /// Whether the client may hold a resource under the name.
    fn has_been_sent(&self, name: &ResourceName) -> bool {
        self.parts.iter().any(|part| part.held.has(name))
    }
}
