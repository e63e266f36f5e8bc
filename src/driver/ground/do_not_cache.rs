//! What servers do not want cached: who asks for it later goes to a source of its own at once (CCH-1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::driver::ground::servers::ListId;
use crate::xds::{ResourceName, TypeUrl};

/// More are forgotten, the one that was asked for longest ago first: who asks for one of them is sent on a little later.
const NAMES_MAX: u64 = 100_000;

/// A server may change its mind.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A name of a type, or (`None`) its wildcard, of one server list.
type Key = (ListId, TypeUrl, Option<ResourceName>);

pub struct DoNotCacheNames {
    /// Mostly there is none, and nobody looks.
    any: AtomicBool,
    names: Cache<Key, ()>,
}

impl Default for DoNotCacheNames {
    fn default() -> Self {
        // A new one must get in: streams that wait for it are moved by what stands here.
        let policy = EvictionPolicy::lru();
        let names =
            Cache::builder().max_capacity(NAMES_MAX).time_to_live(LIFETIME).eviction_policy(policy).build();
        DoNotCacheNames { any: AtomicBool::new(false), names }
    }
}

impl DoNotCacheNames {
    pub fn add(&self, list: ListId, type_url: &TypeUrl, name: Option<&ResourceName>) {
        self.names.insert((list, type_url.clone(), name.cloned()), ());
        self.any.store(true, Ordering::Release);
    }

    pub fn has(&self, list: ListId, type_url: &TypeUrl, name: Option<&ResourceName>) -> bool {
        self.any.load(Ordering::Acquire) && self.names.contains_key(&(list, type_url.clone(), name.cloned()))
    }
}
