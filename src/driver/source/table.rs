//! The table of sources.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::client::ConnectionChoice;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::{ListedServer, Place};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::class_users::{Holder, Placed, Users, displaced};
use crate::driver::source::handle::{SourceHandle, SourceListing};
use crate::driver::source::refusals::Refusals;
use crate::driver::source::start::start;
use crate::telemetry::Limit;
use crate::telemetry::events::tell;
use sluice_engine::class::{NodeClass, splitting_field};
use sluice_engine::downstream::SourceId;
use sluice_fleet::rollout::UnitId;
use sluice_xds::{Code, Status};

/// With fewer sources than this, nobody needs a hint about their number.
const HINT_SOURCES_MIN: usize = 64;

/// The pause between two hints, and between two warnings about the same limit.
const HINT_PAUSE: Duration = Duration::from_secs(3600);

/// Makes sources, and finds existing sources. A source removes itself from the table when nobody needs it.
pub struct Sources {
    shared: Arc<DriverContext>,
    table: Arc<SourceTable>,
    /// The context of shadows, whose reports nobody reads.
    unheard: OnceLock<Arc<DriverContext>>,
    pub(crate) refusals: Refusals,
}

#[derive(Default)]
struct SourceTable(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<Arc<SourceKey>, Entry>,
    /// The number of sources in each pool.
    counts: HashMap<SourcePool, usize>,
    /// The number of classes in pools [`SourcePool::Classes`] that each connection uses.
    by_connection: HashMap<usize, usize>,
    made: u64,
    hinted_at: Option<Instant>,
    warned_at: HashMap<Limit, Instant>,
}

struct Entry {
    handle: Arc<SourceHandle>,
    pool: SourcePool,
    uses: Users,
    /// The user behind the opening request.
    opened_by: Option<Holder>,
}

/// Sources with a common bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SourcePool {
    /// Servers with the same answers for all clients: there is one source of each.
    Local,
    /// The classes of a server.
    Classes(Place),
    /// Classes that are split by client only because of Secrets. They have a bound of their own, so that
    /// Secrets of a large fleet take no room from other classes.
    Secrets(Place),
    /// The private sources of streams.
    Private,
    /// The relay's own questions, which whoever asks bounds.
    Shadows,
}

/// A stream's request for a source.
pub(crate) struct Claim<'a> {
    pub listed: ListedServer<'a>,
    pub class: NodeClass,
    pub owner: Owner,
    /// The class is split by client only because of Secrets.
    pub is_for_secrets: bool,
    pub holder: Holder,
    /// The sources that the stream uses already.
    pub held: &'a [(SourceId, Arc<SourceHandle>)],
}

/// There is no room.
#[derive(Debug)]
pub(crate) struct TableIsFull {
    pub limit: Limit,
    pub status: Status,
}

impl Sources {
    pub fn new(shared: Arc<DriverContext>) -> Sources {
        Sources { shared, table: Arc::default(), unheard: OnceLock::new(), refusals: Refusals::default() }
    }

    /// Finds or makes the source of a class at a server. Registers the holder as a user, unless the stream
    /// uses the source already. `streams`: the current number of streams. Also returns whether the source is
    /// new, and costs a stream to its server.
    pub(crate) fn get(
        &self,
        claim: Claim<'_>,
        streams: &dyn Fn() -> usize,
    ) -> Result<(Arc<SourceHandle>, bool), TableIsFull> {
        let Claim { listed, class, owner, is_for_secrets, holder, held } = claim;
        let (place, is_local) = (listed.place(), listed.server().is_local());
        let pool = match owner {
            _ if is_local => SourcePool::Local,
            Owner::Stream(_) => SourcePool::Private,
            Owner::Shadow(_) => SourcePool::Shadows,
            Owner::Everyone if is_for_secrets => SourcePool::Secrets(place),
            Owner::Everyone => SourcePool::Classes(place),
        };
        let key = Arc::new(source_key(listed, class, owner));
        let mut entries = self.table.entries();
        let present = entries.by_key.get(&key).map(|entry| (entry.handle.clone(), entry.pool));
        // A class for Secrets counts as an ordinary class once a stream asks for other types.
        let here = present
            .filter(|(_, listed_pool)| *listed_pool == pool || !matches!(pool, SourcePool::Classes(_)));
        let is_held = |handle: &Arc<SourceHandle>| held.iter().any(|(id, _)| *id == handle.id());
        if let Some((handle, _)) = here.as_ref().filter(|(handle, _)| is_held(handle)) {
            return Ok((handle.clone(), false));
        }
        self.admit_connection(&mut entries, &key, pool, holder.connection)?;
        if here.is_none() {
            self.admit(&mut entries, pool, &holder)?;
        }
        let (handle, is_new) = match entries.by_key.get(&key) {
            Some(entry) => (entry.handle.clone(), false),
            None => {
                let opened_by = (pool != SourcePool::Local).then(|| holder.clone());
                (self.start(&mut entries, key.clone(), listed, pool, opened_by), true)
            }
        };
        entries.count_as(&key, pool);
        // Local servers have no bound, so their users are not counted.
        if !is_held(&handle) && pool != SourcePool::Local {
            entries.begin_use(&key, &holder);
        }
        if is_new {
            self.hint(&mut entries, streams);
        }
        Ok((handle, is_new && pool != SourcePool::Local))
    }

    /// The source of a class at a server, for the relay itself.
    pub fn own(&self, listed: ListedServer<'_>, class: NodeClass) -> Arc<SourceHandle> {
        let key = Arc::new(source_key(listed, class, Owner::Everyone));
        let mut entries = self.table.entries();
        let source = entries.by_key.get(&key).map(|entry| entry.handle.clone());
        source.unwrap_or_else(|| self.start(&mut entries, key, listed, SourcePool::Local, None))
    }

    /// Starts a source of a predecessor's, before its first client; `None` if there is no room.
    pub(crate) fn inherit(
        &self,
        listed: ListedServer<'_>,
        class: NodeClass,
        is_for_secrets: bool,
    ) -> Option<Arc<SourceHandle>> {
        let place = listed.place();
        let pool = if is_for_secrets { SourcePool::Secrets(place) } else { SourcePool::Classes(place) };
        let key = Arc::new(source_key(listed, class, Owner::Everyone));
        let settings = self.shared.settings();
        let max = if is_for_secrets { settings.limits.secret_classes } else { settings.limits.node_classes };
        let mut entries = self.table.entries();
        let count = entries.counts.get(&pool).copied().unwrap_or_default();
        if listed.server().is_local() || count >= max || entries.by_key.contains_key(&key) {
            return None;
        }
        Some(self.start(&mut entries, key, listed, pool, None))
    }

    /// Starts a private source without clients, over the connection of this choice (PRF-3). It takes no room
    /// from classes, and nobody hears of it but its holder (PRF-1).
    pub(crate) fn shadow(
        &self,
        listed: ListedServer<'_>,
        class: NodeClass,
        choice: ConnectionChoice,
    ) -> Arc<SourceHandle> {
        let unheard = self.unheard.get_or_init(|| Arc::new(self.shared.unheard()));
        let (listing, shared): (Arc<dyn SourceListing>, _) = (self.table.clone(), unheard.clone());
        let mut entries = self.table.entries();
        let key = Arc::new(source_key(listed, class, Owner::Shadow(entries.made + 1)));
        entries.add(key, SourcePool::Shadows, None, |id, key| {
            start(id, key, listed, shared, listing, choice, None)
        })
    }

    /// Whether the class of a source is split by client only because of Secrets.
    pub(crate) fn is_for_secrets(&self, source: &SourceHandle) -> bool {
        let entries = self.table.entries();
        entries.by_key.get(source.key()).is_some_and(|entry| matches!(entry.pool, SourcePool::Secrets(_)))
    }

    /// Takes a source off the table that could not begin, so that the next attempt has another.
    pub(crate) fn discard(&self, source: &SourceHandle) {
        self.table.entries().remove(source);
    }

    /// The source of types whose class has no room.
    pub(crate) fn of_refused(&self) -> Arc<SourceHandle> {
        self.own(self.shared.settings().lists.refused(), any_class())
    }

    fn start(
        &self,
        entries: &mut Entries,
        key: Arc<SourceKey>,
        listed: ListedServer<'_>,
        pool: SourcePool,
        opened_by: Option<Holder>,
    ) -> Arc<SourceHandle> {
        let (listing, shared): (Arc<dyn SourceListing>, _) = (self.table.clone(), self.shared.clone());
        entries.add(key, pool, opened_by, |id, key| {
            start(id, key, listed, shared, listing, ConnectionChoice::default(), None)
        })
    }

    /// A stream does not use a source any more.
    pub(crate) fn release(&self, source: &SourceHandle, holder: &Holder) {
        self.table.entries().end_use(source, holder);
    }

    /// Bounds the classes of one connection.
    fn admit_connection(
        &self,
        entries: &mut Entries,
        key: &SourceKey,
        pool: SourcePool,
        connection: usize,
    ) -> Result<(), TableIsFull> {
        let max = self.shared.settings().limits.node_classes_per_connection;
        let used = entries.by_connection.get(&connection).copied().unwrap_or_default();
        let uses_it = || entries.by_key.get(key).is_some_and(|entry| entry.counts_for(connection));
        if !matches!(pool, SourcePool::Classes(_)) || used < max || uses_it() {
            return Ok(());
        }
        let limit = Limit::NodeClassesPerConnection;
        let of_connection = |entry: &&Entry| entry.counts_for(connection);
        self.warn(entries, limit, max, &of_connection);
        let text = format!(
            "this connection uses {used} node classes and needs another; the limit is \
                `limits.node_classes_per_connection`"
        );
        Err(TableIsFull { limit, status: Status::new(Code::ResourceExhausted, text) })
    }

    /// Bounds the classes of each server (RLY-14), the classes for Secrets, and private sources. A newcomer's
    /// classes may displace others.
    fn admit(&self, entries: &mut Entries, pool: SourcePool, holder: &Holder) -> Result<(), TableIsFull> {
        let settings = self.shared.settings();
        let (max, limit, text) = match pool {
            SourcePool::Local | SourcePool::Shadows => return Ok(()),
            SourcePool::Classes(_) => (
                settings.limits.node_classes,
                Limit::NodeClasses,
                "node classes are in use, and this client needs another; the limit is `limits.node_classes`",
            ),
            SourcePool::Secrets(_) => (
                settings.limits.secret_classes,
                Limit::SecretClasses,
                "node classes are in use for Secrets, and this client needs another; the limit is \
                    `limits.secret_classes`",
            ),
            SourcePool::Private => (
                settings.limits.private_sources,
                Limit::PrivateSources,
                "client streams have private upstream streams, and this client needs another; the limit is \
                    `limits.private_sources`",
            ),
        };
        let count = entries.counts.get(&pool).copied().unwrap_or_default();
        if count < max {
            return Ok(());
        }
        self.warn(entries, limit, max, &|entry: &&Entry| entry.pool == pool);
        if pool != SourcePool::Private && entries.make_room(pool, holder) {
            self.shared.metrics.limit_hit(limit);
            return Ok(());
        }
        Err(TableIsFull { limit, status: Status::new(Code::ResourceExhausted, format!("{count} {text}")) })
    }

    /// The source with this key, if there is one.
    pub(crate) fn find(&self, key: &SourceKey) -> Option<Arc<SourceHandle>> {
        self.table.entries().by_key.get(key).map(|entry| entry.handle.clone())
    }

    /// The number of streams that use the source with this key.
    pub(crate) fn users(&self, key: &SourceKey) -> usize {
        self.table.entries().by_key.get(key).map_or(0, |entry| entry.uses.streams())
    }

    /// The number of classes in use at a place: all, or those for Secrets.
    pub(crate) fn used_classes(&self, place: Place, for_secrets: bool) -> usize {
        let pool = if for_secrets { SourcePool::Secrets(place) } else { SourcePool::Classes(place) };
        let entries = self.table.entries();
        entries.by_key.values().filter(|entry| entry.pool == pool && !entry.uses.is_empty()).count()
    }

    /// So many further classes have room at each server where some client uses this class.
    pub(crate) fn room_beside(&self, class: &NodeClass) -> usize {
        let max = self.shared.settings().limits.node_classes;
        let entries = self.table.entries();
        let pools = entries
            .by_key
            .iter()
            .filter(|(key, entry)| key.class == *class && matches!(entry.pool, SourcePool::Classes(_)));
        let room = pools.map(|(_, entry)| {
            max.saturating_sub(entries.counts.get(&entry.pool).copied().unwrap_or_default())
        });
        room.min().unwrap_or(max)
    }

    /// All sources with clients, or for clients. Shadows are none of them.
    pub fn all(&self) -> Vec<Arc<SourceHandle>> {
        self.sorted(|pool| pool != SourcePool::Shadows)
    }

    pub(crate) fn shadows(&self) -> Vec<Arc<SourceHandle>> {
        self.sorted(|pool| pool == SourcePool::Shadows)
    }

    fn sorted(&self, is_meant: impl Fn(SourcePool) -> bool) -> Vec<Arc<SourceHandle>> {
        let entries = self.table.entries();
        let meant = entries.by_key.values().filter(|entry| is_meant(entry.pool));
        let mut sorted: Vec<_> = meant.map(|entry| entry.handle.clone()).collect();
        sorted.sort_by_key(|handle| handle.id());
        sorted
    }

    /// Warns once for each limit, and names the part of the node that splits the classes.
    fn warn(&self, entries: &mut Entries, limit: Limit, max: usize, concerned: &dyn Fn(&&Entry) -> bool) {
        let now = Instant::now();
        if entries.warned_at.get(&limit).is_some_and(|at| now.duration_since(*at) < HINT_PAUSE) {
            return;
        }
        entries.warned_at.insert(limit, now);
        let classes = entries.by_key.values().filter(concerned).map(|entry| &entry.handle.key().class);
        let (field, values) = splitting_field(classes).unwrap_or_default();
        tell!(self.shared.metrics.events, warn(Class, "there is no room for another node class")
            .limit(limit.name()).detail(format_args!("{field} has {values} values"));
            { limit = limit.name(), max, field, values }
            + "; clients are refused, or the heaviest users lose classes. `/refused` of the admin listener lists the refused \
                clients. If the control plane ignores this part of the node, leave it out with `node_classes`");
    }

    /// When nearly every client has a class of its own, clients share nothing. The operator should know the
    /// field that splits them.
    fn hint(&self, entries: &mut Entries, streams: &dyn Fn() -> usize) {
        // Classes for Secrets are split on purpose.
        let shared = || entries.by_key.values().filter(|entry| matches!(entry.pool, SourcePool::Classes(_)));
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
        let split = splitting_field(shared().map(|entry| &entry.handle.key().class));
        entries.hinted_at = Some(now);
        if let Some((field, values)) = split {
            tell!(self.shared.metrics.events, warn(Class, "node classes are nearly as many as streams")
                .detail(format_args!("{field} has {values} values"));
                { classes = count, streams, field, values }
                + ", so clients share little. If the control plane ignores this part of the node, leave it out with \
                    `node_classes`");
        }
    }
}

impl Entry {
    /// Whether the entry counts as a class of this connection.
    fn counts_for(&self, connection: usize) -> bool {
        matches!(self.pool, SourcePool::Classes(_)) && self.uses.is_of(connection)
    }
}

impl Entries {
    fn add(
        &mut self,
        key: Arc<SourceKey>,
        pool: SourcePool,
        opened_by: Option<Holder>,
        start: impl FnOnce(SourceId, Arc<SourceKey>) -> Arc<SourceHandle>,
    ) -> Arc<SourceHandle> {
        self.made += 1;
        let handle = start(SourceId(self.made), key.clone());
        let uses = Users::default();
        self.by_key.insert(key, Entry { handle: handle.clone(), pool, uses, opened_by });
        *self.counts.entry(pool).or_default() += 1;
        handle
    }

    /// Finds the class that gives its place to a newcomer, and removes it from the table.
    fn make_room(&mut self, pool: SourcePool, newcomer: &Holder) -> bool {
        let of_pool = self.by_key.values().filter(|entry| entry.pool == pool);
        let classes = of_pool.map(|entry| Placed {
            id: entry.handle.id().0,
            users: &entry.uses,
            opened_by: entry.opened_by.as_ref(),
            is_held: entry.handle.has_hold(),
        });
        let Some(id) = displaced(classes, newcomer) else { return false };
        let entry = self.by_key.values().find(|entry| entry.handle.id().0 == id);
        let Some(handle) = entry.map(|entry| entry.handle.clone()) else { return false };
        self.remove(&handle);
        handle.displace();
        true
    }

    /// Moves a source to this pool.
    fn count_as(&mut self, key: &SourceKey, pool: SourcePool) {
        let Some(entry) = self.by_key.get_mut(key) else { return };
        if entry.pool == pool || !matches!(pool, SourcePool::Classes(_)) {
            return;
        }
        let before = std::mem::replace(&mut entry.pool, pool);
        for connection in entry.uses.connections() {
            *self.by_connection.entry(connection).or_default() += 1;
        }
        *self.counts.entry(pool).or_default() += 1;
        self.counts.entry(before).and_modify(|count| *count -= 1);
    }

    fn begin_use(&mut self, key: &SourceKey, holder: &Holder) {
        let Some(entry) = self.by_key.get_mut(key) else { return };
        if entry.uses.add(holder) && matches!(entry.pool, SourcePool::Classes(_)) {
            *self.by_connection.entry(holder.connection).or_default() += 1;
        }
    }

    fn end_use(&mut self, source: &SourceHandle, holder: &Holder) {
        // A displaced source is not in the table any more.
        let entry = self.by_key.get_mut(source.key()).filter(|entry| entry.handle.id() == source.id());
        let Some(entry) = entry.filter(|entry| entry.pool != SourcePool::Local) else { return };
        if entry.uses.remove(holder) && matches!(entry.pool, SourcePool::Classes(_)) {
            self.less_of(holder.connection);
        }
    }

    fn less_of(&mut self, connection: usize) {
        let Some(count) = self.by_connection.get_mut(&connection) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_connection.remove(&connection);
        }
    }

    fn is_listed(&self, source: &SourceHandle) -> bool {
        self.by_key.get(source.key()).is_some_and(|entry| entry.handle.id() == source.id())
    }

    fn remove(&mut self, source: &SourceHandle) -> Option<Entry> {
        if !self.is_listed(source) {
            return None;
        }
        let entry = self.by_key.remove(source.key())?;
        self.counts.entry(entry.pool).and_modify(|count| *count -= 1);
        if matches!(entry.pool, SourcePool::Classes(_)) {
            entry.uses.connections().for_each(|connection| self.less_of(connection));
        }
        Some(entry)
    }
}

impl SourceTable {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock()
    }
}

impl SourceListing for SourceTable {
    fn forget(&self, source: &SourceHandle) {
        self.entries().remove(source);
    }

    fn siblings(&self, source: &SourceHandle) -> Vec<Arc<SourceHandle>> {
        let entries = self.entries();
        let siblings = entries.by_key.values().filter(|entry| entry.handle.is_sibling(source));
        let mut siblings: Vec<&Entry> = siblings.collect();
        siblings.sort_by_key(|entry| Reverse((!entry.uses.is_empty(), entry.handle.id())));
        siblings.into_iter().map(|entry| entry.handle.clone()).collect()
    }

    fn begin_anew(self: Arc<Self>, failed: &SourceHandle, shared: &Arc<DriverContext>) {
        // A client must not make an empty source meanwhile.
        let mut entries = self.entries();
        let Some(Entry { pool, opened_by, .. }) = entries.remove(failed) else { return };
        let settings = shared.settings();
        let plan = failed.plan(&shared.plans).filter(|plan| plan.plan().enforces());
        let listed = settings.lists.find(failed.key().place);
        let Some((plan, listed)) = plan.zip(listed) else { return };
        let (shared, listing) = (shared.clone(), self.clone() as Arc<dyn SourceListing>);
        let handle = entries.add(Arc::new(failed.key().clone()), pool, opened_by, |id, key| {
            start(id, key, listed, shared, listing, ConnectionChoice::default(), Some(failed.published()))
        });
        plan.note_anew(UnitId(failed.id().0), UnitId(handle.id().0));
    }

    fn retire(&self, source: &Arc<SourceHandle>) -> bool {
        let mut entries = self.entries();
        // The task and the table hold one reference each. After a displacement, another class has the place
        // in the table.
        let holders = if entries.is_listed(source) { 2 } else { 1 };
        // A source has no hold yet while beginning anew.
        let unused = Arc::strong_count(source) <= holders && !source.begins_anew();
        if unused {
            entries.remove(source);
        }
        unused
    }
}

pub(crate) fn source_key(listed: ListedServer<'_>, class: NodeClass, owner: Owner) -> SourceKey {
    // Files ignore nodes, so all clients share them.
    let class = match listed.server().is_local() {
        true => NodeClass::of_everybody_with(&class),
        false => NodeClass { legacy_wildcard: true, ..class },
    };
    SourceKey { place: listed.place(), class, owner }
}

/// The only class of a server with the same answers for all clients.
pub(crate) fn any_class() -> NodeClass {
    NodeClass::of_everybody()
}
