//! The machine: the sessions of a source, the caches, and the attachment to the server.

mod watch;
mod unasked;
mod linger;
mod reach;
mod do_not_cache;
mod mass_deletion;
mod bound;
mod ttl;
mod errors;
mod checkpoint;
mod succession;
mod rejections;
#[cfg(test)]
mod tests;

pub use bound::NoRoom;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::engine::Time;
use crate::engine::cache::slots::WatchedInSets;
use crate::engine::cache::{Counts, Departed, News, SessionId, Stamp};
use crate::engine::change::Change;
use crate::engine::collection::CollectionKind;
use crate::engine::snapshot::Snapshot;
use crate::engine::source::api::{Output, SourceSettings};
use crate::engine::source::attachment::{Attachment, StreamIndex};
use crate::engine::source::checkpoint::Restoring;
use crate::engine::source::linger::Linger;
use crate::engine::source::mass_deletion::Guard;
use crate::engine::source::type_cache::TypeCache;
use crate::engine::source::upkeep::Upkeep;
use crate::engine::source::watched::Watched;
use crate::engine::upstream::{self, Cause, Changes};
use crate::engine::view::View;
use crate::xds::{Resource, TypeUrl};

#[derive(Debug)]
pub struct Source {
    settings: SourceSettings,
    attachment: Attachment,
    types: BTreeMap<TypeUrl, TypeCache>,
    sessions: BTreeMap<SessionId, Vec<Watched>>,
    linger: Linger,
    stamp: Stamp,
    snapshot: Snapshot,
    snapshot_changed: bool,
    upkeep: Upkeep,
    restoring: Restoring,
    guard: Guard,
    no_room: BTreeMap<TypeUrl, NoRoom>,
    news: News,
    woken_at: Option<Time>,
    /// A type, or a part of a type, became current. Sessions on another server may wait for the answer.
    has_answered: bool,
    /// Changes of content that the driver has not taken yet.
    changes: Vec<Change>,
    /// The number of the latest unasked resource.
    unasked: u64,
    outputs: VecDeque<Output>,
}

impl Source {
    /// A new source without sessions. `id` is unique in the process and unguessable for clients: the ids of
    /// views contain the `id`, and equal ids stand for equal answers.
    pub fn new(id: u64, settings: SourceSettings, attachment: Attachment) -> Source {
        let attachment = attachment.set(&settings);
        Source {
            linger: Linger::new(settings.linger, settings.unwatched_bytes),
            settings,
            attachment,
            types: BTreeMap::new(),
            sessions: BTreeMap::new(),
            stamp: Stamp::new(id),
            snapshot: Snapshot::default(),
            snapshot_changed: false,
            upkeep: Upkeep::default(),
            restoring: Restoring::default(),
            guard: Guard::default(),
            no_room: BTreeMap::new(),
            news: News::default(),
            woken_at: None,
            has_answered: false,
            changes: Vec::new(),
            unasked: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Takes other settings over: limits and new timers obey at once, and running timers end as they were set.
    /// `upstream` are the settings of the same server; only files have none.
    pub fn configure(
        &mut self,
        settings: SourceSettings,
        upstream: Option<&upstream::UpstreamSettings>,
        now: Time,
    ) {
        self.linger.configure(settings.linger, settings.unwatched_bytes);
        if let (Attachment::Streams(streams), Some(upstream)) = (&mut self.attachment, upstream) {
            streams.configure(settings.of_streams(upstream));
        }
        self.settings = settings;
        self.retry_refused(now);
        self.expire_linger(now);
        self.after(now);
    }

    /// See [`crate::engine::source::Streams::set_node_bytes`].
    pub fn set_node_bytes(&mut self, node_bytes: usize) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.set_node_bytes(node_bytes);
        }
    }

    // === what the server says ===

    pub fn handle_upstream(&mut self, stream: StreamIndex, mut input: upstream::Input, now: Time) {
        if let upstream::Input::Received(response) = &mut input {
            self.bound_content(stream, response, now);
        }
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle(stream, input, now);
            streams.agree_on_server(now);
        }
        self.after(now);
    }

    /// Takes the whole state of a file server: absent names do not exist (FIL-8), unless a mass deletion is held back.
    pub fn handle_files(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>, now: Time) {
        let Attachment::Files(files) = &mut self.attachment else { return };
        let events = files.replace(state, now);
        events.into_iter().for_each(|event| self.tell(event));
        self.show_files(now);
        self.after(now);
    }

    /// The directory, or a file in it, cannot be used. The last good state stays.
    pub fn handle_bad_files(&mut self) {
        if let Attachment::Files(files) = &mut self.attachment {
            files.set_bad();
        }
    }

    /// Sets the treatment of mass deletions by files.
    pub fn hold_files(&mut self, hold: Option<upstream::Hold>) {
        if let Attachment::Files(files) = &mut self.attachment {
            files.set_hold(hold);
        }
    }

    /// Takes the state of the files over into the caches.
    fn show_files(&mut self, now: Time) {
        let Attachment::Files(files) = &self.attachment else { return };
        let none = BTreeMap::new();
        for (type_url, cache) in &mut self.types {
            let members = files.members(type_url).flatten().unwrap_or(&none);
            if let Some(wildcard) = &mut cache.wildcard {
                wildcard.replace(members, now.into());
            }
            cache.globs.replace(members, now.into());
            let names = cache.named.known().clone();
            for name in names.keys() {
                match files.named(type_url, name) {
                    Some(resource) => cache.named.put_as(name, &resource, now.into()),
                    None => cache.named.put_absent(name, Cause::Omitted),
                }
            }
        }
        let types: Vec<_> = self.types.keys().cloned().collect();
        for type_url in types {
            self.settle(&type_url, now);
        }
    }

    /// Applies one upstream response as one step (I7b).
    fn apply(&mut self, mut changes: Changes, now: Time) {
        self.give_up_private(&mut changes);
        self.hold_back(&mut changes, now);
        self.carry_out(&changes, now);
    }

    fn carry_out(&mut self, changes: &Changes, now: Time) {
        let unasked = self.begin_unasked(changes);
        let Some(cache) = self.types.get_mut(&changes.type_url) else { return };
        match changes.kind {
            CollectionKind::Wildcard => {
                if let Some(wildcard) = &mut cache.wildcard {
                    wildcard.apply(changes, now.into());
                }
            }
            CollectionKind::Globs => cache.globs.apply(changes, now.into()),
            CollectionKind::Names => {
                for resource in &changes.present {
                    cache.named.put(resource, now.into());
                }
                for (alias, resource) in &changes.by_alias {
                    cache.named.put_as(alias, resource, now.into());
                }
                for (name, cause) in &changes.absent {
                    cache.named.put_absent(name, *cause);
                }
            }
        }
        self.offer(&changes.type_url, unasked, now);
        self.lease(changes, now);
        self.settle(&changes.type_url, now);
    }

    /// Handles changes as if a stream had received them.
    #[cfg(test)]
    pub(in crate::engine) fn handle_changes(&mut self, changes: Changes, now: Time) {
        self.apply(changes, now);
        self.after(now);
    }

    /// Handles an event as if a stream had reported it.
    #[cfg(test)]
    pub(in crate::engine) fn handle_event(&mut self, event: &upstream::Event, now: Time) {
        self.take_errors(0, event, now);
        self.after(now);
    }

    // === time ===

    pub fn poll_timeout(&self) -> Option<Time> {
        let machines = match &self.attachment {
            Attachment::Streams(streams) => streams.poll_timeout(),
            Attachment::Files(files) => files.poll_timeout(),
        };
        let departed = self.types.values().flat_map(TypeCache::departed);
        let departed = departed.filter_map(Departed::poll_timeout).min();
        let own = [self.linger.poll_timeout(), self.upkeep.poll_timeout(), self.restoring.poll_timeout()];
        [machines, departed, self.wake_at(), self.guard.poll_timeout(), self.retry_at()]
            .into_iter()
            .chain(own)
            .flatten()
            .min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle_timeout(now);
        }
        self.expire_linger(now);
        self.expire_departed(now);
        self.run_out(now);
        self.report_unreachable(now);
        self.let_deletions_go(now);
        self.keep_restored(now);
        self.after(now);
    }

    /// Frees the last bytes of former members that no stream withholds any more.
    fn expire_departed(&mut self, now: Time) {
        let types = self.types.iter_mut();
        let expired = types.filter_map(|(url, cache)| cache.expire_departed(now).then(|| url.clone()));
        let expired: Vec<_> = expired.collect();
        for type_url in expired {
            self.settle(&type_url, now);
        }
    }

    // === what comes out ===

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The current snapshot, if there was a change since the last call.
    pub fn take_snapshot(&mut self) -> Option<Arc<Snapshot>> {
        std::mem::take(&mut self.snapshot_changed).then(|| Arc::new(self.snapshot.clone()))
    }

    /// The current snapshot. Unlike [`Source::take_snapshot`], the call does not mark the snapshot as seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The changes of content since the last call, in the order of their numbers. The driver takes them before it
    /// publishes the snapshot.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Whether the source can be dropped: no sessions, and nothing lingers.
    pub fn is_idle(&self) -> bool {
        let streams_idle = match &self.attachment {
            Attachment::Streams(streams) => streams.machines().all(|(_, machine)| machine.is_idle()),
            Attachment::Files(_) => true,
        };
        self.sessions.is_empty() && self.types.is_empty() && self.linger.is_empty() && streams_idle
    }

    /// Each type with the counts of its named resources and members of globs, and the members of the wildcard
    /// if watched. The counts of states include members of the wildcard.
    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, Counts, Option<&View>)> {
        self.types.iter().map(|(type_url, cache)| {
            let mut counts = cache.named.counts();
            counts.present += cache.globs.members().len();
            counts.bytes += cache.globs.bytes();
            let members = cache.globs.members();
            counts
                .states
                .add_members(members.len(), cache.globs.annotations(), |name| members.contains_key(name));
            if let Some(wildcard) = &cache.wildcard {
                let (members, annotations) = (wildcard.members(), wildcard.view().annotations());
                counts.states.add_members(members.len(), annotations, |name| members.contains_key(name));
            }
            (type_url, counts, cache.wildcard.as_ref().map(|wildcard| &**wildcard.view()))
        })
    }

    pub fn lingering_bytes(&self) -> usize {
        self.linger.bytes()
    }

    /// The number of names and wildcards that were evicted early because of `unwatched_bytes`.
    pub fn evicted(&self) -> u64 {
        self.linger.evicted()
    }

    /// Whether sessions will be woken for changes that the snapshot already has (RLY-54).
    pub fn owes_wakes(&self) -> bool {
        self.wake_at().is_some()
    }

    // === inside ===

    /// Ends every public call: applies the reports of the streams, and wakes the affected sessions.
    fn after(&mut self, now: Time) {
        self.ask_for_refused(now);
        while let Attachment::Streams(streams) = &mut self.attachment
            && let Some((index, output)) = streams.poll_output()
        {
            self.note_output(index, &output, now);
            self.forget_refused(index, &output);
            match output {
                upstream::Output::Changes(changes) => self.apply(changes, now),
                upstream::Output::Event(event) => {
                    self.take_errors(index, &event, now);
                    let told = self.told(index, event).map(upstream::Output::Event);
                    self.outputs.extend(told.map(|event| Output::Upstream(index, event)));
                }
                other => self.outputs.push_back(Output::Upstream(index, other)),
            }
        }
        self.given_up_unless_watched(now);
        self.note_reach();
        self.confirm_silence(now);
        let first = std::mem::take(&mut self.news.first);
        self.wake(first);
        if self.wake_at().is_some_and(|due| due <= now) {
            self.woken_at = Some(now);
            let mut update = std::mem::take(&mut self.news.update);
            if std::mem::take(&mut self.has_answered) {
                update.extend(self.sessions.keys());
            }
            self.wake(update);
        }
        self.check_invariants();
    }

    /// The time to wake sessions with changes: at once after a quiet period, else gathered (RLY-54).
    fn wake_at(&self) -> Option<Time> {
        if self.news.update.is_empty() && !self.has_answered {
            return None;
        }
        Some(self.woken_at.map_or(Time::ZERO, |last| last + self.settings.coalescing))
    }

    fn wake(&mut self, mut sessions: Vec<SessionId>) {
        if sessions.is_empty() {
            return;
        }
        sessions.sort_unstable();
        sessions.dedup();
        self.outputs.push_back(Output::Wake(sessions));
    }

    /// Updates the snapshot of one type from the caches.
    fn settle(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let stamp = self.stamp.at(now);
        cache.keep_departed(type_url.kind().is_cluster_side());
        cache.named.settle(stamp, &mut self.news);
        if let Some(wildcard) = &mut cache.wildcard {
            wildcard.settle(stamp, &mut self.news);
        }
        cache.globs.settle(stamp, &mut self.news);
        self.snapshot.set_last_change(stamp.last_change());
        self.changes.extend(self.news.changes.drain(..).map(|change| change.of(type_url)));
        self.snapshot_changed = true;
        if cache.is_empty() {
            self.types.remove(type_url);
            self.guard.forget_type(type_url);
            self.no_room.remove(type_url);
            self.snapshot.remove(type_url);
            return;
        }
        let snapshot = cache.snapshot();
        // The rest of the standing is as published before: `note_reach` detects its changes.
        self.snapshot.replace(type_url, snapshot, self.restoring.has_type(type_url));
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            for cache in self.types.values() {
                cache.named.check_invariants();
                cache.globs.check_invariants();
            }
        }
    }
}
