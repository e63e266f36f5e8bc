//! The parts by which clients and sources share content: encoded bodies, presented views, copies of equal
//! content, hashes of sets, and the names that may not be shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::driver::ground::commons::SharedCopies;
use crate::driver::ground::encoder::Encoder;
use crate::driver::ground::presented_views::PresentedViews;
use crate::driver::ground::servers::ListKey;
use sluice_engine::collection::HashSeed;
use sluice_xds::{ResourceName, TypeUrl};

/// The parts by which clients share content.
pub struct SharedContent {
    pub encoder: Arc<Encoder>,
    pub presented_views: PresentedViews,
    pub copies: Arc<SharedCopies>,
    pub do_not_cache: DoNotCacheNames,
    /// The seed of the hashes of sets of names.
    pub seed: HashSeed,
}

/// Beyond this number, the longest unused name is forgotten. A request for the name moves to a private source
/// a little later.
const NAMES_MAX: u64 = 100_000;

/// Servers may change their minds.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A name of a type, or its wildcard (`None`), in one server list.
type UncachedName = (ListKey, TypeUrl, Option<ResourceName>);

/// The names that servers do not want cached. Later requests for these names go to private sources at once
/// (CCH-1).
pub struct DoNotCacheNames {
    /// False as long as the table is empty, as it mostly is. A lookup is then skipped.
    any: AtomicBool,
    names: Cache<UncachedName, ()>,
}

impl Default for DoNotCacheNames {
    fn default() -> Self {
        // LRU admits every new name. Waiting streams move only if their name is in the table.
        let policy = EvictionPolicy::lru();
        let names =
            Cache::builder().max_capacity(NAMES_MAX).time_to_live(LIFETIME).eviction_policy(policy).build();
        DoNotCacheNames { any: AtomicBool::new(false), names }
    }
}

impl DoNotCacheNames {
    pub fn add(&self, list: ListKey, type_url: &TypeUrl, name: Option<&ResourceName>) {
        self.names.insert((list, type_url.clone(), name.cloned()), ());
        self.any.store(true, Ordering::Release);
    }

    pub fn has(&self, list: ListKey, type_url: &TypeUrl, name: Option<&ResourceName>) -> bool {
        self.any.load(Ordering::Acquire) && self.names.contains_key(&(list, type_url.clone(), name.cloned()))
    }
}
