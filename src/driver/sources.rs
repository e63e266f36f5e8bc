//! The table of sources.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::registry::lock;
use super::servers::Place;
use super::shared::Shared;
use super::source::{Listing, Owner, SourceHandle, SourceKey};
use crate::engine::class::{NodeClass, UpstreamNode, splitting_field};
use crate::engine::downstream::SourceId;
use crate::telemetry::Limit;
use crate::xds::{Code, Node, Status};

/// With fewer sources than this nobody needs a hint about their number.
const HINT_SOURCES_MIN: usize = 64;

/// The hint is given again at most this often.
const HINT_PAUSE: Duration = Duration::from_secs(3600);

/// Makes sources, and finds them again. A source takes itself off the table when nobody needs it.
pub struct Sources {
    shared: Arc<Shared>,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<Arc<SourceKey>, Arc<SourceHandle>>,
    made: u64,
    hinted_at: Option<Instant>,
}

impl Sources {
    pub fn new(shared: Arc<Shared>) -> Sources {
        Sources { shared, table: Arc::default() }
    }

    /// The source of a class at a server, made if there is none. `streams`: how many there are now.
    pub fn get(
        &self,
        place: Place,
        class: NodeClass,
        owner: Owner,
        streams: &dyn Fn() -> usize,
    ) -> Result<Arc<SourceHandle>, Status> {
        let is_local = self.shared.server(place).is_local();
        // Files have no node to select by: everyone shares them.
        let class = if is_local { any_class() } else { NodeClass { legacy_wildcard: true, ..class } };
        let key = Arc::new(SourceKey { place, class, owner });
        let mut entries = self.table.entries();
        if let Some(handle) = entries.by_key.get(&key) {
            return Ok(handle.clone());
        }
        self.admit(&entries, &key)?;
        entries.made += 1;
        let listing: Arc<dyn Listing> = self.table.clone();
        let handle = SourceHandle::start(SourceId(entries.made), key.clone(), self.shared.clone(), listing);
        entries.by_key.insert(key, handle.clone());
        self.hint(&mut entries, streams);
        Ok(handle)
    }

    /// Bounds the classes of each server list (RLY-14), and what is private to streams.
    fn admit(&self, entries: &Entries, key: &SourceKey) -> Result<(), Status> {
        let settings = &self.shared.settings;
        let is_alike = |other: &&Arc<SourceKey>| match key.owner {
            Owner::Everyone => other.owner == Owner::Everyone && other.place == key.place,
            Owner::Stream(_) => other.owner != Owner::Everyone,
        };
        let count = entries.by_key.keys().filter(is_alike).count();
        let (max, limit, text) = match key.owner {
            Owner::Everyone => (
                settings.classes_max,
                Limit::NodeClasses,
                "node classes are in use, which is the limit `limits.node_classes`; this client would need one more",
            ),
            Owner::Stream(_) => (
                settings.private_sources_max,
                Limit::PrivateSources,
                "streams have an upstream stream of their own, which is the limit `limits.private_sources`; this \
                 client would need one more",
            ),
        };
        if count < max {
            return Ok(());
        }
        self.shared.metrics.limit_hit(limit);
        Err(Status::new(Code::ResourceExhausted, format!("{count} {text}")))
    }

    pub fn all(&self) -> Vec<Arc<SourceHandle>> {
        let mut all: Vec<_> = self.table.entries().by_key.values().cloned().collect();
        all.sort_by_key(|handle| handle.id());
        all
    }

    /// Classes that are nearly as many as clients share nothing; the operator should know which field splits them.
    fn hint(&self, entries: &mut Entries, streams: &dyn Fn() -> usize) {
        let shared = || entries.by_key.keys().filter(|key| key.owner == Owner::Everyone);
        let count = shared().count();
        if count < HINT_SOURCES_MIN {
            return;
        }
        let streams = streams();
        if count * 5 < streams * 4 {
            return;
        }
        let now = Instant::now();
        if entries.hinted_at.is_some_and(|at| now.duration_since(at) < HINT_PAUSE) {
            return;
        }
        let found = splitting_field(shared().map(|key| &key.class.node));
        entries.hinted_at = Some(now);
        if let Some((field, values)) = found {
            warn!(
                classes = count,
                streams,
                field,
                values,
                "node classes are nearly as many as streams, so that little \
                is shared: `node_classes` can leave out this part of the node if it does not matter to the control plane"
            );
        }
    }
}

impl Table {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.0)
    }
}

impl Listing for Table {
    fn forget(&self, key: &SourceKey) {
        self.entries().by_key.remove(key);
    }

    fn retire(&self, key: &SourceKey) -> bool {
        let mut entries = self.entries();
        // One reference is the table's, one the task's.
        let unused = entries.by_key.get(key).is_none_or(|handle| Arc::strong_count(handle) <= 2);
        if unused {
            entries.by_key.remove(key);
        }
        unused
    }
}

/// The one class of a server that answers everyone alike.
pub(super) fn any_class() -> NodeClass {
    NodeClass { node: Node::default(), legacy_wildcard: true, upstream_node: UpstreamNode::Projection }
}
