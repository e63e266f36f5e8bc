//! The world of one schedule: its scheduler, and all participants.

use std::collections::BTreeMap;

use sluice_engine::authority::Authorities;
use sluice_xds::{Request, Status};

use super::checkpoint::Disk;
use super::client::Client;
use super::control_plane::ControlPlane;
use super::held::Sent;
use super::lists::Lists;
use super::message::Message;
use super::relay::{Slot, StreamSlot};
use super::rng::{Rng, mix};
use super::schedule::{Act, Mode, Plan, SECOND};
use super::scheduler::{Scheduler, schedules};
use super::upstream::Link;
use super::words::{AUTHORITY, Lexicon};

/// An invariant of `docs/rules/invariants.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    Convergence = 1,
    NoGoingBack,
    Isolation,
    JustifiedRemoval,
    Nonces,
    UpstreamEconomy,
    NoLostUpdate,
    BoundedMemory,
    Revert,
    Gate,
    NackContainment,
    Silence,
    CrashSafeDisk,
    HonestStaleness,
    Order,
    Hygiene,
    Ttl,
    /// I7b.
    AtomicResponses,
    // Of rollouts.
    OneRelease = 21,
    Admission,
    BlastRadius,
    Return,
    Flow,
    Determinism,
    Newcomers,
    Truth,
    // Of load reports.
    Load,
    // Of rollouts.
    Condemned = 31,
    PinFreeze,
    OffIsOff,
    // Of the proof.
    FalseAlarm,
    MissedRule,
    WrongMerge,
    BoundedLoss,
    Untouched,
    ShadowBounds,
    Walls,
    Quiet,
    HeldPushes,
}

impl Invariant {
    pub fn id(self) -> String {
        if self == Invariant::AtomicResponses { "I7b".to_owned() } else { format!("I{}", self as u8) }
    }
}

/// The violated invariant, with details.
#[derive(Clone, Debug)]
pub struct Failure {
    pub invariant: Invariant,
    pub text: String,
    /// Microseconds since the schedule began.
    pub at: u64,
}

/// A job in flight, or due.
#[derive(Debug)]
pub enum Job {
    // Upstream.
    Connect(u64),
    ToServer(u64, Box<Request>),
    Flush(u64),
    /// A server that pauses hands the next message to its transport.
    GoOn(u64),
    /// The first bytes of a message.
    Begun(u64),
    ToRelay(u64, Box<Message>),
    End(u64, Status),
    Probed(u64),
    Returned(u64),
    /// The keepalive of a connection that became silent.
    Silence(u64),
    /// A poll finds its server, or does not; and the server answers that nothing changed.
    Polled(u64, Box<Request>),
    Unchanged(u64),
    /// The server ends one stream by itself.
    EndedByServer(u64, Status),
    ServerCloses(usize, u64),
    /// Removes a cluster without references from a server, for a class.
    Retire(usize, usize, usize),
    // Downstream.
    Watch(u64),
    Poll(u64),
    RequestOutcome(u64, Box<Sent>),
    ToClient(u64, Box<Sent>),
    Request(u64, Box<Request>),
    Answer(usize, u64, usize),
    Reconnect(usize),
}

pub struct World {
    pub plan: Plan,
    pub words: Lexicon,
    pub authorities: Authorities,
    pub no_authorities: Authorities,
    pub scheduler: Scheduler<Job>,
    pub rng: Rng,
    // The participants.
    pub servers: Vec<ControlPlane>,
    pub links: BTreeMap<u64, Link>,
    pub link_numbers: u64,
    pub slots: Vec<Slot>,
    /// The number of starts of the relay.
    pub generation: u64,
    pub streams: Vec<Option<Box<StreamSlot>>>,
    pub clients: Vec<Client>,
    pub edition: u32,
    /// Faults are over.
    pub is_healed: bool,
    pub disk: Disk,
    /// The class of each client by the configuration in force.
    pub configured: Vec<usize>,
    /// The server lists in force.
    pub lists: Lists,
}

schedules!(World, Job);

pub struct Outcome {
    pub hash: u64,
    pub failure: Option<Failure>,
    pub story: Vec<String>,
}

/// Runs a schedule to its end or to the first violation.
pub fn run(plan: &Plan, acts: &[Act], origin: u64, tells: bool) -> Outcome {
    let world = play(plan, acts, origin, tells, |_| {});
    world.scheduler.outcome()
}

/// Like [`run`], with more events before the end. The world remains as the schedule left it.
pub fn play(plan: &Plan, acts: &[Act], origin: u64, tells: bool, at_last: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(plan.clone(), origin, tells);
    world.start();
    for act in acts {
        world.advance(act.gap);
        if world.failure.is_some() {
            break;
        }
        world.rng = Rng::new(act.choice);
        world.save_sometimes(act.choice);
        world.act(act);
    }
    at_last(&mut world);
    world.advance(SECOND);
    if world.plan.mode == Mode::Liveness {
        world.come_to_rest();
    }
    world
}

impl World {
    fn new(plan: Plan, origin: u64, tells: bool) -> World {
        let servers =
            plan.servers.iter().map(|server| ControlPlane::new(plan.classes, server.delta, server.mute));
        let configured = plan.clients.iter().map(|client| client.class).collect();
        let clients = plan.clients.iter().map(|client| Client::new(client.clone())).collect();
        World {
            servers: servers.collect(),
            clients,
            words: Lexicon::new(),
            authorities: Authorities::new([AUTHORITY]),
            no_authorities: Authorities::default(),
            scheduler: Scheduler::new(origin, tells),
            rng: Rng::new(mix(plan.seed)),
            plan,
            links: BTreeMap::new(),
            link_numbers: 0,
            slots: Vec::new(),
            generation: 0,
            streams: Vec::new(),
            edition: 0,
            is_healed: false,
            disk: Disk::default(),
            configured,
            lists: Lists::default(),
        }
    }

    fn start(&mut self) {
        for server in 0..self.servers.len() {
            for class in 0..self.plan.classes {
                self.furnish(server, class);
            }
        }
        self.start_relay();
        for client in 0..self.clients.len() {
            let within = self.rng.below(SECOND);
            self.after(within, Job::Reconnect(client));
        }
    }

    // === time ===

    /// Advances the clock, and runs all due jobs.
    pub fn advance(&mut self, by: u64) {
        let end = self.now + by;
        loop {
            let timer = self.slots.iter().filter_map(Slot::next_due).min();
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

    fn dispatch(&mut self, job: Job) {
        match job {
            Job::Connect(link) => self.connect(link),
            Job::ToServer(link, request) => self.reach_server(link, &request),
            Job::Flush(link) => self.flush(link),
            Job::GoOn(link) => self.go_on(link),
            Job::Begun(link) => self.begun(link),
            Job::ToRelay(link, message) => self.reach_relay(link, &message),
            Job::End(link, status) => self.end_link(link, status),
            Job::Probed(link) => self.probed(link),
            Job::Returned(link) => self.returned(link),
            Job::Silence(link) => self.silence(link),
            Job::Polled(link, request) => self.polled(link, &request),
            Job::Unchanged(link) => self.unchanged(link),
            Job::EndedByServer(link, status) => self.end_by_server(link, status),
            Job::ServerCloses(server, link) => self.servers[server].close(link),
            Job::Retire(server, class, name) => self.retire(server, class, name),
            Job::Watch(stream) => self.tell_source(stream),
            Job::Poll(stream) => self.poll(stream),
            Job::RequestOutcome(stream, sent) => self.taken(stream, sent),
            Job::ToClient(stream, sent) => self.reach_client(stream, &sent),
            Job::Request(stream, request) => self.take_request(stream, &request),
            Job::Answer(client, stream, ty) => self.answer(client, stream, ty),
            Job::Reconnect(client) => self.open_stream(client),
        }
    }
}
