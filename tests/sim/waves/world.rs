//! The world of one schedule: a clock, a queue of jobs in flight, and all participants.

use std::collections::BTreeMap;

use sluice_fleet::rollout::hook::HookVerdict;
use sluice_xds::Request;

use super::client::Client;
use super::pilot::Pilot;
use super::plan::WavePlan;
use super::reference::Reference;
use super::relay::{Given, Stream, Unit};
use super::restart::Disk;
use super::upstream::Link;
use crate::control_plane::ControlPlane;
use crate::message::Message;
use crate::rng::{Rng, mix};
use crate::schedule::{Act, SECOND};
use crate::scheduler::{Scheduler, schedules};
use crate::words::{Lexicon, OLD, TYPES, show, show_content};
use crate::world::{Invariant, Outcome};

/// A job in flight, or due.
#[derive(Debug)]
pub enum Job {
    Connect(u64),
    ToServer(u64, Box<Request>),
    Flush(u64),
    ToRelay(u64, Box<Message>),
    Probed(u64),
    Returned(u64),
    ServerBack(usize),
    /// The clients of a list come back.
    WakeList(usize),
    /// The second server of a list states what the first states.
    Mirror(usize),
    Poll(u64),
    /// The driver moves the session of a stream to other servers.
    Shift(u64),
    Taken(u64, Box<Given>),
    ToClient(u64, Box<Given>),
    Request(u64, Box<Request>),
    Answer(usize, u64, usize),
    Reconnect(usize),
    Crash(usize, u64),
    /// The plan's task looks around.
    Pilot,
    /// The hook answers a question.
    HookSaid(u64, HookVerdict),
    /// An order of the plan's task arrives at a unit.
    Order(usize),
}

/// The contents of a unit's server, or of a client, by type and name.
pub type Table = [[u32; OLD]; TYPES];

pub struct World {
    pub plan: WavePlan,
    pub words: Lexicon,
    pub scheduler: Scheduler<Job>,
    pub rng: Rng,
    pub servers: Vec<ControlPlane>,
    /// The gated contents of each server so far.
    pub past: Vec<Vec<Table>>,
    pub links: BTreeMap<u64, Link>,
    pub link_numbers: u64,
    pub units: Vec<Unit>,
    /// The number of starts of the relay.
    pub generation: u64,
    /// The times that each unit began anew.
    pub lives: Vec<u64>,
    pub streams: Vec<Option<Box<Stream>>>,
    pub clients: Vec<Client>,
    pub edition: u32,
    /// The time of the last look at newcomers.
    pub looked_at: u64,
    pub is_healed: bool,
    pub pilot: Pilot,
    /// The number of questions to the hook.
    pub questions: u64,
    pub reference: Reference,
    pub disk: Disk,
    /// The responses of a run that is compared with another one, and judged by nothing else.
    pub wire: Option<Wire>,
}

schedules!(World, Job);

/// All responses in their order, with their times.
#[derive(Default)]
pub struct Wire {
    /// The sources are those of a relay without a plan.
    pub is_planless: bool,
    pub responses: Vec<String>,
}

/// A plan without a push under way: one that gates no type, or one whose gated content stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    GatesNothing,
    NothingChanges,
}

/// Every so many schedules run with an idle plan and without a plan, too.
const COMPARED: u64 = 32;

/// Compares the responses of a schedule with an idle plan, and without a plan (I33). Returns their number, or the first that
/// differ.
pub fn compare_idle(seed: u64, acts: &[Act], idle: Idle) -> Result<usize, String> {
    let [with, without] = [true, false].map(|has_plan| responses(seed, acts, idle, has_plan));
    let is_other = |at: &usize| with.get(*at) != without.get(*at);
    let Some(at) = (0..with.len().max(without.len())).find(is_other) else { return Ok(with.len()) };
    let show = |of: &[String]| of.get(at).map_or("nothing", String::as_str).to_owned();
    Err(format!("{idle:?}: response {at} is, with a plan, {}, and without {}", show(&with), show(&without)))
}

fn responses(seed: u64, acts: &[Act], idle: Idle, has_plan: bool) -> Vec<String> {
    let mut plan = WavePlan::of_seed(seed);
    let mut acts = acts.to_vec();
    match idle {
        Idle::GatesNothing => plan.gates = false,
        Idle::NothingChanges => acts.iter_mut().for_each(super::acts::leave_gated_content),
    }
    let mut world = World::new(plan, 0, false);
    world.wire = Some(Wire { is_planless: !has_plan, responses: Vec::new() });
    world.play(&acts);
    world.wire.map(|wire| wire.responses).unwrap_or_default()
}

/// Runs a schedule to its end or to the first violation.
pub fn run(seed: u64, acts: &[Act], origin: u64, tells: bool) -> Outcome {
    let mut world = World::new(WavePlan::of_seed(seed), origin, tells);
    if seed % COMPARED == COMPARED - 1 {
        for idle in [Idle::GatesNothing, Idle::NothingChanges] {
            if let Err(text) = compare_idle(seed, acts, idle) {
                world.fail(Invariant::OffIsOff, || text);
            }
        }
    }
    world.play(acts);
    if seed.is_multiple_of(2) {
        world.come_to_rest();
    }
    world.scheduler.outcome()
}

impl World {
    fn new(plan: WavePlan, origin: u64, tells: bool) -> World {
        let rollout = plan.rollout();
        let servers = (0..plan.units()).map(|_| ControlPlane::new(1, true, false)).collect();
        let clients = (0..plan.clients.len()).map(|client| Client::new(&plan, client, &rollout)).collect();
        World {
            words: Lexicon::new(),
            scheduler: Scheduler::new(origin, tells),
            rng: Rng::new(mix(plan.seed)),
            servers,
            past: vec![Vec::new(); plan.units()],
            links: BTreeMap::new(),
            link_numbers: 0,
            units: Vec::new(),
            generation: 0,
            lives: vec![0; plan.units()],
            streams: Vec::new(),
            clients,
            edition: 0,
            looked_at: 0,
            is_healed: false,
            pilot: Pilot::new(rollout),
            questions: 0,
            reference: Reference::new(&plan),
            disk: Disk::default(),
            wire: None,
            plan,
        }
    }

    fn play(&mut self, acts: &[Act]) {
        self.start();
        for act in acts {
            self.advance(act.gap);
            if self.failure.is_some() {
                break;
            }
            self.rng = Rng::new(act.choice);
            self.act(act);
        }
        self.advance(SECOND);
    }

    fn start(&mut self) {
        for unit in 0..self.plan.units() {
            self.furnish(unit);
        }
        self.start_units();
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
            let timer = self.units.iter().filter_map(|unit| unit.due).min();
            let hold = self.streams.iter().flatten();
            let hold = hold.flat_map(|stream| stream.wakes_at.into_iter().chain(stream.looks_at)).min();
            let pilot = self.pilot.due;
            let Some(next) = self.next_due(&[timer, hold, pilot], end) else { break };
            if next > self.now {
                self.look_at_newcomers(next);
            }
            self.pass_to(next);
            let is_due = |at: Option<u64>| at.is_some_and(|at| at <= next);
            if is_due(timer) {
                self.run_timers();
            } else if is_due(hold) {
                self.run_holds();
            } else if is_due(pilot) {
                self.fly();
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
            Job::ToRelay(link, message) => self.reach_relay(link, &message),
            Job::Probed(link) => self.probed(link),
            Job::Returned(link) => self.returned(link),
            Job::ServerBack(unit) => self.server_back(unit),
            Job::WakeList(list) => self.wake_list(list),
            Job::Mirror(list) => self.mirror(list),
            Job::Poll(stream) => self.poll(stream),
            Job::Shift(stream) => self.shift(stream),
            Job::Taken(stream, given) => self.taken(stream, given),
            Job::ToClient(stream, given) => self.reach_client(stream, &given),
            Job::Request(stream, request) => self.take_request(stream, &request),
            Job::Answer(client, stream, ty) => self.answer(client, stream, ty),
            Job::Reconnect(client) => self.open_stream(client),
            Job::Crash(client, stream) => self.crash(client, stream),
            Job::Pilot => self.fly(),
            Job::HookSaid(question, said) => self.take_answer(question, said),
            Job::Order(unit) => self.take_order(unit),
        }
    }

    /// A run that is compared with another one is judged by nothing else.
    pub fn fail(&mut self, invariant: Invariant, text: impl FnOnce() -> String) {
        let is_judged = self.wire.is_none() || invariant == Invariant::Hygiene;
        if is_judged {
            self.scheduler.fail(invariant, text);
        }
    }
}

/// `a=0:7 b=0:9`
pub fn show_table(row: &[u32; OLD]) -> String {
    let there = row.iter().enumerate().filter(|(_, content)| **content != 0);
    let all: Vec<_> = there.map(|(name, of)| format!("{}={}", show(1 << name), show_content(*of))).collect();
    all.join(" ")
}
