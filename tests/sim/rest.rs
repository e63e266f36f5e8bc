//! The judge at the end of a schedule: everything is at rest, and then all clients have left.

use sluice_xds::Variant;

use super::judge::due_of;
use super::schedule::Wire;
use super::track::State;
use super::words::{EDS, SHORT, TYPES, bit, bits, is_full_state, list_of, show, show_content};
use super::world::{Invariant, World};

impl World {
    /// I1: every client has the resources of its servers, from the servers' last messages.
    pub fn judge_rest(&mut self) {
        for client in 0..self.clients.len() {
            let Some(id) = self.clients[client].stream else {
                if !self.clients[client].has_left {
                    self.fail(Invariant::Convergence, || format!("client {client} has no stream"));
                }
                continue;
            };
            let Some(Some(stream)) = self.streams.get(id as usize) else { continue };
            let served = self.all_serving(stream);
            if served.iter().any(|server| *server > 0) {
                self.fail(Invariant::Revert, || {
                    format!("client {client} is served by {served:?}, though all is well")
                });
            }
            let Some(Some(stream)) = self.streams.get(id as usize) else { continue };
            let slots = [self.slot_of(stream, 0, EDS), self.slot_of(stream, 1, EDS)];
            // The names that the relay knows the client to have, and that exist.
            let held = stream.mirror[EDS].wanted & stream.mirror[EDS].mask() & stream.mirror[EDS].known;
            let is_there = |name: &usize| {
                let source = &self.slots[slots[list_of(*name)]].reference;
                matches!(source.names[EDS][*name].state(), State::Present(_))
            };
            let forced = bits(stream.forced & held).filter(is_there).fold(0, |mask, name| mask | bit(name));
            if forced != 0 && !self.is_set_withheld(client, slots, EDS) {
                self.fail(Invariant::Order, || {
                    format!("ORD-5: client {client} waits for the endpoints of the clusters {}", show(forced))
                });
            }
            for ty in 0..TYPES {
                let Some(Some(stream)) = self.streams.get(id as usize) else { continue };
                let slots = [self.slot_of(stream, 0, ty), self.slot_of(stream, 1, ty)];
                for name in bits(self.plan.names) {
                    self.judge_rest_of(client, slots, ty, name);
                }
            }
        }
        for slot in 0..self.slots.len() {
            let this = &self.slots[slot];
            let is_lower = !self.is_first(slot) && !this.is_nobody;
            if is_lower && (!this.reference.is_idle() || this.links.iter().any(Option::is_some)) {
                self.fail(Invariant::Revert, || {
                    format!("slot {slot} is still asked, though it is not the first of a list")
                });
            }
            self.judge_truth(slot);
            self.judge_listed(slot);
        }
    }

    /// Whether a name that its server never mentions, or mentions only in an error (ERR-8), delays a full-state answer as a
    /// whole (RLY-5).
    fn is_set_withheld(&self, client: usize, slots: [usize; 2], ty: usize) -> bool {
        let held = &self.clients[client].types[ty];
        let is_unsaid = |other: usize| {
            let source = &self.slots[slots[list_of(other)]].reference;
            let track = &source.names[ty][other];
            track.state() == State::Unknown && (source.is_unspoken(ty) || track.failed.is_some())
        };
        held.is_full(ty, self.clients[client].variant()) && bits(held.wanted).any(is_unsaid)
    }

    fn judge_rest_of(&mut self, client: usize, slots: [usize; 2], ty: usize, name: usize) {
        let slot = slots[list_of(name)];
        let held = &self.clients[client].types[ty];
        if !held.asked || (held.wanted & bit(name) == 0 && !(held.wildcard && list_of(name) == 0)) {
            return;
        }
        let variant = self.clients[client].variant();
        let is_full = held.is_full(ty, variant);
        let source = &self.slots[slot].reference;
        let due = due_of(source, ty, name, held, is_full, source.moment);
        let found = held.resources[name];
        let is_right = match due {
            _ if self.is_set_withheld(client, slots, ty) => true,
            State::Present(content) => found == content,
            // Silence about a type means nothing for a name (RLY-2).
            State::Unknown => source.is_unspoken(ty) || source.names[ty][name].failed.is_some(),
            // A SotW client does not learn of removals of these types (SST-6).
            State::Absent if variant == Variant::Sotw && !is_full => true,
            State::Absent => found == 0 || held.stale & bit(name) != 0,
        };
        if !is_right {
            let what = format!(
                "client {client} ({variant:?}) holds {} {} as {}",
                SHORT[ty],
                show(bit(name)),
                show_content(found)
            );
            self.fail(Invariant::Convergence, || format!("{what}, and slot {slot} has {due:?}"));
        }
    }

    /// The known state of a source is the server's state.
    fn judge_truth(&mut self, slot: usize) {
        if self.slots[slot].is_nobody {
            return;
        }
        let (server, class) = (self.slots[slot].server, self.slots[slot].class);
        for ty in 0..TYPES {
            for name in bits(self.plan.names) {
                let reference = &self.slots[slot].reference;
                let truth = self.servers[server].truth[class][ty][name];
                if reference.wanted(ty) & bit(name) != 0 {
                    let state = reference.names[ty][name].state();
                    // A resource without a version cannot be presented. A server that does not report absence
                    // then stays silent about it on the next stream, and nothing follows from the silence
                    // (RLY-28).
                    let is_unclaimed = reference.names[ty][name].upstream_version.is_empty();
                    let tells_nothing = match self.servers[server].delta {
                        _ if self.plan.wire(server) == Wire::Rest => false,
                        true => {
                            let this = &self.servers[server];
                            this.is_silent_again(class, ty, name) || this.mute && is_unclaimed
                        }
                        false => !is_full_state(ty),
                    };
                    let is_polled = self.plan.wire(server) == Wire::Rest;
                    let is_mute = !is_polled && (self.servers[server].mute || !self.servers[server].delta);
                    let is_silent = is_mute && reference.is_unspoken(ty);
                    let is_right = match (state, truth) {
                        (State::Present(content), Some(entry)) => entry.content == content,
                        (State::Absent, None) => true,
                        (State::Present(_), None) => tells_nothing,
                        // The server's last answer was an error; SotW has no other answer.
                        (State::Unknown, None) => is_silent || reference.names[ty][name].failed.is_some(),
                        (State::Absent, Some(_)) | (State::Unknown, Some(_)) => false,
                    };
                    if !is_right {
                        self.fail(Invariant::Convergence, || {
                            format!(
                                "slot {slot} holds {} {} as {state:?}, and its server {truth:?}",
                                SHORT[ty],
                                show(bit(name))
                            )
                        });
                    }
                }
                let reference = &self.slots[slot].reference;
                if reference.wants_wildcard(ty) {
                    let state = reference.members[ty][name].state();
                    let due = truth.filter(|entry| entry.member).map(|entry| entry.content);
                    // A SotW server cannot report removals of members of these types (SST-4).
                    let is_full = is_full_state(ty) || self.plan.wire(server) == Wire::Rest;
                    let tells_nothing = !self.servers[server].delta && !is_full;
                    let is_right = match state {
                        State::Present(_) if due.is_none() => tells_nothing,
                        State::Present(content) => due == Some(content),
                        State::Absent => due.is_none(),
                        State::Unknown => false,
                    };
                    if !is_right {
                        self.fail(Invariant::Convergence, || {
                            format!(
                                "slot {slot} has the {} member {} as {state:?}, and its server {truth:?}",
                                SHORT[ty],
                                show(bit(name))
                            )
                        });
                    }
                }
            }
        }
    }

    /// I16: without clients, nothing remains.
    pub fn judge_idle(&mut self) {
        for slot in 0..self.slots.len() {
            let (this, reference) = (&self.slots[slot], &self.slots[slot].reference);
            let Some(source) = &this.source else { continue };
            let left = source.types().count();
            let is_idle = source.is_idle() && left == 0 && source.lingering_bytes() == 0;
            let is_quiet = this.links.iter().all(Option::is_none) && this.snapshot.types().next().is_none();
            if !is_idle || !is_quiet || !reference.is_idle() {
                self.fail(Invariant::Hygiene, || format!("slot {slot} is not idle: {left} types are left"));
            }
        }
        let open = self.servers.iter().map(|server| server.streams()).sum::<usize>();
        if open + self.links.len() > 0 {
            self.fail(Invariant::Hygiene, || format!("{open} streams are open for nobody"));
        }
    }
}
