//! The possible events: the faults of `docs/rules/faults.md`, as far as the machines are concerned, and
//! ordinary life.

use sluice_xds::{Code, Status};

use super::client::Want;
use super::control_plane::{Entry, Reachable};
use super::guarded::Hold;
use super::relay::LINGER;
use super::rng::Rng;
use super::schedule::{
    Act, CHANGE_CLASS, CONFIRM, END_BY_SERVER, FAIL_NAMES, FLIP, Kind, MILLI, RELOAD, SECOND, TURN_VOID,
    UNSERVE, VANISH, Wire,
};
use super::words::{SHORT, TYPES, bit, bits, content, count, names_of_list, nth, show, show_content};
use super::world::{Job, World};

/// After this time without faults the world is at rest: backoff at its cap, a resource timer and a withheld
/// removal.
const REST: u64 = 90 * SECOND;

/// The silence after which the relay takes names for absent, at most.
const SILENCE: u64 = 40 * SECOND;

impl World {
    pub fn act(&mut self, act: &Act) {
        let mut rng = Rng::new(act.choice ^ 0xac7);
        if act.what >= VANISH {
            return self.act_of_later_worlds(act.what, &mut rng);
        }
        match act.what {
            0..28 => self.change_one(&mut rng),
            28..34 => (0..4).for_each(|_| self.change_one(&mut rng)),
            34..52 => self.change_interest(&mut rng),
            52..57 => {
                let client = self.some_client(&mut rng);
                self.disconnect(client);
            }
            57..61 => {
                let hostile =
                    (0..self.clients.len()).find(|client| self.clients[*client].plan.kind == Kind::Hostile);
                if let Some(client) = hostile {
                    self.send_nonsense(client, &mut rng);
                }
            }
            61..65 => {
                let client = self.some_client(&mut rng);
                if self.clients[client].is_blocked {
                    self.unblock(client)
                } else {
                    self.clients[client].is_blocked = true
                }
            }
            65..68 => {
                let client = self.some_client(&mut rng);
                self.clients[client].is_mute ^= true;
                if !self.clients[client].is_mute {
                    self.answer_all(client);
                }
            }
            68..74 => self.end_some_link(&mut rng),
            74..77 => {
                if let Some(link) = self.some_link(&mut rng) {
                    self.fall_silent(link);
                }
            }
            77..79 => {
                if let Some(link) = self.some_link(&mut rng) {
                    self.dismiss(link);
                }
            }
            79..84 => self.change_reachability(&mut rng),
            84..86 => {
                let server = self.some_server(&mut rng);
                self.restart_server(server);
            }
            86..89 => {
                let server = self.some_server(&mut rng);
                self.servers[server].wrong =
                    if self.servers[server].wrong == 0 { self.plan.wrong } else { 0 };
            }
            89..90 => self.restart_relay(act.choice),
            90..95 => self.beat(&mut rng),
            _ => self.leave_or_return(&mut rng),
        }
    }

    fn act_of_later_worlds(&mut self, what: u8, rng: &mut Rng) {
        match what {
            CHANGE_CLASS => {
                let client = self.some_client(rng);
                self.change_class(client);
            }
            RELOAD => self.reconfigure(rng),
            VANISH => self.vanish(rng),
            FAIL_NAMES => {
                let server = self.some_server(rng);
                self.fail_names(server, rng);
            }
            TURN_VOID => {
                let server = self.some_server(rng);
                self.turn_void(server);
            }
            UNSERVE => {
                let server = self.some_server(rng);
                self.unserve(server, rng);
            }
            END_BY_SERVER => {
                let link = self.some_link(rng).filter(|link| self.links[link].is_open);
                if let Some(link) = link {
                    self.end_by_server(link, Status::new(Code::Internal, "the server gives up"));
                }
            }
            FLIP => {
                let server = self.some_server(rng);
                self.flip(server, rng);
            }
            CONFIRM => {
                let (slot, ty) =
                    (rng.below(self.slots.len() as u64) as usize, rng.below(TYPES as u64) as usize);
                let all = rng.percent(50);
                self.confirm_deletions(slot, |of| all || of == ty);
            }
            _ => {}
        }
    }

    fn some_client(&self, rng: &mut Rng) -> usize {
        rng.below(self.clients.len() as u64) as usize
    }

    /// Chooses the first server of a list more often than the second.
    fn some_server(&self, rng: &mut Rng) -> usize {
        let list = if rng.percent(70) { 0 } else { 2 };
        list + usize::from(rng.percent(30))
    }

    fn some_link(&self, rng: &mut Rng) -> Option<u64> {
        let links: Vec<_> = self.links.keys().copied().collect();
        (!links.is_empty()).then(|| links[rng.below(links.len() as u64) as usize])
    }

    // === what servers have ===

    pub fn maker(&self, server: usize) -> usize {
        if self.plan.agree { 100 + server / 2 } else { server }
    }

    /// Sets or removes a resource, on both servers of a list if the servers agree.
    pub fn put_truth(&mut self, server: usize, class: usize, ty: usize, name: usize, entry: Option<Entry>) {
        let servers = if self.plan.agree { vec![server & !1, server | 1] } else { vec![server] };
        let classes = if self.plan.twins { 0..self.plan.classes } else { class..class + 1 };
        for (server, class) in
            servers.into_iter().flat_map(|server| classes.clone().map(move |class| (server, class)))
        {
            self.servers[server].truth[class][ty][name] = entry;
        }
    }

    pub fn entry(&mut self, server: usize, rng: &mut Rng) -> Entry {
        // Some contents return, as after a rollback.
        let edition = if rng.percent(30) {
            rng.below(4) as u32
        } else {
            self.edition += 1;
            self.edition
        };
        let ttl = (self.plan.ttls && rng.percent(30)).then(|| 2 * SECOND + rng.below(20 * SECOND));
        Entry { content: content(self.maker(server), edition + 4), member: rng.percent(80), ttl }
    }

    /// The first state of a server for a class.
    pub fn furnish(&mut self, server: usize, class: usize) {
        let mut rng = Rng::new(self.rng.next());
        if self.plan.twins && class > 0 {
            self.servers[server].truth[class] = self.servers[server].truth[0];
            return;
        }
        if self.plan.agree && server % 2 == 1 {
            self.servers[server].truth[class] = self.servers[server - 1].truth[class];
            return;
        }
        for ty in 0..TYPES {
            for name in bits(names_of_list(server / 2) & self.plan.names) {
                let entry = rng.percent(60).then(|| self.entry(server, &mut rng));
                self.servers[server].truth[class][ty][name] = entry;
            }
        }
    }

    fn change_one(&mut self, rng: &mut Rng) {
        let server = self.some_server(rng);
        let class = rng.below(self.plan.classes as u64) as usize;
        let names: Vec<_> = bits(names_of_list(server / 2) & self.plan.names).collect();
        let (ty, name) = (rng.below(TYPES as u64) as usize, names[rng.below(names.len() as u64) as usize]);
        let is_there = self.servers[server].truth[class][ty][name].is_some();
        let entry = if is_there && rng.percent(35) { None } else { Some(self.entry(server, rng)) };
        self.put_truth(server, class, ty, name, entry);
        self.note(40, server as u64, entry.map_or(0, |entry| u64::from(entry.content)));
        self.tell(|| {
            let content = entry.map_or("nothing".to_owned(), |entry| show_content(entry.content));
            format!("server {server} has, for class {class}, {} {} = {content}", SHORT[ty], show(bit(name)))
        });
        for server in [server & !1, server | 1] {
            self.flush_all(server);
        }
    }

    /// Removes most of a type from a server at once, or restores the type.
    fn vanish(&mut self, rng: &mut Rng) {
        let server = self.some_server(rng);
        let class = rng.below(self.plan.classes as u64) as usize;
        let ty = rng.below(TYPES as u64) as usize;
        let names = names_of_list(server / 2) & self.plan.names;
        let truth = &self.servers[server].truth[class][ty];
        let there = bits(names).filter(|name| truth[*name].is_some()).count();
        let goes = 2 * there as u64 > count(names);
        let parts = [60, 90, 100][rng.below(3) as usize];
        self.tell(|| {
            format!(
                "server {server} has, for class {class}, {} {}",
                if goes { "few" } else { "many" },
                SHORT[ty]
            )
        });
        for name in bits(names) {
            if rng.percent(parts) && goes == self.servers[server].truth[class][ty][name].is_some() {
                let entry = (!goes).then(|| self.entry(server, rng));
                self.put_truth(server, class, ty, name, entry);
            }
        }
        self.note(41, server as u64, ty as u64);
        for server in [server & !1, server | 1] {
            self.flush_all(server);
        }
    }

    pub fn flush_all(&mut self, server: usize) {
        let links: Vec<_> = self.servers[server].links().collect();
        links.into_iter().for_each(|link| self.flush_soon(link));
    }

    fn beat(&mut self, rng: &mut Rng) {
        if !self.plan.ttls {
            return self.change_one(rng);
        }
        let server = self.some_server(rng);
        let is_stream = |link: &u64| !self.links.get(link).is_some_and(|link| link.is_poll);
        let links: Vec<_> = self.servers[server].links().filter(is_stream).collect();
        for link in links {
            let beats = self.servers[server].beats(link);
            self.deliver(link, server, beats);
        }
    }

    // === what clients do ===

    fn change_interest(&mut self, rng: &mut Rng) {
        let client = self.some_client(rng);
        if self.clients[client].stream.is_none() {
            return;
        }
        if !matches!(self.clients[client].plan.kind, Kind::Free | Kind::Hostile) {
            return self.change_one(rng);
        }
        let ty = rng.below(TYPES as u64) as usize;
        let mut want: Want = self.random_want();
        let before = self.want_of(client, ty);
        if rng.percent(60) {
            let name = nth(self.plan.names, rng.below(count(self.plan.names)));
            want = Want { names: before.names ^ bit(name), wildcard: before.wildcard };
        }
        let is_first = !self.clients[client].types[ty].asked;
        let is_nothing = want == Want { names: 0, wildcard: false };
        if !(is_first && is_nothing) {
            self.ask(client, ty, want, "");
        }
    }

    fn leave_or_return(&mut self, rng: &mut Rng) {
        let client = self.some_client(rng);
        let this = &mut self.clients[client];
        this.has_left ^= true;
        if !this.has_left {
            return self.after(MILLI, Job::Reconnect(client));
        }
        if let Some(id) = this.stream.take() {
            self.tell(|| format!("client {client} leaves"));
            self.end_stream(id);
        }
    }

    // === what happens to connections ===

    fn end_some_link(&mut self, rng: &mut Rng) {
        let Some(link) = self.some_link(rng) else { return };
        // A poll without an answer never ends in order.
        let is_ok = !rng.percent(80) && !self.links[&link].is_poll;
        let status = Status::new(if is_ok { Code::Ok } else { Code::Unavailable }, "reset");
        // Earlier messages may be lost, or arrive first.
        let delay = if rng.percent(50) { 0 } else { rng.below(2 * SECOND) };
        if self.links[&link].is_open {
            self.after(delay, Job::End(link, status));
        }
    }

    fn end_all_links(&mut self, server: usize) {
        let links: Vec<_> =
            self.links.iter().filter(|(_, link)| link.server == server && link.is_open).collect();
        let links: Vec<_> = links.into_iter().map(|(id, _)| *id).collect();
        for link in links {
            self.end_link(link, Status::new(Code::Unavailable, "the server is gone"));
        }
    }

    fn change_reachability(&mut self, rng: &mut Rng) {
        let server = self.some_server(rng);
        let now = [Reachable::Yes, Reachable::Refused, Reachable::Silent][rng.below(3) as usize];
        self.tell(|| format!("server {server} is reachable: {now:?}"));
        self.servers[server].reachable = now;
        if now != Reachable::Yes && rng.percent(70) {
            self.end_all_links(server);
        }
    }

    fn restart_server(&mut self, server: usize) {
        self.tell(|| format!("server {server} restarts"));
        self.end_all_links(server);
        self.servers[server].restart();
    }

    // === the end ===

    /// Faults cease and everything must come to rest; after all clients have left, nothing may remain.
    pub fn come_to_rest(&mut self) {
        self.tell(|| "faults cease".to_owned());
        self.is_healed = true;
        for server in 0..self.servers.len() {
            self.servers[server].reachable = Reachable::Yes;
            self.servers[server].wrong = 0;
            for class in 0..self.plan.classes {
                let entries = self.servers[server].truth[class].iter_mut().flatten().flatten();
                entries.for_each(|entry| entry.ttl = None);
            }
            self.servers[server].recover();
            if self.plan.ttls || self.plan.wrong > 0 || self.plan.failings.voids {
                self.restart_server(server);
            }
            if self.plan.failings.errors || self.plan.wire(server) != Wire::Aggregated {
                self.flush_all(server);
            }
        }
        for client in 0..self.clients.len() {
            self.clients[client].is_tame = true;
            self.clients[client].is_mute = false;
            self.unblock(client);
            self.answer_all(client);
        }
        // Names are absent after a silence that begins with the last message.
        let last = self.links.values().map(|link| link.down).max().unwrap_or(0);
        if last > self.now + REST - SILENCE {
            self.advance(last - self.now);
        }
        self.advance(REST);
        if self.plan.mass == Some(Hold::UntilConfirmed) && self.failure.is_none() {
            (0..self.slots.len()).for_each(|slot| self.confirm_deletions(slot, |_| true));
            // Changes of routing types are sent before the removal of the named clusters (RLY-51).
            self.advance(30 * SECOND);
        }
        if self.failure.is_some() {
            return;
        }
        self.judge_rest();
        for client in 0..self.clients.len() {
            self.clients[client].has_left = true;
            if let Some(id) = self.clients[client].stream.take() {
                self.end_stream(id);
            }
        }
        self.tell(|| "everybody leaves".to_owned());
        self.advance(LINGER + 40 * SECOND);
        if self.failure.is_none() {
            self.judge_idle();
        }
    }
}
