//! Types for which a server ends the stream are asked for on streams of their own (ADR 15).
//!
//! ```text
//!                 ends soon after T was asked               stays open for 6 s
//!   with others ─────────────────────────────▶ alone ──────────────────────────▶ with others
//!                                              │   ▲
//!                                              └───┘ ends again: backoff, clients are told
//! ```
//!
//! The stream of the others opens at once, without the suspect. Suspects are asked one after the other, so that there is
//! one stream of unknown effect at a time. What they had stays: the subscription goes with its versions.

use std::time::Duration;

use super::StreamIndex;
use super::attachment::{Machine, Streams};
use crate::engine::Time;
use crate::engine::interest::Shape;
use crate::engine::upstream::{Event, Input, SOON, State, Transport, Upstream};
use crate::xds::{Status, TypeUrl};

/// A suspect whose stream stays open for so long does not end it: what does, does so soon. A second more than that, so that what the
/// shared stream was asked for when it opened is not blamed with a suspect that came back to it.
const STAYS: Duration = SOON.saturating_add(Duration::from_secs(1));

/// A suspect that is silent on an open stream leaves the turn to the next one after this time: what ends a stream does so
/// sooner.
const TURN: Duration = Duration::from_secs(1);

/// A suspect that was taken back and blamed again waits for its next trial on the shared stream, so that the others are
/// interrupted ever less often: twice as long each time, up to the cap.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// What ended a stream is remembered for this long: who asks for it anew is served by a stream of its own at once.
const MEMORY: Duration = Duration::from_secs(600);

/// Suspects that are remembered though nobody wants them, so that clients that ask for invented types cost a bounded memory.
const REMEMBERED_MAX: usize = 64;

/// A type after which the server ended the stream.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// When it did so first.
    pub since: Time,
    /// The streams that ended so.
    pub ends: u32,
    /// With which the last of them ended.
    pub status: Status,
    /// It is asked for on a stream of its own.
    pub is_alone: bool,
    /// How often the shared stream ended.
    interruptions: u32,
    last: Time,
}

impl Suspect {
    fn new(status: Status, now: Time) -> Suspect {
        Suspect { since: now, ends: 0, status, is_alone: true, interruptions: 0, last: now }
    }

    fn ended(&mut self, status: &Status, now: Time) {
        self.ends = self.ends.saturating_add(1);
        (self.status, self.last, self.is_alone) = (status.clone(), now, true);
    }

    fn wait(&self) -> Duration {
        match self.interruptions {
            0 | 1 => Duration::ZERO,
            // 2^10 s is above the cap.
            more => (AGAIN * (1 << (more - 2).min(10))).min(AGAIN_MAX),
        }
    }

    fn is_old(&self, now: Time) -> bool {
        now.since(self.last) > MEMORY
    }
}

impl Streams {
    pub fn handle(&mut self, index: StreamIndex, input: Input, now: Time) {
        let may_blame = self.may_blame(index);
        self.note_connection(&input, now);
        let Some(machine) = self.machines.get_mut(index) else { return };
        match input {
            Input::Ended { status, jitter } if may_blame => {
                let blamed = machine.upstream.ended(status.clone(), jitter, now);
                for type_url in &blamed {
                    self.suspect(index, type_url, &status, now);
                }
                if let Some(machine) = self.machine(index).filter(|_| !blamed.is_empty()) {
                    machine.handle_timeout(now);
                }
            }
            Input::Ended { status, jitter } => {
                let alone = machine.alone.clone();
                let unanswered = alone.filter(|type_url| !machine.upstream.has_answered(type_url));
                machine.upstream.handle(Input::Closed { status: status.clone(), jitter }, now);
                if let Some(type_url) = unanswered {
                    self.ended_again(index, &type_url, &status, now);
                }
            }
            input => machine.upstream.handle(input, now),
        }
        self.open_in_turn(now);
    }

    /// Of streams that carry several types, and go to a server that is not exchanged for another one.
    fn may_blame(&self, index: StreamIndex) -> bool {
        let is_settled = |machine: &Machine| {
            machine.alone.is_none() && (!self.settings.failover || machine.upstream.stays_with_primary())
        };
        self.settings.transport == Transport::Aggregated && self.machines.get(index).is_some_and(is_settled)
    }

    /// Moves a type from a shared stream, which ended, to one of its own.
    fn suspect(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        let Some(shape) = self.shape_of(index, type_url) else { return };
        let Some(carried) = self.machine(index).and_then(|machine| machine.release(type_url, now)) else {
            return;
        };
        self.forget_old(now);
        let suspect =
            self.suspects.entry(type_url.clone()).or_insert_with(|| Suspect::new(status.clone(), now));
        suspect.ended(status, now);
        suspect.interruptions = suspect.interruptions.saturating_add(1);
        let (ends, not_before) = (suspect.ends, now + suspect.wait());
        let alone = self.place_alone(type_url, index);
        if let Some(machine) = self.machine(alone) {
            // Also for who drops it meanwhile, and asks again.
            machine.hold_off(not_before);
            machine.carry(carried, not_before, now);
        }
        self.placed.insert((type_url.clone(), shape), alone);
        self.tell_suspect(alone, type_url, status, ends);
    }

    fn ended_again(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        let Some(suspect) = self.suspects.get_mut(type_url) else { return };
        suspect.ended(status, now);
        let ends = suspect.ends;
        self.tell_suspect(index, type_url, status, ends);
    }

    fn tell_suspect(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, ends: u32) {
        let (type_url, status) = (type_url.clone(), status.clone());
        self.events.push_back((index, Event::EndsStream { type_url, status, ends }));
    }

    /// A type that ended a stream lately: where to ask for it alone.
    pub(super) fn place_suspect(&mut self, type_url: &TypeUrl, now: Time) -> Option<StreamIndex> {
        let suspect = self.suspects.get(type_url)?;
        if !suspect.is_alone || suspect.is_old(now) {
            return None;
        }
        let shared = self.machines.iter().position(|machine| machine.alone.is_none())?;
        let index = self.place_alone(type_url, shared);
        if let Some(machine) = self.machine(index) {
            // It opens when it has the turn.
            machine.hold_off(now + Duration::from_millis(1));
        }
        Some(index)
    }

    /// A machine for a stream of this type alone, like that of a shared stream. It waits as long as the one before it: a client
    /// that drops the type and asks for it again makes no attempts beside those of the backoff.
    fn place_alone(&mut self, type_url: &TypeUrl, shared: StreamIndex) -> StreamIndex {
        let upstream = self.machines[shared].upstream.beside();
        let mut machine = Machine { type_url: None, alone: Some(type_url.clone()), upstream };
        let is_own = |machine: &Machine| machine.alone.as_ref() == Some(type_url);
        // What is known of other suspects is kept as long as they are remembered.
        let is_over = |machine: &Machine| {
            machine.alone.as_ref().is_some_and(|alone| !self.suspects.contains_key(alone))
        };
        let find = |is_free: &dyn Fn(&Machine) -> bool| {
            self.machines.iter().position(|machine| is_free(machine) && machine.upstream.is_done())
        };
        match find(&is_own).or_else(|| find(&is_over)) {
            Some(index) => {
                if is_own(&self.machines[index]) {
                    machine.upstream.wait_like(&self.machines[index].upstream);
                }
                self.machines[index] = machine;
                index
            }
            None => {
                self.machines.push(machine);
                self.machines.len() - 1
            }
        }
    }

    /// Whether a stream carries a suspect alone: it says nothing of the server, nor of other types.
    pub fn is_alone(&self, index: StreamIndex) -> bool {
        self.machines.get(index).is_some_and(|machine| machine.alone.is_some())
    }

    /// What is known against a type.
    pub fn suspect_of(&self, type_url: &TypeUrl) -> Option<&Suspect> {
        self.suspects.get(type_url).filter(|suspect| suspect.is_alone)
    }

    /// When a type is asked for again whose stream waits.
    pub fn next_try(&self, type_url: &TypeUrl) -> Option<Time> {
        let placed = [Shape::Wildcard, Shape::Globs, Shape::Names].map(|shape| self.placed(type_url, shape));
        let waits = |index: &StreamIndex| {
            let machine = self.machines.get(*index);
            machine.is_some_and(|machine| matches!(machine.upstream.state(), State::Waiting { .. }))
        };
        placed.into_iter().flatten().filter(waits).filter_map(|index| self.due(index)).min()
    }

    /// How many types are asked for on streams of their own, or wait for their turn.
    pub fn suspect_streams(&self) -> usize {
        self.machines.iter().filter(|machine| machine.alone.is_some() && !machine.upstream.is_done()).count()
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        (0..self.machines.len()).filter_map(|index| self.due(index)).min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.machines.len() {
            let is_due = self.due(index).is_some_and(|due| due <= now);
            let Some(machine) = self.machines.get_mut(index).filter(|_| is_due) else { continue };
            if machine.alone.is_some() && stays_until(&machine.upstream).is_some_and(|until| until <= now) {
                self.take_back(index, now);
            } else {
                machine.upstream.handle_timeout(now);
            }
        }
    }

    fn due(&self, index: StreamIndex) -> Option<Time> {
        let Machine { alone, upstream, .. } = self.machines.get(index)?;
        let due = upstream.poll_timeout();
        if alone.is_none() {
            return due;
        }
        match upstream.state() {
            State::Waiting { until } => Some(self.turn_from()?.max(until)),
            State::Open => due.into_iter().chain(stays_until(upstream)).min(),
            State::Closed | State::Opening => due,
        }
    }

    /// From when on the next suspect may be asked; `None` while the stream of one opens.
    fn turn_from(&self) -> Option<Time> {
        let mut from = Time::ZERO;
        for Machine { alone, upstream, .. } in &self.machines {
            let Some(type_url) = alone else { continue };
            match upstream.state() {
                State::Opening => return None,
                State::Open if !upstream.has_answered(type_url) => from = from.max(upstream.since() + TURN),
                State::Open | State::Waiting { .. } | State::Closed => {}
            }
        }
        Some(from)
    }

    /// Opens the stream of the next suspect, if it may.
    fn open_in_turn(&mut self, now: Time) {
        for index in 0..self.machines.len() {
            let is_waiting = |machine: &Machine| {
                machine.alone.is_some() && matches!(machine.upstream.state(), State::Waiting { .. })
            };
            if self.machines.get(index).is_some_and(is_waiting)
                && self.due(index).is_some_and(|due| due <= now)
                && let Some(machine) = self.machine(index)
            {
                machine.handle_timeout(now);
            }
        }
    }

    /// The server bears with the type: it is asked for with the others again.
    fn take_back(&mut self, index: StreamIndex, now: Time) {
        let Some(type_url) = self.machines.get(index).and_then(|machine| machine.alone.clone()) else {
            return;
        };
        let shape = self.shape_of(index, &type_url);
        let Some(machine) = self.machine(index) else { return };
        let carried = shape.and_then(|shape| Some((shape, machine.release(&type_url, now)?)));
        let Some((shape, carried)) = carried else {
            // Nothing is wanted of it any more, so that its stream has no trial to stand.
            return machine.close_idle(now);
        };
        if let Some(suspect) = self.suspects.get_mut(&type_url) {
            suspect.is_alone = false;
        }
        let home = self.place_shared(&type_url, index);
        self.placed.insert((type_url.clone(), shape), home);
        if let Some(machine) = self.machine(home) {
            machine.carry(carried, now, now);
            if matches!(machine.state(), State::Waiting { until } if until <= now) {
                machine.handle_timeout(now);
            }
        }
        self.events.push_back((home, Event::BearsType { type_url }));
    }

    /// A shared stream that has nothing of this type.
    fn place_shared(&mut self, type_url: &TypeUrl, like: StreamIndex) -> StreamIndex {
        let is_free = |machine: &Machine| machine.alone.is_none() && !machine.upstream.knows(type_url);
        self.machines.iter().position(is_free).unwrap_or_else(|| {
            let settings = self.settings.clone();
            debug_assert!(self.is_alone(like));
            self.machines.push(Machine { type_url: None, alone: None, upstream: Upstream::new(settings) });
            self.machines.len() - 1
        })
    }

    fn forget_old(&mut self, now: Time) {
        let machines = &self.machines;
        let is_wanted = |type_url: &TypeUrl| {
            let mut carriers = machines.iter().filter(|machine| machine.alone.as_ref() == Some(type_url));
            carriers.any(|machine| !machine.upstream.is_idle())
        };
        self.suspects.retain(|type_url, suspect| !suspect.is_old(now) || is_wanted(type_url));
        while self.suspects.len() >= REMEMBERED_MAX {
            let unwanted = self.suspects.iter().filter(|(type_url, _)| !is_wanted(type_url));
            let oldest =
                unwanted.min_by_key(|(_, suspect)| suspect.last).map(|(type_url, _)| type_url.clone());
            let Some(oldest) = oldest else { return };
            self.suspects.remove(&oldest);
        }
    }
}

/// Until when it has to stay open.
fn stays_until(upstream: &Upstream) -> Option<Time> {
    matches!(upstream.state(), State::Open).then(|| upstream.since() + STAYS)
}
