//! The pending changes of each client, and their latencies. The clock of a change starts at its *scheduled*
//! time, and a change that a server skipped in favour of a newer change counts until the newer arrived: a
//! slow server gains nothing by sending less (coordinated omission).

mod audiences;

use anyhow::Result;

use self::audiences::Audiences;
use super::histogram::Histogram;
use super::spec::{Source, Spec};
use crate::client::{Manner, Observer, Profile, Response};
use crate::control_plane::Change;
use crate::xds::{Kind, Variant};

/// A change at the control plane.
struct Made {
    at: u64,
    phase: usize,
    /// The number of clients without the change, and the time of the last arrival.
    due: usize,
    last_at: u64,
    delivered: usize,
}

/// A change that a client has yet to get.
#[derive(Clone, Copy)]
struct Awaited {
    change: u32,
    /// The number of the change's resources in the client's subscription, and the number that have arrived.
    wanted: u32,
    seen: u32,
    /// False for misbehaving clients: the run does not wait for these.
    counts: bool,
}

/// Names that a client has subscribed to during the run.
struct Move {
    scheduled: u64,
    first: usize,
    missing: Vec<bool>,
}

#[derive(Default)]
struct Client {
    awaited: Vec<Awaited>,
    moving: Option<Box<Move>>,
    offset: usize,
    /// The client was opened and is not lost for good.
    alive: bool,
    /// The newest stamp, for foreign changes.
    newest: u64,
    spread: Spread,
}

/// The latencies of one client.
#[derive(Clone, Copy, Default)]
pub struct Spread {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// A part of a run: a change belongs to the part with its scheduled time.
pub struct Phase {
    pub name: String,
    pub since: u64,
    pub updates: Histogram,
}

pub struct Tracker {
    profile: Profile,
    clients: Vec<Client>,
    changes: Vec<Made>,
    /// The number of changes after which the same resources change again; 1 if every change has the same
    /// resources.
    cycle: usize,
    /// Clients below this number misbehave, after their start.
    odd: usize,
    odd_manner: Option<Manner>,
    retry: bool,
    /// The changes are foreign: any newer stamp is a change.
    foreign: bool,
    /// The number of pairs of a client and a pending change.
    due: usize,
    pub phases: Vec<Phase>,
    pub updates: Histogram,
    pub interval: Histogram,
    pub odd_updates: Histogram,
    pub first_answers: Histogram,
    pub reconnects: Histogram,
    pub moves: Histogram,
    pub responses: u64,
    /// Resources that answers took away.
    pub removals: u64,
    pub audiences: Audiences,
}

impl Tracker {
    /// `odd`: the number of clients that will misbehave.
    pub fn new(spec: &Spec, odd: usize) -> Result<Tracker> {
        Ok(Tracker {
            profile: spec.profile.clone(),
            clients: std::iter::repeat_with(Client::default).take(spec.clients).collect(),
            changes: Vec::new(),
            cycle: spec.pace.cycle().max(1),
            odd,
            odd_manner: None,
            retry: spec.retry,
            foreign: matches!(spec.source, Source::Foreign),
            due: 0,
            phases: Vec::new(),
            updates: Histogram::new()?,
            interval: Histogram::new()?,
            odd_updates: Histogram::new()?,
            first_answers: Histogram::new()?,
            reconnects: Histogram::new()?,
            moves: Histogram::new()?,
            responses: 0,
            removals: 0,
            audiences: Audiences::new(&spec.profile.function, spec.clients, spec.pace.kind)?,
        })
    }

    pub fn begin_phase(&mut self, name: &str, now: u64) -> Result<()> {
        self.phases.push(Phase { name: name.to_owned(), since: now, updates: Histogram::new()? });
        Ok(())
    }

    /// The chosen clients misbehave from now on.
    pub fn start_misbehaving(&mut self, manner: Manner) {
        self.odd_manner = Some(manner);
        for client in self.clients.iter_mut().take(self.odd) {
            for awaited in &mut client.awaited {
                self.due -= usize::from(awaited.counts);
                self.changes[awaited.change as usize].due -= usize::from(awaited.counts);
                awaited.counts = false;
            }
        }
    }

    /// Records a change scheduled at `at`.
    pub fn change(&mut self, change: Change, at: u64) {
        let number = self.changes.len() as u32;
        let mut due = 0;
        for (index, client) in self.clients.iter_mut().enumerate() {
            let odd = self.odd_manner.filter(|_| index < self.odd);
            let reads = odd.is_none_or(|manner| manner.reading != crate::client::Reading::Stopped);
            if !client.alive || !reads {
                continue;
            }
            let Change { kind, residue, stride } = change;
            let wanted = self.profile.wanted_of(kind, index, client.offset, residue, stride) as u32;
            if wanted > 0 {
                due += usize::from(odd.is_none());
                client.awaited.push(Awaited { change: number, wanted, seen: 0, counts: odd.is_none() });
            }
        }
        self.due += due;
        self.changes.push(Made { at, phase: self.phases.len() - 1, due, last_at: at, delivered: 0 });
    }

    /// The rule of the control plane's function is in force from now on.
    pub fn put_rule_in_force(&mut self, at: u64) {
        let clients = &self.clients;
        self.audiences.put_rule_in_force(at, |client| clients[client].alive);
    }

    /// The number of pending pairs of a client and a change, the rule among the changes.
    pub fn due(&self) -> usize {
        self.due + self.audiences.due()
    }

    pub fn awaits(&self, client: usize) -> bool {
        self.clients[client].awaited.iter().any(|awaited| awaited.counts)
    }

    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// The latency of each change's last client, in nanoseconds; for changes that reached a client.
    pub fn last_clients(&self) -> impl Iterator<Item = u64> {
        self.changes.iter().filter(|made| made.delivered > 0).map(|made| made.last_at - made.at)
    }

    /// The latencies of each client with any update.
    pub fn spreads(&self) -> Vec<Spread> {
        self.clients.iter().map(|client| client.spread).filter(|spread| spread.count > 0).collect()
    }

    /// Whether a client waits for names after a move.
    pub fn is_moving(&self, client: usize) -> bool {
        self.clients[client].moving.is_some()
    }

    /// The number of names that a client has moved on.
    pub fn offset(&self, client: usize) -> usize {
        self.clients[client].offset
    }

    pub fn moving(&self) -> usize {
        self.clients.iter().filter(|client| client.moving.is_some()).count()
    }

    /// A client drops `by` names and adds the `by` names from `first` on, as scheduled at `scheduled`.
    pub fn moved(&mut self, number: usize, scheduled: u64, first: usize, by: usize, changing: Change) {
        let client = &mut self.clients[number];
        client.offset += by;
        client.moving = Some(Box::new(Move { scheduled, first, missing: vec![true; by] }));
        // Pending resources among the dropped names will not come; those among the added names will.
        for awaited in std::mem::take(&mut client.awaited) {
            let residue =
                if self.cycle == 1 { changing.residue } else { awaited.change as usize % self.cycle };
            let wanted =
                self.profile.wanted_of(changing.kind, number, client.offset, residue, changing.stride) as u32;
            if wanted > awaited.seen {
                client.awaited.push(Awaited { wanted, ..awaited });
            } else if awaited.counts {
                self.due -= 1;
                self.changes[awaited.change as usize].due -= 1;
            }
        }
    }

    /// Ends the run: pending updates have taken at least until now. Returns their number.
    pub fn give_up(&mut self, now: u64) -> usize {
        let mut missed = 0;
        for number in 0..self.clients.len() {
            for awaited in std::mem::take(&mut self.clients[number].awaited) {
                if awaited.counts {
                    missed += 1;
                    self.deliver(number, awaited, now);
                }
            }
        }
        missed
    }

    fn deliver(&mut self, number: usize, awaited: Awaited, now: u64) {
        let made = &mut self.changes[awaited.change as usize];
        let latency = now.saturating_sub(made.at);
        if !awaited.counts {
            return self.odd_updates.record(latency);
        }
        made.due -= 1;
        made.delivered += 1;
        made.last_at = made.last_at.max(now);
        self.due -= 1;
        self.phases[made.phase].updates.record(latency);
        self.record(number, latency);
    }

    fn record(&mut self, number: usize, latency: u64) {
        self.updates.record(latency);
        self.interval.record(latency);
        let spread = &mut self.clients[number].spread;
        spread.count += 1;
        spread.sum_ns += latency;
        spread.max_ns = spread.max_ns.max(latency);
    }

    /// A resource with a stamp has arrived at a client.
    fn arrived(&mut self, number: usize, time: u64, now: u64) {
        let client = &mut self.clients[number];
        if self.foreign {
            if time > client.newest {
                client.newest = time;
                self.record(number, now.saturating_sub(time));
            }
            return;
        }
        let changes = &self.changes;
        let found = client.awaited.iter_mut().find(|awaited| changes[awaited.change as usize].at == time);
        let Some(awaited) = found else { return };
        awaited.seen += 1;
        if awaited.seen < awaited.wanted {
            return;
        }
        // The arrival includes all replaced versions: older changes of the same resources.
        let newest = awaited.change as usize;
        let cycle = self.cycle;
        let had = |awaited: &Awaited| {
            awaited.change as usize <= newest && awaited.change as usize % cycle == newest % cycle
        };
        let mut list = std::mem::take(&mut client.awaited);
        list.iter().copied().filter(had).for_each(|awaited| self.deliver(number, awaited, now));
        list.retain(|awaited| !had(awaited));
        self.clients[number].awaited = list;
    }

    /// The number of resources that a response takes away. By state of the world, a set of a full-state type takes
    /// away what it lacks.
    fn removed_by(&self, client: usize, kind: Kind, response: &Response) -> u64 {
        if self.profile.variant == Variant::Delta || !kind.is_full_state() {
            return response.removed;
        }
        let whole = self.profile.wanted_of(kind, client, self.clients[client].offset, 0, 1) as u64;
        whole.saturating_sub(response.resources)
    }

    fn note_move(&mut self, number: usize, index: usize, now: u64) {
        let Some(moving) = &mut self.clients[number].moving else { return };
        let size = self.profile.resources.max(1);
        let place = (index + size - moving.first % size) % size;
        if let Some(missing) = moving.missing.get_mut(place) {
            *missing = false;
        }
        if !moving.missing.contains(&true) {
            self.moves.record(now.saturating_sub(moving.scheduled));
            self.clients[number].moving = None;
        }
    }
}

impl Observer for Tracker {
    fn opened(&mut self, client: usize, since: u64) {
        let client = &mut self.clients[client];
        client.alive = true;
        client.newest = since;
        // The client starts again with its first names.
        client.offset = 0;
        client.moving = None;
    }

    fn response(&mut self, client: usize, kind: Kind, response: &Response, now: u64) {
        self.responses += 1;
        self.removals += self.removed_by(client, kind, response);
        if response.stamps().is_empty() {
            return;
        }
        // Each such response is the whole set: resources counted before count again.
        if self.profile.variant == Variant::Sotw && kind.is_full_state() {
            self.clients[client].awaited.iter_mut().for_each(|awaited| awaited.seen = 0);
        }
        for stamp in response.stamps() {
            if stamp.time > 0 {
                self.arrived(client, stamp.time, now);
            }
            self.note_move(client, stamp.index, now);
            self.audiences.arrived(client, kind, *stamp, now);
        }
    }

    fn served(&mut self, _client: usize, wait_ns: u64, again: bool) {
        if again { self.reconnects.record(wait_ns) } else { self.first_answers.record(wait_ns) }
    }

    fn lost(&mut self, client: usize) {
        let odd = self.odd_manner.is_some() && client < self.odd;
        if self.retry && !odd {
            return;
        }
        self.audiences.lost(client);
        let client = &mut self.clients[client];
        client.alive = false;
        client.moving = None;
        for awaited in client.awaited.drain(..).filter(|awaited| awaited.counts) {
            self.due -= 1;
            self.changes[awaited.change as usize].due -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
