//! The reference model of one source: the server's messages, and their meaning, name by name.
//!
//! The model gets the same responses as the engine, and keeps for every name the whole history of accepted
//! values, with the number of the response behind each. The model has no views, slots, differences or
//! snapshots, and shares no code with the engine.

use std::collections::BTreeMap;

use super::confirming::{CONFIRMED_WITHIN, Confirming};
use super::guarded::Guard;
use super::message::{Item, Message};
use super::restored::Restoring;
use super::schedule::MILLI;
use super::track::{State, Track};
use super::words::{ALL, Mask, NAMES, SDS, TYPES, bit, bits};
use sluice_engine::collection::CollectionKind;
use sluice_xds::{Code, Variant};

/// The subscriptions of sessions to a type.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// Subscribed or lingering names.
    pub(super) held: Mask,
    /// The time since which a name has no subscriber, and whether the name had content then.
    pub(super) idle_since: [Option<(u64, bool)>; NAMES],
    pub(super) wildcard: bool,
    pub(super) wildcard_idle_since: Option<(u64, bool)>,
}

/// One upstream stream.
#[derive(Clone, Debug)]
pub struct Stream {
    pub variant: Variant,
    pub types: [StreamType; TYPES],
    /// The number of signs of life.
    pub signs: u32,
    /// The arrival of the first bytes of an incomplete message.
    pub receiving: Option<u64>,
    /// The time of the last complete message.
    pub received_at: u64,
}

/// Whether the first answers on a stream are complete (DEL-26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Whole {
    #[default]
    Unanswered,
    Answered,
    /// A round trip has begun since.
    Proving,
    /// The round trip has ended.
    Proven,
    Settled,
}

/// The silence required after a second message with new content.
const QUIET: u64 = 200 * MILLI;

/// A server that never rests does not delay its clients without end.
const REPEATED_MAX: u8 = 10;

/// The requests of one type on one stream, and the answers.
#[derive(Clone, Debug, Default)]
pub struct StreamType {
    pub asked: bool,
    pub wildcard: bool,
    pub(super) gave_up_wildcard: bool,
    /// The names listed by the requests so far.
    pub listed: Mask,
    in_first: Mask,
    seen: Mask,
    /// Members from before this stream that its answers need not mention (delta).
    pub(super) unconfirmed: Mask,
    /// The progress of the first answers to a wildcard, and the end of the required silence.
    whole: Whole,
    quiet_until: u64,
    /// The number of round trips that restarted because of an update of received resources.
    repeated: u8,
    pub(super) confirming: Option<Confirming>,
    /// The number of parts in flight of the first answer to the wildcard.
    awaited: u32,
    /// The time of the unanswered request for a name, and the signs of life until then.
    pub(super) waiting: [Option<(u64, u32)>; NAMES],
    /// The times of the first answers to names, by the time of their request.
    answered: BTreeMap<u64, u64>,
    /// The time since which the listed names differ from the wanted names.
    pub differs_since: Option<u64>,
    /// The time of the first request, and the signs of life until then.
    pub(super) asked_at: Option<(u64, u32)>,
    /// The server's answer for the type is complete.
    pub(super) is_answered: bool,
    /// A response of the type had faults.
    pub(super) is_rejected: bool,
    /// The same, before the first answers to a wildcard were complete.
    pub(super) is_spoiled: bool,
    /// The known state of the type is the server's state.
    pub(super) is_current: bool,
    /// The silence had lasted before any answer came; in SotW, before any answer with a fault.
    pub(super) was_silent: bool,
    /// Some names were dropped on this stream.
    pub(super) has_left: bool,
    /// All names were dropped on this stream: what is requested next is answered anew.
    pub(super) was_given_up: bool,
    /// SotW: a response without a fault came; and the known names that the server has yet to mention.
    pub(super) is_good: bool,
    pub(super) unanswered: Mask,
    /// The first request presented the known state, so that silence is an answer (RLY-2, DEL-35).
    may_be_silent: bool,
    /// The server has sent a message that proves something.
    pub spoken: bool,
    pub(super) spoken_at: Option<u64>,
}

impl StreamType {
    /// The first answers to a wildcard are complete.
    pub(super) fn is_settled(&self) -> bool {
        self.whole == Whole::Settled
    }

    /// The name got an answer.
    pub(super) fn end_waiting(&mut self, name: usize) {
        self.waiting[name] = None;
    }

    /// An answer that may be one of several. `grows`: the answer has new resources.
    fn answer(&mut self, proves: bool, grows: bool, now: u64) {
        let is_late = matches!(self.whole, Whole::Proving | Whole::Proven);
        (self.whole, self.quiet_until, self.repeated) = match self.whole {
            Whole::Settled => (Whole::Settled, 0, 0),
            _ if !proves => (Whole::Unanswered, 0, 0),
            Whole::Unanswered => (Whole::Answered, 0, 0),
            _ if grows => (Whole::Answered, now + QUIET, 0),
            _ if is_late && self.repeated < REPEATED_MAX => (Whole::Answered, now, self.repeated + 1),
            running => (running, self.quiet_until, self.repeated),
        };
    }
}

impl StreamType {
    /// The name is answered: names requested at the same time, or later, may still be in flight (RLY-2).
    fn is_answering(&mut self, name: usize, now: u64) {
        let of_first = self.in_first & !self.seen & bit(name) != 0;
        let since = self.waiting[name].map(|(since, _)| since).or(of_first.then_some(0));
        self.answered.extend(since.map(|since| (since, now)));
    }

    /// The times of answers to requests up to `asked`.
    fn answers(&self, asked: u64) -> impl Iterator<Item = u64> {
        self.answered.range(..=asked).map(|(_, at)| *at)
    }
}

impl Stream {
    pub fn new(variant: Variant) -> Stream {
        Stream { variant, types: Default::default(), signs: 0, receiving: None, received_at: 0 }
    }
}

/// One source.
pub struct Source {
    pub names: [[Track; NAMES]; TYPES],
    pub members: [[Track; NAMES]; TYPES],
    pub complete: [bool; TYPES],
    /// Nothing more of the wildcard can come from the server's first answers.
    pub confirmed: [bool; TYPES],
    pub(super) demand: [Demand; TYPES],
    /// Names and wildcards by session.
    pub(super) sessions: BTreeMap<u64, [(Mask, bool); TYPES]>,
    /// The streams by index.
    pub streams: Vec<Option<Stream>>,
    /// The number of responses and timers that changed the state.
    pub moment: u32,
    /// A resource had a time to live, so that timers may have to expire it.
    pub(super) has_expiries: bool,
    pub(super) linger: u64,
    pub(super) resource_timeout: u64,
    pub restoring: Restoring,
    /// Types whose responses had faults.
    in_doubt: [bool; TYPES],
    /// A type whose wildcard counted as complete although parts of its first answer were in flight.
    pub is_early: Option<usize>,
    /// The held resources of mass deletions.
    pub guard: Guard,
    /// The streams are polls.
    pub(super) polls: bool,
    /// By type, and names or wildcard: the polls are answered (RST-4).
    pub(super) polled: [[bool; 2]; TYPES],
    /// The names in the last poll of a type, and the time since which more are wanted.
    pub(super) last_polled: [(Mask, Option<u64>); TYPES],
}

impl Source {
    pub fn new(linger: u64, resource_timeout: u64) -> Source {
        Source {
            names: Default::default(),
            members: Default::default(),
            complete: [false; TYPES],
            confirmed: [false; TYPES],
            demand: Default::default(),
            sessions: BTreeMap::new(),
            streams: Vec::new(),
            moment: 1,
            has_expiries: false,
            linger,
            resource_timeout,
            restoring: Restoring::default(),
            in_doubt: [false; TYPES],
            is_early: None,
            guard: Guard::default(),
            polls: false,
            polled: Default::default(),
            last_polled: Default::default(),
        }
    }

    // === demand ===

    pub fn wanted(&self, ty: usize) -> Mask {
        self.demand[ty].held
    }

    pub fn wants_wildcard(&self, ty: usize) -> bool {
        self.demand[ty].wildcard
    }

    /// Nothing is subscribed, and nothing lingers.
    pub fn is_idle(&self) -> bool {
        self.demand.iter().all(|demand| demand.held == 0 && !demand.wildcard)
    }

    pub fn watch(&mut self, session: u64, ty: usize, names: Option<Mask>, wildcard: Option<bool>, now: u64) {
        let watched = &mut self.sessions.entry(session).or_default()[ty];
        watched.0 = names.unwrap_or(watched.0);
        watched.1 = wildcard.unwrap_or(watched.1);
        if self.sessions[&session].iter().all(|(names, wildcard)| *names == 0 && !wildcard) {
            self.sessions.remove(&session);
        }
        self.settle_interest(ty, now);
        self.settle_patience(now);
    }

    /// No server is asked: all wanted names are absent.
    pub fn know_nothing(&mut self) {
        let moment = self.moment + 1;
        for ty in 0..TYPES {
            for name in bits(self.wanted(ty)) {
                if self.names[ty][name].state() == State::Unknown {
                    self.names[ty][name].set(State::Absent, moment);
                    self.names[ty][name].failed = Some((Code::NotFound, true));
                    self.moment = moment;
                }
            }
        }
    }

    pub fn forget(&mut self, session: u64, now: u64) {
        if self.sessions.remove(&session).is_some() {
            (0..TYPES).for_each(|ty| self.settle_interest(ty, now));
            self.settle_patience(now);
        }
    }

    /// Combines the sessions' subscriptions: names beside the wildcard, and the wildcard.
    pub(super) fn settle_interest(&mut self, ty: usize, now: u64) {
        let names = self.sessions.values().fold(0, |mask, watched| mask | watched[ty].0);
        let wildcard = self.sessions.values().any(|watched| watched[ty].1);
        let kept = std::array::from_fn::<bool, NAMES, _>(|name| self.is_kept(ty, name));
        let is_whole_kept = self.restoring.has(ty, CollectionKind::Wildcard);
        let demand = &mut self.demand[ty];
        let is_present = |track: &Track| matches!(track.state(), State::Present(_));
        for name in 0..NAMES {
            let idle = &mut demand.idle_since[name];
            if names & bit(name) != 0 {
                *idle = None;
            } else if demand.held & bit(name) != 0 && !kept[name] {
                idle.get_or_insert((now, is_present(&self.names[ty][name])));
            }
        }
        demand.held |= names;
        if wildcard {
            demand.wildcard_idle_since = None;
            demand.wildcard = true;
        } else if demand.wildcard && !is_whole_kept {
            let has_members = self.members[ty].iter().any(is_present);
            demand.wildcard_idle_since.get_or_insert((now, has_members));
        }
    }

    pub fn knows(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// A session returned to a higher server. After the last session nothing lingers (RLY-60).
    pub fn dismiss(&mut self, session: u64, now: u64) {
        self.forget(session, now);
        if self.sessions.is_empty() {
            self.moment += 1;
            self.restoring = Restoring::default();
            for ty in 0..TYPES {
                bits(self.demand[ty].held).for_each(|name| self.free(ty, name));
                self.free_wildcard(ty);
            }
        }
    }

    pub(super) fn free_wildcard(&mut self, ty: usize) {
        self.demand[ty].wildcard = false;
        self.polled[ty][1] = false;
        self.demand[ty].wildcard_idle_since = None;
        (self.complete[ty], self.confirmed[ty]) = (false, false);
        self.guard.forget(ty, true, ALL);
        let moment = self.moment;
        for member in &mut self.members[ty] {
            member.lose(State::Unknown, moment);
        }
    }

    /// Time passes: frees names after their linger (RLY-61), except content of a lost server (RLY-46); and
    /// expires times to live (TTL-8).
    pub fn pass(&mut self, now: u64, is_lost: [bool; TYPES]) {
        self.moment += 1;
        for ty in 0..TYPES {
            let linger = if ty == SDS { 0 } else { self.linger };
            let is_over = |idle: Option<(u64, bool)>| {
                idle.is_some_and(|(since, has_content)| {
                    since + linger <= now && !(is_lost[ty] && has_content && ty != SDS)
                })
            };
            for name in bits(self.demand[ty].held) {
                if is_over(self.demand[ty].idle_since[name]) {
                    self.free(ty, name);
                }
            }
            if is_over(self.demand[ty].wildcard_idle_since) {
                self.free_wildcard(ty);
            }
            let moment = self.moment;
            let over = |track: &&mut Track| track.expires.is_some_and(|(at, _)| at <= now);
            for track in self.names[ty].iter_mut().chain(&mut self.members[ty]).filter(over) {
                track.lose(State::Absent, moment);
                track.has_expired = true;
            }
            // Names kept only because they were restored linger from now on.
            self.settle_interest(ty, now);
        }
        self.forget_expired();
        self.give_up_restored(now);
        self.hear_silence(now);
    }

    /// Whether this is the server's own version of the known resource.
    pub fn holds(&self, ty: usize, name: usize, version: &str) -> bool {
        let is =
            |track: &Track| matches!(track.state(), State::Present(_)) && *track.upstream_version == *version;
        is(&self.names[ty][name]) || is(&self.members[ty][name])
    }

    pub(super) fn free(&mut self, ty: usize, name: usize) {
        self.demand[ty].held &= !bit(name);
        self.polled[ty][0] &= self.demand[ty].held != 0;
        self.demand[ty].idle_since[name] = None;
        self.names[ty][name].lose(State::Unknown, self.moment);
        self.guard.forget(ty, false, bit(name));
        let polls = self.polls;
        for stream in self.streams.iter_mut().flatten().filter(|stream| !stream.types[ty].wildcard) {
            let said = &mut stream.types[ty];
            said.seen &= !bit(name);
            said.in_first &= !bit(name);
            said.waiting[name] = None;
            // A poll cannot be corrected: its answer is no answer to a later request (RLY-2).
            if polls {
                said.listed &= !bit(name);
            }
        }
    }

    // === what is written ===

    /// The first request of a type was written; `claims`: with the known state.
    pub fn claims(&mut self, index: usize, ty: usize, claims: bool) {
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            let said = &mut stream.types[ty];
            said.may_be_silent = if said.asked { said.may_be_silent } else { claims };
        }
    }

    /// Records a written request. Returns the names in the request that the stream had requested already.
    pub fn wrote(&mut self, index: usize, ty: usize, add: Mask, remove: Mask, star: bool, now: u64) -> Mask {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return 0 };
        let signs = stream.signs;
        let said = &mut stream.types[ty];
        let is_first = !std::mem::replace(&mut said.asked, true);
        said.asked_at.get_or_insert((now, signs));
        let twice = said.listed & add;
        if star && is_first {
            said.wildcard = true;
            if stream.variant == Variant::Delta {
                for (name, member) in self.members[ty].iter().enumerate() {
                    let is_member = matches!(member.state(), State::Present(_));
                    let is_held_back = self.guard.is_held(ty, true, name);
                    if is_member && !is_held_back && member.upstream_version.is_empty() {
                        said.unconfirmed |= bit(name);
                    }
                }
            }
        }
        let is_known = |name: &usize| self.names[ty][*name].state() != State::Unknown;
        if is_first {
            said.unanswered = bits(add).filter(is_known).fold(0, |mask, name| mask | bit(name));
        }
        for name in bits(add & !said.listed) {
            if is_first {
                said.in_first |= bit(name);
            } else {
                said.in_first &= !bit(name);
            }
            if self.names[ty][name].state() == State::Unknown {
                said.waiting[name] = Some((now, signs));
            }
        }
        said.listed = (said.listed | add) & !remove;
        said.has_left |= remove != 0;
        said.was_given_up |= remove != 0 && said.listed == 0 && !said.wildcard;
        for name in bits(remove) {
            said.waiting[name] = None;
            said.seen &= !bit(name);
            said.unanswered &= !bit(name);
        }
        twice
    }

    /// The stream no longer reports on the wildcard.
    pub fn unsubscribed_wildcard(&mut self, index: usize, ty: usize) {
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            let said = &mut stream.types[ty];
            (said.gave_up_wildcard, said.unconfirmed) = (true, 0);
        }
    }

    // === what is received ===

    /// A response was delivered on a stream, which serves this demand of the type.
    pub fn receive(&mut self, index: usize, kind: Option<CollectionKind>, message: &Message, now: u64) {
        self.moment += 1;
        self.note_poll(index, message);
        let mut silent_until = now;
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            stream.signs += 1;
            silent_until = stream.receiving.take().unwrap_or(now);
            stream.received_at = now;
            stream.types[message.ty].awaited -= u32::from(message.is_of_first);
        }
        self.take(index, kind, message, silent_until, now);
        self.settle_proven(index, now);
        self.hear_silence_of(silent_until, now);
    }

    /// A part of the first answer to a wildcard was passed to the transport.
    pub fn promise(&mut self, index: usize, ty: usize) {
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            stream.types[ty].awaited += 1;
        }
    }

    /// The first bytes of a message arrived.
    pub fn begun(&mut self, index: usize, now: u64) {
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            stream.receiving.get_or_insert(now);
        }
    }

    /// `silent_until`: the arrival of the first bytes. Silences due since then end with the next timer.
    fn take(
        &mut self,
        index: usize,
        kind: Option<CollectionKind>,
        message: &Message,
        silent_until: u64,
        now: u64,
    ) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        if !stream.types[message.ty].asked || message.variant != stream.variant {
            return;
        }
        self.in_doubt[message.ty] |= message.has_faults();
        stream.types[message.ty].is_rejected |= message.has_faults();
        stream.types[message.ty].is_spoiled |= message.has_faults() && !stream.types[message.ty].is_settled();
        stream.types[message.ty].is_answered |= !message.is_heartbeat();
        stream.types[message.ty].is_good |= !message.is_heartbeat() && !message.has_faults();
        stream.types[message.ty].spoken |=
            !message.is_heartbeat() && !message.is_void() && !message.is_unidentified();
        let spoken = &mut stream.types[message.ty];
        spoken.spoken_at = spoken.spoken_at.or(spoken.spoken.then_some(now));
        if let Some(kind) = kind {
            self.confirm(message.ty, kind, now);
        }
        self.hear_silence_of(silent_until, now);
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        if message.is_void() {
            let whole = &mut stream.types[message.ty].whole;
            *whole = if *whole == Whole::Settled { Whole::Settled } else { Whole::Unanswered };
            stream.types[message.ty].interrupt(self.resource_timeout, now);
            return;
        }
        match (kind, stream.types[message.ty].wildcard) {
            (Some(CollectionKind::Wildcard), true) => self.receive_members(index, message, now),
            (Some(CollectionKind::Names), false) => self.receive_names(index, message, now),
            // The demand is no longer subscribed, or on another stream (RLY-61).
            _ => {}
        }
    }

    fn receive_names(&mut self, index: usize, message: &Message, now: u64) {
        let (ty, moment) = (message.ty, self.moment);
        let wanted = self.demand[ty].held;
        let there = self.there(ty, false);
        let is_full = self.is_full(ty);
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let said = &mut stream.types[ty];
        let (mut mentioned, mut brought, mut grows) = (0, 0, false);
        let mut removed = message.removed;
        for item in &message.items {
            let Some(name) = item.name().filter(|name| wanted & bit(*name) != 0) else { continue };
            mentioned |= bit(name);
            let track = &mut self.names[ty][name];
            match item {
                Item::Resource { content, version, ttl, .. } => {
                    brought |= bit(name);
                    grows |= said.seen & bit(name) == 0;
                    track.set(State::Present(*content), moment);
                    track.failed = None;
                    track.expires = ttl.map(|ttl| (now + ttl, ttl));
                    self.has_expiries |= ttl.is_some();
                    track.upstream_version = version.clone();
                    said.is_answering(name, now);
                    said.seen |= said.listed & bit(name);
                    said.waiting[name] = None;
                }
                Item::Bare { version, ttl, .. } if is_beat(track, message.variant, version) => {
                    if !self.guard.is_held(ty, false, name) {
                        refresh(track, *ttl, now);
                    }
                }
                Item::Bare { .. } => removed |= bit(name),
                Item::Bad(_) => {
                    said.waiting[name] = None;
                    track.failed = None;
                }
            }
        }
        let (failed, not_found) = self.take_errors(index, message, mentioned);
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let said = &mut stream.types[ty];
        mentioned |= failed;
        removed |= not_found;
        if message.variant == Variant::Sotw
            && is_full
            && !message.is_unidentified()
            && !message.is_heartbeat()
        {
            removed |= (said.seen | said.in_first) & !mentioned;
        }
        if message.variant == Variant::Delta && !message.is_heartbeat() {
            said.answer(!message.is_unidentified(), grows, now);
        }
        let gone = removed & wanted & said.listed;
        bits(message.removed & gone).for_each(|name| said.is_answering(name, now));
        bits(gone).for_each(|name| said.waiting[name] = None);
        said.unanswered &= !(brought | gone);
        // An error removes names one by one.
        let taken = gone & there & !not_found;
        let kept = self.guard.judge((ty, false), taken, there, brought, now);
        bits(gone & !kept).for_each(|name| self.names[ty][name].lose(State::Absent, moment));
        self.keep_held(ty, false, kept);
    }

    fn receive_members(&mut self, index: usize, message: &Message, now: u64) {
        let (ty, moment) = (message.ty, self.moment);
        if !self.demand[ty].wildcard {
            return;
        }
        let there = self.there(ty, true);
        let is_full = self.is_full(ty);
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let said = &mut stream.types[ty];
        let unconfirmed = &mut said.unconfirmed;
        let (mut stay, mut grows, mut brought) = (0, false, 0);
        let mut removed = message.removed;
        for item in &message.items {
            let Some(name) = item.name() else { continue };
            let track = &mut self.members[ty][name];
            let is_member = matches!(track.state(), State::Present(_)) && !self.guard.is_held(ty, true, name);
            match item {
                Item::Resource { content, version, ttl, .. } => {
                    brought |= bit(name);
                    grows |= !is_member || *unconfirmed & bit(name) != 0;
                    track.set(State::Present(*content), moment);
                    track.expires = ttl.map(|ttl| (now + ttl, ttl));
                    self.has_expiries |= ttl.is_some();
                    track.upstream_version = version.clone();
                    *unconfirmed &= !bit(name);
                    stay |= bit(name);
                }
                Item::Bare { version, ttl, .. } if is_beat(track, message.variant, version) => {
                    if is_member {
                        refresh(track, *ttl, now);
                        *unconfirmed &= !bit(name);
                        stay |= bit(name);
                    }
                }
                Item::Bare { .. } => removed |= bit(name),
                Item::Bad(_) => {
                    *unconfirmed &= !bit(name);
                    stay |= bit(name);
                }
            }
        }
        *unconfirmed &= !removed;
        let proves = !message.is_unidentified() && !message.is_heartbeat();
        let gone = match message.variant {
            Variant::Sotw if proves && is_full => !stay,
            _ => removed,
        };
        if message.variant == Variant::Sotw && is_full {
            self.complete[ty] |= proves;
            self.confirmed[ty] |= proves;
        } else if !message.is_heartbeat() {
            said.answer(proves, grows, now);
            if grows || !proves {
                said.interrupt(self.resource_timeout, now);
            }
        }
        let kept = self.guard.judge((ty, true), gone & there, there, brought, now);
        self.keep_held(ty, true, kept);
        let gone = gone & !kept;
        let absent = if self.complete[ty] { State::Absent } else { State::Unknown };
        for (name, member) in self.members[ty].iter_mut().enumerate() {
            let is_member = matches!(member.state(), State::Present(_));
            if !is_member || gone & bit(name) != 0 {
                // To clients, a member that leaves before the membership is known may still be there.
                member.lose(absent, moment);
            }
        }
    }

    /// The engine holds that a name is absent because its timer ran out (TMR-5). Returns whether the verdict
    /// is right: the request is old enough, on a stream with a later sign of life (RLY-29), and the server
    /// never mentioned the name, although it has answered for the type, or owed no answer to a request that
    /// presented the known state (RLY-2).
    pub fn time_out(&mut self, ty: usize, name: usize, now: u64) -> bool {
        let timeout = self.resource_timeout;
        let is_over = |stream: &Stream| {
            let said = &stream.types[ty];
            let is_long = |since: u64| since + timeout <= now;
            let silence = said.asked_at.filter(|(since, _)| is_long(*since));
            let is_answer = |(_, signs): (u64, u32)| said.may_be_silent && stream.signs > signs;
            stream.receiving.is_none()
                && (said.spoken || silence.is_some_and(is_answer))
                && said.waiting[name].is_some_and(|(since, signs)| is_long(since) && stream.signs > signs)
                && !said.waiting[name]
                    .is_some_and(|(since, _)| said.answers(since).any(|at| at + timeout > now))
        };
        // A poll answers each name.
        let is_due = !self.polls && self.streams.iter().flatten().any(is_over);
        if is_due && self.names[ty][name].state() == State::Unknown {
            self.names[ty][name].lose(State::Absent, self.moment);
            for stream in self.streams.iter_mut().flatten() {
                stream.types[ty].waiting[name] = None;
            }
            return true;
        }
        false
    }

    /// A round trip begins on a stream.
    pub fn round_began(&mut self, index: usize, now: u64) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let answered = |said: &&mut StreamType| said.whole == Whole::Answered && said.quiet_until <= now;
        stream.types.iter_mut().filter(answered).for_each(|said| said.whole = Whole::Proving);
        let confirming = stream.types.iter_mut().filter_map(|said| said.confirming.as_mut());
        let is_quiet = |of: &&mut Confirming| of.until <= now && !of.is_proven;
        confirming.filter(is_quiet).for_each(|of| of.is_proving = true);
    }

    /// The round trip has ended: answers from before are complete, unless more are in flight.
    pub fn round_ended(&mut self, index: usize, now: u64) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let proving = |said: &&mut StreamType| said.whole == Whole::Proving;
        stream.types.iter_mut().filter(proving).for_each(|said| said.whole = Whole::Proven);
        let confirming = stream.types.iter_mut().filter_map(|said| said.confirming.as_mut());
        confirming.filter(|of| of.is_proving).for_each(|of| of.is_proven = true);
        self.settle_proven(index, now);
    }

    fn settle_proven(&mut self, index: usize, now: u64) {
        self.confirm_proven(index);
        let is_proven = |stream: &Stream| {
            stream.receiving.is_none() && stream.types.iter().any(|said| said.whole == Whole::Proven)
        };
        if !self.streams.get(index).and_then(Option::as_ref).is_some_and(is_proven) {
            return;
        }
        self.moment += 1;
        let moment = self.moment;
        let there: [Mask; TYPES] = std::array::from_fn(|ty| self.there(ty, true));
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        for (ty, said) in stream.types.iter_mut().enumerate().filter(|(_, said)| said.whole == Whole::Proven)
        {
            said.whole = Whole::Settled;
            if said.awaited > 0 {
                self.is_early.get_or_insert(ty);
            }
            if !said.wildcard || said.gave_up_wildcard || !self.demand[ty].wildcard {
                continue;
            }
            self.complete[ty] = true;
            if !self.confirmed[ty] {
                let (until, latest) =
                    (now + self.resource_timeout, now + CONFIRMED_WITHIN * self.resource_timeout);
                said.confirming = Some(Confirming { until, latest, is_proving: false, is_proven: false });
            }
            let gone = std::mem::take(&mut said.unconfirmed);
            let kept = self.guard.judge((ty, true), gone & there[ty], there[ty], 0, now);
            let gone = gone & !kept;
            bits(kept).for_each(|name| self.members[ty][name].upstream_version = Box::default());
            for (name, member) in self.members[ty].iter_mut().enumerate() {
                let is_member = matches!(member.state(), State::Present(_));
                if !is_member || gone & bit(name) != 0 {
                    member.lose(State::Absent, moment);
                }
            }
        }
    }

    /// Whether faulty responses leave the server's answer for a type open: its mark may stay.
    pub fn is_in_doubt(&self, ty: usize) -> bool {
        self.in_doubt[ty]
    }

    /// The server's answers are complete for all requests on a stream that still belong there.
    pub fn is_silent(&self, index: usize, is_here: impl Fn(usize) -> bool) -> bool {
        let Some(Some(stream)) = self.streams.get(index) else { return false };
        let mut asked = (0..TYPES).filter(|ty| stream.types[*ty].asked && is_here(*ty)).peekable();
        stream.receiving.is_none() && asked.peek().is_some() && asked.all(|ty| stream.types[ty].is_current)
    }

    /// The server is silent about a whole type, so that nothing follows for unknown names (RLY-2).
    pub fn is_unspoken(&self, ty: usize) -> bool {
        self.streams.iter().flatten().all(|stream| stream.types[ty].wildcard || !stream.types[ty].spoken)
    }

    /// The stream ended: its messages do not count on the next (DEL-28, TMR-4).
    pub fn stream_ended(&mut self, index: usize) {
        let ended = self.streams.get_mut(index).and_then(Option::take);
        for (ty, said) in ended.iter().flat_map(|stream| stream.types.iter().enumerate()) {
            // An incomplete set is not presented on the next stream, so that the server sends the set again.
            // If the stream dropped the wildcard, another stream may have completed the set since.
            if said.wildcard && !said.gave_up_wildcard && !self.complete[ty] {
                self.members[ty].iter_mut().for_each(|member| member.upstream_version = "".into());
            }
            self.doubt_errors(ty);
        }
    }

    pub fn stream_opened(&mut self, index: usize, variant: Variant) {
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        self.streams[index] = Some(Stream::new(variant));
    }

    pub fn alive(&mut self, index: usize, now: u64) {
        if let Some(Some(stream)) = self.streams.get_mut(index) {
            stream.signs += 1;
        }
        self.hear_silence(now);
    }
}

/// An element without a payload repeats the known version, or is a heartbeat in any version (TTL-4, TTL-10).
fn is_beat(track: &Track, variant: Variant, version: &str) -> bool {
    let is_held = matches!(track.state(), State::Present(_));
    variant == Variant::Sotw || (is_held && !version.is_empty() && *track.upstream_version == *version)
}

fn refresh(track: &mut Track, ttl: Option<u64>, now: u64) {
    if let (Some((_, known)), State::Present(_)) = (track.expires, track.state()) {
        let ttl = ttl.unwrap_or(known);
        track.expires = Some((now + ttl, ttl));
    }
}
