//! Mass deletions: what a server took away in one response, and what is served on for a while all the same (FU18).
//!
//! A response is held back if it takes away more than [`NAMES_MIN`] resources of a collection and more than half of what it
//! had. Held back is what the clients see, and nothing else: the stream has taken the response as it was said. So the server
//! is not told that the relay has these resources, on this stream or on the next (DEL-35), no later response is asked to
//! delete them again, and whatever the server brings of them is news. They go when their time is over or when the operator
//! says that their deletion was meant, as one step.
//!
//! What is stated name by name as no longer there for another reason is not held back: a time to live that runs out (TTL-8),
//! NOT_FOUND in `resource_errors` (ERR-5), a name without an answer (TMR-5). A first answer deletes nothing, so that none is
//! held back; the first answer of the other server of a failover says nothing about what the one before it had, and is obeyed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Attachment, Output, Source, TypeCache};
use crate::engine::Time;
use crate::engine::interest::Shape;
use crate::engine::planted::{Bug, planted};
use crate::engine::upstream::{self, Cause, Changes, Event, Hold, Scope};
use crate::xds::{ResourceName, TypeUrl};

/// So many resources may leave in one response, however many there were.
pub const NAMES_MIN: usize = 10;

/// Whether a response that takes `removed` of `before` away is a mass deletion.
pub fn is_mass(removed: usize, before: usize) -> bool {
    removed > NAMES_MIN && removed > before / 2
}

type Key = (TypeUrl, Shape);

/// What is held back of a source. Where responses are obeyed at once it is empty.
#[derive(Debug, Default)]
pub(super) struct Guard {
    collections: BTreeMap<Key, Collection>,
    /// When to look whether something is over, in the order of time.
    queue: VecDeque<(Time, Key)>,
}

#[derive(Debug)]
struct Collection {
    /// The number of the server that answered last.
    server: u16,
    /// Since when something is held, without a break.
    since: Time,
    /// Until when, if not until the operator says so.
    held: BTreeMap<ResourceName, (Option<Time>, Cause)>,
}

impl Guard {
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.queue.front().map(|(due, _)| *due)
    }

    fn len(&self, type_url: &TypeUrl) -> usize {
        let of_type = self.collections.iter().filter(|((url, _), _)| url == type_url);
        of_type.map(|(_, collection)| collection.held.len()).sum()
    }

    /// These are no longer there, for another reason than the one for which they are held back.
    pub(super) fn forget(&mut self, type_url: &TypeUrl, shape: Shape, names: &[ResourceName]) {
        if let Some(collection) = self.collections.get_mut(&(type_url.clone(), shape)) {
            for name in names {
                collection.held.remove(name);
            }
        }
    }

    pub(super) fn forget_wildcard(&mut self, type_url: &TypeUrl) {
        self.collections.remove(&(type_url.clone(), Shape::Wildcard));
    }

    pub(super) fn forget_type(&mut self, type_url: &TypeUrl) {
        if !self.collections.is_empty() {
            self.collections.retain(|(url, _), _| url != type_url);
        }
    }
}

impl TypeCache {
    fn holds(&self, shape: Shape, name: &ResourceName) -> bool {
        match shape {
            Shape::Wildcard => {
                self.wildcard.as_ref().is_some_and(|wildcard| wildcard.members().contains_key(name))
            }
            Shape::Globs => self.globs.members().contains_key(name),
            Shape::Names => self.named.known().get(name).is_some_and(|known| known.resource().is_some()),
        }
    }

    fn held(&self, shape: Shape) -> usize {
        match shape {
            Shape::Wildcard => self.wildcard.as_ref().map_or(0, |wildcard| wildcard.members().len()),
            Shape::Globs => self.globs.members().len(),
            Shape::Names => self.named.counts().present,
        }
    }

    /// What a response takes away of what is held, because the server no longer has it.
    fn taken(&self, changes: &Changes) -> Vec<(ResourceName, Cause)> {
        let shape = changes.scope.shape();
        let by_server = |cause: Cause| matches!(cause, Cause::Removed | Cause::Omitted);
        let absent =
            changes.absent.iter().filter(|(name, cause)| by_server(*cause) && self.holds(shape, name));
        let mut taken: Vec<_> = absent.cloned().collect();
        if changes.replaces
            && let Some(wildcard) = &self.wildcard
        {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            let gone = wildcard.members().keys().filter(|name| !present.contains(name));
            taken.extend(gone.map(|name| (name.clone(), Cause::Omitted)));
        }
        taken
    }
}

impl Source {
    /// How many resources of a type are served although the server took them away.
    pub fn held_back(&self, type_url: &TypeUrl) -> usize {
        self.guard.len(type_url)
    }

    /// Since when, the oldest of them.
    pub fn held_back_since(&self, type_url: &TypeUrl) -> Option<Time> {
        let of_type = self.guard.collections.iter().filter(|((url, _), _)| url == type_url);
        of_type.filter(|(_, collection)| !collection.held.is_empty()).map(|(_, it)| it.since).min()
    }

    /// Takes out of a response what is not to be done yet.
    pub(super) fn hold_back(&mut self, changes: &mut Changes, now: Time) {
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        let Some(hold) = streams.mass_deletion_hold() else { return };
        // A timer that ran out is no answer.
        let is_timer = |(_, cause): &(ResourceName, Cause)| *cause == Cause::Timeout;
        if !changes.absent.is_empty() && changes.absent.iter().all(is_timer) {
            return;
        }
        let (type_url, shape) = (changes.type_url.clone(), changes.scope.shape());
        let key = (type_url.clone(), shape);
        let server = streams.placed(&type_url, shape).and_then(|index| streams.machine(index));
        let server = server.map_or(0, |machine| machine.server());
        let Some(cache) = self.types.get(&type_url) else { return };
        let collection = self.guard.collections.entry(key.clone());
        let collection =
            collection.or_insert_with(|| Collection { server, since: now, held: BTreeMap::new() });
        let is_other_server = std::mem::replace(&mut collection.server, server) != server;
        let taken = cache.taken(changes);
        let standing = cache.held(shape).saturating_sub(collection.held.len());
        let fresh = taken.iter().filter(|(name, _)| !collection.held.contains_key(name));
        let fresh: Vec<_> = fresh.cloned().collect();
        let own = changes.present.iter().map(|resource| &resource.name);
        let brought = own.chain(changes.by_alias.iter().map(|(alias, _)| alias));
        let is_back = |name: &&ResourceName| {
            !planted(Bug::WithdrawnStillHeld) && collection.held.remove(*name).is_some()
        };
        let back = brought.filter(is_back).count();
        let mut events = Vec::new();
        if back > 0 {
            events.push(Event::DeletionWithdrawn { type_url: type_url.clone(), count: back });
        }
        if is_other_server {
            changes.absent.extend(
                std::mem::take(&mut collection.held).into_iter().map(|(name, (_, cause))| (name, cause)),
            );
        } else if is_mass(fresh.len(), standing) && !planted(Bug::MassDeletionNotHeld) {
            let (count, left) = (fresh.len(), standing.saturating_sub(fresh.len()));
            let due = match hold {
                Hold::For(time) => Some(now + time),
                Hold::UntilConfirmed => None,
            };
            if collection.held.is_empty() {
                collection.since = now;
            }
            collection.held.extend(fresh.into_iter().map(|(name, cause)| (name, (due, cause))));
            self.guard.queue.extend(due.filter(|_| !planted(Bug::HeldForever)).map(|due| (due, key)));
            events.push(Event::DeletionHeld { type_url, count, left, hold });
        }
        if !collection.held.is_empty() {
            let is_held = |name: &ResourceName| collection.held.contains_key(name);
            changes.absent.retain(|(name, _)| !is_held(name));
            if std::mem::take(&mut changes.replaces) {
                // The members that left are told one by one, and so are the errors that are over.
                let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
                let errors = cache.wildcard.iter().flat_map(|wildcard| wildcard.view().remarks().errors());
                let over =
                    errors.map(|(name, _)| name).filter(|name| !present.contains(name) && !is_held(name));
                let gone = taken.into_iter().map(|(name, _)| name).filter(|name| !is_held(name));
                let gone: BTreeSet<_> = over.cloned().chain(gone).collect();
                changes.absent.extend(gone.into_iter().map(|name| (name, Cause::Omitted)));
            }
        }
        let told = events.into_iter().map(|event| Output::Upstream(0, upstream::Output::Event(event)));
        self.outputs.extend(told);
    }

    /// What was held back long enough goes. While the server cannot be heard it cannot bring anything back either: its time
    /// begins again.
    pub(super) fn let_deletions_go(&mut self, now: Time) {
        while self.guard.poll_timeout().is_some_and(|due| due <= now) {
            let Some((_, key)) = self.guard.queue.pop_front() else { return };
            let Some(collection) = self.guard.collections.get_mut(&key) else { continue };
            if let Attachment::Streams(streams) = &self.attachment
                && let Some(Hold::For(time)) = streams.mass_deletion_hold()
                && self.attachment.is_lost_for(&key.0)
            {
                self.put_off(key, now, time);
                continue;
            }
            let is_over =
                |_: &ResourceName, held: &mut (Option<Time>, Cause)| held.0.is_some_and(|due| due <= now);
            let over =
                collection.held.extract_if(.., is_over).map(|(name, (_, cause))| (name, cause)).collect();
            let type_url = key.0.clone();
            let count = self.carry_out_deletion(key, over, now);
            if count > 0 {
                self.tell(Event::DeletionCarriedOut { type_url, count });
            }
        }
    }

    /// The operator says that these deletions were meant, whether or not they have a time: what is held back of these types
    /// goes. Returns how many resources that was.
    pub fn confirm_deletions(&mut self, of: impl Fn(&TypeUrl) -> bool, now: Time) -> usize {
        let collections = self.guard.collections.iter_mut().filter(|((type_url, _), _)| of(type_url));
        let held: Vec<_> = collections.map(|(key, it)| (key.clone(), std::mem::take(&mut it.held))).collect();
        let mut total = 0;
        for (key, held) in held {
            let type_url = key.0.clone();
            let held = held.into_iter().map(|(name, (_, cause))| (name, cause)).collect();
            let count = self.carry_out_deletion(key, held, now);
            if count > 0 {
                self.tell(Event::DeletionConfirmed { type_url, count });
            }
            total += count;
        }
        total
    }

    /// Takes out of a collection, as one step, what is held back no longer.
    fn carry_out_deletion(
        &mut self,
        (type_url, shape): Key,
        names: Vec<(ResourceName, Cause)>,
        now: Time,
    ) -> usize {
        let count = names.len();
        if count > 0 {
            let scope = match shape {
                Shape::Wildcard => Scope::Wildcard,
                Shape::Globs => Scope::Globs,
                Shape::Names => Scope::Names,
            };
            let mut changes = Changes::new(&type_url, scope);
            changes.absent = names;
            self.carry_out(&changes, now);
        }
        count
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Upstream(0, upstream::Output::Event(event)));
    }

    fn put_off(&mut self, key: Key, now: Time, hold: Duration) {
        let Some(collection) = self.guard.collections.get_mut(&key) else { return };
        let over = collection.held.values_mut().filter(|(due, _)| due.is_some_and(|due| due <= now));
        if over.map(|held| held.0 = Some(now + hold)).count() > 0 {
            self.guard.queue.push_back((now + hold, key));
        }
    }
}
