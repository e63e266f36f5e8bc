//! Applies a response of good structure, or the good part of a bad response.

use std::collections::BTreeSet;

use super::api::{Cause, Changes, Event};
use super::exchange::TypeSilence;
use super::globs::GlobsStep;
use super::names::{HeldResource, WantedNames, is_heartbeat};
use super::order::{VersionCheck, lower_version};
use super::request::RequestReason;
use super::request_size::PendingNames;
use super::response::{ResponseDigest, ResponseVerdict, is_invalid, means_absence};
use super::settling::Settling;
use super::type_request::TypeRequest;
use super::unasked::UnaskedStep;
use super::variant_step::VariantStep;
use super::want::Want;
use super::wildcard::Wildcard;
use crate::Time;
use crate::collection::CollectionKind;
use sluice_xds::{BadElement, Code, Received, ResourceError, ResourceName, Variant};

/// Returns true if the complete answer to a poll takes something away: a name, a member, or all members that
/// a client may have from before the relay's start.
fn takes_away(want: &Want, digest: &ResponseDigest) -> bool {
    let mut mentioned = BTreeSet::new();
    for element in &digest.resources {
        match element {
            Ok(received) => {
                mentioned.insert(received.name.clone());
                mentioned.extend(received.resource.iter().flat_map(|resource| resource.aliases.clone()));
            }
            Err(bad) => mentioned.extend(bad.name.clone()),
        }
    }
    mentioned.extend(digest.errors.iter().map(|error| error.name.clone()));
    match want {
        Want::Nothing | Want::Globs(_) => false,
        Want::Names(names) => !names.omitted(&mentioned).is_empty(),
        Want::Wildcard(wildcard) if mentioned.is_empty() && !wildcard.complete => true,
        Want::Wildcard(wildcard) => wildcard.members.keys().any(|name| !mentioned.contains(name)),
    }
}

/// The time of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTime {
    pub(super) now: Time,
    /// The end of a resource timer that would start now.
    pub(super) timer_end: Time,
}

/// A response with its effects.
pub(super) struct DigestedResponse {
    pub(super) verdict: ResponseVerdict,
    /// The reason for the answer: an ACK or a NACK.
    pub(super) reason: RequestReason,
    pub(super) changes: Option<Changes>,
    pub(super) events: Vec<Event>,
    /// The response has more than heartbeats.
    pub(super) states_content: bool,
    /// The server speaks of the type: the response is usable.
    pub(super) speaks: bool,
    /// The response has all resources.
    pub(super) is_full: bool,
}

/// Judges a response, and applies it unless it is void. `text_max`: the maximum length of a NACK's text.
pub(super) fn take_response(
    subscription: &mut TypeRequest,
    mut digest: ResponseDigest,
    text_max: usize,
    time: ResponseTime,
) -> DigestedResponse {
    let verdict = judge(subscription, &mut digest);
    // Another process may answer on a new stream, and count from the start again. Polls have no nonces.
    let is_first = subscription.exchange.responses.nonce.is_empty() && !digest.answers_all;
    let is_comparable = !is_first && !digest.is_from_another;
    subscription.exchange.responses.nonce.clone_from(&digest.nonce);
    subscription.exchange.requests.unanswered = None;
    subscription.exchange.silence = TypeSilence::default();
    let states_content = !digest.is_heartbeat();
    let is_full = digest.is_full_state();
    let lower = lower_version(None, &digest.version_info, &subscription.accepted).filter(|_| !verdict.void);
    let reason = if verdict.is_good() {
        subscription.accept(&digest);
        RequestReason::Ack
    } else {
        RequestReason::Nack(verdict.status(text_max))
    };
    subscription.exchange.responses.is_accepted = verdict.is_good();
    subscription.is_astray |= !verdict.is_good() && !verdict.void;
    let (changes, mut events) = if verdict.void {
        subscription.interrupt(time.now);
        (None, Vec::new())
    } else {
        apply(subscription, digest, &verdict, time)
    };
    let type_url = &subscription.type_url;
    events.extend(lower.map(|lower| Event::WentBackwards { type_url: type_url.clone(), lower }));
    events.retain(|event| is_comparable || !matches!(event, Event::WentBackwards { .. }));
    let speaks = states_content && !verdict.void && !verdict.unidentified;
    DigestedResponse { verdict, reason, changes, events, states_content, speaks, is_full }
}

/// Judges the structure of a response, after marking elements that the type cannot have.
fn judge(subscription: &TypeRequest, digest: &mut ResponseDigest) -> ResponseVerdict {
    if !subscription.want.is_names() {
        digest.refuse_variants();
    }
    if !matches!(subscription.want, Want::Wildcard(_)) {
        digest.refuse_nameless();
    }
    let mut verdict = ResponseVerdict::new(digest);
    if !digest.is_stated && takes_away(&subscription.want, digest) {
        verdict.mistrust();
    }
    verdict
}

/// Applies the wanted resources of a response. Unasked resources are ignored (FU15), or wanted from now on
/// (DEL-17).
fn apply(
    subscription: &mut TypeRequest,
    digest: ResponseDigest,
    verdict: &ResponseVerdict,
    time: ResponseTime,
) -> (Option<Changes>, Vec<Event>) {
    let (mut events, mut grows) = (Vec::new(), false);
    // The machine has to detect the end of the answer ([`super::settling`]): in delta, and for a SotW
    // wildcard in several responses.
    let is_in_parts = digest.variant == Variant::Delta
        || !digest.is_full_state() && matches!(subscription.want, Want::Wildcard(_));
    let (size, is_heartbeat) = (digest.size(), digest.is_heartbeat());
    let TypeRequest { want, exchange, type_url, .. } = &mut *subscription;
    let changes = match want {
        Want::Nothing => None,
        Want::Names(names) => {
            let mut unasked = UnaskedStep::new(digest.unasked, type_url, digest.variant);
            let step = NamesStep {
                names,
                pending: &exchange.pending,
                changes: Changes::new(type_url, CollectionKind::Names),
                mentioned: BTreeSet::new(),
                variants: VariantStep::default(),
                versions: VersionCheck::default(),
                unasked: unasked.as_mut(),
                fails: digest.fails,
                grows: &mut grows,
                time,
            };
            let changes = step.run(digest, verdict, &mut events);
            if let Some(unasked) = unasked {
                events.extend(unasked.event(type_url));
                exchange.pending.enter.extend(unasked.again);
            }
            Some(changes).filter(|changes| !changes.is_empty())
        }
        Want::Globs(globs) => {
            let step = GlobsStep::new(globs, exchange, type_url);
            let changes = step.run(digest, verdict, time.now, &mut events);
            grows = !changes.present.is_empty();
            Some(changes).filter(|changes| !changes.is_empty())
        }
        Want::Wildcard(wildcard) => {
            let was_complete = wildcard.complete;
            let step = WildcardStep {
                wildcard,
                changes: Changes::new(type_url, CollectionKind::Wildcard),
                mentioned: BTreeSet::new(),
                versions: VersionCheck::default(),
                grows: &mut grows,
            };
            let changes = step.run(digest, verdict, &mut events);
            let is_news = changes.complete && !was_complete;
            Some(changes).filter(|changes| is_news || !changes.is_empty())
        }
    };
    if exchange.has_marks && !verdict.unidentified {
        subscription.first_answers.await_mark();
    } else if is_in_parts && !is_heartbeat {
        if !verdict.unidentified {
            subscription.first_answers.note_response(size, grows, time.now);
        } else {
            subscription.each_settling(Settling::interrupt);
        }
        if verdict.unidentified || grows {
            subscription.confirmation.iter_mut().for_each(|confirmation| confirmation.interrupt(time.now));
        }
    }
    (changes, events)
}

/// One response, applied to names.
struct NamesStep<'a> {
    names: &'a mut WantedNames,
    pending: &'a PendingNames,
    changes: Changes,
    /// Wanted names that the response mentions, even by a bad element.
    mentioned: BTreeSet<ResourceName>,
    variants: VariantStep,
    versions: VersionCheck,
    /// For types with unasked resources.
    unasked: Option<&'a mut UnaskedStep>,
    /// Data errors remove copies (DAT-2).
    fails: bool,
    /// A name has its first answer on this stream.
    grows: &'a mut bool,
    time: ResponseTime,
}

impl NamesStep<'_> {
    fn run(mut self, digest: ResponseDigest, verdict: &ResponseVerdict, events: &mut Vec<Event>) -> Changes {
        let variant = digest.variant;
        let proves_absence = digest.is_full_state() && !verdict.unidentified && !digest.is_heartbeat();
        let mut faults = Vec::new();
        for element in digest.resources {
            match element {
                Ok(received) => self.take(received, variant),
                Err(BadElement { name: Some(name), reason, is_instance }) => {
                    let names = self.take_bad(&name, is_instance).into_iter().filter(|_| is_instance);
                    faults.extend(names.map(|name| (name, reason.clone())));
                }
                Err(BadElement { name: None, .. }) => {}
            }
        }
        if !faults.is_empty() {
            events.push(Event::Malformed { type_url: self.changes.type_url.clone(), faults });
        }
        for name in &digest.removed {
            self.lose(name, Cause::Removed);
        }
        for error in digest.errors {
            self.take_error(error, events);
        }
        let (changes, mentioned) = (&mut self.changes, &mut self.mentioned);
        let (names, pending) = (&mut *self.names, self.pending);
        events.extend(self.variants.finish(names, pending, variant, proves_absence, changes, mentioned));
        if proves_absence {
            for name in self.names.omitted(&self.mentioned) {
                self.names.set_absent(&name);
                self.changes.absent.push((name, Cause::Omitted));
            }
        }
        events.extend(self.versions.events(&self.changes.type_url));
        self.changes
    }

    fn take(&mut self, received: Received, variant: Variant) {
        let refreshed = self.changes.refreshed.len();
        let has_variants = self.variants.take(self.names, &received, variant, &mut self.changes);
        self.mentioned.extend(self.changes.refreshed.iter().skip(refreshed).map(|(name, _)| name.clone()));
        if has_variants && (received.resource.is_none() || received.name.is_variant()) {
            return;
        }
        let aliases = received.resource.as_ref().map_or(&[][..], |resource| &resource.aliases);
        let mut answered = self.names.answered_by(&received.name, aliases);
        if has_variants {
            answered.remove(&received.name);
        } else if answered.is_empty()
            && let Some(unasked) = &mut self.unasked
            && unasked.take(self.names, self.pending, &received)
        {
            self.changes.unasked.push(received.name.clone());
            answered.insert(received.name.clone());
        }
        let Some(resource) = &received.resource else {
            let held = answered.first().and_then(|name| self.names.held(name));
            let is_held = held.is_some();
            if !is_heartbeat(variant, held, &received) {
                self.lose(&received.name, Cause::Removed);
            } else if is_held {
                // Under the subscribed names; some of the names may be aliases (ALI-1).
                self.changes.refreshed.extend(answered.iter().map(|name| (name.clone(), received.ttl)));
            }
            self.mentioned.extend(answered);
            return;
        };
        for name in &answered {
            self.versions.compare(name, self.names.held(name), &received, resource, variant);
            let held = HeldResource::new(&received, resource, variant == Variant::Delta);
            if !self.names.is_seen(name) {
                *self.grows = true;
                self.names.note_answer(name, self.time.timer_end, self.time.now);
            }
            self.names.hold(name, &received.name, held, !self.pending.enter.contains(name));
            if *name != received.name {
                self.changes.by_alias.push((name.clone(), resource.clone()));
            }
        }
        if !answered.is_empty() && !has_variants {
            self.changes.present.push(resource.clone());
        }
        self.mentioned.extend(answered);
    }

    /// An absence counts only for names in a written request. The server cannot mean other names.
    fn lose(&mut self, name: &ResourceName, cause: Cause) {
        let has_variants = self.variants.lose(self.names, name, cause);
        let mut answered = self.names.answered_by(name, &[]);
        if has_variants {
            answered.remove(name);
        }
        for name in answered {
            self.names.note_answer(&name, self.time.timer_end, self.time.now);
            if !self.pending.enter.contains(&name) && self.names.set_absent(&name) {
                self.changes.absent.push((name, cause));
            }
        }
    }

    /// A bad instance of a name proves the name's existence (TMR-7); a bad entry about a name proves nothing
    /// (ERR-6). Returns the affected wanted names.
    fn take_bad(&mut self, name: &ResourceName, is_instance: bool) -> BTreeSet<ResourceName> {
        let meant = self.names.meant_by(name);
        meant.iter().for_each(|name| self.names.cancel_timer(name));
        if is_instance {
            meant.iter().for_each(|name| self.names.note_error(name));
            self.fail(name, &meant);
        }
        self.mentioned.extend(meant.iter().cloned());
        meant
    }

    /// A data error removes the copy if the settings trust the server with data errors (DAT-2). Without a
    /// copy there is only the error.
    fn fail(&mut self, name: &ResourceName, meant: &BTreeSet<ResourceName>) {
        if self.fails && meant.iter().any(|name| self.names.held(name).is_some()) {
            self.lose(name, Cause::DataError);
        }
    }

    /// A name with an error counts as seen (ERR-4). A resource in the same response (against ERR-2) wins.
    fn take_error(&mut self, error: ResourceError, events: &mut Vec<Event>) {
        let answered = self.names.meant_by(&error.name);
        if answered.is_empty() || answered.iter().any(|name| self.mentioned.contains(name)) {
            return;
        }
        let is_early = means_absence(&error) && answered.iter().any(|name| self.pending.enter.contains(name));
        if is_invalid(&error) || is_early {
            self.mentioned.extend(answered);
            return;
        }
        for name in &answered {
            self.names.cancel_timer(name);
        }
        if means_absence(&error) {
            self.lose(&error.name, Cause::NotFound);
        } else if error.status.code == Code::PermissionDenied {
            self.fail(&error.name, &answered);
        }
        if !means_absence(&error) {
            answered.iter().for_each(|name| self.names.note_error(name));
        }
        events.push(Event::ResourceError { type_url: self.changes.type_url.clone(), error });
        self.mentioned.extend(answered);
    }
}

/// One response, applied to a wildcard.
struct WildcardStep<'a> {
    wildcard: &'a mut Wildcard,
    changes: Changes,
    /// Names that the response mentions without a resource. Members among them stay members.
    mentioned: BTreeSet<ResourceName>,
    versions: VersionCheck,
    /// The response brings a new resource.
    grows: &'a mut bool,
}

impl WildcardStep<'_> {
    fn run(mut self, digest: ResponseDigest, verdict: &ResponseVerdict, events: &mut Vec<Event>) -> Changes {
        let variant = digest.variant;
        let proves_membership = !verdict.unidentified && !digest.is_heartbeat();
        let is_whole = digest.is_full_state() && proves_membership;
        for element in digest.resources {
            match element {
                Ok(received) => self.take(received, variant),
                Err(bad) => self.mention(bad.name),
            }
        }
        for name in digest.removed {
            self.lose(name, Cause::Removed);
        }
        self.take_errors(digest.errors, events);
        if is_whole {
            self.replace();
        }
        self.changes.complete = self.wildcard.complete;
        events.extend(self.versions.events(&self.changes.type_url));
        self.changes
    }

    fn take(&mut self, received: Received, variant: Variant) {
        let Some(resource) = &received.resource else {
            let held = self.wildcard.members.get(&received.name);
            let is_held = held.is_some();
            if !is_heartbeat(variant, held, &received) {
                self.lose(received.name, Cause::Removed);
            } else if is_held {
                self.mention(Some(received.name.clone()));
                self.changes.refreshed.push((received.name, received.ttl));
            }
            return;
        };
        *self.grows |= !self.wildcard.is_known(&received.name);
        let before = self.wildcard.members.get(&received.name);
        self.versions.compare(&received.name, before, &received, resource, variant);
        self.wildcard.hold(&received.name, HeldResource::new(&received, resource, variant == Variant::Delta));
        self.changes.present.push(resource.clone());
    }

    /// A resource in the same response as its error (against ERR-2) wins.
    fn take_errors(&mut self, errors: Vec<ResourceError>, events: &mut Vec<Event>) {
        if errors.is_empty() {
            return;
        }
        let brought: BTreeSet<_> =
            self.changes.present.iter().map(|resource| resource.name.clone()).collect();
        for error in errors {
            if brought.contains(&error.name) {
                continue;
            }
            if means_absence(&error) {
                self.lose(error.name.clone(), Cause::NotFound);
            } else {
                self.mention(Some(error.name.clone()));
            }
            if !is_invalid(&error) {
                events.push(Event::ResourceError { type_url: self.changes.type_url.clone(), error });
            }
        }
    }

    fn mention(&mut self, name: Option<ResourceName>) {
        if let Some(name) = name {
            self.wildcard.confirm(&name);
            self.mentioned.insert(name);
        }
    }

    fn lose(&mut self, name: ResourceName, cause: Cause) {
        if self.wildcard.remove(&name) {
            self.changes.absent.push((name, cause));
        }
    }

    /// SST-1: the response is the full set. If the response mentions members without their resources, the
    /// departed members are listed one by one instead.
    fn replace(&mut self) {
        (self.wildcard.complete, self.wildcard.is_confirmed) = (true, true);
        self.changes.replaces = self.mentioned.is_empty();
        let brought = self.changes.present.iter().map(|resource| resource.name.clone());
        let stay: BTreeSet<_> = brought.chain(self.mentioned.iter().cloned()).collect();
        let omitted = self.wildcard.take_omitted(&stay);
        if !self.changes.replaces {
            self.changes.absent.extend(omitted.into_iter().map(|name| (name, Cause::Omitted)));
        }
    }
}
