//! The load of a node class at one server: counts the reports of clients, and reports the sums (LRS-14 to
//! LRS-18, RLY-67).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::codec::{ReportMessage, read_answer, read_report, write_first_request};
use crate::counters::{Group, Oddities, PerGroup, Tally};
use crate::limits::LoadLimits;
use crate::link::{Link, LinkEnd, LinkState};
use crate::report::{LoadReport, MessageKind};
use crate::table::{Departure, Keeping, LeftOut, RowView, StreamId, Table};
use crate::wish::{INTERVAL_UNSTATED, Wish};
use sluice_engine::Time;
use sluice_setting::Backoff;
use sluice_xds::{Code, Status};

/// Distinct unknown fields to remember, so that each is told once.
const UNKNOWN_MAX: usize = 64;

/// Reporters hear of one wish a second: each wakes all of them.
const WISH_GAP: Duration = Duration::from_secs(1);

/// Where the sums of a class go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the server, with this encoded node: the node of the class with the feature of LRS (LRS-23,
    /// RLY-70).
    Server { node: Bytes, backoff: Backoff },
    /// To nobody: the load is for operators and the judge of pushes.
    Local,
}

/// An order to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a stream and send this first request. [`ClassLoad::ended`] follows in any case.
    Open(Bytes),
    /// Send a report, and call [`ClassLoad::written`] when the last byte has left, or [`ClassLoad::ended`].
    Send(Bytes),
    /// End the relay's side of the stream. [`ClassLoad::ended`] follows.
    Finish,
    /// The wish of the server has changed. At most once a second.
    WishChanged,
    Tell(Happening),
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The server takes no reports. Told once, until the server takes some (LRS-21).
    NoService(Status),
    /// A stream ended, and nobody knows whether the server has the last report with so many finished requests
    /// (LRS-16).
    InDoubt { requests: u64, status: Status },
    /// The server's answer cannot be read. The stream has to end with this status.
    BadAnswer(Status),
    /// A client reports a field without a meaning here (LRS-18). Told once.
    UnknownField { message: MessageKind, number: u32 },
    /// Names had no entry for the first time.
    NoRoom { entries: usize },
}

/// Finished requests by their fate. At any time the requests read are the sum of all others (I29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub read: u64,
    /// The next report went out on the same stream.
    pub delivered: u64,
    /// Waits here, or in an unwritten report.
    pub pending: u64,
    /// Written, and the next report is not.
    pub unconfirmed: u64,
    /// Written to a stream with an end before the next report.
    pub in_doubt: u64,
    /// Without a row (LRS-18).
    pub left_out: u64,
    /// In clusters without a wish of the server, or for a server without the service.
    pub unwanted: u64,
    /// Counted for operators alone.
    pub local: u64,
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// A report on its way.
#[derive(Clone, Debug)]
struct Outgoing {
    /// Unwritten messages; the first is under way.
    messages: VecDeque<ReportMessage>,
    /// No message is written yet.
    is_first: bool,
    /// The begin of the time in the report.
    since: Time,
}

/// The word about the wish, for the reporters.
#[derive(Clone, Copy, Debug, Default)]
struct WishNews {
    told_at: Option<Time>,
    is_due: bool,
}

impl WishNews {
    fn due_at(self) -> Option<Time> {
        self.is_due.then(|| self.told_at.map_or(Time::default(), |time| time + WISH_GAP))
    }
}

/// The load of one class at one server.
#[derive(Clone, Debug)]
pub struct ClassLoad {
    destination: Destination,
    table: Table,
    link: Link,
    wish: Option<Wish>,
    news: WishNews,
    /// The begin of the time in the next report (LRS-17, RLY-68).
    since: Time,
    observed_since: Time,
    outgoing: Option<Outgoing>,
    accounts: Accounts,
    unknown: BTreeMap<(MessageKind, u32), u64>,
    is_draining: bool,
    outputs: VecDeque<Output>,
}

impl ClassLoad {
    pub fn new(destination: Destination, limits: LoadLimits, now: Time) -> ClassLoad {
        let is_local = destination == Destination::Local;
        ClassLoad {
            destination,
            table: Table::new(limits, now),
            link: Link::default(),
            wish: is_local.then(Wish::all),
            news: WishNews::default(),
            since: now,
            observed_since: now,
            outgoing: None,
            accounts: Accounts::default(),
            unknown: BTreeMap::new(),
            is_draining: false,
            outputs: VecDeque::new(),
        }
    }

    /// Other limits are in force.
    pub fn configure(&mut self, limits: LoadLimits) {
        self.table.configure(limits);
    }

    /// A stream of the class reports from now on.
    pub fn arrive(&mut self, id: StreamId, group: Group, departure: Departure, now: Time) {
        self.table.arrive(id, group, departure);
        self.open(now);
    }

    /// The connection of a stream, by the caller's number. Streams of a connection have one share of the room
    /// (LRS-18).
    pub fn join(&mut self, id: StreamId, connection: u64) {
        self.table.join(id, connection);
    }

    /// All classes together have a bound: this one may have so many entries, and gets as many new ones as are
    /// free.
    pub fn set_room(&mut self, room: usize, free: usize) {
        self.table.set_room(room, free);
    }

    /// A stream moves to another class, with its gauges and without its counters.
    pub fn leave(&mut self, id: StreamId) -> Departure {
        self.table.leave(id)
    }

    /// A stream ended: the gauges are gone, and the counters stay.
    pub fn close(&mut self, id: StreamId) {
        self.table.close(id);
    }

    /// The push has reached the stream's client, or has left it (LRS-24).
    pub fn set_group(&mut self, id: StreamId, group: Group) {
        self.table.set_group(id, group);
    }

    /// Before the report of a stream: decides whether it counts in the judgement of a push. A client speaks
    /// once in an interval, and its report tells how long it was silent (LRS-24).
    pub fn hear(&mut self, id: StreamId, report: &LoadReport<'_>, now: Time) {
        let interval = self.wish.as_ref().map_or(INTERVAL_UNSTATED, |wish| wish.interval);
        let longest = report.clusters.iter().map(|cluster| cluster.interval).max().unwrap_or_default();
        let is_of_observation = longest <= now.since(self.observed_since);
        // Clients are asked for a tenth less (LRS-20).
        self.table.hear(id, is_of_observation, interval * 4 / 5, now);
    }

    /// A message of a client was read to the end (LRS-15). `takes`: whether the reports of a cluster go to
    /// this server (LRS-22).
    pub fn report(&mut self, id: StreamId, report: &LoadReport<'_>, takes: impl Fn(&str) -> bool) {
        let wants_endpoints = self.wish.as_ref().is_none_or(|wish| wish.has_endpoints);
        let is_pending = self.keeps_pending();
        let keeping = Keeping { pending: is_pending, endpoints: wants_endpoints };
        let before = self.table.left_out();
        let finished = self.table.count(id, report, keeping, takes);
        let left_out = self.table.left_out();
        let lost = left_out.counters.finished().saturating_sub(before.counters.finished());
        if before.names == 0 && left_out.names > 0 {
            self.tell(Happening::NoRoom { entries: self.table.entries() });
        }
        add(&mut self.accounts.read, finished);
        if !is_pending {
            let is_local = self.destination == Destination::Local;
            let account = if is_local { &mut self.accounts.local } else { &mut self.accounts.unwanted };
            add(account, finished.saturating_sub(lost));
        }
        for (message, number) in &report.unknown.numbers {
            let is_new = !self.unknown.contains_key(&(*message, *number));
            if is_new && self.unknown.len() < UNKNOWN_MAX {
                self.tell(Happening::UnknownField { message: *message, number: *number });
            }
            if !is_new || self.unknown.len() < UNKNOWN_MAX {
                *self.unknown.entry((*message, *number)).or_default() += 1;
            }
        }
    }

    fn keeps_pending(&self) -> bool {
        self.destination != Destination::Local && !self.link.has_no_service()
    }

    fn tell(&mut self, happening: Happening) {
        self.outputs.push_back(Output::Tell(happening));
    }

    fn open(&mut self, now: Time) {
        let Destination::Server { node, .. } = &self.destination else { return };
        if self.has_work() && !self.is_draining && self.link.open(now) {
            self.outputs.push_back(Output::Open(write_first_request(node)));
        }
    }

    fn has_work(&self) -> bool {
        self.table.has_streams() || self.table.has_pending()
    }

    /// The server answered.
    pub fn answered(&mut self, message: &[u8], now: Time) {
        let wish = match read_answer(message) {
            Ok(wish) => wish,
            Err(malformed) => {
                let status =
                    Status::new(Code::InvalidArgument, format!("the answer of the server: {malformed}"));
                return self.tell(Happening::BadAnswer(status));
            }
        };
        if self.link.has_no_service() {
            // Nothing was kept until now.
            self.since = now;
        }
        self.link.answered();
        if self.wish.as_ref() != Some(&wish) {
            self.wish = Some(wish);
            self.news.is_due = true;
        }
        self.tell_wish(now);
        self.report_if_due(now);
    }

    fn tell_wish(&mut self, now: Time) {
        if self.news.due_at().is_some_and(|due| due <= now) {
            self.news = WishNews { told_at: Some(now), is_due: false };
            self.outputs.push_back(Output::WishChanged);
        }
    }

    /// The last byte of the message of the last [`Output::Send`] has left the relay.
    pub fn written(&mut self, now: Time) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let Some(message) = outgoing.messages.pop_front() else { return };
        // LRS-16: the stream lived until the next report, so the report before has arrived.
        if std::mem::take(&mut outgoing.is_first) {
            add(&mut self.accounts.delivered, std::mem::take(&mut self.accounts.unconfirmed));
        }
        add(&mut self.accounts.unconfirmed, message.finished);
        match outgoing.messages.front() {
            Some(next) => self.outputs.push_back(Output::Send(next.bytes.clone())),
            None => {
                self.outgoing = None;
                self.report_if_due(now);
            }
        }
    }

    /// The stream ended, or could not be opened. `random` spreads the tries of many classes.
    pub fn ended(&mut self, status: &Status, random: u64, now: Time) {
        let Destination::Server { backoff, .. } = &self.destination else { return };
        let end = self.link.ended(status, *backoff, random, now);
        self.take_back();
        let unconfirmed = std::mem::take(&mut self.accounts.unconfirmed);
        if end == LinkEnd::Complete {
            add(&mut self.accounts.delivered, unconfirmed);
        } else if unconfirmed > 0 {
            // LRS-16: never a second time, because nobody can tell.
            add(&mut self.accounts.in_doubt, unconfirmed);
            self.tell(Happening::InDoubt { requests: unconfirmed, status: status.clone() });
        }
        if self.is_draining {
            self.link.end();
        }
        if let LinkEnd::NoService { is_first } = end {
            add(&mut self.accounts.unwanted, self.table.take(&Wish::nothing(), Duration::ZERO, now).unwanted);
            self.since = now;
            if is_first {
                self.tell(Happening::NoService(status.clone()));
                self.wish = Some(Wish::nothing());
                self.news.is_due = true;
                self.tell_wish(now);
            }
        }
    }

    /// Merges unwritten messages back into the sums (LRS-12, LRS-16).
    fn take_back(&mut self) {
        let Some(outgoing) = self.outgoing.take() else { return };
        for message in &outgoing.messages {
            // The relay has written these bytes itself.
            if let Ok(report) = read_report(&message.bytes) {
                self.table.restore(&report);
            }
        }
        self.since = self.since.min(outgoing.since);
    }

    fn due_at(&self) -> Option<Time> {
        let is_free = self.outgoing.is_none() && self.link.state() == LinkState::Open;
        let interval = self.wish.as_ref().map(|wish| wish.interval)?;
        // A new answer restarts nothing: the time counts from the report before.
        is_free.then(|| if self.is_draining { self.since } else { self.since + interval })
    }

    fn report_if_due(&mut self, now: Time) {
        if self.due_at().is_none_or(|due_at| now < due_at) {
            return;
        }
        if self.is_draining && !self.table.has_pending() {
            return self.finish();
        }
        let Some(wish) = &self.wish else { return };
        let taken = self.table.take(wish, now.since(self.since), now);
        add(&mut self.accounts.unwanted, taken.unwanted);
        let messages = VecDeque::from(taken.messages);
        if let Some(first) = messages.front() {
            self.outputs.push_back(Output::Send(first.bytes.clone()));
        }
        self.outgoing = Some(Outgoing { messages, is_first: true, since: self.since });
        self.since = now;
    }

    fn finish(&mut self) {
        if self.link.end() {
            self.outputs.push_back(Output::Finish);
        }
    }

    /// The class or the process ends: the last report goes out at once, and then the stream ends (LRS-16).
    /// Later reports of clients still count.
    pub fn drain(&mut self, now: Time) {
        self.is_draining = true;
        match self.link.state() {
            LinkState::Open => self.report_if_due(now),
            LinkState::Opening => {}
            LinkState::Idle | LinkState::Waiting { .. } | LinkState::Ending | LinkState::Ended => {
                self.finish()
            }
        }
    }

    /// Whether nothing is left to do after [`ClassLoad::drain`].
    pub fn is_drained(&self) -> bool {
        self.is_draining && self.link.state() == LinkState::Ended
    }

    /// Tallies begin at zero: a step of a plan began (LRS-24).
    pub fn observe(&mut self, now: Time) {
        self.observed_since = now;
        self.table.observe();
    }

    /// The push is over: its tallies are evidence no longer, and keep no names.
    pub fn end_observation(&mut self) {
        self.table.end_observation();
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next time for [`ClassLoad::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let next_try = self.link.poll_timeout().filter(|_| self.has_work());
        let rest = (!self.keeps_pending()).then(|| self.since + INTERVAL_UNSTATED);
        let rest = rest.filter(|_| self.table.has_streams());
        [self.due_at(), next_try, rest, self.news.due_at()].into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        // Without reports to a server, intervals only make room.
        if !self.keeps_pending() && now >= self.since + INTERVAL_UNSTATED {
            self.since = now;
            self.table.next_interval(now);
        }
        self.open(now);
        self.tell_wish(now);
        self.report_if_due(now);
    }

    /// The wish of the server; `None` before its first word.
    pub fn wish(&self) -> Option<&Wish> {
        self.wish.as_ref()
    }

    pub fn accounts(&self) -> Accounts {
        let outgoing = self.outgoing.iter().flat_map(|outgoing| &outgoing.messages);
        let unwritten = outgoing.map(|message| message.finished).fold(0, u64::saturating_add);
        let left_out = self.table.left_out().counters.finished();
        Accounts { pending: self.table.pending().saturating_add(unwritten), left_out, ..self.accounts }
    }

    /// The rows, with both groups (LRS-25).
    pub fn rows(&self) -> impl Iterator<Item = RowView<'_>> {
        self.table.views()
    }

    /// The requests of each cluster, for the judge of a push: a name may come several times.
    pub fn voices(&self) -> impl Iterator<Item = (&str, PerGroup<Tally>)> {
        self.table.voices()
    }

    /// The begin of the tallies.
    pub fn observed_since(&self) -> Time {
        self.observed_since
    }

    /// The streams of each group with a share of the tallies.
    pub fn reporters(&self) -> PerGroup<u64> {
        self.table.reporters()
    }

    pub fn left_out(&self) -> LeftOut {
        self.table.left_out()
    }

    pub fn oddities(&self) -> Oddities {
        self.table.oddities()
    }

    /// Unknown fields, with the number of reports with the field.
    pub fn unknown_fields(&self) -> &BTreeMap<(MessageKind, u32), u64> {
        &self.unknown
    }

    pub fn has_streams(&self) -> bool {
        self.table.has_streams()
    }

    pub fn stream_count(&self) -> usize {
        self.table.stream_count()
    }

    /// Whether [`ClassLoad::poll_output`] has something.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Whether anything waits for the server: requests, drops or metrics, here or in an unwritten report.
    pub fn has_pending(&self) -> bool {
        self.table.has_pending() || self.outgoing.is_some()
    }

    /// Clusters, rows and names, as the bounds count them.
    pub fn entries(&self) -> usize {
        self.table.entries()
    }

    /// The memory of a stream's gauges.
    pub fn gauge_bytes(&self, id: StreamId) -> usize {
        self.table.gauge_bytes(id)
    }

    /// Whether the server lacks the service, as far as is known (LRS-21).
    pub fn lacks_service(&self) -> bool {
        self.link.has_no_service()
    }

    pub fn link_state(&self) -> LinkState {
        self.link.state()
    }
}
