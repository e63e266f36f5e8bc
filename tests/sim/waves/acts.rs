//! The events of a schedule, and its end.

use std::time::Duration;

use sluice_fleet::rollout::command::{PinFor, Promotion};
use sluice_fleet::rollout::report::RolloutReport;
use sluice_fleet::rollout::{Command, RolloutState, UnitId};

use super::claims::Standing;
use super::content::{FATAL, IGNORED, REJECTED, cluster_of, content, entry, table};
use super::world::{Table, World, show_table};
use crate::control_plane::Reachable;
use crate::schedule::{Act, MILLI, SECOND};
use crate::words::{CDS, EDS, LDS, OLD, RDS, SHORT, bit, has_endpoints};
use crate::world::Invariant;

/// A removal may wait so long for a client that is told nothing about the routes to it (RLY-51), and longer than patience.
const EVIDENCE_WITHIN: u64 = 20 * SECOND;

/// Puts a change of endpoints in the place of a change of gated content.
pub fn leave_gated_content(act: &mut Act) {
    if matches!(act.what, 0..24 | 36..42) {
        act.what = 24;
    }
}

impl World {
    /// The first contents of a server.
    pub fn furnish(&mut self, unit: usize) {
        for name in 0..3 {
            self.put_cluster(unit, name, 0);
        }
        for name in 0..2 {
            let target = self.rng.below(3) as usize;
            self.put(unit, RDS, name, target, 0);
            self.put(unit, LDS, name, 0, 0);
        }
        if self.plan.mirrors && unit >= self.plan.lists {
            self.servers[unit].truth = self.servers[self.plan.list_of(unit)].truth.clone();
        }
        self.past[unit].push(table(&self.servers[unit].truth[0]));
    }

    fn put(&mut self, unit: usize, ty: usize, name: usize, target: usize, flags: u32) {
        self.edition += 1;
        let content = content(self.plan.list_of(unit), self.edition, target, flags);
        self.servers[unit].truth[0][ty][name] = entry(content);
    }

    fn put_cluster(&mut self, unit: usize, name: usize, flags: u32) {
        let by_name = usize::from(self.rng.percent(75));
        self.put(unit, CDS, name, by_name, flags);
        if self.servers[unit].truth[0][EDS][name].is_none() {
            self.put(unit, EDS, name, 0, 0);
        }
    }

    fn clear(&mut self, unit: usize, ty: usize, name: usize) {
        self.servers[unit].truth[0][ty][name] = None;
    }

    pub fn has(&self, unit: usize, ty: usize, name: usize) -> u32 {
        self.servers[unit].truth[0][ty][name].map_or(0, |entry| entry.content)
    }

    pub fn act(&mut self, act: &Act) {
        let units = self.units.len() as u64;
        let unit = self.rng.below(units) as usize;
        let client = self.rng.below(self.clients.len() as u64) as usize;
        self.note(1, u64::from(act.what), unit as u64);
        let is_fault = matches!(act.what, 62..92) && self.plan.unrest < 100;
        if is_fault && !self.rng.percent(self.plan.unrest) {
            return;
        }
        match act.what {
            0..20 => self.push(unit, self.plan.bad),
            20..24 => {
                let all: Vec<_> = (0..units as usize).filter(|_| self.rng.percent(60)).collect();
                all.into_iter().for_each(|unit| self.push(unit, 30));
            }
            24..36 => self.change_endpoints(unit),
            36..42 => self.revert(unit),
            42..48 => {
                let is_lost = self.rng.percent(50);
                self.disconnect(client, is_lost);
            }
            48..53 => self.leave_or_return(client),
            53..62 => self.wander(client),
            62..65 if self.plan.outages => self.cut_links(unit),
            65..68 if self.plan.outages => self.lose_server(unit),
            86..92 if self.plan.servers > 1 => self.lose_server(unit),
            68..84 if self.plan.commands => self.command(),
            84..86 if self.plan.restarts => self.restart(),
            92..95 if self.plan.begins_anew => self.sleep_list(self.plan.list_of(unit)),
            95..98 if self.plan.begins_anew => self.fail_task(unit),
            98.. if self.plan.begins_anew => self.displace(unit),
            92..98 => self.lose_place(),
            98..100 if self.plan.replaced.is_some() => self.revert(unit),
            _ => {}
        }
    }

    fn leave_or_return(&mut self, client: usize) {
        if std::mem::replace(&mut self.clients[client].has_left, false) {
            self.open_stream(client);
        } else {
            self.clients[client].has_left = true;
            let is_lost = self.rng.percent(50);
            self.disconnect(client, is_lost);
        }
    }

    /// A client of a step goes away. Another one may come in its place.
    fn lose_place(&mut self) {
        let Some(replaced) = self.plan.replaced else { return };
        let streams = self.streams.iter().flatten();
        let of_step =
            streams.filter(|of| self.is_seated(of.client) && self.standing(of) != Standing::Unaffected);
        let clients: Vec<_> = of_step.map(|stream| stream.client).collect();
        if clients.is_empty() {
            return;
        }
        let client = clients[self.rng.below(clients.len() as u64) as usize];
        let is_lost = self.rng.percent(60);
        self.clients[client].has_left = self.rng.percent(20);
        self.disconnect(client, is_lost);
        if self.rng.percent(replaced) {
            self.replace(client);
        }
    }

    // === what control planes do ===

    /// A set of gated changes that belong together.
    fn push(&mut self, unit: usize, bad: u64) {
        let unit = self.stating(unit);
        let flags = match self.rng.percent(bad) {
            true => [REJECTED, REJECTED, IGNORED, FATAL][self.rng.below(4) as usize],
            false => 0,
        };
        let before = table(&self.servers[unit].truth[0]);
        let changes = 1 + self.rng.below(3);
        for number in 0..changes {
            let flags = if number == 0 { flags } else { 0 };
            self.change(unit, flags);
        }
        self.state(unit, &before);
    }

    fn change(&mut self, unit: usize, flags: u32) {
        let name = self.rng.below(OLD as u64) as usize;
        match self.rng.below(6) {
            0 | 1 => self.put_cluster(unit, name, flags),
            2 => {
                let target = self.rng.below(OLD as u64) as usize;
                if self.has(unit, CDS, target) == 0 {
                    self.put_cluster(unit, target, 0);
                }
                self.put(unit, RDS, name % 3, target, flags);
                if self.has(unit, LDS, name % 3) == 0 {
                    self.put(unit, LDS, name % 3, 0, 0);
                }
            }
            3 => self.put(unit, LDS, name % 3, 0, flags),
            4 => {
                let targets = (0..OLD).map(|route| self.has(unit, RDS, route)).filter(|of| *of != 0);
                if !targets.map(cluster_of).any(|target| target == name) {
                    self.clear(unit, CDS, name);
                    self.clear(unit, EDS, name);
                }
            }
            _ => {
                self.clear(unit, LDS, name % 3);
                self.clear(unit, RDS, name % 3);
            }
        }
    }

    pub fn state(&mut self, unit: usize, before: &Table) {
        let after = table(&self.servers[unit].truth[0]);
        if after == *before {
            return;
        }
        self.past[unit].push(after);
        self.tell(|| {
            let rows = [CDS, EDS, LDS, RDS].map(|ty| format!("{} {}", SHORT[ty], show_table(&after[ty])));
            format!("server {unit} states {}", rows.join(", "))
        });
        self.flush_unit(unit);
        self.mirror_soon(unit);
    }

    /// The control plane takes an earlier gated content back.
    fn revert(&mut self, unit: usize) {
        let unit = self.stating(unit);
        let before = table(&self.servers[unit].truth[0]);
        let back = 1 + self.rng.below(3) as usize;
        let Some(at) = self.past[unit].len().checked_sub(1 + back) else { return };
        let former = self.past[unit][at];
        for ty in [CDS, LDS, RDS] {
            for name in 0..OLD {
                self.servers[unit].truth[0][ty][name] = entry(former[ty][name]);
            }
        }
        for name in 0..OLD {
            let needs = has_endpoints(former[CDS][name]) && former[CDS][name] != 0;
            if needs && self.has(unit, EDS, name) == 0 {
                self.put(unit, EDS, name, 0, 0);
            }
        }
        self.state(unit, &before);
    }

    fn change_endpoints(&mut self, unit: usize) {
        let unit = self.stating(unit);
        let before = table(&self.servers[unit].truth[0]);
        let there: Vec<_> = (0..OLD).filter(|name| self.has(unit, EDS, *name) != 0).collect();
        if there.is_empty() {
            return;
        }
        let name = there[self.rng.below(there.len() as u64) as usize];
        self.put(unit, EDS, name, 0, 0);
        self.state(unit, &before);
    }

    fn lose_server(&mut self, unit: usize) {
        let is_first = self.plan.servers > 1 && self.rng.percent(70);
        let unit = if is_first { self.plan.list_of(unit) } else { unit };
        if self.servers[unit].reachable != Reachable::Yes {
            return;
        }
        self.tell(|| format!("server {unit} is away"));
        self.servers[unit].reachable = Reachable::Refused;
        self.cut_links(unit);
        let lengths: &[u64] = match self.plan.servers {
            1 => &[SECOND, 10 * SECOND],
            _ => &[SECOND, 10 * SECOND, 60 * SECOND],
        };
        let within = lengths[self.rng.below(lengths.len() as u64) as usize];
        let delay = self.rng.below(within);
        self.after(delay, super::world::Job::ServerBack(unit));
    }

    // === operators ===

    fn command(&mut self) {
        let report = self.pilot.rollout.report();
        let newest = report.push.as_ref().map(|push| push.number);
        let newest = newest.or(report.past.first().map(|push| push.number)).unwrap_or(0);
        let push = if self.rng.percent(90) { newest } else { newest + 1 };
        let length = Duration::from_micros(SECOND + self.rng.below(10 * SECOND));
        let release = report.releases.get(self.rng.below(3) as usize).copied().unwrap_or(9);
        let unit = self.rng.below(self.units.len() as u64) as usize;
        let unit = UnitId(self.id_of(unit));
        let step = 1 + self.rng.below(3) as u8;
        let command = match self.rng.below(14) {
            0 => Command::Pause { push },
            1 | 2 => Command::Resume { push },
            3 => Command::Promote { push, to: next_step(&report) },
            4 => Command::Promote { push, to: Promotion::Step(step) },
            5 => Command::Promote { push, to: Promotion::All },
            6 | 7 => Command::Abort { push },
            8 => Command::Bar { push, units: vec![unit] },
            9 => {
                let until = [PinFor::NextPush, PinFor::Unpin, PinFor::Length(length)];
                Command::Pin { release, until: until[self.rng.below(3) as usize] }
            }
            10 => Command::Unpin,
            11 => Command::Rollback { push },
            12 => Command::Freeze { length },
            _ => Command::Unfreeze,
        };
        self.order(command);
    }

    pub fn order(&mut self, command: Command) {
        self.pilot.commands.push(command);
        self.wake_pilot();
    }

    // === the end ===

    /// Faults cease: all clients come to have the newest content, and after an abort the stable one.
    pub fn come_to_rest(&mut self) {
        self.is_healed = true;
        self.tell(|| "faults cease".to_owned());
        for unit in 0..self.units.len() {
            self.servers[unit].reachable = Reachable::Yes;
            self.mend(unit);
        }
        for client in 0..self.clients.len() {
            self.clients[client].has_left = false;
            self.disconnect(client, false);
            self.after(MILLI, super::world::Job::Reconnect(client));
        }
        self.order(Command::Unfreeze);
        self.order(Command::Unpin);
        for _ in 0..80 {
            self.advance(10 * SECOND);
            let report = self.pilot.rollout.report();
            if self.failure.is_some() || self.rests(&report) {
                break;
            }
            let Some(push) = report.push else {
                // A barred unit waits until its content changes.
                let barred: Vec<_> = report.barred.iter().filter_map(|unit| self.unit_of(*unit)).collect();
                barred.into_iter().for_each(|unit| self.mend_all(unit));
                continue;
            };
            if push.state == RolloutState::Halted {
                self.mend_halted(&push.blamed, &report.waiting);
                let is_forgotten = |unit: &UnitId| self.is_forgotten(*unit);
                let mut unchanged =
                    push.blamed.iter().filter(|unit| !report.waiting.contains(unit)).peekable();
                let stands_forgotten = unchanged.peek().is_some() && unchanged.all(is_forgotten);
                if stands_forgotten || push.units.iter().all(is_forgotten) {
                    // No client asks any more for the changed content, so no change can be seen.
                    self.order(Command::Promote { push: push.number, to: Promotion::All });
                }
            }
            let waited = push.verdict.as_ref().map(|of| self.now - self.relative(of.at));
            if push.state == RolloutState::Paused && waited.is_some_and(|of| of > EVIDENCE_WITHIN) {
                // Its clients may have rejected it, or may be gone.
                self.order(Command::Abort { push: push.number });
            }
        }
        let report = self.pilot.rollout.report();
        if !self.rests(&report) {
            let text =
                format!("the plan does not come to rest: {:?}, with {:?}", report.state, report.waiting);
            return self.fail(Invariant::Return, || text);
        }
        self.advance(40 * SECOND);
        self.judge_rest("at the end");
        self.abort_a_push();
    }

    /// Whether the plan is open, or only barred units wait, and no client asks for their held content.
    fn rests(&self, report: &RolloutReport) -> bool {
        let is_asleep = |unit: &UnitId| report.barred.contains(unit) && self.is_forgotten(*unit);
        report.state == RolloutState::Open
            || report.state == RolloutState::Gathering && report.waiting.iter().all(is_asleep)
    }

    /// Whether no client asks for content of the unit that differs from the stable content. A unit that has ended counts as forgotten.
    fn is_forgotten(&self, unit: UnitId) -> bool {
        let of = self.unit_of(unit).map(|unit| &self.reference.units[unit]);
        of.is_none_or(|of| !of.stable().differs(&of.live))
    }

    /// A halted push waits until the content of all blamed units has changed. In a unit whose clients ask only for what is gone,
    /// nothing has changed until that is there again.
    fn mend_halted(&mut self, blamed: &[UnitId], waiting: &[UnitId]) {
        let of = |units: &[UnitId]| units.iter().filter_map(|unit| self.unit_of(*unit)).collect::<Vec<_>>();
        let (blamed, waiting) = (of(blamed), of(waiting));
        let others = if waiting.is_empty() { 0..self.units.len() } else { 0..0 };
        others.filter(|unit| !blamed.contains(unit)).for_each(|unit| self.mend(unit));
        blamed.into_iter().filter(|unit| !waiting.contains(unit)).for_each(|unit| self.mend_all(unit));
    }

    /// New content for every name that clients may ask for.
    fn mend_all(&mut self, unit: usize) {
        let unit = self.stating(unit);
        for name in 0..OLD {
            self.put_cluster(unit, name, 0);
        }
        for name in 0..3 {
            self.put(unit, LDS, name, 0, 0);
            self.put(unit, RDS, name, name, 0);
        }
        self.mend(unit);
    }

    /// Another content of everything, without a fault.
    fn mend(&mut self, unit: usize) {
        let unit = self.stating(unit);
        let before = table(&self.servers[unit].truth[0]);
        for ty in [CDS, LDS, RDS] {
            for name in 0..OLD {
                let content = self.has(unit, ty, name);
                if content != 0 {
                    self.put(unit, ty, name, (content & 7) as usize, 0);
                }
            }
        }
        self.put_cluster(unit, 0, 0);
        self.state(unit, &before);
    }

    fn abort_a_push(&mut self) {
        for unit in 0..self.units.len() {
            self.mend(unit);
        }
        for _ in 0..60 {
            self.advance(200 * MILLI);
            let report = self.pilot.rollout.report();
            if let Some(push) = report.push.filter(|push| !push.steps.is_empty()) {
                self.order(Command::Abort { push: push.number });
                self.advance(40 * SECOND);
                return self.judge_rest("after an abort");
            }
        }
    }

    /// Every client has its release exactly.
    fn judge_rest(&mut self, when: &str) {
        for client in 0..self.clients.len() {
            let (_, release) = self.release_for((client, self.unit_for(client)), None);
            let (of, release) = (&self.clients[client], release.clone());
            for ty in [CDS, EDS, LDS, RDS] {
                let told = (0..OLD).filter(|name| of.has_claimed[ty] & bit(*name) == 0);
                for name in told.filter(|name| of.wants[ty].covers(*name)) {
                    let due = release.for_want(ty, name, of.wants[ty]);
                    let tells_absence = of.plan.delta || matches!(ty, CDS | LDS);
                    let has = of.has[ty][name];
                    if due != Some(has) && (tells_absence || due.is_some_and(|due| due != 0)) {
                        let text = format!(
                            "{when} client {client} has {} {}, and its release has {due:?}",
                            SHORT[ty],
                            show_table(&of.has[ty])
                        );
                        return self.fail(Invariant::Return, || text);
                    }
                }
            }
        }
    }
}

/// The step after the one that the latest push has reached.
fn next_step(report: &RolloutReport) -> Promotion {
    let push = report.push.as_ref().filter(|push| push.state != RolloutState::Halted);
    push.map_or(Promotion::Anew, |push| Promotion::Step(push.next_step()))
}
