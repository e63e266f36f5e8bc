//! The load of a node class at one server: the lock around its machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::room::{LoadRoom, RoomPart};
use crate::driver::api::load::{ClassLoadStatus, LoadLinkStatus, LoadRow, LoadWishStatus, RowQuery};
use crate::driver::ground::class_identity::class_digest;
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::Place;
use crate::telemetry::metrics::{GaugePart, LoadMetrics, RequestFate};
use sluice_engine::Time;
use sluice_engine::class::NodeClass;
use sluice_load_reports::counters::{Group, PerGroup, Tally};
use sluice_load_reports::link::LinkState;
use sluice_load_reports::report::LoadReport;
use sluice_load_reports::table::RowView;
use sluice_load_reports::{Accounts, ClassLoad, Clusters, Departure, LoadLimits, StreamId, Wish};
use sluice_xds::{RelayPath, Status};

/// The longest wait for a server that does not take the last report, or does not end its side of the stream.
/// The process would else use all of its time for a drain.
pub const END_WITHIN: Duration = Duration::from_secs(5);

/// The properties that tell loads apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoadKey {
    pub place: Place,
    pub class: NodeClass,
    /// The sums go to the server, and not to operators alone.
    pub is_reported: bool,
}

/// The wish of a server, with a number that no other wish of the load has.
#[derive(Clone, Debug, Default)]
pub struct NumberedWish {
    pub number: u64,
    /// `None` before the first word of the server.
    pub wish: Option<Wish>,
}

/// The constant facts of a load.
pub struct LoadFacts {
    /// Unique in this process.
    pub number: u64,
    pub key: LoadKey,
    pub list: Arc<str>,
    pub server: Arc<str>,
    /// The path of the call, by the relays of the first client (TIR-2).
    pub relays: RelayPath,
    /// The connection of the first client.
    pub opened_by: usize,
}

/// A load, for its task, its reporters and readers.
pub struct LoadHandle {
    pub facts: LoadFacts,
    pub(super) state: Mutex<LoadState>,
    /// Wakes the task.
    pub(super) woken: Notify,
    /// The entries of the machine, without the lock.
    entries: Arc<AtomicUsize>,
}

/// A stream on its way to a load.
pub struct Arriving<'a> {
    pub waker: &'a Arc<AtomicWaker>,
    /// The number of its connection.
    pub connection: usize,
}

/// The clients whose word a load hears.
pub struct Hearing {
    /// The streams of each group with a share of the tallies.
    pub reporters: PerGroup<u64>,
    pub streams: usize,
    pub interval: Duration,
    /// The server takes no reports, so clients are asked for none (LRS-21).
    pub lacks_service: bool,
}

/// The state behind the lock.
pub struct LoadState {
    pub machine: ClassLoad,
    wish: Arc<NumberedWish>,
    reporters: HashMap<StreamId, Arc<AtomicWaker>>,
    /// Since when nobody reports.
    pub empty_since: Option<Time>,
    pub link_since: Time,
    pub error: Option<Status>,
    /// The load ends then, whatever its server has.
    pub ends_at: Option<Time>,
    counted: CountedLoad,
}

/// The part that the metrics have.
struct CountedLoad {
    accounts: Accounts,
    names_left_out: u64,
    entries: GaugePart,
    room: RoomPart,
}

impl LoadHandle {
    pub fn new(
        facts: LoadFacts,
        machine: ClassLoad,
        room: &Arc<LoadRoom>,
        metrics: &LoadMetrics,
        now: Time,
    ) -> LoadHandle {
        let wish = NumberedWish { number: 1, wish: machine.wish().cloned() };
        let entries = Arc::<AtomicUsize>::default();
        let counted = CountedLoad {
            accounts: Accounts::default(),
            names_left_out: 0,
            entries: metrics.entries(),
            room: RoomPart::new(room, &entries),
        };
        let state = LoadState {
            machine,
            wish: Arc::new(wish),
            reporters: HashMap::new(),
            empty_since: Some(now),
            link_since: now,
            error: None,
            ends_at: None,
            counted,
        };
        LoadHandle { facts, state: Mutex::new(state), woken: Notify::new(), entries }
    }

    /// A stream of the class reports from now on. The reporter is woken when the wish changes.
    pub fn arrive(&self, id: StreamId, arriving: &Arriving<'_>, departure: Departure, now: Time) {
        let mut state = self.state.lock();
        state.machine.arrive(id, Group::Others, departure, now);
        state.machine.join(id, arriving.connection as u64);
        state.reporters.insert(id, arriving.waker.clone());
        state.empty_since = None;
        drop(state);
        self.woken.notify_one();
    }

    /// A stream moves to another load.
    pub fn leave(&self, id: StreamId, now: Time) -> Departure {
        let mut state = self.state.lock();
        let departure = state.machine.leave(id);
        state.forget(id, now);
        let is_empty = state.empty_since.is_some();
        drop(state);
        if is_empty {
            self.woken.notify_one();
        }
        departure
    }

    /// Counts a report (LRS-15) for the group of the client. Gives its finished requests in clusters that the
    /// server takes.
    pub fn report(
        &self,
        id: StreamId,
        group: Group,
        report: &LoadReport<'_>,
        takes: impl Fn(&str) -> bool,
        shared: &DriverContext,
    ) -> u64 {
        let mut state = self.state.lock();
        state.look_for_room(&shared.settings().load);
        state.machine.set_group(id, group);
        state.machine.hear(id, report, shared.clock.now());
        let before = state.machine.accounts().read;
        state.machine.report(id, report, takes);
        let finished = state.machine.accounts().read.saturating_sub(before);
        state.count(&shared.metrics.load);
        let is_due = state.machine.has_output();
        drop(state);
        if is_due {
            self.woken.notify_one();
        }
        finished
    }

    /// The tallies begin at zero (LRS-24).
    pub fn observe(&self, now: Time) {
        self.state.lock().machine.observe(now);
    }

    /// The push of the tallies is over.
    pub fn end_observation(&self) {
        self.state.lock().machine.end_observation();
    }

    /// Passes the word of all clients about each cluster to `add`.
    pub fn voices(&self, mut add: impl FnMut(&str, &PerGroup<Tally>)) -> Hearing {
        let state = self.state.lock();
        state.machine.voices().for_each(|(cluster, voices)| add(cluster, &voices));
        Hearing {
            reporters: state.machine.reporters(),
            streams: state.machine.stream_count(),
            interval: state.machine.wish().map(|wish| wish.interval).unwrap_or_default(),
            lacks_service: state.machine.lacks_service(),
        }
    }

    /// The interval in which clients report by the server's wish; `None` before its first word.
    pub fn interval(&self) -> Option<Duration> {
        self.state.lock().machine.wish().map(|wish| wish.interval)
    }

    /// The memory of a stream's gauges.
    pub fn gauge_bytes(&self, id: StreamId) -> usize {
        self.state.lock().machine.gauge_bytes(id)
    }

    pub fn wish(&self) -> Arc<NumberedWish> {
        self.state.lock().wish.clone()
    }

    pub fn configure(&self, limits: LoadLimits) {
        self.state.lock().machine.configure(limits);
    }

    /// The process or the class ends: the last report goes out at once (LRS-16), and the load ends soon.
    pub fn drain(&self, within: Duration, now: Time) {
        let mut state = self.state.lock();
        state.machine.drain(now);
        let ends_at = now + within.min(END_WITHIN);
        state.ends_at = Some(state.ends_at.map_or(ends_at, |earlier| earlier.min(ends_at)));
        drop(state);
        self.woken.notify_one();
    }

    /// The entries of the machine.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The load for a reader.
    pub fn status(&self, clock: &Clock) -> ClassLoadStatus {
        let state = self.state.lock();
        let machine = &state.machine;
        ClassLoadStatus {
            number: self.facts.number,
            list: self.facts.list.clone(),
            server: self.facts.server.clone(),
            class: class_digest(&self.facts.key.class).into(),
            is_reported: self.facts.key.is_reported,
            link: LoadLinkStatus {
                state: if self.facts.key.is_reported { link_word(machine.link_state()) } else { "local" },
                since: clock.wall(state.link_since),
                lacks_service: machine.lacks_service(),
                error: state.error.clone(),
            },
            wish: machine.wish().map(wish_status),
            reporters: machine.stream_count(),
            observed: machine.reporters(),
            since: clock.wall(machine.observed_since()),
            accounts: machine.accounts(),
            left_out: machine.left_out(),
            oddities: machine.oddities(),
            row_count: machine.rows().count(),
        }
    }

    /// The rows for a reader. Copies those alone that the reader gets, under the lock.
    pub fn rows(&self, query: &RowQuery<'_>, clock: &Clock) -> Vec<LoadRow> {
        let state = self.state.lock();
        let observed_since = state.machine.observed_since();
        let row = |row: RowView<'_>| LoadRow {
            cluster: row.cluster.into(),
            service: row.service.into(),
            locality: (&row.place).into(),
            priority: row.priority,
            tallies: row.tallies,
            since: clock.wall(row.since.max(observed_since)),
            gauges: row.gauges,
        };
        query.first(state.machine.rows()).into_iter().map(row).collect()
    }
}

fn link_word(state: LinkState) -> &'static str {
    match state {
        LinkState::Idle => "idle",
        LinkState::Waiting { .. } => "waiting",
        LinkState::Opening => "opening",
        LinkState::Open => "open",
        LinkState::Ending => "ending",
        LinkState::Ended => "ended",
    }
}

fn wish_status(wish: &Wish) -> LoadWishStatus {
    let clusters = match &wish.clusters {
        Clusters::All => None,
        Clusters::Listed(names) => Some(names.iter().cloned().collect()),
    };
    LoadWishStatus { clusters, interval: wish.interval, has_endpoints: wish.has_endpoints }
}

impl LoadState {
    fn forget(&mut self, id: StreamId, now: Time) {
        self.reporters.remove(&id);
        if !self.machine.has_streams() {
            self.empty_since = Some(now);
        }
    }

    /// Takes over the room that other classes leave.
    pub fn look_for_room(&mut self, limits: &LoadLimits) {
        let room = &self.counted.room;
        self.machine.set_room(room.max(), room.free(limits));
    }

    /// Passes what has changed in the accounts to the metrics.
    pub fn count(&mut self, metrics: &LoadMetrics) {
        let (now, before) = (self.machine.accounts(), self.counted.accounts);
        let more = |field: fn(&Accounts) -> u64| field(&now).saturating_sub(field(&before));
        metrics.requests.inc_by(more(|accounts| accounts.read));
        metrics.in_doubt.inc_by(more(|accounts| accounts.in_doubt));
        metrics.fate(RequestFate::Delivered, more(|accounts| accounts.delivered));
        metrics.fate(RequestFate::Local, more(|accounts| accounts.local));
        metrics.fate(RequestFate::Unwanted, more(|accounts| accounts.unwanted));
        metrics.fate(RequestFate::LeftOut, more(|accounts| accounts.left_out));
        self.counted.accounts = now;
        let names = self.machine.left_out().names;
        metrics.names_left_out.inc_by(names.saturating_sub(self.counted.names_left_out));
        self.counted.names_left_out = names;
        self.counted.entries.set(self.machine.entries());
        self.counted.room.set(self.machine.entries());
    }

    /// The wish has changed: tells the reporters.
    pub fn tell_wish(&mut self) {
        let number = self.wish.number + 1;
        self.wish = Arc::new(NumberedWish { number, wish: self.machine.wish().cloned() });
        self.reporters.values().for_each(|waker| waker.wake());
    }
}
