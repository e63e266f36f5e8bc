//! The bodies that were made: the views of live bodies, so that a body goes when the source has moved on, and
//! the bodies of the moment.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::driver::ground::encoder::Encoded;
use sluice_engine::collection::Collection;
use sluice_engine::downstream::{Answer, AnswerKey};
use sluice_engine::lanes::Published;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::view::ViewId;
use sluice_xds::TypeUrl;

/// No sweep happens with fewer entries.
pub(super) const SWEEP_MIN: usize = 64;

/// The looks at records that a snapshot of their source costs. Each client with names of its own has a
/// record, and may cause a snapshot: to look through all records each time would cost the square of the
/// clients. Until then the cache keeps outdated bodies within its bounds of bytes and of time.
const LOOKS: usize = 64;

/// The live bodies `T` by their keys `K`, also those too large for the cache.
#[derive(Debug)]
pub(super) struct Made<K, T> {
    /// For lookups after a miss in the cache.
    pub(super) live: HashMap<K, Weak<T>>,
    /// By the source of the views.
    pub(super) of_source: HashMap<u64, OfSource<K>>,
    /// The number of all records. A record can be outdated: its answer has another source that moved on, or
    /// its source has ended.
    pub(super) records: usize,
    /// At this number of entries, the table is swept.
    sweep_at: usize,
}

/// The records of a source.
#[derive(Debug)]
pub(super) struct OfSource<K> {
    pub(super) records: Vec<BodyRecord<K>>,
    /// Snapshots since the records were looked through.
    snapshots: usize,
}

impl<K> Default for OfSource<K> {
    fn default() -> Self {
        OfSource { records: Vec::new(), snapshots: 0 }
    }
}

/// The view of a body.
#[derive(Debug)]
pub(super) struct BodyRecord<K> {
    key: K,
    type_url: TypeUrl,
    collection: Collection,
    view: ViewId,
}

impl<K, T> Default for Made<K, T> {
    fn default() -> Self {
        let (live, of_source, records, sweep_at) = Default::default();
        Made { live, of_source, records, sweep_at }
    }
}

impl<K: Copy + Eq + Hash, T> Made<K, T> {
    pub(super) fn add(&mut self, key: K, answer: &Answer, body: &Arc<T>) {
        if self.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep();
        }
        // An earlier body of the same key has left records.
        if self.live.insert(key, Arc::downgrade(body)).is_some() {
            return;
        }
        self.records += answer.parts.len();
        for part in &answer.parts {
            let (type_url, collection, view) =
                (answer.type_url.clone(), part.collection.clone(), part.view.id());
            let source = self.of_source.entry(view.source()).or_default();
            source.records.push(BodyRecord { key, type_url, collection, view });
        }
    }

    /// An answer has no record if it has no view of a source, and several records if it has views of several
    /// sources.
    fn len(&self) -> usize {
        self.records.max(self.live.len())
    }

    /// Forgets bodies without a holder.
    fn sweep(&mut self) {
        self.live.retain(|_, body| body.strong_count() > 0);
        let live = &self.live;
        self.of_source.retain(|_, source| {
            source.records.retain(|record| live.contains_key(&record.key));
            !source.records.is_empty()
        });
        self.records = self.of_source.values().map(|source| source.records.len()).sum();
        self.sweep_at = 2 * self.len();
    }

    /// Forgets the bodies of views outside this snapshot, or outside a later one if they are many: see
    /// [`LOOKS`]. Returns their keys.
    pub(super) fn move_on(&mut self, source: u64, served: &Published) -> Vec<K> {
        let mut outdated = Vec::new();
        let Some(OfSource { records, snapshots }) = self.of_source.get_mut(&source) else { return outdated };
        *snapshots += 1;
        if *snapshots * LOOKS < records.len() {
            return outdated;
        }
        *snapshots = 0;
        let before = records.len();
        records.retain(|record| {
            let view_of = |snapshot: &'_ Arc<Snapshot>| {
                Some(snapshot.of(&record.type_url)?.view(&record.collection)?.id())
            };
            let is_current = served.snapshots().any(|snapshot| view_of(snapshot) == Some(record.view));
            if !is_current {
                self.live.remove(&record.key);
                outdated.push(record.key);
            }
            is_current
        });
        self.records -= before - records.len();
        if records.is_empty() {
            self.of_source.remove(&source);
        }
        outdated
    }
}

/// Several types and classes have updates at one time.
const PLACES: usize = 16;

/// So many finds stand for one look into the cache.
const FINDS: u8 = 16;

/// The bodies of the moment: an update is one body for thousands of clients, one after the other.
///
/// Finds the bodies that streams have just taken from the cache, in a small part of the time that the cache
/// takes: the cache hashes the key and notes each use. Keeps no body alive.
#[derive(Debug, Default)]
pub(super) struct RecentBodies([ArcSwapOption<RecentBody>; PLACES]);

#[derive(Debug)]
struct RecentBody {
    key: AnswerKey,
    body: Weak<Encoded>,
}

impl RecentBodies {
    /// The body, if it is at its place. Sometimes `None` all the same, so that the cache knows which bodies
    /// are in use.
    pub(super) fn find(&self, key: &AnswerKey) -> Option<Arc<Encoded>> {
        let recent = self.place(key).load();
        let body = recent.as_ref().filter(|recent| recent.key == *key)?.body.upgrade();
        body.filter(|_| fastrand::u8(..FINDS) > 0)
    }

    /// Notes a body that the cache has.
    pub(super) fn note(&self, key: &AnswerKey, body: &Arc<Encoded>) {
        let place = self.place(key);
        if place.load().as_ref().is_none_or(|recent| recent.key != *key || recent.body.strong_count() == 0) {
            place.store(Some(Arc::new(RecentBody { key: *key, body: Arc::downgrade(body) })));
        }
    }

    fn place(&self, key: &AnswerKey) -> &ArcSwapOption<RecentBody> {
        &self.0[key.spread() % PLACES]
    }
}
