//! A world of load reports: clients, classes, servers, and a ledger that knows where each request is (I29).
//!
//! The world draws its events from numbers, so a property test and the simulator can both play it. The ledger adds and
//! subtracts maps; it shares the codec with the machines, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_load_reports::codec::{ReportWriter, read_answer, write_answer};
use sluice_load_reports::counters::{Counters, Gauges, Group};
use sluice_load_reports::report::{ClusterStats, DroppedRequests, LocalityStats, Place};
use sluice_load_reports::{
    Asking, ClassLoad, Client, Clusters, Departure, Destination, LoadLimits, Output, Reporter, StreamId,
    Wish, read_report,
};
use sluice_setting::Backoff;
use sluice_xds::{Code, Status};

const CLASSES: usize = 2;
const CLIENTS: usize = 5;
const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const ZONES: [&str; 2] = ["", "z1"];

/// An event: the microseconds before it, its kind below 100, and a number for its choices.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub gap: u64,
    pub what: u8,
    pub choice: u64,
}

/// The counters of a row in the ledger: successes, errors, issued requests, drops.
type Sums = [u64; 4];

/// A cluster and a zone; the row without a zone has the drops, too.
type RowName = (&'static str, &'static str);

type Ledger = BTreeMap<RowName, Sums>;

/// The state of a client, row by row.
type GaugesByRow = BTreeMap<RowName, Gauges>;

fn add(ledger: &mut Ledger, more: &Ledger) {
    for (row, sums) in more {
        let kept = ledger.entry(*row).or_default();
        kept.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
    }
}

fn finished(ledger: &Ledger) -> u64 {
    ledger.values().map(|sums| sums[0] + sums[1]).sum()
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }
}

/// A client may have all clusters.
pub struct Everything;

impl Client for Everything {
    fn may_have(&self, _: &str) -> bool {
        true
    }

    fn may_have_all(&self) -> bool {
        true
    }

    fn clusters(&self) -> Arc<BTreeSet<Arc<str>>> {
        Arc::new(CLUSTERS.map(Arc::from).into())
    }
}

/// A client with a stream.
struct Peer {
    id: StreamId,
    class: usize,
    reporter: Reporter,
    /// Traffic since the last report.
    traffic: Ledger,
    /// What the client has in progress now.
    gauges: GaugesByRow,
    /// As reported last.
    shown: GaugesByRow,
    answer: Option<(Time, Wish)>,
    /// The latest answer with a smaller list, or the first answer.
    shrunk_at: Time,
    came_at: Time,
    heard_at: Time,
}

/// A report on its way to a server.
struct Flying {
    rows: Ledger,
    /// The begin of the time that the report covers.
    since: Option<Time>,
}

/// The stream of a class, as the server's side of the world sees it.
#[derive(Default)]
struct Wire {
    is_open: bool,
    has_answered: bool,
    is_finishing: bool,
    /// Handed to the relay's transport, and not written.
    unwritten: Option<Flying>,
    /// Written, not arrived.
    flying: VecDeque<Flying>,
    /// The finished requests of the last report that was written.
    last_written: u64,
    /// The gauges at the server: a report replaces those of the clusters that it names.
    shown: GaugesByRow,
}

/// A class at its server, with the ledger of its requests.
struct Class {
    load: ClassLoad,
    wire: Wire,
    /// What clients have reported and no message has.
    pending: Ledger,
    arrived: Ledger,
    in_doubt: u64,
    delivered: u64,
    unwanted: u64,
    /// The requests that this process has read.
    read: u64,
    /// The end of the time that the last report covers. `None`: only the machine knows.
    covered: Option<Time>,
    wish: Option<Wish>,
    wish_number: u64,
    /// The server has no such service, as far as the relay knows.
    is_lacking: bool,
}

impl Class {
    fn new(class: usize, now: Time) -> Class {
        let node = vec![class as u8].into();
        let destination = Destination::Server { node, backoff: Backoff::default() };
        Class {
            load: ClassLoad::new(destination, LoadLimits::default(), now),
            wire: Wire::default(),
            pending: Ledger::new(),
            arrived: Ledger::new(),
            in_doubt: 0,
            delivered: 0,
            unwanted: 0,
            read: 0,
            covered: Some(now),
            wish: None,
            wish_number: 0,
            is_lacking: false,
        }
    }
}

pub struct World {
    now: Time,
    rng: Rng,
    peers: Vec<Option<Peer>>,
    classes: Vec<Class>,
    streams: u64,
    failure: Option<String>,
    /// The hash of all bytes that leave the machines.
    hash: u64,
}

/// The result of a schedule.
pub struct Played {
    /// Equal events have equal hashes, whatever the origin is (I18).
    pub hash: u64,
    /// The first violation of I29.
    pub failure: Option<String>,
    /// Microseconds from the origin to the end, or to the violation.
    pub lasted: u64,
}

/// Plays the events, and then peace. `origin`: the time at the start, in microseconds.
pub fn play(seed: u64, events: &[Event], origin: u64) -> Played {
    let now = Time::from_micros(origin);
    let classes = (0..CLASSES).map(|class| Class::new(class, now)).collect();
    let peers = (0..CLIENTS).map(|_| None).collect();
    let mut world = World { now, rng: Rng(seed), peers, classes, streams: 0, failure: None, hash: seed };
    for event in events {
        world.advance(Duration::from_micros(event.gap));
        world.rng = Rng(event.choice);
        world.act(event.what % 100);
        world.settle();
        if world.failure.is_some() {
            break;
        }
    }
    if world.failure.is_none() {
        world.peace();
    }
    let lasted = world.now.since(now).as_micros() as u64;
    Played { hash: world.hash, failure: world.failure, lasted }
}

impl World {
    fn fail(&mut self, text: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(text());
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Lets time pass, and stops at each timer.
    fn advance(&mut self, gap: Duration) {
        let end = self.now + gap;
        let mut stuck = 0;
        loop {
            let loads = self.classes.iter().filter_map(|class| class.load.poll_timeout());
            let reporters = self.peers.iter().flatten().filter_map(|peer| peer.reporter.poll_timeout());
            let next = loads.chain(reporters).min().filter(|next| *next <= end);
            let Some(next) = next else { break };
            let before = self.now;
            self.now = self.now.max(next);
            for class in 0..CLASSES {
                let now = self.now;
                self.classes[class].load.handle_timeout(now);
            }
            self.settle();
            for peer in 0..CLIENTS {
                self.poll_answer(peer, false);
            }
            // A timer has to do something, or time would stand still.
            stuck = if self.now == before { stuck + 1 } else { 0 };
            if stuck > 10 {
                let loads =
                    self.classes.iter().map(|class| (class.load.poll_timeout(), class.load.link_state()));
                let loads: Vec<_> = loads.collect();
                return self.fail(|| format!("a timer comes again and again: {loads:?}"));
            }
        }
        self.now = self.now.max(end);
    }

    fn act(&mut self, what: u8) {
        let (peer, class) = (self.rng.below(CLIENTS), self.rng.below(CLASSES));
        match what {
            0..30 => self.traffic(peer),
            30..55 => self.report(peer),
            55..62 => self.come(peer, class),
            62..66 => self.go(peer),
            66..69 => self.change_class(peer),
            69..77 => self.answer(class),
            77..85 => self.write(class),
            85..91 => self.arrive(class),
            91..95 => self.end(class),
            95 => self.restart(class, true),
            96 => self.restart(class, false),
            97 => self.regroup(peer),
            _ => {
                let gap = Duration::from_secs(self.rng.next() % 40);
                self.advance(gap);
            }
        }
    }

    fn traffic(&mut self, peer: usize) {
        let (cluster, zone) = (CLUSTERS[self.rng.below(3)], ZONES[self.rng.below(2)]);
        let sums = [self.rng.next() % 5, self.rng.next() % 3, self.rng.next() % 9, self.rng.next() % 2];
        let drops = if zone.is_empty() { sums[3] } else { 0 };
        let gauges = Gauges { in_progress: self.rng.next() % 3, active_connections: self.rng.next() % 2 };
        let Some(peer) = &mut self.peers[peer] else { return };
        add(&mut peer.traffic, &Ledger::from([((cluster, zone), [sums[0], sums[1], sums[2], drops])]));
        peer.gauges.insert((cluster, zone), gauges);
    }

    fn come(&mut self, peer: usize, class: usize) {
        if self.peers[peer].is_some() {
            return;
        }
        self.streams += 1;
        let id = StreamId(self.streams);
        let now = self.now;
        self.classes[class].load.arrive(id, Group::Others, Departure::default(), now);
        self.peers[peer] = Some(Peer {
            id,
            class,
            reporter: Reporter::new(self.rng.next(), now),
            traffic: Ledger::new(),
            gauges: GaugesByRow::new(),
            shown: GaugesByRow::new(),
            answer: None,
            shrunk_at: now,
            came_at: now,
            heard_at: now,
        });
        // An Envoy that had a stream before has statistics in its first message.
        if self.rng.percent(50) {
            self.traffic(peer);
        }
        self.report(peer);
    }

    fn go(&mut self, peer: usize) {
        if self.rng.percent(50) {
            self.report(peer);
        }
        if let Some(peer) = self.peers[peer].take() {
            self.classes[peer.class].load.close(peer.id);
        }
    }

    fn change_class(&mut self, peer: usize) {
        let now = self.now;
        let Some(peer) = &mut self.peers[peer] else { return };
        let departure = self.classes[peer.class].load.leave(peer.id);
        peer.class = (peer.class + 1) % CLASSES;
        self.classes[peer.class].load.arrive(peer.id, Group::Others, departure, now);
    }

    fn regroup(&mut self, peer: usize) {
        let group = if self.rng.percent(50) { Group::Admitted } else { Group::Others };
        if let Some(peer) = &self.peers[peer] {
            self.classes[peer.class].load.set_group(peer.id, group);
        }
    }

    /// A client reports some or all of its clusters.
    fn report(&mut self, number: usize) {
        let share = [100, 100, 60][self.rng.below(3)];
        let named: Vec<&str> = CLUSTERS.into_iter().filter(|_| self.rng.percent(share)).collect();
        let has_node = self.rng.percent(50);
        let now = self.now;
        let Some(peer) = &mut self.peers[number] else { return };
        let mut rows = Ledger::new();
        let mut writer = ReportWriter::default();
        for cluster in &named {
            let mut stats = ClusterStats { name: cluster, ..ClusterStats::default() };
            for zone in ZONES {
                let row = (*cluster, zone);
                let sums = peer.traffic.remove(&row).unwrap_or_default();
                let gauges = peer.gauges.get(&row).copied().unwrap_or_default();
                // A locality without traffic is not named (LRS-13).
                if sums != Sums::default() || !gauges.is_empty() {
                    let [success, error, issued, dropped] = sums;
                    let counters = Counters { success, error, issued, ..Counters::default() };
                    let place = Place { zone, ..Place::default() };
                    stats.dropped += dropped;
                    stats.categories.push(DroppedRequests { category: "lb", count: dropped });
                    stats.localities.push(LocalityStats { place, counters, gauges, ..Default::default() });
                    add(&mut rows, &Ledger::from([(row, sums)]));
                }
                peer.shown.insert(row, gauges);
            }
            writer.push(&stats);
        }
        let mut bytes = if has_node { vec![0x0a, 0] } else { Vec::new() };
        writer.finish().iter().for_each(|message| bytes.extend_from_slice(&message.bytes));
        let Ok(report) = read_report(&bytes) else {
            return self.fail(|| "a report of the world is unreadable".to_owned());
        };
        peer.reporter.reported(&report, now);
        peer.heard_at = now;
        let class = &mut self.classes[peer.class];
        class.load.report(peer.id, &report, |_| true);
        class.read += finished(&rows);
        if class.is_lacking {
            class.unwanted += finished(&rows);
        } else {
            add(&mut class.pending, &rows);
        }
        self.settle();
        self.poll_answer(number, true);
        let has_wish = |peer: &Peer| self.classes[peer.class].load.wish().is_some();
        if self.peers[number].as_ref().is_some_and(|peer| peer.answer.is_none() && has_wish(peer)) {
            self.fail(|| "the wish is known, and a client waits for its first answer".to_owned());
        }
    }

    /// LRS-19: answers follow reports, or silence, and are an interval apart.
    fn poll_answer(&mut self, number: usize, is_after_report: bool) {
        let now = self.now;
        let Some(peer) = &mut self.peers[number] else { return };
        let class = &self.classes[peer.class];
        let number = class.wish_number * CLASSES as u64 + peer.class as u64;
        let asking = Asking { wish: class.load.wish(), number, client: &Everything };
        let Some(bytes) = peer.reporter.poll_answer(asking, now) else { return };
        let answer = read_answer(&bytes);
        let Ok(answer) = answer else {
            return self.fail(|| "an answer to a client is unreadable".to_owned());
        };
        let silent = now.since(peer.heard_at);
        let Some((at, before)) = peer.answer.replace((now, answer.clone())) else {
            peer.shrunk_at = now;
            if asking.wish.is_none() && now.since(peer.came_at) < Duration::from_secs(3) {
                self.fail(|| "a client is asked for all before the server had three seconds".to_owned());
            }
            return;
        };
        // A timer of less than half of the time that is left delays no report.
        let is_sooner = now + answer.interval * 2 < peer.heard_at.max(at) + before.interval
            && now.since(at) >= Duration::from_secs(1);
        let asks_nothing = !CLUSTERS.into_iter().any(|name| answer.clusters.has(name));
        let shrunk_at = peer.shrunk_at;
        let is_smaller = !is_superset(&answer.clusters, &before.clusters);
        if is_smaller {
            peer.shrunk_at = now;
        }
        // A client that was asked for nothing has no timer that matters.
        let asked_nothing = !CLUSTERS.into_iter().any(|name| before.clusters.has(name));
        if !is_after_report && silent < before.interval * 3 && !asked_nothing && !is_sooner {
            self.fail(|| format!("an answer came {silent:?} after the client's report"));
        }
        if now.since(at) < before.interval && !asked_nothing && !is_sooner {
            self.fail(|| format!("two answers came within {:?}", before.interval));
        }
        if is_smaller && now.since(shrunk_at) < before.interval * 10 && !asks_nothing {
            self.fail(|| {
                format!("a list shrank after {:?}, from {before:?} to {answer:?}", now.since(shrunk_at))
            });
        }
    }

    fn answer(&mut self, number: usize) {
        let clusters = match self.rng.below(4) {
            0 | 1 => Clusters::All,
            2 => Clusters::listed(["a", "b"]),
            _ => Clusters::listed(["c"]),
        };
        let interval = Duration::from_secs([0, 1, 5, 20][self.rng.below(4)]);
        let now = self.now;
        let class = &mut self.classes[number];
        if !class.wire.is_open || class.wire.is_finishing {
            return;
        }
        let wish = Wish::new(clusters, interval, false);
        class.wire.has_answered = true;
        if class.is_lacking {
            class.covered = Some(now);
        }
        (class.wish, class.is_lacking) = (Some(wish.clone()), false);
        class.load.answered(&write_answer(&wish), now);
        self.settle();
    }

    /// The transport takes a report's last byte.
    fn write(&mut self, number: usize) {
        let now = self.now;
        let class = &mut self.classes[number];
        if let Some(report) = class.wire.unwritten.take() {
            class.delivered += std::mem::replace(&mut class.wire.last_written, finished(&report.rows));
            class.wire.flying.push_back(report);
            class.load.written(now);
            self.settle();
        }
    }

    /// The server reads a report.
    fn arrive(&mut self, number: usize) {
        let class = &mut self.classes[number];
        if let Some(report) = class.wire.flying.pop_front() {
            add(&mut class.arrived, &report.rows);
        }
    }

    fn end(&mut self, number: usize) {
        let code = [Code::Unavailable, Code::Ok, Code::Unimplemented][self.rng.below(3)];
        // Some of what was on its way arrives.
        for _ in 0..self.rng.below(3) {
            self.arrive(number);
        }
        let random = self.rng.next();
        self.end_with(number, code, random);
    }

    fn end_with(&mut self, number: usize, code: Code, random: u64) {
        let now = self.now;
        let class = &mut self.classes[number];
        if !class.wire.is_open {
            return;
        }
        let wire = std::mem::take(&mut class.wire);
        if wire.is_finishing && code == Code::Ok {
            class.delivered += wire.last_written;
        } else {
            class.in_doubt += wire.last_written;
        }
        if let Some(report) = wire.unwritten {
            add(&mut class.pending, &report.rows);
            class.covered = report.since;
        }
        if code == Code::Unimplemented && !wire.has_answered && !wire.is_finishing {
            class.unwanted += finished(&class.pending);
            class.pending.clear();
            (class.is_lacking, class.covered) = (true, Some(now));
        }
        class.load.ended(&Status::new(code, "the end"), random, now);
        self.settle();
    }

    /// Another process begins, with or without a drain before.
    fn restart(&mut self, number: usize, is_orderly: bool) {
        let now = self.now;
        if is_orderly {
            // Some drains have no time for their reports.
            let writes = [0, 4][self.rng.below(2)];
            let is_heard = self.classes[number].wire.has_answered && writes > 0;
            self.classes[number].load.drain(now);
            self.settle();
            for _ in 0..writes {
                self.write(number);
            }
            let left = self.classes[number].load.accounts().pending;
            if is_heard && left > 0 {
                self.fail(|| format!("a drain left {left} requests, and the server could hear them"));
            }
            while !self.classes[number].wire.flying.is_empty() {
                self.arrive(number);
            }
            if self.classes[number].wire.is_finishing {
                self.end_with(number, Code::Ok, 0);
            }
            self.check(number);
            if self.classes[number].load.is_drained() && self.classes[number].load.accounts().unconfirmed > 0
            {
                self.fail(|| "a drained class has unconfirmed requests".to_owned());
            }
        }
        let mut successor = Class::new(number, now);
        // What waits is lost with the process, and the server keeps what it has.
        successor.arrived = std::mem::take(&mut self.classes[number].arrived);
        self.classes[number] = successor;
        // The streams of the process end with it.
        for peer in &mut self.peers {
            if peer.as_ref().is_some_and(|peer| peer.class == number) {
                *peer = None;
            }
        }
        self.settle();
    }

    /// Carries out the outputs of all classes, and checks the accounts.
    fn settle(&mut self) {
        for number in 0..CLASSES {
            while let Some(output) = self.classes[number].load.poll_output() {
                let class = &mut self.classes[number];
                match output {
                    Output::Open(_) => class.wire = Wire { is_open: true, ..Wire::default() },
                    Output::Send(bytes) => self.sent(number, &bytes),
                    Output::Finish => class.wire.is_finishing = true,
                    Output::WishChanged => class.wish_number += 1,
                    Output::Tell(_) => {}
                }
            }
            self.check(number);
        }
    }

    /// A report has everything that waits and the server wants, the gauges of all streams, and the time since
    /// the report before.
    fn sent(&mut self, number: usize, bytes: &[u8]) {
        self.note(bytes);
        let gauges = self.gauges(number);
        let now = self.now;
        let class = &mut self.classes[number];
        let Ok(report) = read_report(bytes) else {
            return self.fail(|| "a report to a server is unreadable".to_owned());
        };
        let wanted = |row: &RowName| class.wish.as_ref().is_some_and(|wish| wish.clusters.has(row.0));
        let (mut rows, mut intervals) = (Ledger::new(), BTreeSet::new());
        for cluster in &report.clusters {
            let Some(name) = CLUSTERS.into_iter().find(|name| *name == cluster.name) else { continue };
            intervals.insert(cluster.interval);
            class.wire.shown.retain(|row, _| row.0 != name);
            add(&mut rows, &Ledger::from([((name, ""), [0, 0, 0, cluster.dropped])]));
            let by_category: u64 = cluster.categories.iter().map(|dropped| dropped.count).sum();
            if by_category != cluster.dropped {
                self.failure.get_or_insert_with(|| format!("{by_category} drops by category"));
            }
            for locality in &cluster.localities {
                let Some(zone) = ZONES.into_iter().find(|zone| *zone == locality.place.zone) else {
                    continue;
                };
                let Counters { success, error, issued, .. } = locality.counters;
                add(&mut rows, &Ledger::from([((name, zone), [success, error, issued, 0])]));
                if !locality.gauges.is_empty() {
                    class.wire.shown.insert((name, zone), locality.gauges);
                }
            }
        }
        let shown: GaugesByRow =
            class.wire.shown.clone().into_iter().filter(|entry| wanted(&entry.0)).collect();
        let mut due = std::mem::take(&mut class.pending);
        let unwanted: Ledger = due.extract_if(.., |row, _| !wanted(row)).collect();
        class.unwanted += finished(&unwanted);
        for ledger in [&mut due, &mut rows] {
            ledger.retain(|_, sums| *sums != Sums::default());
        }
        let expected: GaugesByRow = gauges.into_iter().filter(|entry| wanted(&entry.0)).collect();
        let since = class.covered.replace(now);
        let covers = since.map(|since| now.since(since));
        let interval = intervals.into_iter().next();
        if rows != due {
            self.failure.get_or_insert_with(|| format!("a report has {rows:?}, and {due:?} waited"));
        }
        if shown != expected {
            self.failure.get_or_insert_with(|| format!("a report has {shown:?}, and streams {expected:?}"));
        }
        if interval.zip(covers).is_some_and(|(interval, covers)| interval != covers) {
            self.failure.get_or_insert_with(|| format!("a report says {interval:?} and covers {covers:?}"));
        }
        class.wire.unwritten = Some(Flying { rows, since });
    }

    /// The sum over the living streams of a class.
    fn gauges(&self, class: usize) -> GaugesByRow {
        let mut sums = GaugesByRow::new();
        for peer in self.peers.iter().flatten().filter(|peer| peer.class == class) {
            for (row, gauges) in peer.shown.iter().filter(|entry| !entry.1.is_empty()) {
                let sum = sums.entry(*row).or_default();
                sum.in_progress += gauges.in_progress;
                sum.active_connections += gauges.active_connections;
            }
        }
        sums
    }

    /// I29: each request read is in one account, and the accounts are the world's own.
    fn check(&mut self, number: usize) {
        let class = &self.classes[number];
        let accounts = class.load.accounts();
        let unwritten = class.wire.unwritten.as_ref().map_or(0, |report| finished(&report.rows));
        let expected = [
            ("pending", finished(&class.pending) + unwritten, accounts.pending),
            ("unconfirmed", class.wire.last_written, accounts.unconfirmed),
            ("delivered", class.delivered, accounts.delivered),
            ("in doubt", class.in_doubt, accounts.in_doubt),
            ("unwanted", class.unwanted, accounts.unwanted),
            ("read", class.read, accounts.read),
        ];
        let wrong = expected.iter().find(|entry| entry.1 != entry.2);
        if let Some((name, expected, account)) = wrong {
            let text = format!("class {number} has {account} requests {name}, and {expected} are");
            self.failure.get_or_insert(text);
        }
    }

    /// Servers want all and live: everything that waits arrives.
    fn peace(&mut self) {
        for _ in 0..4 {
            for number in 0..CLASSES {
                let now = self.now;
                let class = &mut self.classes[number];
                if class.wire.is_open {
                    let wish = Wish::new(Clusters::All, Duration::from_secs(5), false);
                    if class.is_lacking {
                        class.covered = Some(now);
                    }
                    (class.wish, class.is_lacking, class.wire.has_answered) =
                        (Some(wish.clone()), false, true);
                    class.load.answered(&write_answer(&wish), now);
                    self.settle();
                }
                self.write(number);
                self.arrive(number);
            }
            self.advance(Duration::from_secs(65));
        }
        if self.peers.iter().flatten().any(|peer| peer.answer.is_none()) {
            self.fail(|| "a client has no answer".to_owned());
        }
        for number in 0..CLASSES {
            let class = &self.classes[number];
            let waits = finished(&class.pending);
            if waits > 0 && class.load.stream_count() > 0 {
                self.fail(|| format!("{waits} requests of class {number} wait for ever"));
            }
        }
    }
}

fn is_superset(clusters: &Clusters, others: &Clusters) -> bool {
    match others {
        Clusters::All => *clusters == Clusters::All,
        Clusters::Listed(names) => {
            names.iter().all(|name| clusters.has(name) || !CLUSTERS.contains(&&**name))
        }
    }
}
