//! A source is saved for a restart of the relay, and continues from its state (RLY-7).
//!
//! A restored source behaves as if its server had just been lost. PRESENT resources are served, complete
//! memberships stay complete, and nothing is ABSENT (RLY-2, RLY-46). The source subscribes to everything at
//! once: the first requests of its streams restate the held resources, and the server's answers reveal
//! deletions as after any reconnect (RLY-27, RLY-28). No timer runs for held resources (TMR-3), so no timer
//! deletes them.
//!
//! Until the server has confirmed a collection, the source keeps the collection's resources even without
//! sessions. The first response confirms a collection. Silence can confirm too: a delta server was told of
//! all held resources and sends no response within its time to answer for a name (TMR-1), and the transport
//! is alive at the end of the time (RLY-29).

use std::time::Duration;

use super::Source;
use crate::engine::Time;
use crate::engine::cache::expiry::Leased;
use crate::engine::cache::{GlobCache, NamedCache, WildcardCache};
use crate::engine::collection::CollectionKind;
use crate::engine::source::api::Output;
use crate::engine::source::attachment::{Attachment, StreamIndex};
use crate::engine::source::checkpoint::{Image, Kept, RestoredType, former};
use crate::engine::time::ReceivedAt;
use crate::engine::upstream::{self, Event, Resumed};
use crate::xds::{ResourceName, TypeUrl};

/// The minimum time that a restored source waits for its first session, even if `linger` is shorter.
const PATIENCE_MIN: Duration = Duration::from_secs(10);

impl Source {
    /// The state at `now` for a file, which has no Secrets. Costs O(names) where the server's versions are known, else
    /// O(types).
    pub fn image(&self, now: Time) -> Image {
        self.image_of(now, |type_url| !type_url.is_secret())
    }

    /// The state at `now` for a successor of the process, with Secrets (HND-2).
    pub fn image_with_secrets(&self, now: Time) -> Image {
        self.image_of(now, |_| true)
    }

    fn image_of(&self, now: Time, is_meant: impl Fn(&TypeUrl) -> bool) -> Image {
        let mut image = Image { snapshot: self.snapshot.clone(), ..Image::default() };
        image.left = self.upkeep.left(now);
        let Attachment::Streams(streams) = &self.attachment else { return image };
        for (type_url, cache) in self.types.iter().filter(|(type_url, _)| is_meant(type_url)) {
            for kind in [CollectionKind::Wildcard, CollectionKind::Globs, CollectionKind::Names] {
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
        // A checkpoint has no times of single resources: each resource was received before the checkpoint was written.
        let received_at = ReceivedAt::before(now, age);
        for restored in
            types.iter().filter(|restored| restored.resources() > 0 || restored.wildcard.is_some())
        {
            self.restore_type(restored, received_at, now);
        }
        self.given_up_unless_watched(now);
        self.after(now);
        // The server has published nothing yet.
        self.changes.clear();
    }

    fn restore_type(&mut self, restored: &RestoredType, received_at: ReceivedAt, now: Time) {
        let type_url = &restored.type_url;
        if !restored.names.is_empty() && self.resume(type_url, Resumed::Names(former(&restored.names)), now) {
            let named: &mut NamedCache = &mut self.types.entry(type_url.clone()).or_default().named;
            restored.names.iter().for_each(|kept| named.restore(&kept.name, &kept.resource, received_at));
            self.lease_again(type_url, CollectionKind::Names, &restored.names, now);
            if self.takes_unasked(type_url) {
                // The server counts the names as subscribed, and sends no resource to a newcomer unasked.
                restored.names.iter().for_each(|kept| self.note_offer(type_url, kept.name.clone()));
            }
        }
        if let Some(members) = &restored.wildcard
            && self.resume(type_url, Resumed::Wildcard(former(members)), now)
        {
            let cache = self.types.entry(type_url.clone()).or_default();
            let wildcard = cache.wildcard.get_or_insert_with(|| WildcardCache::new(self.stamp.at(now)));
            let by_name = members.iter().map(|kept| (kept.name.clone(), kept.resource.clone())).collect();
            wildcard.replace(&by_name, received_at);
            self.lease_again(type_url, CollectionKind::Wildcard, members, now);
        }
        let globs = restored.globs.iter().map(|(glob, members)| (glob.clone(), former(members))).collect();
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
                let what = Leased::new(type_url, kind, &kept.name);
                self.lease_resumed(&what, ttl, left, now);
            }
        }
    }

    /// Whether some resources are from before a restart, and unconfirmed.
    pub fn is_restored(&self) -> bool {
        !self.restoring.is_over()
    }

    /// Whether a name or a wildcard stays without sessions, because the server has not confirmed its
    /// collection.
    pub(super) fn is_kept(&self, type_url: &TypeUrl, name: Option<&ResourceName>) -> bool {
        if self.restoring.is_over() {
            return false;
        }
        let Some(cache) = self.types.get(type_url) else { return false };
        match name {
            None => {
                let is_whole = cache.wildcard.as_ref().is_some_and(|wildcard| wildcard.view().is_complete());
                is_whole && self.restoring.has(type_url, CollectionKind::Wildcard)
            }
            Some(glob) if glob.is_glob() => {
                !cache.globs.is_unknown(glob) && self.restoring.has(type_url, CollectionKind::Globs)
            }
            Some(name) => {
                let known = cache.named.known().get(name);
                let is_present = known.is_some_and(|known| known.resource().is_some());
                is_present && self.restoring.has(type_url, CollectionKind::Names)
            }
        }
    }

    /// A restored source without sessions and with a silent server stays as long as its entries would linger.
    pub(super) fn given_up_unless_watched(&mut self, now: Time) {
        let is_unwatched = !self.restoring.is_over() && self.sessions.is_empty();
        let patience = self.settings.linger.max(PATIENCE_MIN);
        match (is_unwatched, self.restoring.given_up_at) {
            (true, None) => self.restoring.given_up_at = Some(now + patience),
            (false, Some(_)) => self.restoring.given_up_at = None,
            _ => {}
        }
    }

    // === what the server does ===

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

    /// Handles the output of a stream before the driver.
    pub(super) fn note_output(&mut self, stream: StreamIndex, output: &upstream::Output, now: Time) {
        if self.restoring.is_over() {
            return;
        }
        let upstream::Output::Event(
            Event::Acked { type_url } | Event::Nacked { type_url, .. } | Event::Unchanged { type_url },
        ) = output
        else {
            return;
        };
        let mut of_type = self.unheard_of(stream);
        of_type.retain(|(url, _)| url == type_url);
        self.confirm(of_type, now);
    }

    /// The server has confirmed these collections: names without sessions linger from now on.
    fn confirm(&mut self, collections: Vec<(TypeUrl, CollectionKind)>, now: Time) {
        if collections.is_empty() {
            return;
        }
        for (type_url, kind) in collections {
            self.restoring.unheard.remove(&(type_url.clone(), kind));
            let Some(cache) = self.types.get(&type_url) else { continue };
            match kind {
                CollectionKind::Wildcard => {
                    let unwatched = cache.wildcard.as_ref().filter(|wildcard| !wildcard.is_watched());
                    if let Some(bytes) = unwatched.map(|wildcard| wildcard.view().bytes()) {
                        self.linger.add((type_url.clone(), None), bytes, bytes > 0, now);
                    }
                }
                CollectionKind::Globs => {
                    let globs: Vec<_> = cache.globs.complete().iter().cloned().collect();
                    self.start_linger(&type_url, globs, now);
                }
                CollectionKind::Names => {
                    let names: Vec<_> = cache.named.unwatched().cloned().collect();
                    self.start_linger(&type_url, names, now);
                }
            }
            self.settle(&type_url, now);
        }
        if self.restoring.is_over() {
            self.restoring.given_up_at = None;
            self.outputs.push_back(Output::Confirmed);
        }
    }

    // === time ===

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
            let Some(cache) = self.types.get(&type_url) else { continue };
            match kind {
                CollectionKind::Wildcard => self.linger_briefly(&type_url, None, now),
                CollectionKind::Globs => {
                    let globs: Vec<_> = cache.globs.complete().iter().cloned().collect();
                    globs.into_iter().for_each(|glob| self.linger_briefly(&type_url, Some(glob), now));
                }
                CollectionKind::Names => {
                    let names: Vec<_> = cache.named.unwatched().cloned().collect();
                    names.into_iter().for_each(|name| self.linger_briefly(&type_url, Some(name), now));
                }
            }
        }
        self.expire_linger(now);
    }

    fn linger_briefly(&mut self, type_url: &TypeUrl, name: Option<ResourceName>, now: Time) {
        self.linger.add_until((type_url.clone(), name), 0, false, now);
    }
}
