//! The relay around the machines: the driver's work, without tasks and sockets.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::authority::{Authorities, Authority, NameGroup};
use sluice_engine::authorization::Grant;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::{Collection, CollectionKey, HashSeed};
use sluice_engine::downstream::{Composition, Limits, List, ListId, Router, Session, SourceId, Watch};
use sluice_engine::fallback;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::{self, Attachment, Files, Source, SourceOutput, Streams};
use sluice_engine::upstream::{self, WildcardStyle};
use sluice_xds::{Request, ResourceName, Status, TypeUrl, Variant};

use super::calm::LastLook;
use super::flight::Flight;
use super::guarded::Hold;
use super::hearing::{Heard, Hearing};
use super::held::{Held, Sent};
use super::lists::{Lists, is_nobody, number_of, server_of};
use super::places::{PLACES, Place};
use super::reference;
use super::reloads::ClassMove;
use super::returns::Moves;
use super::routes::Routing;
use super::schedule::{MILLI, SECOND, Wire};
use super::words::{Lexicon, Mask, TYPES, bit, read, show};
use super::world::{Invariant, Job, World};

/// The maximum number of answers of one stream that turn out empty at one moment.
const ANSWERS_MAX: usize = 1_000;

pub const LINGER: u64 = 30 * SECOND;
pub const RESOURCE_TIMEOUT: u64 = 10 * SECOND;

/// One source, with the driver's state for it.
pub struct Slot {
    pub server: usize,
    /// No server: all names are absent.
    pub is_nobody: bool,
    pub class: usize,
    pub source: Option<Source>,
    pub snapshot: Arc<Snapshot>,
    pub links: Vec<Option<u64>>,
    pub reference: reference::Source,
    /// By stream.
    pub heard: Vec<Hearing>,
    /// The server was lost for these types at the last call of the source.
    pub was_lost: [bool; TYPES],
    /// The judge excuses a difference about the server (`World::compare_reach`).
    pub is_apart: bool,
    pub wire: Wire,
    /// The only type of each stream.
    pub of_types: Vec<Option<usize>>,
    /// The connection that all streams share, where types have streams of their own.
    pub connection: Heard,
    /// The next time at which the machine wants a call.
    pub due: Option<u64>,
    /// The next time at which the reference has an event.
    pub reference_due: Option<u64>,
    /// Published snapshots, as long as they are in use.
    pub published: Vec<Weak<Snapshot>>,
    /// The times of the reference's moments, as far as they were compared.
    pub times: Vec<(u32, u64)>,
    /// The last compared moment of the reference.
    pub compared: u32,
    /// A session has subscribed.
    pub has_begun: bool,
}

impl Slot {
    /// The time of a moment of the reference.
    pub fn time_of(&self, moment: u32) -> u64 {
        self.when(moment).unwrap_or(0)
    }

    /// The same; `None` if the reference has not reached the moment.
    pub fn when(&self, moment: u32) -> Option<u64> {
        let at = self.times.partition_point(|(known, _)| *known < moment);
        self.times.get(at).map(|(_, time)| *time)
    }

    /// The next time at which the machine, or the reference, has work.
    pub fn next_due(&self) -> Option<u64> {
        self.due.into_iter().chain(self.reference_due).min()
    }

    pub fn is_lost(&self, now: u64) -> bool {
        self.reach(now).is_lost()
    }

    pub fn hearing(&mut self, index: usize) -> &mut Hearing {
        if self.heard.len() <= index {
            self.heard.resize_with(index + 1, Hearing::default);
        }
        &mut self.heard[index]
    }
}

/// One downstream stream, with the driver's and the judge's state for it.
pub struct StreamSlot {
    pub id: u64,
    pub client: usize,
    pub class: usize,
    pub variant: Variant,
    pub session: Session,
    pub watches: VecDeque<Watch>,
    pub watch_at: u64,
    /// A message waits for the client to take it.
    pub is_busy: bool,
    /// The message that a client does not read.
    pub unread: Option<Box<Sent>>,
    pub is_polled: bool,
    /// The time of the next poll without an event.
    pub wakes_at: Option<u64>,
    looks_at: Option<Time>,
    /// A move between servers is in flight to the sources.
    is_shifting: bool,
    /// The sources that know this stream.
    told: BTreeSet<usize>,
    /// Begun answers of several messages.
    rest: [Option<Composition>; TYPES],
    pub last_look: LastLook,
    /// The arrival time of the last message.
    pub down: u64,
    pub up: u64,
    // The judge's state.
    pub mirror: [Held; TYPES],
    pub flights: [Flight; TYPES],
    pub nonces: BTreeSet<String>,
    /// The time at which the last routing type went, or the cluster side was at rest.
    pub routes_free_at: u64,
    /// Clusters that changed, whose endpoints have to follow (ORD-5).
    pub forced: Mask,
    /// Clusters that changed before the client asked for any endpoints.
    pub early: Mask,
    /// Routing types have their turn after too long a wait.
    pub is_round: bool,
    /// By place.
    pub moves: [Moves; PLACES],
    pub routing: Routing,
    /// The server lists by which the stream is routed.
    pub lists: Lists,
    /// The move to another class, or to other lists.
    pub moving: Option<ClassMove>,
    /// The time at which the stream came from another class, or from other lists.
    pub came_at: Option<u64>,
    /// The time at which the stream could last take a message.
    pub looked_at: u64,
    /// Names of which the client was told that no server is asked for them.
    pub told_nobody: [Mask; TYPES],
}

impl StreamSlot {
    /// A source knows the stream.
    pub fn has_told(&self, slot: usize) -> bool {
        self.told.contains(&slot)
    }
}

/// The destinations of a session's subscriptions.
pub struct Routes<'a> {
    authorities: &'a Authorities,
    pub words: &'a Lexicon,
    pub class: usize,
    pub seats: usize,
    pub lists: Lists,
    pub fallback: bool,
    pub wires: [Wire; 2],
}

impl Router for Routes<'_> {
    fn group_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        name.map_or(Authority::None, |name| self.authorities.authority_of(name)).shared()
    }

    fn source(&mut self, type_url: &TypeUrl, group: NameGroup, server: u16) -> Result<SourceId, Status> {
        let list = self.number(type_url, group);
        Ok(SourceId(self.slot(list, usize::from(server)) as u64))
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(true)
    }

    fn list(&self, type_url: &TypeUrl, group: NameGroup) -> ListId {
        self.lists.id(self.number(type_url, group))
    }

    fn fallback(&self, id: ListId) -> Option<List> {
        let list = number_of(id);
        let has_choice = self.fallback && self.lists.order(list).len() > 1;
        has_choice.then(|| List {
            id,
            servers: 2,
            by_type: self.is_by_type(list),
            settings: fallback::FallbackSettings::default(),
            deleting: 0,
        })
    }

    fn position_of(&self, list: ListId, source: SourceId) -> Option<u16> {
        self.position(list, source)
    }
}

impl World {
    // === starting and stopping ===

    pub fn start_relay(&mut self) {
        self.generation += 1;
        let seats = self.seats();
        self.slots = (0..seats * self.plan.classes)
            .map(|slot| {
                let (seat, class) = (slot % seats, slot / seats);
                let (server, is_nobody) = (server_of(seat), is_nobody(seat));
                let id = self.generation << 8 | slot as u64;
                Slot {
                    server,
                    is_nobody,
                    class,
                    source: Some(if is_nobody { self.nobody(id) } else { self.source(id, server) }),
                    snapshot: Arc::default(),
                    links: Vec::new(),
                    reference: self.reference_of(server),
                    heard: Vec::new(),
                    was_lost: [false; TYPES],
                    is_apart: false,
                    wire: if is_nobody { Wire::Aggregated } else { self.plan.wire(server) },
                    of_types: Vec::new(),
                    connection: Heard::Pending,
                    due: None,
                    reference_due: None,
                    published: Vec::new(),
                    times: Vec::new(),
                    compared: 0,
                    has_begun: false,
                }
            })
            .collect();
    }

    pub fn source(&self, id: u64, server: usize) -> Source {
        let wildcard =
            if self.plan.legacy_wildcard { WildcardStyle::Legacy } else { WildcardStyle::Explicit };
        let upstream = upstream::UpstreamSettings {
            wildcard,
            gather: Duration::from_micros(self.plan.gather),
            resource_timeout: Duration::from_micros(RESOURCE_TIMEOUT),
            needs_answer: self.plan.fallback,
            looks_into_silence: false,
            paces_answers: false,
            transport: self.transport(server),
            variant: if self.plan.wire(server) == Wire::Rest { Variant::Sotw } else { Variant::Delta },
            mass_deletion_hold: self.plan.mass.map(|hold| match hold {
                Hold::For(time) => upstream::Hold::For(Duration::from_micros(time)),
                Hold::UntilConfirmed => upstream::Hold::UntilConfirmed,
            }),
            ..upstream::UpstreamSettings::default()
        };
        let attachment = Attachment::Streams(Box::new(Streams::new(upstream)));
        Source::new(id, self.settings(), attachment).of_server("cp".into(), false)
    }

    fn settings(&self) -> source::SourceSettings {
        source::SourceSettings {
            tells_reach: self.plan.fallback,
            linger: Duration::from_micros(LINGER),
            coalescing: Duration::from_micros(self.plan.coalescing),
            ..source::SourceSettings::default()
        }
    }

    /// The source of names that no server is asked for.
    fn nobody(&self, id: u64) -> Source {
        Source::new(id, self.settings(), Attachment::Files(Files::nothing())).of_server("none".into(), false)
    }

    /// Ends and restarts the process; only the checkpoint survives.
    pub fn restart_relay(&mut self, choice: u64) {
        self.tell(|| "the relay restarts".to_owned());
        self.reload(choice);
        self.note(20, 0, 0);
        for id in 0..self.streams.len() {
            if let Some(stream) = self.streams[id].take() {
                self.lose_stream(stream.client);
            }
        }
        for (id, link) in std::mem::take(&mut self.links) {
            self.after(MILLI, Job::ServerCloses(link.server, id));
        }
        self.clients.iter_mut().for_each(|client| client.explained.clear());
        self.start_relay();
    }

    // === sources ===

    /// Takes the outputs of a source after a call, and compares them with the reference.
    pub fn drain(&mut self, slot: usize) {
        while let Some(output) = self.slots[slot].source.as_mut().and_then(Source::poll_output) {
            match output {
                SourceOutput::Upstream(index, output) => self.upstream_output(slot, index, output),
                SourceOutput::Wake(sessions) => {
                    for session in sessions {
                        self.wake(session.0);
                    }
                }
                SourceOutput::Confirmed => self.heard(slot),
                SourceOutput::Unserved(_) | SourceOutput::DoNotCache { .. } => {
                    self.fail(Invariant::NoLostUpdate, || format!("slot {slot} serves less than it should"));
                }
            }
        }
        let relative = |world: &World, time| world.relative(time);
        let due =
            self.slots[slot].source.as_ref().and_then(Source::poll_timeout).map(|at| relative(self, at));
        let this = &mut self.slots[slot];
        this.due = due;
        let snapshot = this.source.as_mut().and_then(Source::take_snapshot);
        let is_new = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            this.published.push(Arc::downgrade(&snapshot));
            this.snapshot = snapshot;
        }
        if is_new || this.compared != this.reference.moment {
            if this.compared != this.reference.moment {
                this.times.push((this.reference.moment, self.scheduler.now));
            }
            this.compared = this.reference.moment;
            self.compare(slot);
        }
        if self.slots[slot].is_nobody {
            return;
        }
        self.compare_reach(slot);
        self.judge_listed(slot);
    }

    pub fn run_timers(&mut self) {
        for slot in 0..self.slots.len() {
            // A timer that is over only by the reference's clock was missed by the machine.
            let is_over = |due: Option<u64>| due.is_some_and(|due| due <= self.now);
            let is_due = is_over(self.slots[slot].due);
            if is_due || is_over(self.slots[slot].reference_due) {
                let time = self.time();
                let is_lost = self.slots[slot].was_lost;
                self.slots[slot].reference.pass(self.scheduler.now, is_lost);
                self.hear_silence(slot);
                // A server may count as heard again from this very moment on.
                let is_lost = self.slots[slot].lost_types(self.now);
                self.slots[slot].reference.let_deletions_go(self.scheduler.now, is_lost);
                if let Some(source) = self.slots[slot].source.as_mut().filter(|_| is_due) {
                    source.handle_timeout(time);
                }
                self.drain(slot);
            }
        }
    }

    /// The operator confirms the held deletions of these types at a source.
    pub fn confirm_deletions(&mut self, slot: usize, types: impl Fn(usize) -> bool) {
        let (time, words) = (self.time(), &self.words);
        let this = &mut self.slots[slot];
        let held = (0..TYPES).filter(|ty| types(*ty)).map(|ty| this.reference.guard.count(ty)).sum::<usize>();
        (0..TYPES).filter(|ty| types(*ty)).for_each(|ty| this.reference.confirm_deletions(ty));
        let source = this.source.as_mut();
        let count = source.map(|source| source.confirm_deletions(|url| types(words.type_of(url)), time));
        if count != Some(held) {
            self.fail(Invariant::JustifiedRemoval, || {
                format!("slot {slot} deletes {count:?} that were held back, and should {held}")
            });
        }
        self.tell(|| format!("slot {slot} is told that {held} deletions were meant"));
        self.drain(slot);
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

    pub fn run_holds(&mut self) {
        for id in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[id] else { continue };
            if stream.wakes_at.is_some_and(|at| at <= self.scheduler.now) {
                stream.wakes_at = None;
                self.poll(id as u64);
            }
        }
    }

    pub fn new_stream(&mut self, client: usize) -> u64 {
        let id = self.streams.len() as u64;
        let plan = &self.plan.clients[client];
        let variant = if plan.delta { Variant::Delta } else { Variant::Sotw };
        let prefix = 0xab00 + u32::try_from(id).unwrap();
        self.streams.push(Some(Box::new(StreamSlot {
            id,
            client,
            class: plan.class,
            variant,
            session: Session::new(variant, Limits::default(), HashSeed(7), prefix, Grant::everything()),
            watches: VecDeque::new(),
            watch_at: 0,
            is_busy: false,
            unread: None,
            is_polled: false,
            wakes_at: None,
            looks_at: None,
            is_shifting: false,
            told: BTreeSet::new(),
            rest: Default::default(),
            last_look: LastLook::default(),
            down: 0,
            up: 0,
            mirror: Default::default(),
            flights: Default::default(),
            nonces: BTreeSet::new(),
            routes_free_at: self.now,
            is_round: false,
            moves: Default::default(),
            routing: Routing::default(),
            forced: 0,
            early: 0,
            lists: self.lists,
            moving: None,
            came_at: None,
            looked_at: 0,
            told_nobody: [0; TYPES],
        })));
        id
    }

    /// The stream ends on the relay's side.
    pub fn end_stream(&mut self, id: u64) {
        let Some(stream) = self.streams[id as usize].take() else { return };
        self.note(21, id, 0);
        for slot in 0..self.slots.len() {
            if self.slots[slot].class == stream.class || stream.has_told(slot) {
                self.forget(slot, id);
            }
        }
    }

    fn forget(&mut self, slot: usize, id: u64) {
        let time = self.time();
        self.slots[slot].reference.forget(id, self.scheduler.now);
        if let Some(source) = &mut self.slots[slot].source {
            source.forget(SessionId(id), time);
        }
        self.drain(slot);
    }

    pub fn take_request(&mut self, id: u64, request: &Request) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        let time = self.time();
        let taken = stream.session.request(request, &mut self.routes(stream.class, stream.lists), time);
        self.note(22, id, 0);
        self.judge_request(&mut stream, request, taken.as_ref().ok().map(|taken| &taken.verdict));
        match taken {
            Ok(taken) => {
                if taken.rests {
                    self.judge_calm(&mut stream, &taken.type_url);
                }
                self.queue_watches(&mut stream, taken.watches);
                self.keep_moving(&mut stream);
            }
            Err(status) => self.fail(Invariant::Hygiene, || format!("stream {id} is ended: {status}")),
        }
        self.streams[id as usize] = Some(stream);
        self.wake(id);
    }

    pub fn routes(&self, class: usize, lists: Lists) -> Routes<'_> {
        let authorities = if lists.lacks_authority { &self.no_authorities } else { &self.authorities };
        let (words, seats, fallback) = (&self.words, self.seats(), self.plan.fallback);
        Routes { authorities, words, class, seats, lists, fallback, wires: self.plan.wires }
    }

    pub fn queue_watches(&mut self, stream: &mut StreamSlot, watches: Vec<Watch>) {
        for watch in watches {
            let late = if self.plan.slow_watches { self.rng.below(30 * MILLI) } else { 0 };
            stream.watch_at = stream.watch_at.max(self.now + late);
            let at = stream.watch_at;
            stream.watches.push_back(watch);
            self.at(at, Job::Watch(stream.id));
        }
    }

    /// Moves a session between the servers of its lists, if due.
    fn follow_servers(&mut self, stream: &mut StreamSlot) {
        let (slots, time) = (&self.slots, self.time());
        let latest = |id: SourceId| slots.get(id.0 as usize).map(|slot| slot.snapshot.clone());
        let look = stream.session.look(&latest, time);
        stream.looks_at = look.look_at;
        if !look.is_due {
            return;
        }
        let before = self.all_serving(stream);
        let slots_before = self.served_slots(stream);
        let second = |place: &Place| self.second_of(stream, place.list);
        let asks_second = |place: &Place| second(place).is_some_and(|slot| self.asks(stream, *place, slot));
        let asked: Vec<Place> = self.places(stream).filter(asks_second).collect();
        let (class, lists) =
            stream.moving.map_or((stream.class, stream.lists), |moving| (moving.to, moving.lists));
        let shift = stream.session.shift(&latest, &mut self.routes(class, lists), time);
        if shift.refused.is_some() {
            return self.fail(Invariant::Hygiene, || "a shift was refused".to_owned());
        }
        self.note(25, stream.id, shift.moves.len() as u64);
        if stream.moving.is_some() {
            self.note_moves_ahead(stream, &shift.moves);
        }
        if !self.judge_settled(stream, &shift, slots_before) {
            self.judge_shift(stream, before, &asked);
            self.note_moves(stream, before);
        }
        stream.is_shifting = !shift.is_settled;
        self.queue_watches(stream, shift.watches);
        if stream.watches.is_empty() {
            self.leave_unused(stream);
        }
        let (slots, time) = (&self.slots, self.time());
        let latest = |id: SourceId| slots.get(id.0 as usize).map(|slot| slot.snapshot.clone());
        stream.looks_at = stream.session.look(&latest, time).look_at;
    }

    /// Releases sources that the session no longer uses, after all sources have the update.
    fn leave_unused(&mut self, stream: &mut StreamSlot) {
        let dismisses = std::mem::take(&mut stream.is_shifting);
        for slot in 0..self.slots.len() {
            if stream.session.uses(SourceId(slot as u64)) {
                continue;
            }
            if self.slots[slot].reference.knows(stream.id) || dismisses && stream.told.contains(&slot) {
                self.say_farewell(slot, stream.id, dismisses);
            }
            stream.told.remove(&slot);
        }
    }

    fn say_farewell(&mut self, slot: usize, id: u64, dismisses: bool) {
        let time = self.time();
        let this = &mut self.slots[slot];
        if dismisses {
            this.reference.dismiss(id, self.scheduler.now)
        } else {
            this.reference.forget(id, self.scheduler.now)
        }
        if let Some(source) = &mut this.source {
            if dismisses { source.dismiss(SessionId(id), time) } else { source.forget(SessionId(id), time) }
        }
        self.drain(slot);
    }

    /// Passes a session's changed subscriptions to a source.
    pub fn tell_source(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        if let Some(watch) = stream.watches.pop_front() {
            self.pass_on(&mut stream, watch);
        }
        if stream.watches.is_empty() {
            self.leave_unused(&mut stream);
        }
        self.streams[id as usize] = Some(stream);
        self.wake(id);
    }

    fn pass_on(&mut self, stream: &mut StreamSlot, watch: Watch) {
        let id = stream.id;
        let (time, now) = (self.time(), self.now);
        let slot = match watch {
            Watch::Watch { source, type_url, collection, previous } => {
                let slot = source.0 as usize;
                self.begin_source(slot, stream);
                self.slots[slot].has_begun = true;
                stream.told.insert(slot);
                let ty = self.words.type_of(&type_url);
                let reference = &mut self.slots[slot].reference;
                match &collection {
                    Collection::Wildcard => reference.watch(id, ty, None, Some(true), now),
                    Collection::Globs(names) | Collection::Names(names) => {
                        let mask = self.words.mask_of(names.iter());
                        reference.watch(id, ty, Some(mask), None, now);
                    }
                }
                if self.slots[slot].is_nobody {
                    self.slots[slot].reference.know_nothing();
                }
                if let Some(source) = &mut self.slots[slot].source {
                    source.watch_after(SessionId(id), &type_url, &collection, previous.as_deref(), time);
                }
                slot
            }
            Watch::Unwatch { source, type_url, key } => {
                let slot = source.0 as usize;
                let ty = self.words.type_of(&type_url);
                let reference = &mut self.slots[slot].reference;
                match key {
                    CollectionKey::WILDCARD => reference.watch(id, ty, None, Some(false), now),
                    _ => reference.watch(id, ty, Some(0), None, now),
                }
                if let Some(source) = &mut self.slots[slot].source {
                    source.unwatch(SessionId(id), &type_url, key, time);
                }
                slot
            }
        };
        self.drain(slot);
    }

    /// The stream can take a message: sends the newest answer, one message at a time.
    pub fn poll(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        stream.is_polled = false;
        if !stream.is_busy {
            if self.plan.fallback || self.plan.reloads {
                self.follow_servers(&mut stream);
                self.judge_returns(&stream);
                self.judge_falls(&stream);
            }
            self.note_news(&mut stream);
            let looked_at = stream.looked_at;
            let next = self.next_message(&mut stream);
            stream.last_look.found_some = next.is_some();
            stream.looked_at = self.now;
            match next {
                Some(sent) => {
                    stream.is_busy = true;
                    stream.wakes_at = None;
                    let within = self.clients[stream.client].reads_within();
                    let delay = self.rng.below(within.max(1));
                    self.after(delay, Job::RequestOutcome(id, Box::new(sent)));
                }
                None => {
                    if std::mem::take(&mut stream.is_round) {
                        // The look before, which sent the last message, may have ended the round.
                        stream.routes_free_at = looked_at;
                    }
                    let held_until = stream.session.held_until();
                    let wakes_at = held_until.into_iter().chain(stream.looks_at).min();
                    stream.wakes_at = wakes_at.map(|at| self.relative(at).max(self.now));
                    let waits = |ty: usize| stream.flights[ty].is_waiting();
                    if !waits(0) && !waits(1) && held_until.is_none() {
                        stream.routes_free_at = self.now;
                    }
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
            let ty = self.words.type_of(&answer.type_url);
            // The stream keeps no more of the later messages than the driver does.
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
            if answer.chunk == 0 {
                self.judge_marked(stream, ty, &answer);
            }
            if stream.session.is_sated(index) {
                self.judge_sated(stream, &answer.type_url);
            }
            if answer.chunk + 1 < chunks {
                stream.rest[ty] = Some(composition.clone());
            }
            for resource in &chunk.resources {
                self.judge_bytes(stream, ty, resource);
            }
            let put = chunk.resources.iter().map(|resource| {
                let (_, name, class, content) = read(resource);
                (name, self.content_for(stream, class, content))
            });
            let sent = Sent {
                ty,
                nonce: stream.session.nonce_text(nonce),
                version: version.to_string(),
                put: put.collect(),
                removed: self.words.mask_of(&chunk.removed),
                errors: self.words.mask_of(chunk.errors.iter().map(|(name, _)| name)),
                beats: self.words.mask_of(chunk.beats.iter().map(|resource| &resource.name)),
                wanted: stream.mirror[ty].wanted,
                wildcard: stream.mirror[ty].wildcard,
                stars: stream.mirror[ty].stars,
                is_full: stream.mirror[ty].is_full(ty, stream.variant),
                class: stream.class,
            };
            self.note(
                23,
                stream.id << 8 | ty as u64,
                sent.put.iter().fold(0, |sum: u64, (_, c)| super::rng::mix(sum + u64::from(*c)) >> 8),
            );
            self.note(24, u64::from(sent.removed), nonce);
            self.judge_sent(stream, &sent);
            return Some(sent);
        }
        let who = self.show_stream(stream);
        self.fail(Invariant::Hygiene, || format!("{who} has answers that say nothing, without an end"));
        None
    }

    /// The client read the message: the writer is free, and the message arrives.
    pub fn taken(&mut self, id: u64, sent: Box<Sent>) {
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        if self.clients[stream.client].is_blocked {
            stream.unread = Some(sent);
            return;
        }
        stream.is_busy = false;
        stream.down = stream.down.max(self.scheduler.now + 1 + self.rng.below(2 * MILLI));
        let at = stream.down;
        self.at(at, Job::ToClient(id, sent));
        self.wake(id);
    }

    pub fn show_stream(&self, stream: &StreamSlot) -> String {
        format!("client {} (stream {}, {:?})", stream.client, stream.id, stream.variant)
    }
}

pub fn show_sent(words: &[&str], sent: &Sent) -> String {
    let put = sent
        .put
        .iter()
        .map(|(name, content)| format!(" {}={}", show(bit(*name)), super::words::show_content(*content)));
    let put: String = put.collect();
    let list = |sign: char, mask: Mask| {
        super::words::bits(mask).map(|n| format!(" {sign}{}", show(bit(n)))).collect::<String>()
    };
    let (removed, errors) = (list('-', sent.removed), list('!', sent.errors));
    format!("{}{put}{removed}{errors}{}", words[sent.ty], list('~', sent.beats))
}
