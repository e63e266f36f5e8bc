//! Servers that are polled (RST-10), and servers without a service for some types (RLY-25).
//!
//! A poll is a stream of one request and at most one answer. The poll begins before there is a connection, and
//! finds its server, or does not, when the request is written.

use std::time::Duration;

use sluice_engine::upstream::{Input, Transport};
use sluice_xds::{Code, Request, Status, Variant};

use super::control_plane::{PollAnswer, Reachable};
use super::judge::kind_of;
use super::message::Message;
use super::reference::{self, Source, StreamType};
use super::relay::{LINGER, RESOURCE_TIMEOUT};
use super::rng::Rng;
use super::schedule::{MILLI, SECOND, Wire};
use super::upstream::unavailable;
use super::words::{Mask, SHORT, TYPES, is_full_state, show};
use super::world::{Invariant, Job, World};

/// The time after which an attempt to connect is given up.
const CONNECT_TIMEOUT: u64 = 3 * SECOND;

impl World {
    pub fn transport(&self, server: usize) -> Transport {
        match self.plan.wire(server) {
            Wire::Aggregated => Transport::Aggregated,
            Wire::PerType => Transport::PerType,
            Wire::Rest => Transport::Rest { refresh_delay: Duration::from_micros(self.plan.refresh) },
        }
    }

    pub fn reference_of(&self, server: usize) -> reference::Source {
        let mut source = reference::Source::new(LINGER, RESOURCE_TIMEOUT).guarded(self.plan.mass);
        source.polls = self.plan.wire(server) == Wire::Rest;
        source
    }

    /// A server's versions of single resources reach the relay in delta only.
    pub fn tells_delta(&self, server: usize) -> bool {
        self.servers[server].delta && self.plan.wire(server) != Wire::Rest
    }

    /// The only type of a stream, which stays the same; `None`: all types.
    pub fn type_of_stream(&mut self, slot: usize, index: usize) -> Option<usize> {
        let words = &self.words;
        let this = &mut self.slots[slot];
        if this.wire == Wire::Aggregated {
            return None;
        }
        let is_here = |ty: &usize| kind_of(this.source.as_ref(), index, &words.types[*ty]).is_some();
        let ty = (0..TYPES).find(is_here);
        if this.of_types.len() <= index {
            this.of_types.resize(index + 1, None);
        }
        let before = this.of_types[index];
        this.of_types[index] = before.or(ty);
        if before.is_some() && ty.is_some() && before != ty {
            self.fail(Invariant::UpstreamEconomy, || format!("slot {slot}.{index} changes its type"));
        }
        before.or(ty)
    }

    // === a poll ===

    pub fn begin_poll(&mut self, id: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_open = true;
        let (slot, index) = (link.slot, link.index);
        self.slots[slot].reference.stream_opened(index, Variant::Sotw);
        self.slots[slot].hearing(index).open(now);
        self.tell(|| format!("slot {slot}.{index} polls"));
        self.input(slot, index, Input::Opened);
    }

    /// The request of a poll is written: with the names that are wanted now.
    pub fn poll_server(&mut self, id: u64, request: Request) {
        let Some(link) = self.links.get(&id) else { return };
        let (slot, index, server, ty) = (link.slot, link.index, link.server, link.ty.unwrap_or_default());
        let reference = &self.slots[slot].reference;
        let said = reference.streams[index].as_ref().map(|stream| &stream.types[ty]);
        let wanted = if said.is_some_and(|said| said.wildcard) { 0 } else { reference.wanted(ty) };
        let listed = said.map_or(0, |said| said.listed);
        if listed != wanted {
            self.fail(Invariant::UpstreamEconomy, || {
                let (listed, wanted) = (show(listed), show(wanted));
                format!("slot {slot}.{index} polls for {} {listed}, and {wanted} are wanted", SHORT[ty])
            });
        }
        let within = self.plan.gather + 20 * MILLI;
        let now = self.now;
        let since = self.slots[slot].reference.polls_for(ty, listed);
        if since.is_some_and(|since| now > since + within) {
            self.fail(Invariant::UpstreamEconomy, || {
                format!("slot {slot}.{index} polls late for the new names of {}", SHORT[ty])
            });
        }
        let latency = self.latency(server);
        let delay =
            if self.servers[server].reachable == Reachable::Silent { CONNECT_TIMEOUT } else { latency };
        self.after(delay, Job::Polled(id, Box::new(request)));
    }

    pub fn polled(&mut self, id: u64, request: &Request) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let (slot, index, server) = (link.slot, link.index, link.server);
        let ty = link.ty.unwrap_or_default();
        if self.servers[server].reachable != Reachable::Yes {
            let status = unavailable("refused");
            self.input(slot, index, Input::ConnectFailed { status: status.clone() });
            return self.end_link(id, status);
        }
        if self.servers[server].lacks_service(ty) {
            let status = Status::new(Code::Unimplemented, "404");
            return self.after(2 * MILLI, Job::EndedByServer(id, status));
        }
        let class = self.slots[slot].class;
        self.servers[server].open_poll(id, class);
        self.servers[server].request(&self.words, id, request);
        self.flush_soon(id);
    }

    pub fn answer_poll(&mut self, id: u64, server: usize) {
        let ty = self.links.get(&id).and_then(|link| link.ty).unwrap_or_default();
        match self.servers[server].answer_poll(id, ty) {
            Some(PollAnswer::Message(message)) => self.deliver(id, server, vec![message]),
            Some(PollAnswer::Unchanged) => {
                let latency = self.latency(server);
                self.after(latency, Job::Unchanged(id));
            }
            // The request is still on its way, or the answer is.
            None => {}
        }
    }

    /// The server answers that the version of the request is current (RST-4).
    pub fn unchanged(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let (slot, index, ty) = (link.slot, link.index, link.ty.unwrap_or_default());
        self.note(8, id, 0);
        self.tell(|| format!("slot {slot}.{index} is answered that {} did not change", SHORT[ty]));
        self.hear_answer(slot, index);
        self.slots[slot].reference.unchanged(index, ty);
        self.input(slot, index, Input::Unchanged);
        self.end_link(id, Status::ok());
    }

    // === faults ===

    /// A server has no service for a type, or has it again. For a server with delta the refusal would mean that
    /// it has no delta.
    pub fn unserve(&mut self, server: usize, rng: &mut Rng) {
        let ty = rng.below(TYPES as u64) as usize;
        if self.plan.wire(server) == Wire::Aggregated || self.tells_delta(server) {
            return;
        }
        self.servers[server].toggle_service(ty);
        let lacks = self.servers[server].lacks_service(ty);
        self.tell(|| format!("server {server} lacks the service for {}: {lacks}", SHORT[ty]));
    }
}

impl Source {
    /// Whether a response has the whole state of what was requested.
    pub(super) fn is_full(&self, ty: usize) -> bool {
        is_full_state(ty) || self.polls
    }

    /// New names are wanted while no poll is under way.
    pub(super) fn want_polls(&mut self, now: u64) {
        for ty in 0..TYPES {
            let asks = |said: &StreamType| said.asked && !said.wildcard;
            let is_asking = self.streams.iter().flatten().any(|stream| asks(&stream.types[ty]));
            let (last, wanted) = (self.last_polled[ty].0, self.wanted(ty));
            let is_due = !is_asking && self.polled[ty][0] && wanted & !last != 0;
            let since = self.last_polled[ty].1.filter(|_| is_due);
            self.last_polled[ty].1 = since.or(is_due.then_some(now));
        }
    }

    /// A poll has these names. Returns the time since which more names than in the last poll were wanted.
    pub(super) fn polls_for(&mut self, ty: usize, listed: Mask) -> Option<u64> {
        if listed == 0 {
            return None;
        }
        let (last, since) = std::mem::replace(&mut self.last_polled[ty], (listed, None));
        since.filter(|_| listed & !last != 0)
    }

    /// The polls of a collection are answered.
    pub(super) fn has_polled(&self, ty: usize, wildcard: bool) -> bool {
        self.polls && self.polled[ty][usize::from(wildcard)]
    }

    /// A poll was answered by a response. A rejected response makes nothing current (I9).
    pub(super) fn note_poll(&mut self, index: usize, message: &Message) {
        let Some(Some(stream)) = self.streams.get(index).filter(|_| self.polls) else { return };
        let kind = usize::from(stream.types[message.ty].wildcard);
        self.polled[message.ty][kind] |= !message.has_faults() && !message.is_heartbeat();
    }

    /// A poll was answered: nothing changed.
    pub fn unchanged(&mut self, index: usize, ty: usize) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let said = &mut stream.types[ty];
        (said.is_answered, said.is_good) = (true, true);
        self.polled[ty][usize::from(said.wildcard)] = true;
    }

    /// A poll without an answer ends the currency of its type.
    pub fn end_poll(&mut self, index: usize) {
        let Some(Some(stream)) = self.streams.get(index).filter(|_| self.polls) else { return };
        let is_failed = |said: &&StreamType| said.asked && !said.is_answered;
        for (ty, said) in stream.types.iter().enumerate().filter(|(_, said)| is_failed(said)) {
            self.polled[ty][usize::from(said.wildcard)] = false;
        }
    }
}
