//! The driver's work around the machines: two sources, their streams, and the sessions of the clients.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::authorization::Grant;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::HashSeed;
use sluice_engine::downstream::{Composition, Limits, Session, SourceId, Watch};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::{self, Attachment, Source, SourceOutput, Streams};
use sluice_engine::upstream::{self, Input};
use sluice_xds::{Code, DeltaRequest, Request, SotwRequest, Status, Variant};

use super::client::{Held, Sent};
use super::names::{ALIASES, GLOBS, LISTED, Mask, NAMES, TYPES, bit, bits, glob_of, read, show};
use super::reference::{Due, Reference};
use super::server::Message;
use super::{Collections, Job};
use crate::schedule::{MILLI, SECOND};
use crate::world::Invariant;

/// The maximum number of answers of one stream that turn out empty at one moment.
const ANSWERS_MAX: usize = 1_000;

/// One source.
pub struct Slot {
    pub source: Source,
    pub snapshot: Arc<Snapshot>,
    pub links: Vec<Option<u64>>,
    pub due: Option<u64>,
    pub reference: Reference,
}

/// One upstream stream.
pub struct Link {
    pub slot: usize,
    pub index: usize,
    is_open: bool,
    attempts: u32,
    up: u64,
    down: u64,
    is_flushing: bool,
    /// The names in the requests, by type, as written and as the server has read them.
    pub written: [Mask; TYPES],
    asked: [bool; TYPES],
    expected: Option<(usize, String)>,
    /// The types with a first answer before the present round trip of the transport; and before the last one, which ended
    /// while a message was arriving.
    proving: [bool; TYPES],
    proven: [bool; TYPES],
    pub is_receiving: bool,
    /// The server is about to end the stream because of a type.
    ends: Option<usize>,
}

/// One downstream stream.
pub struct StreamSlot {
    pub client: usize,
    pub session: Session,
    pub watches: VecDeque<Watch>,
    /// The sources that know the stream.
    pub told: BTreeSet<usize>,
    /// A move between servers is on its way to the sources.
    pub is_shifting: bool,
    pub looks_at: Option<Time>,
    is_busy: bool,
    is_polled: bool,
    pub wakes_at: Option<u64>,
    rest: [Option<Composition>; TYPES],
    down: u64,
    pub up: u64,
    // The judge's state.
    wanted: [Mask; TYPES],
    /// The resources that the client was sent, or has presented.
    sent: [[Option<u32>; NAMES]; TYPES],
    /// The same of names that the client has given up since. Their removal may still rest (RLY-51).
    left: [[Option<u32>; NAMES]; TYPES],
    /// Subscriptions with the names that they may bring once more.
    due: [Vec<(usize, Mask)>; TYPES],
    /// The time of the request for each subscription.
    since: [[u64; LISTED]; TYPES],
    /// Names that two subscriptions covered at some time.
    mixed: [Mask; TYPES],
}

impl Slot {
    /// `has_choice`: another server stands in for a lost one.
    pub fn new(id: u64, coalescing: u64, has_choice: bool) -> Slot {
        let upstream = upstream::UpstreamSettings {
            needs_answer: has_choice,
            looks_into_silence: false,
            paces_answers: false,
            ..upstream::UpstreamSettings::default()
        };
        let attachment = Attachment::Streams(Box::new(Streams::new(upstream)));
        let (coalescing, linger) = (Duration::from_micros(coalescing), Duration::from_secs(30));
        let tells_reach = has_choice;
        let settings =
            source::SourceSettings { linger, coalescing, tells_reach, ..source::SourceSettings::default() };
        let source = Source::new(id, settings, attachment).of_server("cp".into(), false);
        let (snapshot, links, due, reference) = Default::default();
        Slot { source, snapshot, links, due, reference }
    }
}

impl Collections {
    // === sources ===

    pub fn drain(&mut self, slot: usize) {
        while let Some(output) = self.slots[slot].source.poll_output() {
            match output {
                SourceOutput::Upstream(index, output) => self.upstream_output(slot, index, output),
                SourceOutput::Wake(sessions) => sessions.iter().for_each(|session| self.wake(session.0)),
                SourceOutput::Confirmed => {}
                SourceOutput::Unserved(_) | SourceOutput::DoNotCache { .. } => {
                    self.fail(Invariant::NoLostUpdate, || format!("slot {slot} serves less than it should"));
                }
            }
        }
        let due = self.slots[slot].source.poll_timeout().map(|at| self.relative(at));
        let this = &mut self.slots[slot];
        this.due = due;
        if let Some(snapshot) = this.source.take_snapshot() {
            this.snapshot = snapshot;
        }
    }

    pub fn run_timers(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].due.is_some_and(|due| due <= self.now) {
                let time = self.time();
                self.slots[slot].source.handle_timeout(time);
                self.drain(slot);
            }
        }
    }

    fn upstream_output(&mut self, slot: usize, index: usize, output: upstream::Output) {
        let link = self.slots[slot].links.get(index).copied().flatten();
        match (output, link) {
            (upstream::Output::Open { .. }, None) => self.open_link(slot, index),
            (upstream::Output::Close, Some(id)) => {
                self.slots[slot].links[index] = None;
                if let Some(link) = self.links.remove(&id) {
                    self.lose(&link);
                }
                self.tell(|| format!("slot {slot} drops stream {index}"));
                self.after(MILLI, Job::ServerCloses(slot, id));
            }
            (upstream::Output::Send { request: Request::Delta(request), .. }, Some(id)) => {
                self.send(id, request);
            }
            (upstream::Output::Probe, Some(id)) => self.after(MILLI, Job::Probed(id)),
            (upstream::Output::RoundTrip, Some(id)) => {
                let latency = 2 * self.latency(slot);
                let Some(link) = self.links.get_mut(&id) else { return };
                let reference = &self.slots[slot].reference;
                link.proving = std::array::from_fn(|ty| reference.is_settling(ty));
                // The round trip overtakes no request.
                link.down = link.down.max(self.scheduler.now + latency).max(link.up + latency / 2);
                let at = link.down;
                self.tell(|| format!("slot {slot}.{index} begins a round trip"));
                self.at(at, Job::Returned(id));
            }
            (upstream::Output::Changes(_) | upstream::Output::Event(_) | upstream::Output::Close, _) => {}
            (other, _) => {
                self.fail(Invariant::UpstreamEconomy, || format!("slot {slot}.{index}: {other:?}"));
            }
        }
    }

    fn open_link(&mut self, slot: usize, index: usize) {
        let id = self.next_number();
        let links = &mut self.slots[slot].links;
        links.resize(links.len().max(index + 1), None);
        links[index] = Some(id);
        let (is_open, attempts, up, down, is_flushing) = Default::default();
        let (written, asked, expected, proving, proven, is_receiving, ends) = Default::default();
        let link = Link {
            slot,
            index,
            is_open,
            attempts,
            up,
            down,
            is_flushing,
            written,
            asked,
            expected,
            proving,
            proven,
            is_receiving,
            ends,
        };
        self.links.insert(id, link);
        let latency = self.latency(slot);
        self.after(latency, Job::Connect(id));
    }

    pub fn connect(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (slot, index) = (link.slot, link.index);
        if self.servers[slot].is_down {
            link.attempts += 1;
            let backoff = (SECOND << link.attempts.min(6)).min(30 * SECOND);
            self.after(backoff, Job::Connect(id));
            self.tell(|| format!("slot {slot}.{index} cannot connect"));
            let status = Status::new(Code::Unavailable, "refused");
            return self.input(slot, index, Input::ConnectFailed { status });
        }
        link.is_open = true;
        self.servers[slot].open(id);
        self.tell(|| format!("slot {slot}.{index} is open"));
        self.input(slot, index, Input::Opened);
    }

    pub fn input(&mut self, slot: usize, index: usize, input: Input) {
        let time = self.time();
        self.slots[slot].source.handle_upstream(index, input, time);
        self.drain(slot);
    }

    /// The end of a stream: by the server's own status, or with the connection.
    pub fn end_link(&mut self, id: u64, status: Status, is_own: bool) {
        let Some(link) = self.links.remove(&id) else { return };
        let (slot, index) = (link.slot, link.index);
        self.servers[slot].close(id);
        self.slots[slot].links[index] = None;
        self.lose(&link);
        self.note(5, id, 0);
        self.tell(|| format!("slot {slot}.{index} ends: {status}"));
        if let Some(ty) = link.ends
            && self.is_healed
            && (0..TYPES).any(|other| other != ty && link.written[other] != 0)
        {
            self.interruptions += 1;
        }
        let jitter = self.rng.unit();
        let input = if is_own { Input::Ended { status, jitter } } else { Input::Closed { status, jitter } };
        self.input(slot, index, input);
    }

    fn lose(&mut self, link: &Link) {
        let reference = &mut self.slots[link.slot].reference;
        (0..TYPES).for_each(|ty| reference.lose(ty, link.written[ty], self.scheduler.now));
    }

    /// A round trip of the transport ends: everything that the server had sent before has arrived.
    pub fn returned(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (slot, index, proving) = (link.slot, link.index, std::mem::take(&mut link.proving));
        match link.is_receiving {
            true => link.proven = proving,
            false => self.settle(slot, proving),
        }
        self.tell(|| format!("slot {slot}.{index} ends a round trip"));
        self.input(slot, index, Input::Returned);
    }

    fn settle(&mut self, slot: usize, types: [bool; TYPES]) {
        for ty in (0..TYPES).filter(|ty| types[*ty]) {
            self.slots[slot].reference.settle(ty, self.scheduler.now);
        }
    }

    pub fn dismiss(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| link.is_open) else { return };
        let (slot, index) = (link.slot, link.index);
        self.after(5 * MILLI, Job::End(id, Status::new(Code::Unavailable, "maximum age"), false));
        self.input(slot, index, Input::GoingAway);
    }

    fn send(&mut self, id: u64, request: DeltaRequest) {
        let ty = self.names.type_of(&request.type_url);
        let latency = self.links.get(&id).map_or(0, |link| link.slot);
        let latency = self.latency(latency);
        let Some(link) = self.links.get_mut(&id) else { return };
        let (slot, index) = (link.slot, link.index);
        let come = self.names.mask_of(ty, &request.subscribe);
        let gone = self.names.mask_of(ty, &request.unsubscribe);
        let twice = link.written[ty] & come;
        let is_first = !std::mem::replace(&mut link.asked[ty], true);
        link.written[ty] = link.written[ty] & !gone | come;
        let expected = link.expected.take();
        link.up = link.up.max(self.scheduler.now + latency);
        let at = link.up;
        self.tell(|| {
            let (come, gone) = (show(come), show(gone));
            format!(
                "slot {slot}.{index} > {} +[{come}] -[{gone}] has {}",
                super::names::SHORT[ty],
                request.initial_resource_versions.len()
            )
        });
        if twice != 0 {
            self.fail(Invariant::UpstreamEconomy, || format!("slot {slot} asks twice for {}", show(twice)));
        }
        if expected.is_some_and(|(of, nonce)| (of, nonce.as_str()) != (ty, request.response_nonce.as_str())) {
            self.fail(Invariant::Nonces, || format!("slot {slot}.{index} does not answer a response"));
        }
        let has = request.initial_resource_versions.iter().map(|(name, _)| name);
        let has = is_first.then(|| self.names.mask_of(ty, has));
        self.slots[slot].reference.wrote(ty, come, gone, has, self.scheduler.now);
        self.at(at, Job::ToServer(id, Box::new(request)));
    }

    pub fn reach_server(&mut self, id: u64, request: &DeltaRequest) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let slot = link.slot;
        let ty = self.names.type_of(&request.type_url);
        if self.servers[slot].ends(ty, request) {
            link.ends = Some(ty);
            let text = match self.servers[slot].is_terse {
                true => "resource watch failed".to_owned(),
                false => format!("no cache for {}", request.type_url),
            };
            let status = Status::new(Code::Internal, text);
            return self.after(1, Job::End(id, status, true));
        }
        self.servers[slot].request(&self.names, id, request);
        self.flush_soon(id);
    }

    pub fn flush_soon(&mut self, id: u64) {
        let Some(slot) = self.links.get(&id).filter(|link| link.is_open).map(|link| link.slot) else {
            return;
        };
        let latency = self.latency(slot);
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.is_flushing) else { return };
        link.is_flushing = true;
        self.after(latency, Job::Flush(id));
    }

    pub fn flush(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_flushing = false;
        let slot = link.slot;
        for message in self.servers[slot].flush(id, &mut self.rng) {
            let (latency, takes) = (self.latency(slot), self.rng.percent(20));
            let takes = if takes { self.rng.below(100 * MILLI) } else { 0 };
            let Some(link) = self.links.get_mut(&id) else { return };
            let begins = link.down.max(self.scheduler.now + latency);
            link.down = begins + takes;
            let at = link.down;
            if takes > 0 {
                self.at(begins, Job::Begun(id));
            }
            self.at(at, Job::ToRelay(id, Box::new(message)));
        }
    }

    pub fn reach_relay(&mut self, id: u64, message: &Message) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (slot, index, listed) = (link.slot, link.index, link.written[message.ty]);
        link.expected = Some((message.ty, message.nonce.clone()));
        link.is_receiving = false;
        let mut proven = std::mem::take(&mut link.proven);
        (link.proving[message.ty], proven[message.ty]) = (false, false);
        let streams = self.streams.iter().flatten();
        let wanted = streams.fold(0, |mask, stream| mask | stream.wanted[message.ty]);
        let now = self.now;
        self.slots[slot].reference.receive(message, listed, wanted, now);
        self.settle(slot, proven);
        self.tell(|| {
            let put: String = message
                .put
                .iter()
                .map(|(name, entry)| {
                    format!(" {}={}[{}]", show(bit(*name)), entry.edition, show(entry.aliases))
                })
                .collect();
            format!(
                "slot {slot}.{index} < {}{put} -[{}]",
                super::names::SHORT[message.ty],
                show(message.removed)
            )
        });
        self.note(6, id, message.put.len() as u64 | u64::from(message.removed) << 8);
        let response = message.response(&self.names);
        self.input(slot, index, Input::Received(response));
        if let Some(link) = self.links.get_mut(&id)
            && link.expected.take().is_some()
        {
            self.fail(Invariant::Nonces, || {
                format!("ACK-8: slot {slot}.{index} leaves a response unanswered")
            });
        }
    }

    // === sessions ===

    pub fn wake(&mut self, id: u64) {
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        if !stream.is_polled {
            stream.is_polled = true;
            let delay = self.rng.below(200);
            self.after(delay, Job::Poll(id));
        }
    }

    pub fn new_stream(&mut self, client: usize) -> u64 {
        let id = self.streams.len() as u64;
        let prefix = 0xab00 + u32::try_from(id).unwrap();
        let variant = if self.clients[client].is_sotw { Variant::Sotw } else { Variant::Delta };
        let session = Session::new(variant, Limits::default(), HashSeed(7), prefix, Grant::everything());
        let (watches, told, is_shifting, looks_at) = Default::default();
        let (is_busy, is_polled, wakes_at, rest, down, up) = Default::default();
        let (wanted, sent, left, due, since, mixed) = Default::default();
        self.streams.push(Some(Box::new(StreamSlot {
            client,
            session,
            watches,
            told,
            is_shifting,
            looks_at,
            is_busy,
            is_polled,
            wakes_at,
            rest,
            down,
            up,
            wanted,
            sent,
            left,
            due,
            since,
            mixed,
        })));
        id
    }

    pub fn end_stream(&mut self, id: u64) {
        if self.streams[id as usize].take().is_none() {
            return;
        }
        let time = self.time();
        for slot in 0..self.slots.len() {
            self.slots[slot].source.forget(SessionId(id), time);
            self.drain(slot);
        }
    }

    pub fn take_request(&mut self, id: u64, request: &Request) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        let time = self.time();
        self.tell(|| {
            let shown = crate::upstream::show_request(request);
            format!("client {} asks {shown}", stream.client)
        });
        let taken = stream.session.request(request, &mut self.routes(), time);
        self.note_request(&mut stream, request);
        match taken {
            Ok(taken) => self.queue_watches(id, &mut stream, taken.watches),
            Err(status) => self.fail(Invariant::Hygiene, || format!("stream {id} is ended: {status}")),
        }
        self.streams[id as usize] = Some(stream);
        self.wake(id);
    }

    /// The subscription and the resources of a client, as the relay knows them.
    fn note_request(&self, stream: &mut StreamSlot, request: &Request) {
        let (ty, come, gone) = match request {
            Request::Delta(request) => {
                let ty = self.names.type_of(&request.type_url);
                for (name, _) in &request.initial_resource_versions {
                    for name in bits(self.names.mask_of(ty, [name])) {
                        stream.sent[ty][name] = self.clients[stream.client].types[ty].resources[name];
                    }
                }
                let come = self.names.mask_of(ty, &request.subscribe);
                (ty, come, self.names.mask_of(ty, &request.unsubscribe))
            }
            Request::Sotw(request) => {
                let ty = self.names.type_of(&request.type_url);
                let (all, before) = (self.names.mask_of(ty, &request.resource_names), stream.wanted[ty]);
                (ty, all & !before, before & !all)
            }
        };
        stream.wanted[ty] = (stream.wanted[ty] | come) & !gone;
        stream.due[ty].retain(|(way, _)| gone & bit(*way) == 0);
        for way in bits(come) {
            stream.since[ty][way] = self.now;
            stream.due[ty].retain(|(other, _)| *other != way);
            stream.due[ty].push((way, 0));
        }
        for name in bits(gone).filter(|name| glob_of(*name).is_some()) {
            // The relay tells what the glob has (DEL-19).
            stream.due[ty].push((name, 0));
        }
        for name in 0..NAMES {
            let ways = self.ways(stream.wanted[ty], ty, name);
            if ways.count_ones() > 1 {
                stream.mixed[ty] |= bit(name);
            }
            if ways == 0 {
                stream.left[ty][name] = stream.sent[ty][name].take().or(stream.left[ty][name]);
            }
        }
    }

    /// The subscriptions that cover a name, or ever did.
    fn ways(&self, wanted: Mask, ty: usize, name: usize) -> Mask {
        let leads = |alias: &usize| {
            self.slots_of(name).any(|slot| self.slots[slot].reference.has_led(ty, *alias, name))
        };
        let aliases = ALIASES.filter(leads).fold(0, |mask, alias| mask | bit(alias));
        (bit(name) | glob_of(name).map_or(0, bit) | aliases) & wanted
    }

    pub fn poll(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        stream.is_polled = false;
        if !stream.is_busy {
            self.follow_servers(id, &mut stream);
            match self.next_message(&mut stream) {
                Some(sent) => {
                    stream.is_busy = true;
                    stream.wakes_at = None;
                    let delay = self.rng.below(self.clients[stream.client].reads_within.max(1));
                    self.after(delay, Job::Taken(id, Box::new(sent)));
                }
                None => {
                    let wakes_at = stream.session.held_until().into_iter().chain(stream.looks_at).min();
                    stream.wakes_at = wakes_at.map(|at| self.relative(at).max(self.now));
                }
            }
        }
        self.streams[id as usize] = Some(stream);
    }

    fn next_message(&mut self, stream: &mut StreamSlot) -> Option<Sent> {
        for _ in 0..ANSWERS_MAX {
            let (slots, time) = (&self.slots, self.time());
            let latest = |id: SourceId| slots.get(id.0 as usize).map(|slot| slot.snapshot.clone());
            let (index, answer) = stream.session.poll_answer(&latest, time)?;
            let ty = self.names.type_of(answer.type_url.as_str());
            let begun = stream.rest[ty].take().filter(|_| answer.chunk > 0);
            let composition = begun.unwrap_or_else(|| answer.compose().spelled(&answer));
            let chunks = composition.chunks.len();
            let chunk = composition.chunks.get(answer.chunk);
            let version = chunk.map(|chunk| chunk.version).unwrap_or_default();
            let (endpoints, targets, told) =
                (&composition.endpoints, &composition.targets, &composition.told_names);
            let nonce =
                stream.session.commit(index, &answer, chunks, version, endpoints, targets, told, time);
            let (Some(chunk), Some(nonce)) = (chunk, nonce) else { continue };
            if answer.chunk + 1 < chunks {
                stream.rest[ty] = Some(composition.clone());
            }
            let put = chunk.resources.iter().map(|resource| {
                let (of, name, edition) = read(resource);
                if of != ty || resource.name != self.names.words[ty][name] {
                    return Err(format!("{} is sent as {}", show(bit(name)), resource.name));
                }
                Ok((name, edition, self.names.mask_of(ty, &resource.aliases)))
            });
            let put = match put.collect() {
                Ok(put) => put,
                Err(text) => {
                    self.fail(Invariant::Isolation, || text);
                    return None;
                }
            };
            // Only the resource ends an error (ERR-3).
            let failed = self.names.mask_of(ty, chunk.errors.iter().map(|(name, _)| name));
            stream.due[ty].extend(bits(failed).map(|name| (name, 0)));
            let nonce = stream.session.nonce_text(nonce);
            let version = version.to_string();
            let sent = Sent { ty, nonce, version, put, removed: self.names.mask_of(ty, &chunk.removed) };
            self.judge_sent(stream, &sent);
            return Some(sent);
        }
        self.fail(Invariant::Hygiene, || "answers that say nothing, without an end".to_owned());
        None
    }

    pub fn taken(&mut self, id: u64, sent: Box<Sent>) {
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        stream.is_busy = false;
        stream.down = stream.down.max(self.scheduler.now + 1 + self.rng.below(2 * MILLI));
        let at = stream.down;
        self.at(at, Job::ToClient(id, sent));
        self.wake(id);
    }

    // === the judge ===

    fn judge_sent(&mut self, stream: &mut StreamSlot, sent: &Sent) {
        let (ty, client) = (sent.ty, stream.client);
        let (short, removed) = (super::names::SHORT[ty], sent.removed);
        self.tell(|| {
            let put: String = sent
                .put
                .iter()
                .map(|(name, edition, _)| format!(" {}={edition}", show(bit(*name))))
                .collect();
            format!("client {client} is sent {short}{put} -[{}]", show(removed))
        });
        self.note(23, (client << 8 | ty) as u64, sent.put.iter().map(|put| u64::from(put.1)).sum());
        self.note(24, u64::from(removed), 0);
        for (name, edition, aliases) in &sent.put {
            // Where another resource lists an alias, too, the one that the alias leads to follows.
            let has_too =
                |other: &(usize, u32, Mask)| other.0 != *name && other.2 & aliases & stream.wanted[ty] != 0;
            if sent.put.iter().any(has_too) {
                stream.mixed[ty] |= bit(*name);
            }
            self.judge_put(stream, ty, *name, *edition);
        }
        for gone in bits(removed) {
            self.judge_removed(stream, ty, gone);
        }
    }

    /// Finds the first moment since the last response at which the client's due content was such.
    fn explain(
        &self,
        stream: &StreamSlot,
        ty: usize,
        name: usize,
        is_right: impl Fn(Due) -> bool,
    ) -> Option<u64> {
        let since = self.clients[stream.client].explained[ty][name];
        self.slots_of(name).find_map(|slot| {
            let reference = &self.slots[slot].reference;
            let (wanted, listed) = (self.wanted_of(stream, ty, slot), self.listed(ty, slot));
            let is_due = |wanted: Mask, at: u64| {
                is_right(reference.due(ty, wanted, name, at))
                    || is_right(reference.due_unsettled(ty, wanted, name, at))
                    || is_right(reference.due_by_listing(ty, (wanted, listed), name, at))
            };
            let moments = reference.moments(ty, since, self.now).into_iter();
            moments.into_iter().find(|at| wanted.iter().any(|wanted| is_due(*wanted, *at)))
        })
    }

    /// Whether a response could have had this edition by the subscriptions of an earlier moment.
    fn was_due(&self, stream: &StreamSlot, ty: usize, name: usize, edition: u32) -> bool {
        let since = self.clients[stream.client].explained[ty][name];
        self.slots_of(name).any(|slot| {
            let reference = &self.slots[slot].reference;
            let mut moments = reference.moments(ty, since, self.now).into_iter();
            let is_flash = reference.has_flashed(ty, name, edition, since);
            // The last bytes are the glob's, though the name had other content, or none.
            let is_gone = reference.due(ty, stream.wanted[ty], name, self.now) == Due::Absent;
            is_flash
                || moments.any(|at| {
                    let wanted = bits(stream.wanted[ty]).filter(|way| stream.since[ty][*way] <= at);
                    let wanted = wanted.fold(0, |mask, way| mask | bit(way));
                    let is_due = |wanted| reference.due(ty, wanted, name, at) == Due::Present(edition);
                    is_due(wanted) || is_gone && is_due(wanted & !bit(name))
                })
        })
    }

    /// The subscriptions of a client; and without names or globs that no open stream lists. Their content may have been given
    /// up since the last stream.
    fn wanted_of(&self, stream: &StreamSlot, ty: usize, slot: usize) -> [Mask; 4] {
        let listed = self.listed(ty, slot);
        let sure = listed & !self.slots[slot].reference.doubtful(ty);
        let (wanted, globs) = (stream.wanted[ty], GLOBS.fold(0, |mask, glob| mask | bit(glob)));
        [wanted, wanted & (sure | globs), wanted & (sure | !globs), wanted & sure]
    }

    /// The due content of a client at each moment since the last response.
    fn dues(&self, stream: &StreamSlot, ty: usize, name: usize) -> Vec<(u64, Due)> {
        let reference = &self.slots[super::names::server_of(name)].reference;
        let since = self.clients[stream.client].explained[ty][name];
        let moments = reference.moments(ty, since, self.now).into_iter();
        let mut dues: Vec<_> =
            moments.map(|at| (at, reference.due(ty, stream.wanted[ty], name, at))).collect();
        dues.dedup_by_key(|(_, due)| *due);
        dues
    }

    fn judge_put(&mut self, stream: &mut StreamSlot, ty: usize, name: usize, edition: u32) {
        let (client, short) = (stream.client, super::names::SHORT[ty]);
        let ways = self.ways(stream.wanted[ty], ty, name);
        let what = format!("client {client} is sent {short} {}={edition}", show(bit(name)));
        if ways == 0 {
            return self.fail(Invariant::Isolation, || format!("{what}, which it never asked for"));
        }
        let is_asked_again = stream.due[ty]
            .iter()
            .any(|(way, brought)| (ways | bit(name)) & bit(*way) != 0 && brought & bit(name) == 0);
        // What a client has goes once more if it asks for it while the removal rests (RLY-51): no other moment. The last bytes may
        // be newer than what it has, if the removal was told on an earlier stream and not read.
        let is_held = self.clients[client].types[ty].resources[name].is_some_and(|held| held <= edition);
        let has_left = stream.left[ty][name].is_some_and(|left| left <= edition);
        let is_resent = is_asked_again && (is_held || has_left || stream.sent[ty][name] == Some(edition));
        match self.explain(stream, ty, name, |due| due == Due::Present(edition)) {
            Some(at) => self.clients[client].explained[ty][name] = at,
            None if is_resent => {}
            // The last bytes of a member that its glob lost, while the name itself was requested.
            None if self.was_due(stream, ty, name, edition) => {}
            None => {
                let dues = self.dues(stream, ty, name);
                return self.fail(Invariant::NoGoingBack, || format!("{what}, and it was due: {dues:?}"));
            }
        }
        let mut causes = stream.due[ty].iter_mut().filter(|(way, _)| (ways | bit(name)) & bit(*way) != 0);
        let mut is_due = false;
        causes.by_ref().for_each(|(_, brought)| {
            is_due |= *brought & bit(name) == 0;
            *brought |= bit(name);
        });
        if ways.count_ones() > 1 {
            stream.mixed[ty] |= bit(name);
        }
        let is_same = stream.sent[ty][name].replace(edition) == Some(edition);
        if is_same && !is_due && stream.mixed[ty] & bit(name) == 0 {
            self.fail(Invariant::Silence, || format!("{what} again, without a cause"));
        }
    }

    fn judge_removed(&mut self, stream: &mut StreamSlot, ty: usize, gone: usize) {
        let (client, short) = (stream.client, super::names::SHORT[ty]);
        let is_given_up = ALIASES.contains(&gone) && stream.wanted[ty] & bit(gone) == 0;
        let is_listed = || {
            let mut links = self.links.values().filter(|link| link.slot == super::names::server_of(gone));
            links.any(|link| link.written[ty] & bit(gone) != 0)
        };
        if is_given_up && (self.has_choice() || !is_listed()) {
            // The client keeps nothing for it, and its server of now may not know what the alias is. Nor does a source that nobody
            // has asked for the alias for so long that it was given up.
            return;
        }
        if gone >= NAMES {
            let is_over = |slot: usize| {
                let reference = &self.slots[slot].reference;
                reference.moments(ty, 0, self.now).into_iter().any(|at| reference.is_empty(ty, gone, at))
            };
            if !self.slots_of(gone).any(is_over) {
                let what = if GLOBS.contains(&gone) { "empty" } else { "gone" };
                self.fail(Invariant::JustifiedRemoval, || {
                    format!("client {client} is told that {short} {} is {what}", show(bit(gone)))
                });
            }
            return;
        }
        match self.explain(stream, ty, gone, |due| due == Due::Absent) {
            Some(at) => self.clients[client].explained[ty][gone] = at,
            None if self.slots_of(gone).any(|slot| self.slots[slot].reference.is_retaken(ty, gone)) => {}
            None => {
                let (dues, gone) = (self.dues(stream, ty, gone), show(bit(gone)));
                self.fail(Invariant::JustifiedRemoval, || {
                    format!("client {client} is told that {short} {gone} is gone, and it was due: {dues:?}")
                });
            }
        }
        (stream.sent[ty][gone], stream.left[ty][gone]) = (None, None);
    }
}

/// The request of a SotW client: its list, with the last nonce and version.
pub fn list_of(names: &super::names::Names, ty: usize, held: &Held) -> SotwRequest {
    SotwRequest {
        version_info: held.version.clone(),
        node: None,
        resource_names: names.list(ty, held.wanted),
        type_url: names.types[ty].as_str().to_owned(),
        response_nonce: held.nonce.clone(),
        error_detail: None,
    }
}

/// The request of a client for other subscriptions.
pub fn request_of(
    names: &super::names::Names,
    ty: usize,
    held: &mut Held,
    (add, remove): (Mask, Mask),
) -> DeltaRequest {
    let is_first = !held.asked;
    held.change(add, remove);
    let presented = if is_first { held.mask() } else { 0 };
    let versions = bits(presented).filter_map(|name| {
        let version = super::names::version(ty, name, held.resources[name]?);
        Some((names.words[ty][name].clone(), version.to_string()))
    });
    let mut versions: Vec<_> = versions.collect();
    versions.sort();
    DeltaRequest {
        node: None,
        type_url: names.types[ty].as_str().to_owned(),
        subscribe: names.list(ty, if is_first { held.wanted } else { add }),
        unsubscribe: names.list(ty, if is_first { 0 } else { remove }),
        initial_resource_versions: versions,
        response_nonce: String::new(),
        error_detail: None,
    }
}
