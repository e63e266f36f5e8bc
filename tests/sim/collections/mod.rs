//! Worlds of their own for glob collections, aliases, and types for which a control plane ends the stream.
//!
//! Two delta control planes serve the two lists of names: one has names with aliases, the other one globs. In later worlds
//! each list has a second server, and some clients use SotW. There are no classes, faulty messages and checkpoints here.

mod client;
mod lists;
mod names;
mod reference;
mod relay;
mod server;

use std::collections::BTreeMap;

use sluice_engine::authority::Authorities;
use sluice_xds::{Code, DeltaRequest, Request, Status};

use self::client::{Client, Sent};
use self::lists::LISTS;
use self::names::{
    ALIASES, GLOBS, LISTED, Mask, NAMES, Names, SHORT, TYPES, VHDS, WITH_ALIASES, bit, members, show,
};
use self::relay::{Link, Slot, StreamSlot, list_of, request_of};
use self::server::{Entry, Message, Server};
use super::rng::{Rng, mix};
use super::schedule::{Act, EVENTS_MIN, MILLI, SECOND};
use super::scheduler::{Scheduler, schedules};
use super::world::{Invariant, Outcome};

/// From this seed on schedules have these worlds.
pub const COLLECTIONS: u64 = 1 << 51;

/// From this seed on some clients use SotW, and some servers do not say which type they refuse.
pub const GROWN_COLLECTIONS: u64 = COLLECTIONS + (1 << 20);

/// From this seed on each list has two servers (A71), whose contents may differ.
pub const GROWN_SERVERS: u64 = COLLECTIONS + (1 << 21);

/// The maximum number of streams with several types that end because of one type once everything is at rest.
const INTERRUPTIONS_MAX: u32 = 2;

#[derive(Debug)]
pub enum Job {
    Connect(u64),
    ToServer(u64, Box<DeltaRequest>),
    Flush(u64),
    Begun(u64),
    ToRelay(u64, Box<Message>),
    /// `true`: by the server's own status.
    End(u64, Status, bool),
    Probed(u64),
    Returned(u64),
    ServerCloses(usize, u64),
    Watch(u64),
    Poll(u64),
    Taken(u64, Box<Sent>),
    ToClient(u64, Box<Sent>),
    Request(u64, Box<Request>),
    Reconnect(usize),
}

/// The state of one schedule.
pub struct Collections {
    /// Faults cease at the end.
    is_live: bool,
    /// Servers refuse types.
    suspects: bool,
    latency: u64,
    names: Names,
    authorities: Authorities,
    scheduler: Scheduler<Job>,
    rng: Rng,
    servers: Vec<Server>,
    slots: Vec<Slot>,
    links: BTreeMap<u64, Link>,
    streams: Vec<Option<Box<StreamSlot>>>,
    clients: Vec<Client>,
    edition: u32,
    is_healed: bool,
    interruptions: u32,
}

schedules!(Collections, Job);

/// The events of a seed.
pub fn acts(seed: u64) -> Vec<Act> {
    let mut rng = Rng::new(mix(seed) ^ 0xc011);
    let count = EVENTS_MIN + rng.below(60) as usize;
    let act = |_| Act {
        gap: match rng.below(100) {
            0..55 => rng.below(2 * MILLI),
            55..80 => rng.below(40 * MILLI),
            80..97 => rng.below(2 * SECOND),
            _ => rng.below(40 * SECOND),
        },
        what: rng.below(100) as u8,
        choice: rng.next(),
    };
    (0..count).map(act).collect()
}

pub fn run(seed: u64, acts: &[Act], origin: u64, tells: bool) -> Outcome {
    let mut world = Collections::new(seed, origin, tells);
    for act in acts {
        world.advance(act.gap);
        if world.failure.is_some() {
            break;
        }
        world.rng = Rng::new(act.choice);
        world.act(act);
    }
    world.advance(SECOND);
    if world.is_live {
        world.come_to_rest();
    }
    world.scheduler.outcome()
}

impl Collections {
    fn new(seed: u64, origin: u64, tells: bool) -> Collections {
        let mut rng = Rng::new(mix(seed) ^ 0xc010);
        let suspects = rng.percent(30);
        let mut server = || Server::new(rng.percent(50));
        let servers = vec![server(), server()];
        let coalescing = [0, 10 * MILLI, 200 * MILLI][rng.below(3) as usize];
        let reads_within = |rng: &mut Rng| [0, MILLI, 400 * MILLI, 20 * SECOND][rng.below(4) as usize];
        let count = 2 + rng.below(4);
        let clients =
            (0..count).map(|_| Client { reads_within: reads_within(&mut rng), ..Client::default() });
        let mut world = Collections {
            is_live: seed.is_multiple_of(2),
            suspects,
            clients: clients.collect(),
            latency: [MILLI, 20 * MILLI, 300 * MILLI, 3 * SECOND][rng.below(4) as usize],
            names: Names::new(),
            authorities: Authorities::new(["auth"]),
            scheduler: Scheduler::new(origin, tells),
            rng,
            servers,
            slots: vec![Slot::new(256, coalescing, false), Slot::new(257, coalescing, false)],
            links: BTreeMap::new(),
            streams: Vec::new(),
            edition: 0,
            is_healed: false,
            interruptions: 0,
        };
        if seed >= GROWN_COLLECTIONS {
            world.grow(seed);
        }
        if seed >= GROWN_SERVERS {
            world.add_servers(seed, coalescing);
        }
        for _ in 0..3 * NAMES {
            world.change_resource();
        }
        for client in 0..world.clients.len() {
            for ty in 0..TYPES {
                let wanted = (0..LISTED).filter(|_| world.rng.percent(25));
                let wanted = wanted.fold(0, |mask, listed| mask | bit(listed));
                if world.clients[client].may_ask(ty) {
                    world.clients[client].types[ty].wanted = wanted;
                }
            }
            let within = world.rng.below(SECOND);
            world.after(within, Job::Reconnect(client));
        }
        world
    }

    /// Features of later seeds, drawn apart from the rest.
    fn grow(&mut self, seed: u64) {
        let mut rng = Rng::new(mix(seed) ^ 0xc012);
        self.clients.iter_mut().for_each(|client| client.is_sotw = rng.percent(40));
        self.servers.iter_mut().for_each(|server| server.is_terse = rng.percent(50));
    }

    fn add_servers(&mut self, seed: u64, coalescing: u64) {
        let mut rng = Rng::new(mix(seed) ^ 0xc013);
        for _ in 0..LISTS {
            let mut second = Server::new(rng.percent(50));
            second.is_terse = rng.percent(50);
            self.servers.push(second);
        }
        let slot = |number| Slot::new(256 + number, coalescing, true);
        self.slots = (0..self.servers.len() as u64).map(slot).collect();
    }

    // === time ===

    fn advance(&mut self, by: u64) {
        let end = self.now + by;
        loop {
            let timer = self.slots.iter().filter_map(|slot| slot.due).min();
            let hold = self.streams.iter().flatten().filter_map(|stream| stream.wakes_at).min();
            let Some(next) = self.next_due(&[timer, hold], end) else { break };
            self.pass_to(next);
            if timer.is_some_and(|timer| timer <= self.now) {
                self.run_timers();
            } else if hold.is_some_and(|hold| hold <= self.now) {
                self.run_holds();
            } else if let Some(job) = self.pop() {
                self.dispatch(job);
            }
        }
        self.scheduler.now = self.now.max(end);
    }

    fn run_holds(&mut self) {
        for id in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[id] else { continue };
            if stream.wakes_at.take_if(|at| *at <= self.scheduler.now).is_some() {
                self.poll(id as u64);
            }
        }
    }

    fn dispatch(&mut self, job: Job) {
        match job {
            Job::Connect(link) => self.connect(link),
            Job::ToServer(link, request) => self.reach_server(link, &request),
            Job::Flush(link) => self.flush(link),
            Job::Begun(link) => {
                self.links.get_mut(&link).into_iter().for_each(|link| link.is_receiving = true);
                self.tell_link(link, sluice_engine::upstream::Input::Receiving);
            }
            Job::ToRelay(link, message) => self.reach_relay(link, &message),
            Job::End(link, status, is_own) => self.end_link(link, status, is_own),
            Job::Probed(link) => self.tell_link(link, sluice_engine::upstream::Input::Alive),
            Job::Returned(link) => self.returned(link),
            Job::ServerCloses(server, link) => self.servers[server].close(link),
            Job::Watch(stream) => self.tell_source(stream),
            Job::Poll(stream) => self.poll(stream),
            Job::Taken(stream, sent) => self.taken(stream, sent),
            Job::ToClient(stream, sent) => self.reach_client(stream, &sent),
            Job::Request(stream, request) => self.take_request(stream, &request),
            Job::Reconnect(client) => self.open_stream(client),
        }
    }

    fn tell_link(&mut self, link: u64, input: sluice_engine::upstream::Input) {
        let Some((slot, index)) = self.links.get(&link).map(|link| (link.slot, link.index)) else { return };
        self.input(slot, index, input);
    }

    fn latency(&mut self, _: usize) -> u64 {
        let most = if self.is_healed { MILLI } else { self.latency };
        1 + self.rng.below(most)
    }

    // === events ===

    fn act(&mut self, act: &Act) {
        self.note(1, u64::from(act.what), 0);
        match act.what {
            0..30 => self.change_resource(),
            30..44 => self.move_alias(),
            44..50 => self.change_glob(),
            50..74 => self.change_subscription(),
            74..82 => self.turn_client(),
            82..92 => self.trouble_link(),
            92..95 => {
                let server = self.rng.below(self.servers.len() as u64) as usize;
                self.servers[server].is_down = self.rng.percent(50);
                if self.has_choice() && self.servers[server].is_down {
                    self.cut(server);
                }
            }
            95..100 if self.suspects => {
                let server = self.rng.below(self.servers.len() as u64) as usize;
                let ty = self.rng.below(TYPES as u64) as usize;
                self.servers[server].refused ^= bit(ty);
                self.tell(|| format!("server {server} refuses, or not: {}", SHORT[ty]));
            }
            _ => {}
        }
    }

    fn put(&mut self, ty: usize, name: usize, entry: Option<Entry>) {
        let server = names::server_of(name);
        self.servers[server].truth[ty][name] = entry;
        self.tell(|| format!("server {server} has {} {} = {entry:?}", SHORT[ty], show(bit(name))));
        self.flush_all(server);
        // The second server has the same, or does not yet.
        if self.has_choice() && self.rng.percent(80) {
            self.servers[server + LISTS].truth[ty] = self.servers[server].truth[ty];
            self.flush_all(server + LISTS);
        }
    }

    /// All streams of a server end.
    fn cut(&mut self, server: usize) {
        let links: Vec<_> =
            self.links.iter().filter(|(_, link)| link.slot == server).map(|(id, _)| *id).collect();
        links.into_iter().for_each(|link| self.end_link(link, Status::new(Code::Unavailable, "down"), false));
    }

    fn flush_all(&mut self, server: usize) {
        let links: Vec<_> =
            self.links.iter().filter(|(_, link)| link.slot == server).map(|(id, _)| *id).collect();
        links.into_iter().for_each(|link| self.flush_soon(link));
    }

    fn change_resource(&mut self) {
        let (ty, name) = (self.rng.below(TYPES as u64) as usize, self.rng.below(NAMES as u64) as usize);
        let before = self.servers[names::server_of(name)].truth[ty][name];
        self.edition += 1;
        let aliases = before.map_or(0, |entry| entry.aliases);
        let entry = Entry { edition: self.edition, aliases };
        let stays = before.is_none() || self.rng.percent(60);
        self.put(ty, name, stays.then_some(entry));
    }

    /// An alias comes to another resource, or goes.
    fn move_alias(&mut self) {
        let ty = VHDS;
        let alias = ALIASES.start + self.rng.below(3) as usize;
        let next = WITH_ALIASES.start + self.rng.below(WITH_ALIASES.len() as u64) as usize;
        let goes = self.rng.percent(20);
        for name in WITH_ALIASES {
            let Some(entry) = self.servers[0].truth[ty][name] else { continue };
            let had = entry.aliases & bit(alias);
            let has = if name == next && !goes { bit(alias) } else { 0 };
            if had != has {
                self.edition += 1;
                let aliases = entry.aliases & !bit(alias) | has;
                self.put(ty, name, Some(Entry { edition: self.edition, aliases }));
            }
        }
    }

    /// All members of a glob go, or come.
    fn change_glob(&mut self) {
        let ty = self.rng.below(TYPES as u64) as usize;
        let (glob, goes) = (GLOBS.start + self.rng.below(2) as usize, self.rng.percent(50));
        for name in members(glob) {
            self.edition += 1;
            let entry = Entry { edition: self.edition, aliases: 0 };
            self.put(ty, name, (!goes).then_some(entry));
        }
    }

    fn change_subscription(&mut self) {
        let client = self.rng.below(self.clients.len() as u64) as usize;
        let (ty, listed) = (self.rng.below(TYPES as u64) as usize, self.rng.below(LISTED as u64) as usize);
        if !self.clients[client].may_ask(ty) {
            return;
        }
        let held = &self.clients[client].types[ty];
        let is_wanted = held.wanted & bit(listed) != 0;
        let (add, remove) = if is_wanted { (0, bit(listed)) } else { (bit(listed), 0) };
        let Some(stream) = self.clients[client].stream else {
            let held = &mut self.clients[client].types[ty];
            held.change(add, remove);
            held.asked = false;
            return;
        };
        self.ask(client, stream, ty, (add, remove));
    }

    fn ask(&mut self, client: usize, stream: u64, ty: usize, change: (Mask, Mask)) {
        let held = &mut self.clients[client].types[ty];
        // An empty first list would be a wildcard.
        if !held.asked && (held.wanted | change.0) & !change.1 == 0 {
            held.wanted = 0;
            return;
        }
        let is_sotw = self.clients[client].is_sotw;
        let held = &mut self.clients[client].types[ty];
        let request = match is_sotw {
            true => {
                held.change(change.0, change.1);
                Request::Sotw(list_of(&self.names, ty, held))
            }
            false => Request::Delta(request_of(&self.names, ty, held, change)),
        };
        self.tell(|| {
            let (add, remove) = (show(change.0), show(change.1));
            format!("client {client} > {} +[{add}] -[{remove}]", SHORT[ty])
        });
        self.send_up(stream, request);
    }

    fn send_up(&mut self, stream: u64, request: Request) {
        let delay = 1 + self.rng.below(2 * MILLI);
        let Some(Some(slot)) = self.streams.get_mut(stream as usize) else { return };
        slot.up = slot.up.max(self.scheduler.now + delay);
        let at = slot.up;
        self.at(at, Job::Request(stream, Box::new(request)));
    }

    /// A client loses its stream, and comes back later.
    fn turn_client(&mut self) {
        let client = self.rng.below(self.clients.len() as u64) as usize;
        let Some(stream) = self.clients[client].stream.take() else { return };
        self.tell(|| format!("client {client} loses its stream"));
        self.end_stream(stream);
        self.clients[client].types.iter_mut().for_each(client::Held::reconnect);
        let after = [0, 10 * MILLI, SECOND, 40 * SECOND][self.rng.below(4) as usize];
        self.after(after, Job::Reconnect(client));
    }

    fn open_stream(&mut self, client: usize) {
        let stream = self.new_stream(client);
        self.clients[client].stream = Some(stream);
        self.tell(|| format!("client {client} opens stream {stream}"));
        for ty in 0..TYPES {
            if self.clients[client].types[ty].wanted != 0 {
                self.ask(client, stream, ty, (0, 0));
            }
        }
    }

    fn reach_client(&mut self, id: u64, sent: &Sent) {
        let Some(Some(stream)) = self.streams.get(id as usize) else { return };
        let client = stream.client;
        let is_sotw = self.clients[client].is_sotw;
        let held = &mut self.clients[client].types[sent.ty];
        held.take(sent);
        if is_sotw {
            (held.nonce, held.version) = (sent.nonce.clone(), sent.version.clone());
            let request = list_of(&self.names, sent.ty, held);
            return self.send_up(id, Request::Sotw(request));
        }
        let request = DeltaRequest {
            node: None,
            type_url: self.names.types[sent.ty].as_str().to_owned(),
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            initial_resource_versions: Vec::new(),
            response_nonce: sent.nonce.clone(),
            error_detail: None,
        };
        self.send_up(id, Request::Delta(request));
    }

    /// What the open streams of a source request.
    fn listed(&self, ty: usize, slot: usize) -> Mask {
        let links = self.links.values().filter(|link| link.slot == slot);
        links.fold(0, |mask, link| mask | link.written[ty])
    }

    fn trouble_link(&mut self) {
        let open: Vec<_> = self.links.keys().copied().collect();
        if open.is_empty() {
            return;
        }
        let link = open[self.rng.below(open.len() as u64) as usize];
        let status = Status::new(Code::Unavailable, "reset");
        match self.rng.below(3) {
            0 => self.dismiss(link),
            1 => self.end_link(link, status, false),
            _ => self.end_link(link, Status::ok(), true),
        }
    }

    // === the end ===

    fn come_to_rest(&mut self) {
        self.tell(|| "faults cease".to_owned());
        self.is_healed = true;
        let stays_refused = self.rng.percent(50);
        if stays_refused {
            // A client whose first server refuses a type may stay with the second one.
            for server in LISTS..self.servers.len() {
                self.servers[server].truth = self.servers[server - LISTS].truth;
            }
        }
        for server in 0..self.servers.len() {
            self.servers[server].is_down = false;
            if !stays_refused {
                self.servers[server].refused = 0;
            }
            self.flush_all(server);
        }
        self.clients.iter_mut().for_each(|client| client.reads_within = MILLI);
        // A type that ended streams again and again is tried after 10 minutes at the latest.
        self.advance(700 * SECOND);
        self.interruptions = 0;
        self.advance(90 * SECOND);
        for client in 0..self.clients.len() {
            self.judge_rest(client);
        }
        if self.servers.iter().all(|server| server.refused == 0) {
            self.judge_return();
        }
        if self.interruptions > INTERRUPTIONS_MAX {
            let count = self.interruptions;
            self.fail(Invariant::Hygiene, || format!("{count} streams of several types end because of one"));
        }
        for client in 0..self.clients.len() {
            if let Some(stream) = self.clients[client].stream.take() {
                self.end_stream(stream);
            }
        }
        // The content of a lost server would be kept (RLY-46).
        self.servers.iter_mut().for_each(|server| server.refused = 0);
        self.advance(200 * SECOND);
        for slot in 0..self.slots.len() {
            let (this, server) = (&self.slots[slot], &self.servers[slot]);
            let left = this.source.types().count();
            if !this.source.is_idle() || left > 0 || server.streams() > 0 {
                let streams = server.streams();
                self.fail(Invariant::Hygiene, || {
                    format!("slot {slot} is not idle: {left} types and {streams} streams are left")
                });
            }
        }
    }

    /// I1: the client has the content of the servers.
    fn judge_rest(&mut self, client: usize) {
        for ty in 0..TYPES {
            for name in 0..NAMES {
                let server = &self.servers[names::server_of(name)];
                if self.slots_of(name).any(|slot| self.servers[slot].refused & bit(ty) != 0) {
                    continue;
                }
                let held = &self.clients[client].types[ty];
                let glob = names::glob_of(name).map_or(0, bit);
                let due = server.truth[ty][name]
                    .filter(|entry| (bit(name) | glob | entry.aliases) & held.wanted != 0)
                    .map(|entry| entry.edition);
                let found = held.resources[name];
                // No message of SotW tells that a resource of these types is gone.
                if found != due && !(self.clients[client].is_sotw && due.is_none()) {
                    let (short, name) = (SHORT[ty], show(bit(name)));
                    self.fail(Invariant::Convergence, || {
                        format!("client {client} holds {short} {name} as {found:?}, and its server {due:?}")
                    });
                }
            }
        }
    }
}
