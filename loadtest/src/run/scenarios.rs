//! The events of each scenario.

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;

use super::driver::Driver;
use super::figures::{self, Figures, LoadFigures, Measured};
use super::spec::{Scenario, Spec};
use crate::live::Live;
use crate::load::Received;
use crate::measure::{self, monotonic_ns, nanos, own_cpu_ns};

/// Open files that the tool needs besides one per connection.
const OTHER_FILES: u64 = 64;

/// The number of connections to open before serving the open ones.
const BURST: usize = 64;

/// The pause between two looks at the sums of the control plane.
const LOOK_NS: u64 = 100_000_000;

/// Runs a scenario. An error means that there is nothing to report; failures of clients are in the figures.
pub fn run(spec: &Spec, live: Option<&Live>) -> Result<Figures> {
    let connections = spec.clients.div_ceil(spec.profile.clients_per_connection.max(1)) as u64;
    // A storm may open the new connections before the kernel has closed the old ones.
    measure::raise_open_files(connections + OTHER_FILES)?;
    let mut driver = Driver::new(spec, live)?;
    let mut measured = Measured::default();
    driver.phase("connect")?;
    connect_first(&mut driver, &mut measured)?;
    if spec.scenario != Scenario::Ramp {
        connect_all(&mut driver, &mut measured)?;
    }
    if driver.fleet.connected() > 0 {
        act(&mut driver, &mut measured)?;
    }
    measured.memory.after_changes = rss(&driver);
    measured.server_ended = driver.server.is_some() && measured.memory.after_changes.is_none();
    measured.connected = driver.fleet.connected() + driver.fleet.odd_lost();
    if let Some(after) = spec.leave {
        leave(&mut driver, &mut measured, nanos(after))?;
    }
    let (finished, series) = driver.finish()?;
    Ok(figures::figures(spec, &finished, series, &measured))
}

/// Opens one connection, whose memory includes the cost of the set.
fn connect_first(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    grow_to(driver, 1)?;
    if driver.fleet.connected() > 0 {
        settle(driver)?;
        measured.memory.one_client = rss(driver);
        measured.first_clients = driver.fleet.clients_of(0).len();
    }
    Ok(())
}

fn connect_all(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    let start = monotonic_ns();
    let cpu = cpu(driver);
    // A server that cannot serve one client does not get thousands.
    if driver.fleet.connected() > 0 {
        grow_to(driver, driver.fleet.connections())?;
    }
    measured.connect_ns = monotonic_ns() - start;
    settle(driver)?;
    measured.connect_cpu_ns = difference(cpu, self::cpu(driver));
    measured.memory.all_clients = rss(driver);
    Ok(())
}

/// Opens connections until there are `count`, with a limited number waiting for a first complete answer, and
/// waits for the answers. If no connection makes progress within the run's patience, fails the waiting
/// connections.
fn grow_to(driver: &mut Driver<'_>, count: usize) -> Result<()> {
    let patience = nanos(driver.spec.patience);
    let mut opened = usize::from(count > 1);
    let mut decided = 0;
    let mut deadline = monotonic_ns() + patience;
    loop {
        let burst = opened + BURST;
        while opened < count.min(burst) && driver.fleet.waiting() < driver.spec.in_flight {
            driver.open(opened, monotonic_ns());
            opened += 1;
        }
        if driver.fleet.waiting() == 0 && opened >= count {
            return Ok(());
        }
        let more = opened < count && driver.fleet.waiting() < driver.spec.in_flight;
        driver.turn(if more { monotonic_ns() } else { deadline })?;
        let now_decided = opened - driver.fleet.waiting();
        if now_decided != decided {
            decided = now_decided;
            deadline = monotonic_ns() + patience;
        } else if monotonic_ns() >= deadline {
            driver.give_up_waiting();
        }
    }
}

/// The scenario itself, with every client connected (except in the ramp).
fn act(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    let (cpu_before, own_before) = (cpu(driver), own_cpu_ns());
    let (bytes, plane) = (driver.fleet.bytes_received(), driver.control_plane_cpu_ns());
    let begin = monotonic_ns();
    driver.counting = true;
    match driver.spec.scenario {
        Scenario::Rounds => rounds(driver)?,
        Scenario::Steady => steady(driver, "steady")?,
        Scenario::Ramp => ramp(driver, measured)?,
        Scenario::Storm => storm(driver, measured)?,
        Scenario::Rolling => rolling(driver)?,
        Scenario::Churn => churn(driver, measured)?,
        Scenario::Slow | Scenario::Stuck | Scenario::Nack => misbehave(driver)?,
        Scenario::Outage => outage(driver, measured)?,
        Scenario::Rule => rule(driver)?,
    }
    drain(driver, measured)?;
    driver.stop_counting();
    if driver.spec.profile.load.is_some() {
        measured.load = Some(agree(driver)?);
    }
    measured.acting_ns = monotonic_ns() - begin;
    measured.control_plane_cpu_ns = driver.control_plane_cpu_ns().saturating_sub(plane);
    if driver.spec.scenario == Scenario::Rounds {
        measured.server_cpu_ns = difference(cpu_before, cpu(driver));
    }
    measured.own_cpu_ns = own_cpu_ns() - own_before;
    measured.bytes = driver.fleet.bytes_received() - bytes;
    settle(driver)?;
    // Changes at a fixed rate leave no pause in which the server handles the last ACKs.
    if driver.spec.scenario != Scenario::Rounds {
        measured.server_cpu_ns = difference(cpu_before, cpu(driver));
    }
    Ok(())
}

/// One change after the other, each after all clients have the previous change.
fn rounds(driver: &mut Driver<'_>) -> Result<()> {
    driver.phase("rounds")?;
    let (patience, pause) = (driver.spec.patience, nanos(driver.spec.pause));
    for _ in 0..driver.spec.changes {
        let since = driver.change()?;
        if !driver.until(since + nanos(patience), |driver| driver.tracker.due() == 0)? {
            let reason = format!("no update within {} s", patience.as_secs_f64());
            driver.give_up(&reason, |tracker, client| tracker.awaits(client));
        }
        // The pause counts as well: the server handles the last ACKs then.
        idle(driver, pause)?;
        if driver.fleet.connected() == 0 {
            break;
        }
    }
    Ok(())
}

fn steady(driver: &mut Driver<'_>, name: &str) -> Result<()> {
    driver.phase(name)?;
    driver.set_changing(true);
    idle(driver, nanos(driver.spec.duration))
}

fn ramp(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    let half = nanos(driver.spec.duration) / 2;
    driver.phase("ramp")?;
    driver.set_changing(true);
    let start = monotonic_ns();
    let rest = driver.fleet.connections() - 1;
    for number in 0..rest {
        let at = start + (half as u128 * number as u128 / rest.max(1) as u128) as u64;
        driver.until(at, |_| false)?;
        driver.open(number + 1, at);
    }
    driver.until(start + half, |_| false)?;
    await_served(driver)?;
    measured.connect_ns = monotonic_ns() - start;
    measured.memory.all_clients = rss(driver);
    driver.phase("hold")?;
    idle(driver, half)
}

fn storm(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    let half = nanos(driver.spec.duration) / 2;
    driver.phase("before")?;
    driver.set_changing(true);
    idle(driver, half)?;
    driver.phase("storm")?;
    let ids: Vec<usize> = (0..driver.fleet.connections()).filter(|id| driver.fleet.is_open(*id)).collect();
    ids.iter().for_each(|id| driver.fleet.close(*id));
    let start = monotonic_ns();
    for (number, id) in ids.into_iter().enumerate() {
        driver.open(id, start);
        // The first answers are read while the last connections are opened; nothing is delayed.
        if (number + 1) % BURST == 0 {
            driver.turn(monotonic_ns())?;
        }
    }
    await_served(driver)?;
    measured.recovery_ns = Some(monotonic_ns() - start);
    driver.phase("after")?;
    idle(driver, half)
}

fn rolling(driver: &mut Driver<'_>) -> Result<()> {
    driver.phase("rolling")?;
    driver.set_changing(true);
    let start = monotonic_ns();
    let (duration, count) = (nanos(driver.spec.duration), driver.fleet.connections());
    for id in 0..count {
        let at = start + (duration as u128 * id as u128 / count as u128) as u64;
        driver.until(at, |_| false)?;
        if driver.fleet.is_open(id) {
            driver.fleet.close(id);
            driver.open(id, at);
        }
    }
    driver.until(start + duration, |_| false)?;
    await_served(driver)
}

fn churn(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    driver.phase("churn")?;
    driver.set_changing(true);
    let clients = driver.spec.clients as u64;
    let gap = (1e9 / driver.spec.churn.rate) as u64;
    let start = monotonic_ns();
    let end = start + nanos(driver.spec.duration);
    let mut moves = Moves::default();
    // Client after client, evenly over the time between two moves of one client.
    for number in 0_u64.. {
        let at = start + number / clients * gap + (number % clients) * gap / clients;
        if at >= end {
            break;
        }
        driver.until(at, |_| false)?;
        moves.scheduled.entry((number % clients) as usize).or_default().push_back(at);
        moves.make(driver);
    }
    let deadline = monotonic_ns() + nanos(driver.spec.patience);
    driver.until(deadline, |driver| {
        moves.make(driver);
        moves.scheduled.is_empty() && driver.tracker.moving() == 0
    })?;
    let never_made = moves.scheduled.values().map(VecDeque::len).sum::<usize>();
    measured.moves_missed = driver.tracker.moving() + never_made;
    Ok(())
}

/// Moves of clients to other names. A client that still waits for its last names moves after their arrival;
/// the clock runs from the scheduled move.
#[derive(Default)]
struct Moves {
    scheduled: BTreeMap<usize, VecDeque<u64>>,
}

impl Moves {
    /// Makes the due moves of clients that can move.
    fn make(&mut self, driver: &mut Driver<'_>) {
        let Some((subscription, count, step)) = driver.spec.named() else { return };
        let by = driver.spec.churn.names;
        self.scheduled.retain(|&client, times| {
            if driver.tracker.is_moving(client) {
                return true;
            }
            // A lost client moves no more; the loss is reported.
            if !driver.fleet.is_served(client) {
                return false;
            }
            let Some(at) = times.pop_front() else { return false };
            // The first name after the current names.
            let first = client * step + driver.tracker.offset(client) + count;
            driver.tracker.moved(client, at, first, by, driver.spec.pace.change(0));
            driver.fleet.move_on(client, subscription, by, &mut driver.tracker);
            !times.is_empty()
        });
    }
}

/// In the middle some clients begin to misbehave; the figures show the effect on the others.
fn misbehave(driver: &mut Driver<'_>) -> Result<()> {
    let half = nanos(driver.spec.duration) / 2;
    driver.phase("before")?;
    driver.set_changing(true);
    idle(driver, half)?;
    driver.phase(&driver.spec.scenario.name())?;
    driver.start_misbehaving();
    idle(driver, half)
}

fn outage(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    let third = nanos(driver.spec.duration) / 3;
    driver.phase("before")?;
    driver.set_changing(true);
    idle(driver, third)?;
    driver.phase("outage")?;
    driver.set_up(false)?;
    idle(driver, third)?;
    driver.phase("after")?;
    driver.set_up(true)?;
    let start = driver.change()?;
    let seen =
        |driver: &mut Driver<'_>| driver.tracker.phases.last().is_none_or(|phase| phase.updates.count() > 0);
    let patience = nanos(driver.spec.patience);
    if driver.until(start + patience, seen)? {
        let missed = driver.spec.clients;
        let all = move |driver: &mut Driver<'_>| {
            driver.tracker.phases.last().is_none_or(|phase| phase.updates.count() >= missed as u64)
                || driver.tracker.due() == 0
        };
        driver.until(start + patience, all)?;
        measured.recovery_ns = Some(monotonic_ns() - start);
    }
    driver.until(start + third, |_| false).map(drop)
}

/// In the middle the control plane begins to look at further labels, and some clients get content of their own.
fn rule(driver: &mut Driver<'_>) -> Result<()> {
    let half = nanos(driver.spec.duration) / 2;
    driver.phase("before")?;
    driver.set_changing(true);
    idle(driver, half)?;
    driver.phase("rule")?;
    driver.put_rule_in_force()?;
    idle(driver, half)
}

/// Stops changes; pending updates arrive, or time out.
fn drain(driver: &mut Driver<'_>, measured: &mut Measured) -> Result<()> {
    driver.set_changing(false);
    let deadline = monotonic_ns() + nanos(driver.spec.patience);
    driver.until(deadline, |driver| driver.tracker.due() == 0)?;
    measured.missed = driver.tracker.give_up(monotonic_ns());
    measured.unruled = driver.tracker.audiences.give_up(monotonic_ns());
    Ok(())
}

/// Ends the load reports, and waits until the control plane has their sums.
fn agree(driver: &mut Driver<'_>) -> Result<LoadFigures> {
    driver.fleet.stop_reporting();
    let (tally, sums, in_progress) = driver.fleet.reported();
    let start = monotonic_ns();
    let mut received = driver.received()?;
    let agrees = |received: &Received| received.sums == sums && received.in_progress == in_progress;
    while !agrees(&received) && monotonic_ns() < start + nanos(driver.spec.patience) {
        idle(driver, LOOK_NS)?;
        received = driver.received()?;
    }
    let agreed_after_ms = agrees(&received).then(|| (monotonic_ns() - start) as f64 / 1e6);
    Ok(LoadFigures::new(&tally, sums, in_progress, received, agreed_after_ms))
}

/// Waits until no client waits for a first answer.
fn await_served(driver: &mut Driver<'_>) -> Result<()> {
    let deadline = monotonic_ns() + nanos(driver.spec.patience);
    if !driver.until(deadline, |driver| driver.fleet.waiting() == 0)? {
        driver.give_up_waiting();
    }
    Ok(())
}

/// Closes all connections except the first, and measures the remaining memory.
fn leave(driver: &mut Driver<'_>, measured: &mut Measured, after: u64) -> Result<()> {
    driver.phase("leave")?;
    (1..driver.fleet.connections()).for_each(|id| driver.fleet.close(id));
    idle(driver, after)?;
    measured.memory.after_leaving = rss(driver);
    Ok(())
}

/// Lets time pass; clients answer PINGs and ACK responses.
fn idle(driver: &mut Driver<'_>, ns: u64) -> Result<()> {
    driver.until(monotonic_ns() + ns, |_| false).map(drop)
}

fn settle(driver: &mut Driver<'_>) -> Result<()> {
    idle(driver, nanos(driver.spec.settle))
}

/// `None` without a pid, and for a server that has ended.
fn cpu(driver: &Driver<'_>) -> Option<u64> {
    driver.server.as_ref()?.cpu_ns().ok()
}

fn rss(driver: &Driver<'_>) -> Option<u64> {
    driver.server.as_ref()?.rss_bytes().ok()
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}
