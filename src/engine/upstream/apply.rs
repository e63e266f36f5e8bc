//! Applies a response of good structure, or the good part of a bad response.

use std::collections::BTreeSet;

use super::api::{Cause, Changes, Event};
use super::globs::GlobsStep;
use super::names::{Held, Names, is_heartbeat};
use super::order::Versions;
use super::response::{Digest, Verdict, is_invalid, means_absence};
use super::said::Said;
use super::settling::Settling;
use super::type_request::{TypeRequest, Want};
use super::unasked::UnaskedStep;
use super::variant_step::VariantStep;
use super::wildcard::Wildcard;
use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::xds::{BadElement, Code, Received, ResourceError, ResourceName, TypeUrl, Variant};

impl Changes {
    pub(in crate::engine) fn new(type_url: &TypeUrl, kind: CollectionKind) -> Self {
        let (present, by_alias, unasked, absent, refreshed, settled) = Default::default();
        Changes {
            type_url: type_url.clone(),
            kind,
            present,
            by_alias,
            unasked,
            absent,
            refreshed,
            replaces: false,
            complete: false,
            settled,
        }
    }

    pub(in crate::engine) fn of_names(type_url: &TypeUrl, names: Vec<ResourceName>, cause: Cause) -> Self {
        let absent = names.into_iter().map(|name| (name, cause)).collect();
        Changes { absent, ..Changes::new(type_url, CollectionKind::Names) }
    }

    /// The members of a wildcard have settled; `gone` proved to be no members.
    pub(super) fn of_settled(type_url: &TypeUrl, gone: Vec<ResourceName>) -> Self {
        let absent = gone.into_iter().map(|name| (name, Cause::Omitted)).collect();
        Changes { absent, complete: true, ..Changes::new(type_url, CollectionKind::Wildcard) }
    }

    fn says_nothing(&self) -> bool {
        let nothing = self.present.is_empty() && self.absent.is_empty() && self.refreshed.is_empty();
        nothing && self.settled.is_empty() && !self.replaces
    }
}

impl TypeRequest {
    /// The machine has to detect the end of the answer ([`super::settling`]): in delta, and for a SotW
    /// wildcard in several responses.
    fn is_told_in_parts(&self, variant: Variant, is_full: bool) -> bool {
        variant == Variant::Delta || !is_full && matches!(self.want, Want::Wildcard(_))
    }

    /// Whether the complete answer to a poll takes something away: a name, a member, or all members that a client may have
    /// from before the relay's start.
    pub(super) fn takes_away(&self, digest: &Digest) -> bool {
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
        match &self.want {
            Want::Nothing | Want::Globs(_) => false,
            Want::Names(names) => !names.omitted(&mentioned).is_empty(),
            Want::Wildcard(wildcard) if mentioned.is_empty() && !wildcard.complete => true,
            Want::Wildcard(wildcard) => wildcard.members.keys().any(|name| !mentioned.contains(name)),
        }
    }

    /// Applies the wanted resources of a response. Unasked resources are ignored (FU15), or wanted from now on (DEL-17). `times`: now, and the end of a
    /// resource timer that would start now.
    pub(super) fn apply(
        &mut self,
        digest: Digest,
        verdict: &Verdict,
        times: (Time, Time),
    ) -> (Option<Changes>, Vec<Event>) {
        let (mut events, mut grows) = (Vec::new(), false);
        let (now, _) = times;
        let is_in_parts = self.is_told_in_parts(digest.variant, digest.is_full_state());
        let (size, is_heartbeat) = (digest.size(), digest.is_heartbeat());
        let changes = match &mut self.want {
            Want::Nothing => None,
            Want::Names(names) => {
                let changes = Changes::new(&self.type_url, CollectionKind::Names);
                let (mentioned, variants, versions) = Default::default();
                let fails = digest.fails;
                let said = &self.said;
                let grows = &mut grows;
                let mut unasked = UnaskedStep::new(digest.unasked, &self.type_url, digest.variant);
                let step = NamesStep {
                    names,
                    said,
                    changes,
                    mentioned,
                    variants,
                    versions,
                    unasked: unasked.as_mut(),
                    fails,
                    grows,
                    times,
                };
                let changes = step.run(digest, verdict, &mut events);
                if let Some(unasked) = unasked {
                    events.extend(unasked.event(&self.type_url));
                    self.said.enter.extend(unasked.again);
                }
                Some(changes).filter(|changes| !changes.says_nothing())
            }
            Want::Globs(globs) => {
                let step = GlobsStep::new(globs, &self.said, &self.type_url);
                let changes = step.run(digest, verdict, now, &mut events);
                grows = !changes.present.is_empty();
                Some(changes).filter(|changes| !changes.says_nothing())
            }
            Want::Wildcard(wildcard) => {
                let was_complete = wildcard.complete;
                let changes = Changes::new(&self.type_url, CollectionKind::Wildcard);
                let (mentioned, versions) = Default::default();
                let grows = &mut grows;
                let step = WildcardStep { wildcard, changes, mentioned, versions, grows };
                let changes = step.run(digest, verdict, &mut events);
                let is_news = changes.complete && !was_complete;
                Some(changes).filter(|changes| is_news || !changes.says_nothing())
            }
        };
        if self.said.has_marks && !verdict.unidentified {
            self.first.told();
        } else if is_in_parts && !is_heartbeat {
            if !verdict.unidentified {
                self.first.answered(size, grows, now);
            } else {
                self.each_settling(Settling::interrupt);
            }
            if verdict.unidentified || grows {
                self.confirmation.iter_mut().for_each(|confirmation| confirmation.interrupt(now));
            }
        }
        (changes, events)
    }
}

/// One response, applied to names.
struct NamesStep<'a> {
    names: &'a mut Names,
    said: &'a Said,
    changes: Changes,
    /// Wanted names that the response mentions, even by a bad element.
    mentioned: BTreeSet<ResourceName>,
    variants: VariantStep,
    versions: Versions,
    /// For types with unasked resources.
    unasked: Option<&'a mut UnaskedStep>,
    /// Data errors remove copies (DAT-2).
    fails: bool,
    /// A name has its first answer on this stream.
    grows: &'a mut bool,
    /// As in [`TypeRequest::apply`].
    times: (Time, Time),
}

impl NamesStep<'_> {
    fn run(mut self, digest: Digest, verdict: &Verdict, events: &mut Vec<Event>) -> Changes {
        let variant = digest.variant;
        let proves_absence = digest.is_full_state() && !verdict.unidentified && !digest.is_heartbeat();
        let mut faults = Vec::new();
        for element in digest.resources {
            match element {
                Ok(received) => self.take(received, variant),
                Err(BadElement { name: Some(name), reason, is_instance }) => {
                    let meant = self.take_bad(&name, is_instance).into_iter().filter(|_| is_instance);
                    faults.extend(meant.map(|name| (name, reason.clone())));
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
        let whole = (variant, proves_absence);
        let (changes, mentioned) = (&mut self.changes, &mut self.mentioned);
        events.extend(self.variants.finish(self.names, self.said, whole, changes, mentioned));
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
            && unasked.take(self.names, self.said, &received)
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
            let held = Held::new(&received, resource, variant == Variant::Delta);
            if !self.names.is_seen(name) {
                *self.grows = true;
                self.names.answered(name, self.times.1, self.times.0);
            }
            self.names.hold(name, &received.name, held, !self.said.enter.contains(name));
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
            self.names.answered(&name, self.times.1, self.times.0);
            if !self.said.enter.contains(&name) && self.names.set_absent(&name) {
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
        let is_early = means_absence(&error) && answered.iter().any(|name| self.said.enter.contains(name));
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
    versions: Versions,
    /// The response brings a new resource.
    grows: &'a mut bool,
}

impl WildcardStep<'_> {
    fn run(mut self, digest: Digest, verdict: &Verdict, events: &mut Vec<Event>) -> Changes {
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
        self.wildcard.hold(&received.name, Held::new(&received, resource, variant == Variant::Delta));
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
