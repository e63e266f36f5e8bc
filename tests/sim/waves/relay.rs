//! The work of the driver around the machines of units and streams: publications with lanes, and answers from the release
//! that the client may have.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::authorization::Grant;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::HashSeed;
use sluice_engine::downstream::{Answer, Composition, Limits, Session, SourceId, Verdict, Watch};
use sluice_engine::lanes::{Lanes, Published, Wakes};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::{Attachment, Source, SourceSettings, Streams};
use sluice_engine::upstream::{UpstreamSettings, WildcardStyle};
use sluice_fleet::evidence::PushUnit;
use sluice_fleet::rollout::UnitId;
use sluice_xds::{Request, Variant};

use super::client::Want;
use super::newcomers::Awaited;
use super::reference::Contents;
use super::world::{Job, Table, World};
use crate::schedule::{MILLI, SECOND};
use crate::words::{LDS, Mask, OLD, RDS, SHORT, TYPES, bits, read, show, show_content};
use crate::world::Invariant;

/// The maximum number of answers of one stream that turn out empty at one moment.
const ANSWERS_MAX: usize = 1_000;

/// One source with its lanes.
pub struct Unit {
    pub source: Source,
    pub lanes: Lanes,
    pub live: Arc<Snapshot>,
    pub published: Published,
    pub wakes: Wakes,
    pub due: Option<u64>,
}

/// One response.
#[derive(Clone, Debug)]
pub struct Given {
    pub ty: usize,
    pub nonce: String,
    pub version: String,
    pub put: Vec<(usize, u32)>,
    pub removed: Mask,
    /// The response is the complete set.
    pub is_full: bool,
}

impl Given {
    pub fn show(&self) -> String {
        let put = self.put.iter().map(|(name, of)| format!(" {}={}", show(1 << name), show_content(*of)));
        let removed = bits(self.removed).map(|name| format!(" -{}", show(1 << name)));
        let all: String = put.chain(removed).collect();
        format!("{}{all}{}", SHORT[self.ty], if self.is_full { " (all)" } else { "" })
    }
}

/// One downstream stream, with the judge's state for it.
pub struct Stream {
    pub id: u64,
    pub client: usize,
    /// The unit that serves.
    pub unit: usize,
    pub session: Session,
    pub is_busy: bool,
    is_polled: bool,
    pub wakes_at: Option<u64>,
    /// The next look at the servers of the list.
    pub looks_at: Option<u64>,
    /// A move between the servers is under way.
    pub is_shifting: bool,
    rest: [Option<Composition>; TYPES],
    down: u64,
    pub up: u64,
    pub told: BTreeSet<SourceId>,
    /// The push of the latest candidate with content in a sent answer.
    pub push: Option<u64>,
    pub found: Cell<Option<u64>>,
    pub restating: Option<Restating>,
    // The judge's state.
    pub of: Judged,
}

impl Stream {
    /// The client and the unit that serves it.
    pub fn place(&self) -> (usize, usize) {
        (self.client, self.unit)
    }
}

/// A rejected push, and the sources whose part of it the session restates already.
pub struct Restating {
    push: u64,
    sources: Vec<SourceId>,
}

impl Restating {
    pub fn of(push: u64) -> Restating {
        Restating { push, sources: Vec::new() }
    }
}

/// What the client of a stream was sent, by the judge.
#[derive(Debug, Default)]
pub struct Judged {
    pub wants: [Want; TYPES],
    /// The relay has read a request for the type.
    pub has_asked: [bool; TYPES],
    /// The client was sent a response of the type.
    pub is_answered: [bool; TYPES],
    /// The client has accepted a response of the type.
    pub has_accepted: [bool; TYPES],
    /// The latest content that was sent, or presented.
    pub sent: Table,
    /// The names whose content the relay knows the client to have: sent on this stream, or presented in words that the relay
    /// understands.
    pub known: [Mask; TYPES],
    /// The names that the client gave up since the latest response, also those that it asks for by the wildcard now.
    pub given_up: [Mask; TYPES],
    /// The names that the client asked for by name and gave up, and was given nothing for since.
    pub dropped: [Mask; TYPES],
    /// Of these, the names of which the client has accepted that an answer lacks them.
    pub answered_without: [Mask; TYPES],
    /// The clusters that a delta client unsubscribed from beside the wildcard, and was not told of since. Each needs an answer of its own,
    /// which waits for nothing (DEL-19).
    pub left_by_name: Mask,
    /// The latest content that the client accepted, or presented.
    pub accepted: Table,
    /// Unanswered responses: the nonce, the time, and whether it brought content of the push under way.
    pub open: [VecDeque<Open>; TYPES],
    /// The latest answer for the type was a rejection.
    pub rejected: [bool; TYPES],
    /// The push of the release that served the latest response, by the judge.
    pub push: Option<u64>,
    /// The time since which the release of the client lacks a cluster that the client was sent.
    pub lacking: [Option<u64>; OLD],
    /// By such a cluster: the routes to it that the client's release had unchanged, or did not know, at the end of the removal's rest or
    /// later. The removal does not wait for later changes of these routes.
    pub left: [Mask; OLD],
    /// What the client newly asks for.
    pub awaited: Awaited,
    /// A push with content that the client had anyway: the client was sent nothing of the push, and may be one that has it.
    pub equal: Option<u64>,
    /// A push whose removals a complete set told the client again, also those of names that the client never had.
    pub retold: Option<u64>,
    /// The client may be one that does not keep the halted push: the next push waits for its hook, or the push took nothing from the
    /// client but a name that the client had given up.
    pub may_be_back: bool,
    /// The release at the server that served before, and the end of the time in which it stands in for what the next server does not know.
    pub former: Option<(Contents, u64)>,
    /// The time since which another server should serve.
    pub stranded: Option<u64>,
}

/// An unanswered response.
#[derive(Debug)]
pub struct Open {
    pub nonce: String,
    pub at: u64,
    /// The unit that served the response.
    pub unit: usize,
    /// The push, if the response brought content of it.
    pub push: Option<u64>,
    /// The push's contents in the response. A name without a resource has content 0.
    pub of_push: Vec<(usize, u32)>,
    /// The push of this response, or of one that was unanswered when this one was sent.
    pub beside: Option<u64>,
    pub put: Vec<(usize, u32)>,
    pub removed: Mask,
    /// The names that the client gave up since, also those that it asked for again.
    pub given_up: Mask,
    /// The client has no other resources than these.
    pub is_full: bool,
}

impl World {
    pub fn id_of(&self, unit: usize) -> u64 {
        self.lives[unit] << 40 | self.generation << 8 | unit as u64
    }

    pub fn unit_of(&self, id: UnitId) -> Option<usize> {
        let unit = (id.0 & 0xff) as usize;
        (unit < self.lives.len() && id.0 == self.id_of(unit)).then_some(unit)
    }

    /// Units without content.
    pub fn start_units(&mut self) {
        self.generation += 1;
        self.units = (0..self.plan.units()).map(|unit| self.unit(unit)).collect();
    }

    /// One unit without content.
    pub fn start_unit(&mut self, unit: usize) {
        self.units[unit] = self.unit(unit);
    }

    fn unit(&self, unit: usize) -> Unit {
        let upstream = UpstreamSettings {
            wildcard: WildcardStyle::Explicit,
            resource_timeout: Duration::from_secs(10),
            variant: Variant::Delta,
            needs_answer: self.plan.servers > 1,
            looks_into_silence: false,
            paces_answers: false,
            ..UpstreamSettings::default()
        };
        let settings = SourceSettings {
            tells_reach: self.plan.servers > 1,
            linger: Duration::from_secs(5),
            coalescing: Duration::from_micros(self.plan.coalescing),
            ..SourceSettings::default()
        };
        let (id, plan) = (self.id_of(unit), self.pilot.plan.clone());
        let attachment = Attachment::Streams(Box::new(Streams::new(upstream)));
        let mut lanes = Lanes::new(id, plan.gated.clone(), plan.releases);
        lanes.refuse(&self.pilot.refused);
        Unit {
            source: Source::new(id, settings, attachment).of_server("cp".into(), false),
            lanes,
            live: Arc::default(),
            published: Published::default(),
            wakes: Wakes::default(),
            due: None,
        }
    }

    // === units ===

    /// Takes the outputs of a source after a call, and publishes.
    pub fn drain(&mut self, unit: usize) {
        if let Some(snapshot) = self.units[unit].source.take_snapshot() {
            self.store(unit, &snapshot);
        }
        while let Some(output) = self.units[unit].source.poll_output() {
            self.source_output(unit, output);
        }
        let this = &mut self.units[unit];
        this.wakes.woke(this.source.owes_wakes());
        self.set_timer(unit);
    }

    fn set_timer(&mut self, unit: usize) {
        let this = &self.units[unit];
        let due = [this.source.poll_timeout(), this.lanes.poll_timeout()].into_iter().flatten().min();
        self.units[unit].due = due.map(|due| self.relative(due));
    }

    fn store(&mut self, unit: usize, live: &Arc<Snapshot>) {
        let time = self.time();
        let this = &mut self.units[unit];
        let before = std::mem::replace(&mut this.live, live.clone());
        let held = this.published.lanes.is_some();
        let is_planless = self.wire.as_ref().is_some_and(|wire| wire.is_planless);
        let answers_first = this.lanes.answers_first(&before, live);
        let elder = if answers_first { self.elder(unit) } else { None };
        let this = &mut self.units[unit];
        this.lanes.look_at(elder);
        let published = match is_planless {
            true => Published::without_lanes(live.clone()),
            false => this.lanes.follow(&before, live, time),
        };
        let is_held = published.reads_the_same(&this.published);
        this.wakes.published(is_held);
        this.published = published;
        self.reference_follows(unit);
        self.wake_freed(unit);
        let (gated, holds) = (&self.pilot.plan.gated, self.units[unit].published.lanes.is_some());
        if PushUnit::concerns(&before, live, held, holds, gated) {
            self.note_change(unit);
        }
    }

    /// Publishes the present content again, after a move of the lanes.
    pub fn publish_lanes(&mut self, unit: usize) {
        if self.wire.as_ref().is_some_and(|wire| wire.is_planless) {
            return;
        }
        let time = self.time();
        let this = &mut self.units[unit];
        this.published = this.lanes.published(time);
        self.judge_published(unit);
        self.wake_freed(unit);
        self.set_timer(unit);
    }

    /// The end of a hold may change the endpoints of any client.
    fn wake_freed(&mut self, unit: usize) {
        if self.units[unit].lanes.take_let_go() {
            self.wake_all(unit);
        }
    }

    pub fn run_timers(&mut self) {
        for unit in 0..self.units.len() {
            if self.units[unit].due.is_some_and(|due| due <= self.now) {
                let time = self.time();
                if self.units[unit].lanes.poll_timeout().is_some_and(|due| due <= time) {
                    self.publish_lanes(unit);
                }
                if self.units[unit].source.poll_timeout().is_some_and(|due| due <= time) {
                    self.units[unit].source.handle_timeout(time);
                }
                self.drain(unit);
            }
        }
    }

    // === streams ===

    pub fn new_stream(&mut self, client: usize) -> u64 {
        let id = self.streams.len() as u64;
        let of = &self.clients[client].plan;
        let (unit, variant) = (of.list, if of.delta { Variant::Delta } else { Variant::Sotw });
        let prefix = 0xab00 + u32::try_from(id).unwrap();
        let rejected = self.pilot.rejected_by(&self.clients[client].node.id);
        self.streams.push(Some(Box::new(Stream {
            id,
            client,
            unit,
            session: Session::new(variant, Limits::default(), HashSeed(7), prefix, Grant::everything()),
            is_busy: false,
            is_polled: false,
            wakes_at: None,
            looks_at: None,
            is_shifting: false,
            rest: Default::default(),
            down: 0,
            up: 0,
            told: BTreeSet::new(),
            push: None,
            found: Cell::new(None),
            restating: rejected.map(Restating::of),
            of: Judged::default(),
        })));
        id
    }

    /// The stream ends on the relay's side.
    pub fn end_stream(&mut self, id: u64, is_lost: bool) {
        let Some(stream) = self.streams[id as usize].take() else { return };
        self.note(21, id, u64::from(is_lost));
        self.note_end(&stream, is_lost);
        let time = self.time();
        for unit in self.units_told(&stream) {
            let this = &mut self.units[unit];
            this.wakes.asked();
            this.source.forget(SessionId(id), time);
            self.drain(unit);
        }
    }

    pub fn wake(&mut self, id: u64) {
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        if !stream.is_polled {
            stream.is_polled = true;
            let delay = self.rng.below(200);
            self.after(delay, Job::Poll(id));
        }
    }

    pub fn run_holds(&mut self) {
        for id in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[id] else { continue };
            let due = [stream.wakes_at, stream.looks_at];
            if due.iter().flatten().any(|at| *at <= self.scheduler.now) {
                (stream.wakes_at, stream.looks_at) = (None, None);
                self.poll(id as u64);
            }
        }
    }

    pub fn take_request(&mut self, id: u64, request: &Request) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        let time = self.time();
        self.judge_request(&mut stream, request);
        match stream.session.request(request, &mut self.route(stream.client), time) {
            Ok(taken) => {
                if matches!(taken.verdict, Verdict::Nack { .. }) {
                    self.note_rejection(&stream);
                }
                for watch in taken.watches {
                    self.pass_on(&mut stream, watch, time);
                }
            }
            Err(status) => self.fail(Invariant::Hygiene, || format!("stream {id} is ended: {status}")),
        }
        let units = self.units_told(&stream);
        self.streams[id as usize] = Some(stream);
        units.into_iter().for_each(|unit| self.drain(unit));
        self.wake(id);
    }

    pub fn pass_on(&mut self, stream: &mut Stream, watch: Watch, time: Time) {
        let (Watch::Watch { source: id, .. } | Watch::Unwatch { source: id, .. }) = &watch;
        let Some(unit) = self.unit_of(UnitId(id.0)) else { return };
        let Unit { source, wakes, .. } = &mut self.units[unit];
        wakes.asked();
        match watch {
            Watch::Watch { source: id, type_url, collection, previous } => {
                stream.told.insert(id);
                source.watch_after(SessionId(stream.id), &type_url, &collection, previous.as_deref(), time);
            }
            Watch::Unwatch { type_url, key, .. } => {
                source.unwatch(SessionId(stream.id), &type_url, key, time);
            }
        }
    }

    /// The release of a unit for a client. `push`: see [`Stream::push`]. `found`: takes the push of a candidate.
    pub fn served(
        &self,
        client: usize,
        (push, found): (Option<u64>, &Cell<Option<u64>>),
        id: SourceId,
    ) -> Option<Arc<Snapshot>> {
        let unit = self.unit_of(UnitId(id.0))?;
        let seat = self.clients[client].seat;
        let admission = self.pilot.admission;
        let admits = |candidate| admission.admits_to(candidate, seat, push);
        let served = self.units[unit].published.pick(admits).clone();
        if let Some(push) = served.lane().push {
            found.set(Some(push));
        }
        Some(served)
    }

    /// The stream can take a message: sends the newest answer, one message at a time.
    pub fn poll(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        stream.is_polled = false;
        if !stream.is_busy {
            self.follow_servers_of(&mut stream);
            self.judge_lacking(&mut stream);
            let found = self.found_as_presented(&stream);
            let next = self.next_message(&mut stream);
            // The relay has looked at the types before that of the message. Routing types may wait for ACKs of clusters and endpoints.
            let waits = |ty: usize| matches!(ty, LDS | RDS) && stream.session.held_until().is_some();
            let is_looked_at = |ty: &usize| next.as_ref().map_or(!waits(*ty), |given| *ty < given.ty);
            (0..TYPES).filter(is_looked_at).for_each(|ty| stream.of.known[ty] |= found[ty]);
            match next {
                Some(given) => {
                    stream.is_busy = true;
                    stream.wakes_at = None;
                    let within = self.clients[stream.client].plan.reads_within;
                    let delay = self.rng.below(if self.is_healed { MILLI } else { within });
                    self.after(delay, Job::Taken(id, Box::new(given)));
                }
                None => {
                    let wakes_at = stream.session.held_until();
                    stream.wakes_at = wakes_at.map(|at| self.relative(at).max(self.now));
                }
            }
        }
        self.streams[id as usize] = Some(stream);
    }

    fn restate(&self, stream: &mut Stream) {
        let Some(Restating { push, sources: known }) = &mut stream.restating else { return };
        let served = |id: &SourceId| self.served(stream.client, (stream.push, &stream.found), *id);
        if stream.told.iter().filter_map(served).any(|snapshot| snapshot.lane().push == Some(*push)) {
            return;
        }
        for id in stream.told.iter().filter(|id| !known.contains(id)).copied().collect::<Vec<_>>() {
            let unit = self.unit_of(UnitId(id.0)).map(|unit| &self.units[unit]);
            let restated = unit.and_then(|unit| unit.published.restated.clone());
            if let Some(of) = restated.filter(|of| of.push <= *push) {
                stream.session.restate(id, of);
                known.push(id);
            }
        }
    }

    fn next_message(&mut self, stream: &mut Stream) -> Option<Given> {
        let time = self.time();
        for _ in 0..ANSWERS_MAX {
            self.restate(stream);
            stream.found.set(None);
            let (client, served) = (stream.client, (stream.push, &stream.found));
            let latest = |id| self.served(client, served, id);
            let (index, answer) = stream.session.poll_answer(&latest, time)?;
            let ty = self.words.type_of(&answer.type_url);
            let begun = stream.rest[ty].take().filter(|_| answer.chunk > 0);
            let composition = begun.unwrap_or_else(|| answer.compose().spelled(&answer));
            let chunks = composition.chunks.len();
            let chunk = composition.chunks.get(answer.chunk);
            let version = chunk.map(|chunk| chunk.version).unwrap_or_default();
            let (endpoints, targets, told) =
                (&composition.endpoints, &composition.targets, &composition.told_names);
            let nonce =
                stream.session.commit(index, &answer, chunks, version, endpoints, targets, told, time);
            let lanes = |id: &SourceId| {
                let unit = self.unit_of(UnitId(id.0)).map(|unit| &self.units[unit]);
                unit.and_then(|unit| Some((&unit.published, unit.published.lanes.as_ref()?)))
            };
            let brings_of = |id: &SourceId, push: u64| {
                let lanes = lanes(id)
                    .and_then(|(published, lanes)| Some([&*lanes.stable, published.candidate_of(push)?]));
                lanes.is_some_and(|lanes| answer.brings(push, chunks, *id, lanes))
            };
            let brings = |push: u64| stream.told.iter().any(|id| brings_of(id, push));
            let found = stream.found.get();
            let holds = || stream.told.iter().any(|id| lanes(id).is_some());
            stream.push = Answer::push_after(stream.push, found, chunks, holds, brings);
            let (Some(chunk), Some(nonce)) = (chunk, nonce) else { continue };
            if answer.chunk + 1 < chunks {
                stream.rest[ty] = Some(composition.clone());
            }
            let put = chunk.resources.iter().map(|resource| {
                let (_, name, _, content) = read(resource);
                (name, content)
            });
            let given = Given {
                ty,
                nonce: stream.session.nonce_text(nonce),
                version: version.to_string(),
                put: put.collect(),
                removed: self.words.mask_of(&chunk.removed),
                is_full: answer.full && stream.session.variant() == Variant::Sotw,
            };
            let sum = given.put.iter().fold(0, |sum: u64, (_, c)| crate::rng::mix(sum + u64::from(*c)) >> 8);
            self.note(23, stream.id << 8 | ty as u64, sum);
            self.note(24, u64::from(given.removed), nonce);
            let had = (stream.push, stream.of.push);
            self.tell(|| {
                format!("stream {} is given {}, by push {found:?}, has {had:?}", stream.id, given.show())
            });
            self.judge_given(stream, &given);
            let now = self.now;
            if let Some(wire) = &mut self.wire {
                wire.responses.push(format!("{now} µs, stream {}: {given:?}", stream.id));
            }
            return Some(given);
        }
        self.fail(Invariant::Hygiene, || {
            format!("stream {} has answers that say nothing, without an end", stream.id)
        });
        None
    }

    /// The client read the message: the writer is free, and the message arrives.
    pub fn taken(&mut self, id: u64, given: Box<Given>) {
        let delay = 1 + self.rng.below(2 * MILLI);
        let now = self.now;
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        stream.is_busy = false;
        stream.down = stream.down.max(now + delay);
        let at = stream.down;
        self.at(at, Job::ToClient(id, given));
        self.wake(id);
    }

    /// Whether the client of a stream owes an answer since long ago.
    pub fn is_stuck(&self, stream: &Stream) -> bool {
        let oldest = stream.of.open.iter().filter_map(|open| open.front()).map(|open| open.at).min();
        oldest.is_some_and(|at| self.now >= at + 10 * SECOND)
    }
}
