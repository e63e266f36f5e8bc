//! The table of loads, and the server that takes the reports of a class.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::clusters::ClusterLists;
use super::handle::{LoadFacts, LoadHandle, LoadKey};
use super::room::LoadRoom;
use super::task::{LoadListing, LoadTask};
use crate::driver::api::downstream::Peer;
use crate::driver::ground::class_identity::{of_class, of_member};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::{Attach, ListKey, ListedServer, LoadUse, ServerList};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::table::{Sources, source_key};
use crate::telemetry::Limit;
use sluice_engine::Time;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_engine::downstream::ListId;
use sluice_load_reports::{ClassLoad, Destination};
use sluice_wire::upstream::encode_node;
use sluice_xds::{Node, RelayPath};

/// The feature that lets a server ask for all clusters (LRS-2). No part of a class: clients send it with
/// reports only.
pub const FEATURE: &str = "envoy.lrs.supports_send_all_clusters";

/// The time between two looks for the server that takes the reports of a class.
pub const LOOK: Duration = Duration::from_secs(10);

/// Makes loads, and finds existing ones. A load removes itself when nobody reports.
pub struct Loads {
    shared: Arc<DriverContext>,
    sources: Arc<Sources>,
    table: Arc<LoadTable>,
    room: Arc<LoadRoom>,
    lists: ClusterLists,
    tasks: TaskTracker,
    /// The streams of clients, to be woken when another configuration is in force.
    reporters: Mutex<HashMap<u64, Weak<AtomicWaker>>>,
}

#[derive(Default)]
struct LoadTable(Mutex<LoadEntries>);

#[derive(Default)]
struct LoadEntries {
    by_key: HashMap<LoadKey, Arc<LoadHandle>>,
    choices: HashMap<(ListId, NodeClass), Weak<ServerChoice>>,
    made: u64,
}

/// A class at a list of servers, and the server that takes its reports, the same for all its clients
/// (LRS-22). All clients share what is said here: a class takes several hundred bytes.
#[derive(Debug)]
pub struct ServerChoice {
    pub list: ListKey,
    pub class: NodeClass,
    /// The source of the class at each server of the list.
    sources: Vec<SourceKey>,
    position: AtomicU16,
    /// In microseconds; 0: never.
    looked_at: AtomicU64,
}

impl ServerChoice {
    fn new(list: &ServerList, class: NodeClass) -> ServerChoice {
        let count = u16::try_from(list.servers().len()).unwrap_or(u16::MAX);
        let source = |at| source_key(list.at(at), class.clone(), Owner::Everyone);
        ServerChoice {
            list: list.key(),
            sources: (0..count).map(source).collect(),
            class,
            position: AtomicU16::default(),
            looked_at: AtomicU64::default(),
        }
    }

    /// Whether the class is the same at the same list, whatever its servers are.
    pub fn is_same_class(&self, other: &ServerChoice) -> bool {
        self.list == other.list && self.class == other.class
    }

    /// The source of the class at a server of the list.
    pub fn source(&self, position: u16) -> Option<&SourceKey> {
        self.sources.get(usize::from(position))
    }
}

/// The first client of a load.
pub struct FirstReporter<'a> {
    pub peer: &'a Peer,
    pub node: &'a Node,
    /// The client has been refused before, and looks again.
    pub is_again: bool,
}

impl Loads {
    pub fn new(shared: Arc<DriverContext>, sources: Arc<Sources>) -> Loads {
        let (table, room, tasks) = (Arc::default(), Arc::default(), TaskTracker::new());
        let lists = ClusterLists::default();
        Loads { shared, sources, table, room, lists, tasks, reporters: Mutex::default() }
    }

    pub fn shared(&self) -> &DriverContext {
        &self.shared
    }

    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    pub fn lists(&self) -> &ClusterLists {
        &self.lists
    }

    /// Registers a stream of a client.
    pub fn register(&self, id: u64, waker: &Arc<AtomicWaker>) {
        self.reporters.lock().insert(id, Arc::downgrade(waker));
    }

    pub fn forget(&self, id: u64) {
        self.reporters.lock().remove(&id);
    }

    /// Another configuration is in force: all streams look for their loads again.
    pub fn configure(&self) {
        let limits = self.shared.settings().load;
        let loads: Vec<_> = self.table.0.lock().by_key.values().cloned().collect();
        loads.iter().for_each(|load| load.configure(limits));
        let wakers: Vec<_> = self.reporters.lock().values().filter_map(Weak::upgrade).collect();
        wakers.iter().for_each(|waker| waker.wake());
    }

    /// The choice of a server for a class.
    pub fn choice(&self, list: &ServerList, class: NodeClass) -> Arc<ServerChoice> {
        let mut entries = self.table.0.lock();
        let key = (list.id, class);
        if let Some(choice) = entries.choices.get(&key).and_then(Weak::upgrade) {
            return choice;
        }
        entries.choices.retain(|_, choice| choice.strong_count() > 0);
        let choice = Arc::new(ServerChoice::new(list, key.1.clone()));
        entries.choices.insert(key, Arc::downgrade(&choice));
        choice
    }

    /// The position of the server that takes the reports of a class now: the one that serves most streams of
    /// the class (LRS-22). Looks rarely, so that a class does not go to and fro.
    pub fn position(&self, choice: &ServerChoice, list: &ServerList, now: Time) -> u16 {
        if list.servers().len() < 2 {
            return 0;
        }
        let now = now.as_micros().max(1);
        let looked_at = choice.looked_at.load(Ordering::Relaxed);
        let is_due = looked_at == 0 || now.saturating_sub(looked_at) >= LOOK.as_micros() as u64;
        let is_own = is_due
            && choice
                .looked_at
                .compare_exchange(looked_at, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_own && let Some(position) = self.serving_most(choice, list) {
            choice.position.store(position, Ordering::Relaxed);
        }
        choice.position.load(Ordering::Relaxed)
    }

    /// Whether the class has a source at some server of the list.
    pub fn have_source(&self, list: &ServerList, class: &NodeClass) -> bool {
        let count = u16::try_from(list.servers().len()).unwrap_or(u16::MAX);
        let mut keys = (0..count).map(|at| source_key(list.at(at), class.clone(), Owner::Everyone));
        keys.any(|key| self.sources.find(&key).is_some())
    }

    /// `None` without streams.
    fn serving_most(&self, choice: &ServerChoice, list: &ServerList) -> Option<u16> {
        if list.is_of_sources() {
            return Some(u16::from(self.sources.find(choice.source(0)?)?.is_on_failover()));
        }
        let used: Vec<usize> = choice.sources.iter().map(|source| self.sources.users(source)).collect();
        // A stream on a lower server goes on asking the higher ones.
        let below = used.iter().skip(1).chain([&0]);
        let serving =
            (0..u16::MAX).zip(used.iter().zip(below).map(|(used, below)| used.saturating_sub(*below)));
        // Clients prefer the first of equals.
        let most = serving.collect::<Vec<_>>().into_iter().rev().max_by_key(|(_, streams)| *streams)?;
        (most.1 > 0).then_some(most.0)
    }

    /// Finds or makes the load of a class at a server; `None` if the server takes no sums, or if there is no
    /// room.
    pub fn get(
        &self,
        listed: ListedServer<'_>,
        class: &NodeClass,
        first: &FirstReporter<'_>,
        now: Time,
    ) -> Option<Arc<LoadHandle>> {
        let is_reported = match listed.server().load? {
            LoadUse::Aggregate => true,
            LoadUse::Local => false,
            LoadUse::Forward => return None,
        };
        let key = LoadKey { place: listed.place(), class: class.clone(), is_reported };
        let mut entries = self.table.0.lock();
        if let Some(load) = entries.by_key.get(&key) {
            return Some(load.clone());
        }
        if !self.has_room(&entries, &key, first, listed) {
            return None;
        }
        entries.made += 1;
        let facts = LoadFacts {
            number: entries.made,
            list: listed.list.label.clone(),
            server: listed.server().uri.clone(),
            relays: RelayPath::through(first.peer.relays.as_deref(), &self.shared.process.relay_id),
            opened_by: first.peer.connection.number(),
            key: key.clone(),
        };
        let machine =
            ClassLoad::new(self.destination(listed, class, first.node), self.shared.settings().load, now);
        let handle = Arc::new(LoadHandle::new(facts, machine, &self.room, &self.shared.metrics.load, now));
        entries.by_key.insert(key, handle.clone());
        drop(entries);
        let listing: Arc<dyn LoadListing> = self.table.clone();
        let task = LoadTask { handle: handle.clone(), shared: self.shared.clone(), listing };
        self.tasks.spawn(task.run());
        Some(handle)
    }

    fn destination(&self, listed: ListedServer<'_>, class: &NodeClass, member: &Node) -> Destination {
        let (Some(LoadUse::Aggregate), Attach::Grpc { pool, .. }) =
            (listed.server().load, &listed.server().attach)
        else {
            return Destination::Local;
        };
        // LRS-23: the node of the class, as its other streams show it.
        let mut node = match class.upstream_node {
            UpstreamNode::Member => class.with_identity(of_member(member)),
            UpstreamNode::Projection | UpstreamNode::Template(_) => {
                of_class(&self.shared.settings().node, class)
            }
        };
        if !node.client_features.iter().any(|feature| feature == FEATURE) {
            node.client_features.push(FEATURE.to_owned());
        }
        Destination::Server { node: encode_node(&node).into(), backoff: pool.backoff() }
    }

    /// Whether a further class has room. Whoever has a source has one already, and the table of sources has
    /// its own bounds (RLY-14).
    fn has_room(
        &self,
        entries: &LoadEntries,
        key: &LoadKey,
        first: &FirstReporter<'_>,
        listed: ListedServer<'_>,
    ) -> bool {
        let source: SourceKey = source_key(listed, key.class.clone(), Owner::Everyone);
        if self.sources.find(&source).is_some() {
            return true;
        }
        let limits = &self.shared.settings().limits;
        let connection = first.peer.connection.number();
        let (mut at_server, mut of_connection) = (0, 0);
        for load in entries.by_key.values().filter(|load| load.facts.key.place == key.place) {
            at_server += 1;
            of_connection += usize::from(load.facts.opened_by == connection);
        }
        let limit = if of_connection >= limits.node_classes_per_connection {
            Limit::NodeClassesPerConnection
        } else if at_server >= limits.node_classes {
            Limit::NodeClasses
        } else {
            return true;
        };
        if first.is_again {
            return false;
        }
        self.shared.metrics.limit_hit(limit);
        if let Some(suppressed) = self.shared.throttle.allow("no room for the load of a class") {
            warn!(
                limit = limit.name(),
                server = &*listed.server().uri,
                suppressed,
                "there is no room for the load reports of another node class; its clients are asked for nothing"
            );
        }
        false
    }

    /// Looks at the shares of all classes, if little room is left. Cheap nearly always.
    pub fn look_for_room(&self, now: Time) {
        let limits = self.shared.settings().load;
        if !self.room.is_look_due(&limits, now) {
            return;
        }
        let loads: Vec<_> = self.table.0.lock().by_key.values().cloned().collect();
        let level = self.room.look(&limits, loads.iter().map(|load| load.entries()).collect());
        loads.iter().filter(|load| load.entries() > level).for_each(|load| load.woken.notify_one());
    }

    /// All loads, in the order of their begin.
    pub fn all(&self) -> Vec<Arc<LoadHandle>> {
        let mut loads: Vec<_> = self.table.0.lock().by_key.values().cloned().collect();
        loads.sort_by_key(|load| load.facts.number);
        loads
    }

    /// The process ends: resolves when each server has the last report (LRS-16), or after `within`.
    pub async fn finish(&self, within: Duration) {
        self.tasks.close();
        let now = self.shared.clock.now();
        self.all().iter().for_each(|load| load.drain(within, now));
        self.tasks.wait().await;
    }
}

impl LoadListing for LoadTable {
    fn retire(&self, load: &Arc<LoadHandle>) -> bool {
        let mut entries = self.0.lock();
        // A client arrives after a look at the table, which has this lock.
        let is_unused = Arc::strong_count(load) <= 2 && !load.state.lock().machine.has_streams();
        if is_unused {
            entries.by_key.remove(&load.facts.key);
        }
        is_unused
    }
}
