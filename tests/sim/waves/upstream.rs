//! The streams between the units and their servers: in order, late, and at times cut.

use sluice_engine::source::SourceOutput;
use sluice_engine::upstream::{Input, Output};
use sluice_xds::{Code, Request, Status, Variant};

use super::world::{Job, World};
use crate::control_plane::Reachable;
use crate::message::Message;
use crate::schedule::{MILLI, SECOND};
use crate::world::Invariant;

#[derive(Debug)]
pub struct Link {
    pub unit: usize,
    index: usize,
    variant: Variant,
    is_open: bool,
    attempts: u32,
    up: u64,
    down: u64,
    flushing: bool,
}

fn unavailable() -> Status {
    Status::new(Code::Unavailable, "lost")
}

impl World {
    fn latency(&mut self) -> u64 {
        let most = if self.is_healed { MILLI } else { self.plan.latency };
        1 + self.rng.below(most)
    }

    /// Carries out an output of a source.
    pub fn source_output(&mut self, unit: usize, output: SourceOutput) {
        match output {
            SourceOutput::Upstream(index, output) => self.upstream_output(unit, index, output),
            // Changes that are held back wake nobody.
            SourceOutput::Wake(_) if self.units[unit].wakes.are_for_live_only() => {}
            SourceOutput::Wake(sessions) => sessions.iter().for_each(|session| self.wake(session.0)),
            SourceOutput::Confirmed => {
                self.confirm(unit);
                self.note_confirmed(unit);
            }
            SourceOutput::Unserved(_) | SourceOutput::DoNotCache { .. } => {
                self.fail(Invariant::NoLostUpdate, || format!("unit {unit} serves less than it should"));
            }
        }
    }

    fn upstream_output(&mut self, unit: usize, index: usize, output: Output) {
        let link = self.links.iter().find(|(_, link)| (link.unit, link.index) == (unit, index));
        let id = link.map(|(id, _)| *id);
        match output {
            Output::Open { variant, .. } => {
                self.link_numbers += 1;
                let (is_open, attempts, up, down, flushing) = (false, 0, 0, 0, false);
                let link = Link { unit, index, variant, is_open, attempts, up, down, flushing };
                self.links.insert(self.link_numbers, link);
                let latency = self.latency();
                self.scheduler.after(latency, Job::Connect(self.link_numbers));
            }
            Output::Close => {
                if let Some(id) = id {
                    self.links.remove(&id);
                    self.servers[unit].close(id);
                }
            }
            Output::Send { request, .. } => {
                let latency = self.latency();
                let now = self.now;
                let Some(link) = id.and_then(|id| self.links.get_mut(&id)) else { return };
                link.up = link.up.max(now + latency);
                let at = link.up;
                self.at(at, Job::ToServer(id.unwrap_or_default(), Box::new(request)));
            }
            // Requests of these worlds are short.
            Output::Flush => self.input(unit, index, Input::Flushed),
            Output::Probe => {
                let latency = self.latency();
                self.after(latency, Job::Probed(id.unwrap_or_default()));
            }
            Output::RoundTrip => {
                let latency = 2 * self.latency();
                let now = self.now;
                let Some(link) = id.and_then(|id| self.links.get_mut(&id)) else { return };
                link.down = link.down.max(now + latency);
                let at = link.down;
                self.at(at, Job::Returned(id.unwrap_or_default()));
            }
            Output::OpenNext { .. } | Output::TakeNext => {
                self.fail(Invariant::UpstreamEconomy, || format!("unit {unit} opens a second stream"));
            }
            Output::Changes(_) | Output::Event(_) => {}
        }
    }

    fn input(&mut self, unit: usize, index: usize, input: Input) {
        let time = self.time();
        self.units[unit].source.handle_upstream(index, input, time);
        self.drain(unit);
    }

    pub fn connect(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (unit, index, variant) = (link.unit, link.index, link.variant);
        if self.servers[unit].reachable == Reachable::Yes {
            link.is_open = true;
            self.servers[unit].open(id, 0, variant);
            return self.input(unit, index, Input::Opened);
        }
        link.attempts += 1;
        let backoff = (SECOND << link.attempts.min(3)) / 2;
        self.after(backoff, Job::Connect(id));
        self.input(unit, index, Input::ConnectFailed { status: unavailable() });
    }

    /// The streams of a unit end with their connections.
    pub fn cut_links(&mut self, unit: usize) {
        let all: Vec<_> = self.links.iter().filter(|(_, link)| link.unit == unit).map(|of| *of.0).collect();
        for id in all {
            let Some(link) = self.links.remove(&id) else { continue };
            self.servers[unit].close(id);
            let jitter = self.rng.unit();
            self.note(5, id, 0);
            self.input(unit, link.index, Input::Closed { status: unavailable(), jitter });
        }
    }

    pub fn server_back(&mut self, unit: usize) {
        self.servers[unit].reachable = Reachable::Yes;
        self.tell(|| format!("server {unit} is back"));
    }

    pub fn probed(&mut self, id: u64) {
        let Some(link) = self.links.get(&id) else { return };
        let (unit, index) = (link.unit, link.index);
        self.input(unit, index, Input::Alive);
    }

    pub fn returned(&mut self, id: u64) {
        let Some(link) = self.links.get(&id) else { return };
        let (unit, index) = (link.unit, link.index);
        self.input(unit, index, Input::Returned);
    }

    pub fn reach_server(&mut self, id: u64, request: &Request) {
        let Some(link) = self.links.get(&id) else { return };
        self.servers[link.unit].request(&self.words, id, request);
        self.flush_soon(id);
    }

    /// The server of a unit has something to say.
    pub fn flush_unit(&mut self, unit: usize) {
        let all: Vec<_> = self.links.iter().filter(|(_, link)| link.unit == unit).map(|of| *of.0).collect();
        all.into_iter().for_each(|id| self.flush_soon(id));
    }

    fn flush_soon(&mut self, id: u64) {
        if !self.links.get(&id).is_some_and(|link| link.is_open && !link.flushing) {
            return;
        }
        let latency = self.latency();
        if let Some(link) = self.links.get_mut(&id) {
            link.flushing = true;
        }
        self.after(latency, Job::Flush(id));
    }

    pub fn flush(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.flushing = false;
        let unit = link.unit;
        for message in self.servers[unit].flush(id) {
            let latency = self.latency();
            let now = self.now;
            let Some(link) = self.links.get_mut(&id) else { return };
            link.down = link.down.max(now + latency);
            let at = link.down;
            self.at(at, Job::ToRelay(id, Box::new(message)));
        }
    }

    pub fn reach_relay(&mut self, id: u64, message: &Message) {
        let Some(link) = self.links.get(&id) else { return };
        let (unit, index) = (link.unit, link.index);
        self.note(6, id, message.items.len() as u64 | u64::from(message.removed) << 8);
        let response = message.response(&self.words, self.plan.list_of(unit));
        self.input(unit, index, Input::Received(response));
    }
}
