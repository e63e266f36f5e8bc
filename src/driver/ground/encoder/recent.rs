//! The bodies of the moment: an update is one body for thousands of clients, one after the other.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::driver::ground::encoder::Encoded;
use crate::engine::downstream::AnswerKey;

/// Several types and classes have updates at one time.
const PLACES: usize = 16;

/// So many finds stand for one look into the cache.
const FINDS: u8 = 16;

/// Finds the bodies that streams have just found in the cache, in a small part of the time that the cache takes: the cache
/// hashes the key and notes each use. Keeps no body alive.
#[derive(Debug, Default)]
pub(super) struct Recent([ArcSwapOption<Found>; PLACES]);

#[derive(Debug)]
struct Found {
    key: AnswerKey,
    body: Weak<Encoded>,
}

impl Recent {
    /// The body, if it is at its place. Sometimes `None` all the same, so that the cache knows which bodies are in use.
    pub(super) fn find(&self, key: &AnswerKey) -> Option<Arc<Encoded>> {
        let found = self.place(key).load();
        let body = found.as_ref().filter(|found| found.key == *key)?.body.upgrade();
        body.filter(|_| fastrand::u8(..FINDS) > 0)
    }

    /// The cache has the body.
    pub(super) fn note(&self, key: &AnswerKey, body: &Arc<Encoded>) {
        let place = self.place(key);
        if place.load().as_ref().is_none_or(|found| found.key != *key || found.body.strong_count() == 0) {
            place.store(Some(Arc::new(Found { key: *key, body: Arc::downgrade(body) })));
        }
    }

    fn place(&self, key: &AnswerKey) -> &ArcSwapOption<Found> {
        &self.0[key.spread() % PLACES]
    }
}
