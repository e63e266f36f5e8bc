//! The words of the server: content, errors, deletions, times to live, and the confirmation of restored
//! content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Source;
use crate::Time;
use crate::annotations::{ErrorKind, Lease};
use crate::cache::expiry::{Due, Expiry, Leased};
use crate::cache::{GlobCache, KindCache, Known, NamedCache, WildcardCache};
use crate::collection::CollectionKind;
use crate::source::api::{SourceOutput, StreamIndex};
use crate::source::attachment::Attachment;
use crate::source::checkpoint::{Image, Kept, RestoredType, former_resources};
use crate::source::content_bound::{NoRoom, arriving_weight, refuse_growth};
use crate::source::mass_deletion::DeletionKey;
use crate::time::ReceivedAt;
use crate::upstream::{self, Cause, Changes, Event, Hold, Resumed};
use sluice_xds::{Code, ResourceName, Response, Status, TypeUrl};

/// The minimum time that a restored source waits for its first session, even if `linger` is shorter.
const RESTORED_PATIENCE_MIN: Duration = Duration::from_secs(10);

/// The time that sessions have to adopt an unasked name.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(10);

/// Content.
impl Source {
    /// Applies one upstream response as one step (I7b).
    fn apply(&mut self, mut changes: Changes, now: Time) {
        self.give_up_private(&mut changes);
        self.hold_back(&mut changes, now);
        self.carry_out(&changes, now);
    }

    fn carry_out(&mut self, changes: &Changes, now: Time) {
        let unasked = self.begin_unasked(changes);
        let Some(cache) = self.types.get_mut(&changes.type_url) else { return };
        cache.apply(changes, now);
        self.offer(&changes.type_url, unasked, now);
        self.lease(changes, now);
        self.settle(&changes.type_url, now);
    }

    /// Gives up the resources of a response that the server forbids to cache or share (CCH-1).
    fn give_up_private(&mut self, changes: &mut Changes) {
        let type_url = changes.type_url.clone();
        let Some(cache) = self.types.get_mut(&type_url).filter(|_| !self.settings.private) else { return };
        let (names, sessions) = cache.give_up_private(changes);
        if !names.is_empty() {
            self.outputs.push_back(SourceOutput::DoNotCache { type_url, names, sessions });
        }
    }

    /// Takes an output of a stream, before the driver.
    pub(super) fn take_stream_output(&mut self, index: StreamIndex, output: upstream::Output, now: Time) {
        self.note_confirmation(index, &output, now);
        match output {
            upstream::Output::Changes(changes) => self.apply(changes, now),
            upstream::Output::Event(event) => {
                if matches!(event, Event::Connected { .. }) {
                    self.refused.forget_stream(index);
                }
                self.take_errors(index, &event, now);
                let reported = self.reported_event(index, event).map(upstream::Output::Event);
                self.outputs.extend(reported.map(|event| SourceOutput::Upstream(index, event)));
            }
            other => self.outputs.push_back(SourceOutput::Upstream(index, other)),
        }
    }

    /// Reports an event of the source itself.
    pub(super) fn report(&mut self, event: Event) {
        self.outputs.push_back(SourceOutput::Upstream(0, upstream::Output::Event(event)));
    }

    /// Takes the state of the files over into the caches.
    pub(super) fn show_files(&mut self, now: Time) {
        let Attachment::Files(files) = &self.attachment else { return };
        for (type_url, cache) in &mut self.types {
            cache.take_files(type_url, files, now);
        }
        let types: Vec<_> = self.types.keys().cloned().collect();
        for type_url in types {
            self.settle(&type_url, now);
        }
    }

    /// Handles changes as if a stream had received them.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn handle_changes(&mut self, changes: Changes, now: Time) {
        self.apply(changes, now);
        self.after(now);
    }

    /// Handles an event as if a stream had reported it.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn handle_event(&mut self, event: &upstream::Event, now: Time) {
        self.take_errors(0, event, now);
        self.after(now);
    }
}

/// Errors of names: reported by the server, or implied by silence or an unreachable server (ERR-1, ERR-10).
impl Source {
    /// `server`: the server's name in errors. `tells_ttl`: clients of this class understand TTLs (TTL-1).
    #[must_use]
    pub fn of_server(mut self, server: Arc<str>, tells_ttl: bool) -> Source {
        self.upkeep.server = server;
        self.upkeep.expiry = Expiry::new(tells_ttl);
        self
    }

    /// Another server serves: errors name the new server from now on (ERR-9).
    pub fn set_server(&mut self, server: Arc<str>) {
        self.upkeep.server = server;
    }

    /// Records errors of names that the upstream reports or, by silence, implies (ERR-1, TMR-5).
    pub(super) fn take_errors(&mut self, index: StreamIndex, event: &Event, now: Time) {
        match event {
            Event::ResourceError { type_url, error } => {
                let status = self.upkeep.error(error.status.code, &error.status.message);
                let mut names = vec![error.name.clone()];
                // The error covers the name with any parameters. NOT_FOUND has removed each of these
                // resources elsewhere.
                if let Some(cache) = self.types.get(type_url).filter(|_| error.status.code != Code::NotFound)
                {
                    names.extend(cache.named.located(&error.name).cloned());
                }
                let errors = names.into_iter().map(|name| (name, status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Reported, now);
            }
            Event::Malformed { type_url, faults } => {
                let status = |reason: &str| self.upkeep.error(Code::InvalidArgument, reason);
                let errors = faults.iter().map(|(name, reason)| (name.clone(), status(reason))).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Malformed, now);
            }
            Event::Timeout { type_url, names } => {
                let status = self.upkeep.error(Code::Unavailable, "no answer for this name in time");
                let errors = names.iter().map(|name| (name.clone(), status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Timeout, now);
            }
            Event::Heard => self.end_transient_errors(index, None, now),
            // The type is requested with the others again: its error is over.
            Event::BearsType { type_url } => self.end_transient_errors(index, Some(type_url), now),
            // The first end may have had another reason.
            Event::EndsStream { type_url, status, ends: 2.. } => {
                let text = format!("ends the stream when it is asked for this type ({status})");
                self.report_refused(index, type_url, &text, now);
            }
            Event::NotServed { type_url, status } => {
                self.report_refused(index, type_url, &format!("does not serve this type ({status})"), now);
            }
            _ => {}
        }
    }

    /// The server refuses a type: its unknown names are unavailable for now (ERR-10).
    fn report_refused(&mut self, index: StreamIndex, type_url: &TypeUrl, text: &str, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        let unknown = cache.named.entries().iter().filter(|(_, state)| matches!(state, Known::Unknown));
        let globs = cache.globs.unknown();
        let names = unknown.map(|(name, _)| name).chain(globs).cloned();
        let status = self.upkeep.error(Code::Unavailable, text);
        let errors = names.map(|name| (name, status.clone())).collect();
        self.put_errors(index, type_url, errors, ErrorKind::Unreachable, now);
    }

    /// Names that were asked for long enough ago, of an unreachable server: UNAVAILABLE, never NOT_FOUND
    /// (ERR-10). A reachable server answers in time or times out (TMR-1).
    pub(super) fn report_unreachable(&mut self, now: Time) {
        while let Some((type_url, mut names)) = self.upkeep.take_asked(now) {
            let Some(cache) = self.types.get_mut(&type_url) else { continue };
            names.retain(|name| cache.is_unknown(name));
            let Some(kind) = names.first().map(CollectionKind::of) else { continue };
            let Attachment::Streams(streams) = &mut self.attachment else { return };
            let Some(index) = streams.placed(&type_url, kind) else { continue };
            let Some(machine) = streams.machine(index) else { continue };
            if machine.is_reached() {
                cache.has_asked = true;
                self.upkeep.note_asked(&type_url, &names, now);
                continue;
            }
            let reason = machine.last_error().map(ToString::to_string);
            let text = format!("cannot be reached ({})", reason.as_deref().unwrap_or("still connecting"));
            let status = self.upkeep.error(Code::Unavailable, &text);
            let errors = names.into_iter().map(|name| (name, status.clone())).collect();
            self.put_errors(index, &type_url, errors, ErrorKind::Unreachable, now);
        }
    }

    fn put_errors(
        &mut self,
        index: StreamIndex,
        type_url: &TypeUrl,
        errors: Vec<(ResourceName, Arc<Status>)>,
        error_kind: ErrorKind,
        now: Time,
    ) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let Some(kind) = streams.kind_of(index, type_url) else { return };
        let Some(cache) = self.types.get_mut(type_url) else { return };
        if let Some(cache) = cache.of_mut(kind) {
            errors.iter().for_each(|(name, status)| cache.fail(name, status, error_kind));
        }
        self.settle(type_url, now);
    }

    /// The server is heard: errors of unavailable names are over until they are reported again (DAT-7).
    /// Unknown names are waited for as at first. `only`: limits the call to this type.
    fn end_transient_errors(&mut self, index: StreamIndex, only: Option<&TypeUrl>, now: Time) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let mut touched = Vec::new();
        for (type_url, cache) in &mut self.types {
            if only.is_some_and(|only| only != type_url) {
                continue;
            }
            let kind = streams.kind_of(index, type_url);
            let Some(of_kind) = kind.and_then(|kind| cache.of_mut(kind)) else { continue };
            let unknown = of_kind.end_transient_errors();
            if !unknown.is_empty() {
                cache.has_asked = true;
                self.upkeep.note_asked(type_url, &unknown, now);
            }
            touched.push(type_url.clone());
        }
        for type_url in touched {
            self.settle(&type_url, now);
        }
    }

    /// The event to pass on. Resources that came under the version of the held resource are reported only if
    /// their bytes differ (FU20). Must be called before the response is applied.
    fn reported_event(&self, index: StreamIndex, event: Event) -> Option<Event> {
        let Attachment::Streams(streams) = &self.attachment else { return None };
        let is_about_server = matches!(
            event,
            Event::Connected { .. } | Event::Disconnected { .. } | Event::Unreachable { .. } | Event::Heard
        );
        if is_about_server && streams.is_alone(index) {
            return None;
        }
        let Event::SameVersion { type_url, mut contents } = event else { return Some(event) };
        let (kind, cache) = (streams.kind_of(index, &type_url)?, self.types.get(&type_url)?);
        contents.retain(|(name, content)| {
            cache.resource(kind, name).is_some_and(|held| held.version != *content)
        });
        (!contents.is_empty()).then_some(Event::SameVersion { type_url, contents })
    }
}

/// Mass deletions are held back, and carried out later (FU18).
impl Source {
    /// The number of resources of a type that are served although the server removed them.
    pub fn held_back(&self, type_url: &TypeUrl) -> usize {
        match &self.attachment {
            Attachment::Files(files) => files.held_back(type_url),
            Attachment::Streams(_) => self.guard.count(type_url),
        }
    }

    /// The start of the oldest hold of a type.
    pub fn held_back_since(&self, type_url: &TypeUrl) -> Option<Time> {
        match &self.attachment {
            Attachment::Files(files) => files.held_back_since(type_url),
            Attachment::Streams(_) => self.guard.since(type_url),
        }
    }

    /// Takes the held-back removals out of a response.
    fn hold_back(&mut self, changes: &mut Changes, now: Time) {
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        let Some(hold) = streams.mass_deletion_hold() else { return };
        // A timeout is no answer.
        let mut causes = changes.absent.iter().map(|(_, cause)| *cause).peekable();
        if causes.peek().is_some() && causes.all(|cause| cause == Cause::Timeout) {
            return;
        }
        let placed = streams.placed(&changes.type_url, changes.kind);
        let server = placed.and_then(|index| streams.machine(index)).map_or(0, |machine| machine.server());
        let Some(cache) = self.types.get(&changes.type_url) else { return };
        let events = self.guard.hold_back(cache, changes, server, hold, now);
        events.into_iter().for_each(|event| self.report(event));
    }

    /// Carries out deletions whose hold is over. While the server cannot be heard, it cannot send the
    /// resources again either: the hold starts anew.
    pub(super) fn carry_out_deletions(&mut self, now: Time) {
        if let Attachment::Files(files) = &mut self.attachment {
            let over = files.expire(now);
            let event = |type_url, count| Event::DeletionCarriedOut { type_url, count };
            self.report_file_deletions(over, event, now);
        }
        while let Some(key) = self.guard.pop(now) {
            if let Attachment::Streams(streams) = &self.attachment
                && let Some(Hold::For(time)) = streams.mass_deletion_hold()
                && self.attachment.is_lost_for(&key.0)
            {
                self.guard.put_off(key, time, now);
                continue;
            }
            let over = self.guard.take_due(&key, now);
            let event = |type_url, count| Event::DeletionCarriedOut { type_url, count };
            self.carry_out_deletion(key, over, event, now);
        }
    }

    /// The operator confirms the deletions of these types, with or without a deadline: the held resources go.
    /// Returns the number of resources.
    pub fn confirm_deletions(&mut self, is_meant: impl Fn(&TypeUrl) -> bool, now: Time) -> usize {
        let event = |type_url, count| Event::DeletionConfirmed { type_url, count };
        if let Attachment::Files(files) = &mut self.attachment {
            let over = files.confirm(is_meant);
            return self.report_file_deletions(over, event, now);
        }
        let deletions = self.guard.take_all(is_meant).into_iter();
        deletions.map(|(key, names)| self.carry_out_deletion(key, names, event, now)).sum()
    }

    /// Resources of files whose hold is over have left the state. Returns their number.
    fn report_file_deletions(
        &mut self,
        over: Vec<(TypeUrl, usize)>,
        event: impl Fn(TypeUrl, usize) -> Event,
        now: Time,
    ) -> usize {
        if over.is_empty() {
            return 0;
        }
        let total = over.iter().map(|(_, count)| count).sum();
        over.into_iter().for_each(|(type_url, count)| self.report(event(type_url, count)));
        self.show_files(now);
        total
    }

    /// Carries out the removal of these names in one step. Returns the number of names.
    fn carry_out_deletion(
        &mut self,
        key: DeletionKey,
        names: Vec<(ResourceName, Cause)>,
        event: impl Fn(TypeUrl, usize) -> Event,
        now: Time,
    ) -> usize {
        let (count, (type_url, kind)) = (names.len(), key);
        if count > 0 {
            let mut changes = Changes::new(&type_url, kind);
            changes.absent = names;
            self.carry_out(&changes, now);
            self.report(event(type_url, count));
        }
        count
    }
}

/// The bound on the content (ADR 68).
impl Source {
    /// The resources of a type that the bound keeps out.
    pub fn no_room(&self, type_url: &TypeUrl) -> Option<&NoRoom> {
        self.refused.get(type_url)
    }

    /// The weight of all content. Variants that no client matches count, too.
    pub fn content_bytes(&self) -> usize {
        let variants = match &self.attachment {
            Attachment::Streams(streams) => {
                streams.machines().map(|(_, machine)| machine.variant_bytes()).sum()
            }
            Attachment::Files(_) => 0,
        };
        self.types.values().map(|cache| cache.content_bytes()).sum::<usize>() + variants
    }

    /// Turns the resources of a response that find no room into bad elements.
    pub(super) fn bound_content(&mut self, stream: StreamIndex, response: &mut Response, now: Time) {
        let Some(limit) = self.settings.content_bytes else { return };
        let type_url = response.type_url().clone();
        let (arriving, held) = (arriving_weight(response), self.content_bytes());
        let mut refused = BTreeMap::new();
        if arriving > 0
            && held + arriving > limit
            && let Attachment::Streams(streams) = &self.attachment
            && let Some(cache) = self.types.get(&type_url)
        {
            let is_adopted = self.takes_unasked(&type_url);
            refused = refuse_growth(cache, streams, stream, response, held, limit, is_adopted);
        }
        self.refused.note(stream, response, &refused, now);
        if !refused.is_empty() {
            self.report(Event::NoRoom { type_url, resources: refused.len(), limit });
        }
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.settings.content_bytes.is_none_or(|limit| self.content_bytes() + bytes <= limit)
    }

    /// Requests resources again that have room by now: a server does not repeat rejected content by itself
    /// (ACK-5).
    pub(super) fn ask_for_refused(&mut self, now: Time) {
        if self.refused.retry_at(|bytes| self.has_room(bytes)).is_none_or(|at| at > now) {
            return;
        }
        let mut refused = std::mem::take(&mut self.refused);
        let due = refused.take_due(now, |bytes| self.has_room(bytes));
        self.refused = refused;
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        for index in due {
            if let Some(machine) = streams.machine(index) {
                machine.ask_anew(now);
            }
        }
    }
}

/// Resources with a time to live: leases start, are renewed and expire (TTL-8).
impl Source {
    /// Starts, renews and ends the leases of a response's resources (TTL-3, TTL-4).
    pub(super) fn lease(&mut self, changes: &Changes, now: Time) {
        let has_ttl =
            !changes.refreshed.is_empty() || changes.present.iter().any(|resource| resource.ttl.is_some());
        if !has_ttl && self.upkeep.expiry.is_empty() {
            return;
        }
        let kind = changes.kind;
        let cache = self.types.get_mut(&changes.type_url).and_then(|cache| cache.of_mut(kind));
        let Some(cache) = cache else { return };
        let stated = |name: &ResourceName| cache.annotations().lease(name);
        let key = |name: &ResourceName| Leased::new(&changes.type_url, kind, name);
        let expiry = &mut self.upkeep.expiry;
        let mut leases = Vec::new();
        if changes.replaces {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            expiry.keep_only(&changes.type_url, kind, |name| present.contains(name));
        }
        for (name, _) in &changes.absent {
            expiry.cancel(&key(name));
        }
        let by_name = changes.present.iter().map(|resource| (&resource.name, resource));
        let by_alias = changes.by_alias.iter().map(|(alias, resource)| (alias, resource));
        for (name, resource) in by_name.chain(by_alias).filter(|(name, _)| cache.stores(name)) {
            let lease = expiry.state_ttl(&key(name), resource.ttl, stated(name), now);
            leases.extend(lease.map(|lease| (name, lease)));
        }
        for (name, ttl) in &changes.refreshed {
            let lease = expiry.refresh(&key(name), *ttl, stated(name), now);
            leases.extend(lease.map(|lease| (name, lease)));
        }
        for (name, lease) in leases {
            cache.set_lease(name, lease);
        }
    }

    /// Sends due heartbeats, and removes expired resources as if the server had removed them (TTL-8).
    pub(super) fn run_out(&mut self, now: Time) {
        let mut touched: Vec<TypeUrl> = Vec::new();
        let mut expired: Vec<(TypeUrl, usize)> = Vec::new();
        while let Some((leased, due)) = self.upkeep.expiry.pop(now) {
            match due {
                Due::Beat(lease) => self.set_lease(&leased, Some(lease)),
                Due::Expired if self.drop_expired(&leased, now) => match expired.last_mut() {
                    Some((last, count)) if *last == leased.type_url => *count += 1,
                    _ => expired.push((leased.type_url.clone(), 1)),
                },
                Due::Expired => {}
            }
            if !touched.contains(&leased.type_url) {
                touched.push(leased.type_url);
            }
        }
        for type_url in touched {
            self.settle(&type_url, now);
        }
        for (type_url, count) in expired {
            self.report(Event::Expired { type_url, count });
        }
    }

    fn set_lease(&mut self, leased: &Leased, lease: Option<Lease>) {
        if let Some(cache) = self.types.get_mut(&leased.type_url) {
            cache.set_lease(leased.kind, &leased.name, lease);
        }
    }

    /// Removes an expired resource. Returns false if the resource was freed meanwhile.
    fn drop_expired(&mut self, leased: &Leased, now: Time) -> bool {
        let Leased { type_url, kind, name } = leased;
        let was_kept = *kind == CollectionKind::Names && self.is_kept(type_url, Some(name));
        let Some(cache) = self.types.get_mut(type_url) else { return false };
        if !cache.of_mut(*kind).is_some_and(|cache| cache.expire(name)) {
            return false;
        }
        self.guard.forget(type_url, *kind, std::slice::from_ref(name));
        if let Attachment::Streams(streams) = &mut self.attachment
            && let Some(machine) = streams.placed(type_url, *kind).and_then(|index| streams.machine(index))
        {
            machine.expire(type_url, name);
        }
        if was_kept {
            // Only the content kept the name from lingering.
            self.start_linger(type_url, [Some(name.clone())], now);
        }
        true
    }
}

/// Unasked resources are offered to the sessions (DEL-17).
///
/// Only in a source of one client: resources for one node are not for another node. An offered name has no
/// session at first, and lingers until a session adopts the name by its next collection, as if the client had
/// asked.
impl Source {
    /// Whether unasked resources of the type are the client's.
    pub(super) fn takes_unasked(&self, type_url: &TypeUrl) -> bool {
        type_url.is_sent_unasked() && self.settings.unasked_names.is_some()
    }

    /// Begins the unasked names of a response. Returns the names to offer.
    pub(super) fn begin_unasked(&mut self, changes: &Changes) -> Vec<ResourceName> {
        if changes.kind != CollectionKind::Names || !self.takes_unasked(&changes.type_url) {
            return Vec::new();
        }
        let Some(cache) = self.types.get_mut(&changes.type_url) else { return Vec::new() };
        let named = &mut cache.named;
        // Sessions gave the name up after a removal.
        let is_back = |name: &&ResourceName| {
            matches!(named.entries().get(*name), Some(Known::Absent(_))) && !named.is_watched(name)
        };
        let back = changes.present.iter().map(|resource| &resource.name).filter(is_back);
        let offered = back.chain(&changes.unasked).cloned().collect();
        for name in &changes.unasked {
            named.adopt(name);
        }
        offered
    }

    /// Offers names to the sessions with names of the type.
    pub(super) fn offer(&mut self, type_url: &TypeUrl, names: Vec<ResourceName>, now: Time) {
        if names.is_empty() {
            return;
        }
        let until = now + self.settings.linger.max(ADOPTION_PATIENCE);
        for name in names {
            let unwatched = self.types.get(type_url).and_then(|cache| cache.unwatched(Some(&name)));
            if let Some((bytes, has_content)) = unwatched {
                self.linger.add_until((type_url.clone(), Some(name.clone())), bytes, has_content, until);
            }
            self.note_offer(type_url, name);
        }
        self.publication.news.first.extend(self.sessions.with_names(type_url));
    }

    /// Offers a name to later sessions.
    pub(super) fn note_offer(&mut self, type_url: &TypeUrl, name: ResourceName) {
        if let Some(cache) = self.types.get_mut(type_url) {
            self.unasked += 1;
            Arc::make_mut(cache.unasked.get_or_insert_default()).add(name, self.unasked);
        }
    }
}

/// A source is saved for a restart of the relay, and continues from its state (RLY-7).
///
/// A restored source behaves as if its server had just been lost. PRESENT resources are served, complete
/// memberships stay complete, and nothing is ABSENT (RLY-2, RLY-46). The source subscribes to everything at
/// once: the first requests of its streams restate the held resources, and the server's answers reveal
/// deletions as after any reconnect (RLY-27, RLY-28). No timer runs for held resources (TMR-3), so no timer
/// deletes them.
///
/// Until the server has confirmed a collection, the source keeps the collection's resources even without
/// sessions. The first response confirms a collection. Silence can confirm too: a delta server was told of
/// all held resources and sends no response within its time to answer for a name (TMR-1), and the transport
/// is alive at the end of the time (RLY-29).
impl Source {
    /// The state at `now` for a file, which has no Secrets. Costs O(names) where the server's versions are
    /// known, else O(types).
    pub fn image(&self, now: Time) -> Image {
        self.image_of(now, |type_url| !type_url.is_secret())
    }

    /// The state at `now` for a successor of the process, with Secrets (HND-2).
    pub fn image_with_secrets(&self, now: Time) -> Image {
        self.image_of(now, |_| true)
    }

    fn image_of(&self, now: Time, is_meant: impl Fn(&TypeUrl) -> bool) -> Image {
        let mut image = Image { snapshot: self.publication.snapshot.clone(), ..Image::default() };
        image.left = self.upkeep.leases_left(now);
        let Attachment::Streams(streams) = &self.attachment else { return image };
        for (type_url, cache) in self.types.iter().filter(|(type_url, _)| is_meant(type_url)) {
            for kind in CollectionKind::ALL {
                let versions = streams.versions(type_url, kind);
                if !versions.is_empty() {
                    image.versions.insert((type_url.clone(), kind), versions);
                }
            }
            let globs: Vec<_> = cache.globs.complete().iter().cloned().collect();
            if !globs.is_empty() {
                image.complete_globs.insert(type_url.clone(), globs);
            }
        }
        image
    }

    /// Whether some resource has a time to live. Leases advance without a change of the snapshot.
    pub fn has_leases(&self) -> bool {
        self.upkeep.has_leases()
    }

    /// Resumes the state from before a restart; `age` is the age of the checkpoint. Must be the first call.
    pub fn restore(&mut self, types: &[RestoredType], age: Duration, now: Time) {
        // A checkpoint has no times of single resources: each resource was received before the checkpoint was
        // written.
        let received_at = ReceivedAt::before(now, age);
        for restored in
            types.iter().filter(|restored| restored.resources() > 0 || restored.wildcard.is_some())
        {
            self.restore_type(restored, received_at, now);
        }
        self.publication.heard.extend(self.types.keys().cloned());
        self.give_up_unless_watched(now);
        self.after(now);
        // The server has published nothing yet.
        self.publication.changes.clear();
    }

    fn restore_type(&mut self, restored: &RestoredType, received_at: ReceivedAt, now: Time) {
        let type_url = &restored.type_url;
        if !restored.names.is_empty()
            && self.resume(type_url, Resumed::Names(former_resources(&restored.names)), now)
        {
            let named: &mut NamedCache = &mut self.types.entry(type_url.clone()).or_default().named;
            restored.names.iter().for_each(|kept| named.restore(&kept.name, &kept.resource, received_at));
            self.lease_again(type_url, CollectionKind::Names, &restored.names, now);
            if self.takes_unasked(type_url) {
                // The server counts the names as subscribed, and sends no resource to a newcomer unasked.
                restored.names.iter().for_each(|kept| self.note_offer(type_url, kept.name.clone()));
            }
        }
        if let Some(members) = &restored.wildcard
            && self.resume(type_url, Resumed::Wildcard(former_resources(members)), now)
        {
            let cache = self.types.entry(type_url.clone()).or_default();
            let wildcard =
                cache.wildcard.get_or_insert_with(|| WildcardCache::new(self.publication.stamp.at(now)));
            let by_name = members.iter().map(|kept| (kept.name.clone(), kept.resource.clone())).collect();
            wildcard.replace(&by_name, received_at);
            self.lease_again(type_url, CollectionKind::Wildcard, members, now);
        }
        let globs =
            restored.globs.iter().map(|(glob, members)| (glob.clone(), former_resources(members))).collect();
        if !restored.globs.is_empty() && self.resume(type_url, Resumed::Globs(globs), now) {
            for (glob, members) in &restored.globs {
                let globs: &mut GlobCache = &mut self.types.entry(type_url.clone()).or_default().globs;
                globs.restore(glob, members.iter().map(|kept| &kept.resource), received_at);
                self.lease_again(type_url, CollectionKind::Globs, members, now);
            }
        }
        self.settle(type_url, now);
    }

    /// Resumes the subscription. Returns false if the server cannot be asked for the type.
    fn resume(&mut self, type_url: &TypeUrl, resumed: Resumed, now: Time) -> bool {
        let Attachment::Streams(streams) = &mut self.attachment else { return false };
        let (kind, restated) = (resumed.selection().kind(), resumed.is_restated());
        let can_be_asked = streams.resume(type_url, resumed, now);
        if can_be_asked {
            self.restoring.unheard.insert((type_url.clone(), kind), restated);
        }
        can_be_asked
    }

    fn lease_again(&mut self, type_url: &TypeUrl, kind: CollectionKind, kept: &[Kept], now: Time) {
        for kept in kept {
            if let (Some(ttl), Some(left)) = (kept.resource.ttl, kept.left) {
                let leased = Leased::new(type_url, kind, &kept.name);
                // A resource with a TTL has this time left (I17).
                if let Some(lease) = self.upkeep.expiry.resume(&leased, ttl, left, now) {
                    self.set_lease(&leased, Some(lease));
                }
            }
        }
    }

    /// Whether some resources are from before a restart, and unconfirmed.
    pub fn is_restored(&self) -> bool {
        !self.restoring.is_over()
    }

    /// Whether an entry stays without sessions, because the server has not confirmed its collection.
    pub(super) fn is_kept(&self, type_url: &TypeUrl, entry: Option<&ResourceName>) -> bool {
        let kind = CollectionKind::of_entry(entry);
        let cache = || self.types.get(type_url)?.of(kind);
        !self.restoring.is_over()
            && self.restoring.has(type_url, kind)
            && cache().is_some_and(|cache| cache.is_worth_keeping(entry))
    }

    /// A restored source without sessions and with a silent server stays as long as its entries would linger.
    pub(super) fn give_up_unless_watched(&mut self, now: Time) {
        let is_unwatched = !self.restoring.is_over() && self.sessions.is_empty();
        let patience = self.settings.linger.max(RESTORED_PATIENCE_MIN);
        match (is_unwatched, self.restoring.given_up_at) {
            (true, None) => self.restoring.given_up_at = Some(now + patience),
            (false, Some(_)) => self.restoring.given_up_at = None,
            _ => {}
        }
    }

    /// The unconfirmed collections of a stream.
    fn unheard_of(&self, stream: StreamIndex) -> Vec<(TypeUrl, CollectionKind)> {
        let Attachment::Streams(streams) = &self.attachment else { return Vec::new() };
        let unheard = self.restoring.unheard.keys();
        unheard.filter(|(url, kind)| streams.placed(url, *kind) == Some(stream)).cloned().collect()
    }

    /// Silence is an answer where the server was told of all held resources. Otherwise the server owes a
    /// response.
    pub(super) fn confirm_silence(&mut self, now: Time) {
        let restated = self.restoring.unheard.iter().filter(|(_, is_restated)| **is_restated);
        let is_current = restated.filter(|((type_url, _), _)| self.attachment.is_current(type_url));
        let collections = is_current.map(|(key, _)| key.clone()).collect();
        self.confirm(collections, now);
    }

    /// Notes an answer of the server for an unconfirmed collection.
    pub(super) fn note_confirmation(&mut self, stream: StreamIndex, output: &upstream::Output, now: Time) {
        if self.restoring.is_over() {
            return;
        }
        let upstream::Output::Event(
            Event::Acked { type_url } | Event::Nacked { type_url, .. } | Event::Unchanged { type_url },
        ) = output
        else {
            return;
        };
        let mut unheard = self.unheard_of(stream);
        unheard.retain(|(url, _)| url == type_url);
        self.confirm(unheard, now);
    }

    /// The server has confirmed these collections: names without sessions linger from now on.
    fn confirm(&mut self, collections: Vec<(TypeUrl, CollectionKind)>, now: Time) {
        if collections.is_empty() {
            return;
        }
        for (type_url, kind) in collections {
            self.restoring.unheard.remove(&(type_url.clone(), kind));
            let cache = self.types.get(&type_url).and_then(|cache| cache.of(kind));
            let entries = cache.map(KindCache::restorable).unwrap_or_default();
            self.start_linger(&type_url, entries, now);
            self.settle(&type_url, now);
        }
        if self.restoring.is_over() {
            self.restoring.given_up_at = None;
            self.outputs.push_back(SourceOutput::Confirmed);
        }
    }

    pub(super) fn keep_restored(&mut self, now: Time) {
        if self.restoring.poll_timeout().is_some_and(|due| due <= now) {
            self.give_up_restored(now);
        }
    }

    /// Frees unconfirmed resources that no session wants. A later session has them restored once more.
    pub(super) fn give_up_restored(&mut self, now: Time) {
        let collections: Vec<_> = std::mem::take(&mut self.restoring).unheard.into_keys().collect();
        for (type_url, kind) in collections {
            // The published collection no longer counts as restored.
            self.settle(&type_url, now);
            let cache = self.types.get(&type_url).and_then(|cache| cache.of(kind));
            for entry in cache.map(KindCache::restorable).unwrap_or_default() {
                self.linger.add_until((type_url.clone(), entry), 0, false, now);
            }
        }
        self.expire_linger(now);
    }
}
