//! The one scenario there is: some clients hold the same subscription while one cluster changes a few times.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::{Fleet, Profile, Requests, Round};
use crate::control_plane::{ControlPlane, Plan, Remote};
use crate::measure::{self, Process, monotonic_ns, own_cpu_ns};
use crate::report::{Figures, Memory, Percentiles};

/// Files that the tool needs open besides one per client.
const OTHER_FILES: u64 = 64;

/// If the clients' thread computes, or waits for a CPU to do so, for more than this share of the change phases, the
/// figures are the tool's own.
const BUSY_LIMIT: f64 = 0.95;

/// Where changes come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A control plane in this process, which is the upstream of the server under test.
    Own(Plan),
    /// A `sluice-load control-plane` in another process, by its command address.
    Remote(SocketAddr),
    /// Unknown: there are no changes and any answer is complete.
    None,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub target: SocketAddr,
    pub pid: Option<i32>,
    pub clients: usize,
    pub profile: Profile,
    pub clusters: usize,
    pub cluster_bytes: usize,
    pub changes: usize,
    pub source: Source,
    /// How many clients may wait for their first answer at once.
    pub in_flight: usize,
    /// How long to wait before memory is read.
    pub settle: Duration,
    /// How long to wait after a change has reached everybody.
    pub pause: Duration,
    /// How long to wait for an answer or an update before giving up.
    pub patience: Duration,
}

enum Changer {
    Own(ControlPlane),
    Remote(Remote),
    None,
}

impl Changer {
    fn new(source: &Source) -> Result<Changer> {
        Ok(match source {
            Source::Own(plan) => Changer::Own(ControlPlane::start(plan)?),
            Source::Remote(address) => Changer::Remote(Remote::connect(*address)?),
            Source::None => Changer::None,
        })
    }

    fn change(&mut self) -> Result<()> {
        match self {
            Changer::Own(control_plane) => control_plane.change(),
            Changer::Remote(remote) => remote.change()?,
            Changer::None => {}
        }
        Ok(())
    }
}

/// What the change phases cost and how long they took.
#[derive(Default)]
struct Changes {
    per_client_us: Vec<u64>,
    last_client_us: Vec<u64>,
    wall_ns: u64,
    client_cpu_ns: u64,
    client_waited_ns: u64,
    server_cpu_ns: Option<u64>,
    own_cpu_ns: u64,
    bytes: u64,
}

/// Runs the scenario. An error means that there is nothing to report; failures of clients are in the figures.
pub fn run(scenario: &Scenario) -> Result<Figures> {
    measure::raise_open_files(scenario.clients as u64 + OTHER_FILES)?;
    let server = scenario.pid.map(Process::find).transpose()?;
    let mut changer = Changer::new(&scenario.source)?;
    let requests = Requests::new(scenario.profile.clone());
    let clusters = if matches!(changer, Changer::None) { 0 } else { scenario.clusters as u64 };
    let mut fleet = Fleet::new(scenario.target, requests, clusters)?;

    fleet.grow_to(1, 1, scenario.patience)?;
    let mut memory = Memory::default();
    if fleet.live() == 1 {
        fleet.idle(scenario.settle)?;
        memory.one_client = rss(server.as_ref())?;
    }
    let connect = connect_the_rest(scenario, &mut fleet, server.as_ref())?;
    memory.all_clients = rss(server.as_ref())?;

    let mut changes = Changes::default();
    if fleet.live() > 0 {
        changes = run_changes(scenario, &mut fleet, &mut changer, server.as_ref())?;
        fleet.idle(scenario.settle)?;
        memory.after_changes = rss(server.as_ref())?;
    }
    Ok(figures(scenario, &fleet, connect, memory, &changes))
}

/// Gives how long it took until all were served, in nanoseconds, and the CPU time of the server.
fn connect_the_rest(
    scenario: &Scenario,
    fleet: &mut Fleet,
    server: Option<&Process>,
) -> Result<(u64, Option<u64>)> {
    let start = monotonic_ns();
    let cpu = cpu(server)?;
    // A server that cannot serve one client is not asked to serve thousands.
    if fleet.live() == 1 {
        fleet.grow_to(scenario.clients, scenario.in_flight, scenario.patience)?;
    }
    let elapsed = monotonic_ns() - start;
    fleet.idle(scenario.settle)?;
    Ok((elapsed, difference(cpu, self::cpu(server)?)))
}

fn run_changes(
    scenario: &Scenario,
    fleet: &mut Fleet,
    changer: &mut Changer,
    server: Option<&Process>,
) -> Result<Changes> {
    let mut changes = Changes::default();
    let (cpu_before, own_before, bytes_before) = (cpu(server)?, own_cpu_ns(), fleet.bytes_received());
    for _ in 0..scenario.changes {
        let round = fleet.round(|| changer.change(), scenario.patience)?;
        changes.add(&round);
        // The pause counts as well: in it the server works off the last ACKs.
        fleet.idle(scenario.pause)?;
        if fleet.live() == 0 {
            break;
        }
    }
    changes.server_cpu_ns = difference(cpu_before, cpu(server)?);
    changes.own_cpu_ns = own_cpu_ns() - own_before;
    changes.bytes = fleet.bytes_received() - bytes_before;
    Ok(changes)
}

impl Changes {
    fn add(&mut self, round: &Round) {
        self.per_client_us.extend(round.latencies_ns.iter().map(|ns| ns / 1000));
        self.last_client_us.extend(round.latencies_ns.iter().max().map(|ns| ns / 1000));
        self.wall_ns += round.wall_ns;
        self.client_cpu_ns += round.thread.cpu_ns;
        self.client_waited_ns += round.thread.waited_ns;
    }
}

fn figures(
    scenario: &Scenario,
    fleet: &Fleet,
    (connect_ns, connect_cpu_ns): (u64, Option<u64>),
    memory: Memory,
    changes: &Changes,
) -> Figures {
    let connected = fleet.live();
    let updates = changes.per_client_us.len() as u64;
    let busy = ratio(changes.client_cpu_ns + changes.client_waited_ns, changes.wall_ns).unwrap_or(0.0);
    let waits: Vec<u64> = fleet.waits_ns().iter().map(|ns| ns / 1000).collect();
    let mut errors: Vec<String> =
        fleet.failures().iter().map(|(reason, count)| format!("{count} x {reason}")).collect();
    if connected < scenario.clients {
        errors.push(format!("{connected} of {} clients were connected at the end", scenario.clients));
    }
    let per_update = |ns: u64| ratio(ns, updates).map(|ns| ns / 1000.0);
    Figures {
        name: scenario.name.clone(),
        clients: scenario.clients,
        connected,
        resources: scenario.clusters,
        resource_bytes: scenario.cluster_bytes,
        mode: scenario.profile.variant,
        node_bytes: scenario.profile.node_bytes,
        node_every_request: scenario.profile.node_every_request,
        endpoint_names: scenario.profile.endpoint_names,
        changes: scenario.changes,
        connect_ms: connect_ns as f64 / 1e6,
        first_answer_ms: Percentiles::of_us(&waits),
        server_cpu_us_per_connect: connect_cpu_ns
            .and_then(|ns| ratio(ns, scenario.clients.saturating_sub(1) as u64))
            .map(|ns| ns / 1000.0),
        rss_bytes_per_client: memory.per_client(memory.all_clients, connected),
        rss_bytes_per_client_after_changes: memory.per_client(memory.after_changes, connected),
        rss: memory,
        server_cpu_us_per_update: changes.server_cpu_ns.and_then(per_update),
        client_cpu_us_per_update: per_update(changes.client_cpu_ns),
        tool_cpu_us_per_update: per_update(changes.own_cpu_ns),
        bytes_per_update: ratio(changes.bytes, updates),
        update_ms: Percentiles::of_us(&changes.per_client_us),
        last_client_ms: Percentiles::of_us(&changes.last_client_us),
        last_client_ms_p50: Percentiles::of_us(&changes.last_client_us).map(|last| last.p50),
        last_client_ms_max: Percentiles::of_us(&changes.last_client_us).map(|last| last.max),
        client_thread_busy: busy,
        tool_was_bottleneck: busy > BUSY_LIMIT,
        errors: errors.len(),
        error_messages: errors,
    }
}

fn cpu(server: Option<&Process>) -> Result<Option<u64>> {
    server.map(Process::cpu_ns).transpose()
}

fn rss(server: Option<&Process>) -> Result<Option<u64>> {
    server.map(Process::rss_bytes).transpose()
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

fn ratio(value: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| value as f64 / count as f64)
}

/// The first address of `HOST:PORT`.
pub fn resolve(target: &str) -> Result<SocketAddr> {
    let mut addresses = std::net::ToSocketAddrs::to_socket_addrs(target)
        .with_context(|| format!("{target} is not HOST:PORT or its host is unknown"))?;
    addresses.next().with_context(|| format!("{target} has no address"))
}

impl Scenario {
    /// Checks what the types of the arguments do not say.
    pub fn check(&self) -> Result<()> {
        ensure!(self.clients > 0, "--clients must be at least 1");
        ensure!(self.in_flight > 0, "--in-flight must be at least 1");
        if matches!(self.source, Source::None) {
            ensure!(self.changes == 0, "without a control plane nothing changes: give --changes 0");
        } else {
            ensure!(
                self.clusters > 0,
                "--resources must be at least 1: the first one is the one that changes"
            );
            ensure!(
                self.profile.endpoint_names <= self.clusters,
                "--eds-names must not be more than --resources, which is how many the control plane has"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
