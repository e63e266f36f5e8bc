//! Isolates types for which a server ends the stream: they are requested on streams of their own (ADR 15).
//!
//! ```text
//!                 ends soon after T was asked               stays open for 6 s
//!   with others ─────────────────────────────▶ alone ──────────────────────────▶ with others
//!                                              │   ▲
//!                                              └───┘ ends again: backoff, clients are told
//! ```
//!
//! The stream of the others opens at once, without the suspect. Suspects are tried in sequence, so that there
//! is one stream of unknown effect at a time. The suspect's resources stay: the subscription moves with its
//! versions.

use std::time::Duration;

use super::{Machine, StreamIndex, Streams};
use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::suspect::Suspect;
use crate::engine::upstream::{Event, Input, LinkState, Output, SOON, Transport, Upstream};
use crate::xds::{Status, TypeUrl};

/// A suspect whose stream stays open this long is cleared, because a faulty type ends the stream within
/// [`SOON`]. The extra second separates the suspect's return from the other types of the shared stream, which
/// were requested at its opening.
const STAYS: Duration = SOON.saturating_add(Duration::from_secs(1));

/// A silent suspect on an open stream lets the next suspect try after this time: a faulty type usually ends
/// the stream sooner.
const TURN: Duration = Duration::from_secs(1);

/// The maximum number of remembered suspects without sessions. Clients that ask for invented types cost
/// bounded memory.
const REMEMBERED_MAX: usize = 64;

impl Streams {
    pub fn handle(&mut self, index: StreamIndex, input: Input, now: Time) {
        let may_blame = self.is_settled(index);
        self.note_connection(&input, now);
        let Some(machine) = self.machines.get_mut(index) else { return };
        match input {
            Input::Ended { status, jitter } if may_blame => {
                let blamed = machine.upstream.handle_end(status.clone(), jitter, now);
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
        self.look_into_doubts(now);
        self.forget_connection();
    }

    /// Only a stream with several types can be blamed on a type, and only without failover to another server.
    pub(super) fn is_settled(&self, index: StreamIndex) -> bool {
        let is_settled = |machine: &Machine| {
            machine.is_shared() && (!self.settings.failover || machine.upstream.stays_with_primary())
        };
        self.settings.transport == Transport::Aggregated && self.machines.get(index).is_some_and(is_settled)
    }

    /// Moves a type from a shared stream, which ended, to a stream of its own.
    fn suspect(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        let Some(kind) = self.kind_of(index, type_url) else { return };
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
            // The delay also holds for clients that drop the type meanwhile and ask again.
            machine.hold_off(not_before);
            machine.carry(carried, not_before, now);
        }
        self.placed.insert((type_url.clone(), kind), alone);
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
        self.outputs.push_back((index, Output::Event(Event::EndsStream { type_url, status, ends })));
    }

    /// The separate stream for a recent suspect; `None` if the type is no suspect.
    pub(super) fn place_suspect(&mut self, type_url: &TypeUrl, now: Time) -> Option<StreamIndex> {
        let suspect = self.suspects.get(type_url)?;
        if !suspect.is_alone || suspect.is_old(now) {
            return None;
        }
        let shared = self.machines.iter().position(Machine::is_shared)?;
        let index = self.place_alone(type_url, shared);
        if let Some(machine) = self.machine(index) {
            // The stream opens in its turn.
            machine.hold_off(now + Duration::from_millis(1));
        }
        Some(index)
    }

    /// A machine for a stream of this type alone, with the settings of a shared stream. The machine inherits
    /// the wait of its predecessor: a client that drops the type and asks again causes no attempts beyond the
    /// backoff.
    fn place_alone(&mut self, type_url: &TypeUrl, shared: StreamIndex) -> StreamIndex {
        let upstream = self.machines[shared].upstream.beside();
        let mut machine = Machine { alone: Some(type_url.clone()), ..Machine::new(None, upstream) };
        let is_own = |machine: &Machine| machine.alone.as_ref() == Some(type_url);
        // Machines of other suspects keep their state as long as the suspects are remembered.
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

    /// Whether a stream carries a suspect alone. The stream's state then tells nothing about the server or
    /// other types.
    pub fn is_alone(&self, index: StreamIndex) -> bool {
        self.machines.get(index).is_some_and(|machine| machine.alone.is_some())
    }

    /// The record of a suspect that has a separate stream.
    pub fn suspect_of(&self, type_url: &TypeUrl) -> Option<&Suspect> {
        self.suspects.get(type_url).filter(|suspect| suspect.is_alone)
    }

    /// The time of the next attempt for a type whose stream waits.
    pub fn next_try(&self, type_url: &TypeUrl) -> Option<Time> {
        let placed = [CollectionKind::Wildcard, CollectionKind::Globs, CollectionKind::Names]
            .map(|kind| self.placed(type_url, kind));
        let waits = |index: &StreamIndex| {
            let machine = self.machines.get(*index);
            machine.is_some_and(|machine| matches!(machine.upstream.state(), LinkState::Waiting { .. }))
        };
        placed.into_iter().flatten().filter(waits).filter_map(|index| self.due(index)).min()
    }

    /// The number of types with separate streams, including types that wait for their turn.
    pub fn suspect_streams(&self) -> usize {
        self.machines.iter().filter(|machine| machine.alone.is_some() && !machine.upstream.is_done()).count()
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        (0..self.machines.len()).filter_map(|index| self.due(index)).chain(self.doubts_due()).min()
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
        self.look_into_doubts(now);
        self.forget_connection();
    }

    fn due(&self, index: StreamIndex) -> Option<Time> {
        let Machine { alone, upstream, .. } = self.machines.get(index)?;
        let due = upstream.poll_timeout();
        if alone.is_none() {
            return due;
        }
        match upstream.state() {
            LinkState::Waiting { until } => Some(self.turn_from()?.max(until)),
            LinkState::Open => due.into_iter().chain(stays_until(upstream)).min(),
            LinkState::Closed | LinkState::Opening => due,
        }
    }

    /// The earliest time for the next suspect's turn; `None` while the stream of a suspect opens.
    fn turn_from(&self) -> Option<Time> {
        let mut from = Time::ZERO;
        for Machine { alone, upstream, .. } in &self.machines {
            let Some(type_url) = alone else { continue };
            match upstream.state() {
                LinkState::Opening => return None,
                LinkState::Open if !upstream.has_answered(type_url) => {
                    from = from.max(upstream.since() + TURN)
                }
                LinkState::Open | LinkState::Waiting { .. } | LinkState::Closed => {}
            }
        }
        Some(from)
    }

    /// Opens the stream of the next suspect, if its turn has come.
    fn open_in_turn(&mut self, now: Time) {
        for index in 0..self.machines.len() {
            let is_waiting = |machine: &Machine| {
                machine.alone.is_some() && matches!(machine.upstream.state(), LinkState::Waiting { .. })
            };
            if self.machines.get(index).is_some_and(is_waiting)
                && self.due(index).is_some_and(|due| due <= now)
                && let Some(machine) = self.machine(index)
            {
                machine.handle_timeout(now);
            }
        }
    }

    /// The server tolerates the type: the type moves back to a shared stream.
    fn take_back(&mut self, index: StreamIndex, now: Time) {
        let Some(type_url) = self.machines.get(index).and_then(|machine| machine.alone.clone()) else {
            return;
        };
        let kind = self.kind_of(index, &type_url);
        let Some(machine) = self.machine(index) else { return };
        let carried = kind.and_then(|kind| Some((kind, machine.release(&type_url, now)?)));
        let Some((kind, carried)) = carried else {
            // No session wants the type any more: a trial would be pointless.
            return machine.close_idle(now);
        };
        if let Some(suspect) = self.suspects.get_mut(&type_url) {
            suspect.is_alone = false;
        }
        let home = self.place_shared(&type_url, index);
        self.placed.insert((type_url.clone(), kind), home);
        if let Some(machine) = self.machine(home) {
            machine.carry(carried, now, now);
            if matches!(machine.state(), LinkState::Waiting { until } if until <= now) {
                machine.handle_timeout(now);
            }
        }
        self.outputs.push_back((home, Output::Event(Event::BearsType { type_url })));
    }

    /// A shared stream without subscriptions to this type.
    fn place_shared(&mut self, type_url: &TypeUrl, like: StreamIndex) -> StreamIndex {
        let is_free = |machine: &Machine| machine.is_shared() && !machine.upstream.knows(type_url);
        self.machines.iter().position(is_free).unwrap_or_else(|| {
            let settings = self.settings.clone();
            debug_assert!(self.is_alone(like));
            self.machines.push(Machine::new(None, Upstream::new(settings)));
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

/// The end of the trial of an open stream.
fn stays_until(upstream: &Upstream) -> Option<Time> {
    matches!(upstream.state(), LinkState::Open).then(|| upstream.since() + STAYS)
}
