//! A world of replicas: each with a control plane, units and clients of its own, and the machine of one plan.
//! In order: the orders of operators, the writes of replicas, and the judgement of the end, which use the world.

mod orders;
mod records;
mod end;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_fleet::rollout::ledger::{
    JoinPolicy, JoinStanding, LedgerEvent, Newcomer, NewcomerContent, Replica as Name, Share,
};
use sluice_fleet::rollout::plan::{Step, Times};
use sluice_fleet::rollout::shared::record::{PastPush, PlanRecord, SharedState, read};
use sluice_fleet::rollout::shared::{ChangeHash, ContentHash};
use sluice_fleet::rollout::{
    Admission, Differs, Mode, Output, Plan, Rollout, RolloutState, Seat, Tally, UnitId,
};

use crate::contents::{
    Content, REMOVED, UNITS, Unit, content, hash, hashes, is_bad, keys, newcomer_type, unit_push,
};
use crate::judge::{Fault, GONE, Judge, SEATS, fault_of_halted};
use crate::ledger::{Delivery, LEASE_MS, ModelLedger};
use crate::operator::{ORDERS_FROM, Operator};
use crate::replica::{Alone, Client, Replica};

const TICK_MS: u64 = 100;
const NAMES: u64 = 3;
/// The busy part of a schedule, and the calm end, which is over when nothing was decided for longer than any
/// plan waits.
const BUSY_MS: u64 = 90_000;
const CALM_MS: u64 = 240_000;
const REST_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 3_600_000;
pub const BAKE_MS: u64 = 4_000;
const RECORD: &str = "plan/edge";
const CONDEMNED: &str = "condemned/edge";

pub struct Dice(u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

pub struct World {
    dice: Dice,
    now: u64,
    plan: Arc<Plan>,
    /// The plan of the first replica: in some schedules with other seats.
    first_plan: Arc<Plan>,
    ledger: ModelLedger,
    replicas: Vec<Replica>,
    /// The newest content of the control plane, by unit.
    live: BTreeMap<u64, Content>,
    last_version: u64,
    /// The content before the latest change.
    previous: BTreeMap<u64, Content>,
    /// `None`: nobody orders anything.
    operator: Option<(Dice, Operator)>,
    processes: u64,
    /// The latest output that was more than a count of clients.
    decided_at: u64,
    judge: Judge,
    /// Pushes begun, finished and halted, steps in the ledger, newcomers that waited, and pushes with contents
    /// that only other replicas had condemned.
    pub counts: [u64; 6],
    error: Option<Fault>,
    tells: bool,
    join: JoinPolicy,
    pub story: RefCell<Vec<String>>,
}

fn plan() -> Plan {
    let step =
        |threshold| Step { clients: None, threshold, at_least: 1, bake: Duration::from_millis(BAKE_MS) };
    let times = Times { final_bake: Duration::from_millis(BAKE_MS), ..Times::default() };
    Plan { mode: Mode::Enforce, steps: vec![step(1_000), step(5_000)], times, ..Plan::new("edge") }
}

impl World {
    pub fn new(seed: u64, join: JoinPolicy, tells: bool) -> World {
        let mut dice = Dice(seed);
        let count = 2 + dice.roll(4) as usize;
        let live: BTreeMap<u64, Content> =
            (0..UNITS).map(|unit| (unit, (0..NAMES).map(|name| (name, 0)).collect())).collect();
        let plan = Arc::new(plan());
        let salt = if dice.roll(4) == 0 { "other" } else { "" };
        let first_plan = Arc::new(Plan { salt: salt.into(), ..Plan::clone(&plan) });
        let operator = (seed >= ORDERS_FROM).then(|| (Dice(!seed), Operator::default()));
        let mut world = World {
            previous: live.clone(),
            operator,
            dice,
            now: 0,
            ledger: ModelLedger::new(count),
            replicas: Vec::new(),
            live,
            last_version: 0,
            processes: 0,
            decided_at: 0,
            judge: Judge::default(),
            counts: [0; 6],
            error: None,
            tells,
            join,
            story: RefCell::default(),
            plan,
            first_plan,
        };
        for number in 0..count {
            let replica = world.replica(number);
            world.replicas.push(replica);
        }
        world
    }

    fn time(&self) -> Time {
        Time::from_micros(self.now * 1_000)
    }

    fn plan_of(&self, number: usize) -> Arc<Plan> {
        if number == 0 { self.first_plan.clone() } else { self.plan.clone() }
    }

    fn share(&mut self, number: usize) -> Share {
        self.processes += 1;
        let name = format!("r{number}").into();
        let lease = Duration::from_secs(5);
        Share::new("edge", Name { name, process: self.processes, lease, join: self.join })
    }

    fn replica(&mut self, number: usize) -> Replica {
        // All replicas have the first unit, and some have the second.
        let units: Vec<u64> = (0..UNITS).filter(|unit| *unit == 0 || self.dice.roll(3) > 0).collect();
        let mut names: BTreeMap<u64, BTreeSet<u64>> =
            (0..UNITS).map(|unit| (unit, (0..NAMES).collect())).collect();
        if let Some((dice, _)) = &mut self.operator {
            names.values_mut().for_each(|names| names.retain(|name| *name == 0 || dice.roll(4) > 0));
        }
        let of_unit = |unit: &u64| -> Content {
            names[unit].iter().map(|name| (*name, self.live[unit][name])).collect()
        };
        let content = |unit: &u64| {
            let content = of_unit(unit);
            Unit {
                stable: content.clone(),
                live: content.clone(),
                releases: BTreeMap::from([(0, content)]),
                ..Unit::default()
            }
        };
        let contents = units.iter().map(|unit| (*unit, content(unit))).collect();
        let mut clients = Vec::new();
        for unit in &units {
            for place in 0..=self.dice.roll(3) {
                let (bucket, takes) = (self.dice.roll(10_000) as u16, self.dice.roll(20) * TICK_MS);
                let (content, since) = (of_unit(unit), 0);
                clients.push(Client {
                    unit: *unit,
                    bucket,
                    content,
                    served: None,
                    since,
                    takes,
                    stays: place == 0,
                    excused: BTreeSet::new(),
                });
            }
        }
        let mut rollout = Rollout::new(self.plan_of(number));
        rollout.share(self.share(number), &keys(), self.time());
        let next_tally = self.dice.roll(1_000);
        Replica::new(rollout, contents, names, clients, next_tally)
    }

    /// Plays the schedule.
    pub fn run(&mut self) -> Result<(), Fault> {
        while self.now < (BUSY_MS.max(self.decided_at) + REST_MS).min(BUSY_MS + CALM_MS)
            && self.error.is_none()
        {
            if self.now < BUSY_MS {
                self.act();
            } else if self.now == BUSY_MS {
                self.ledger.heal();
            } else if self.now == BUSY_MS + 3 * LEASE_MS {
                self.end_orders();
            }
            self.tick();
            self.now += TICK_MS;
        }
        match self.error.take() {
            Some((invariant, words)) => Err((invariant, format!("at {} ms: {words}", self.now))),
            None => self.judge_end().map_err(|words| ("I30", words)),
        }
    }

    fn tell(&self, words: impl FnOnce() -> String) {
        if self.tells {
            self.story.borrow_mut().push(format!("{:7} {}", self.now, words()));
        }
    }

    fn fail(&mut self, invariant: &'static str, words: String) {
        self.tell(|| format!("FAILED {words}"));
        self.error.get_or_insert((invariant, words));
    }

    fn act(&mut self) {
        self.order_by_chance();
        let replica = self.dice.roll(self.replicas.len() as u64) as usize;
        match self.dice.roll(600) {
            0..=7 => self.publish(),
            8..=10 => {
                self.tell(|| format!("r{replica} is cut off"));
                self.ledger.cut(replica, true);
            }
            11..=16 => {
                self.tell(|| format!("r{replica} is connected"));
                self.ledger.cut(replica, false);
            }
            17 => {
                self.tell(|| "the ledger is down".into());
                self.ledger.set_down(true);
            }
            18..=20 => {
                self.tell(|| "the ledger is up".into());
                self.ledger.set_down(false);
            }
            21 => self.restart(replica),
            27 => self.begin_cold(replica),
            22..=26 => self.move_client(replica),
            _ => {}
        }
    }

    /// The control plane changes a name, or takes the latest change back.
    fn publish(&mut self) {
        let (unit, name) = (self.dice.roll(UNITS), self.dice.roll(NAMES));
        self.last_version += 1;
        let kind = self.operator.as_mut().map_or(9, |(dice, _)| dice.roll(10));
        let version = if kind == 0 { REMOVED } else { self.last_version };
        let mut content = self.live[&unit].clone();
        content.insert(name, version);
        if kind <= 3 && kind > 0 {
            content = self.previous[&unit].clone();
            self.tell(|| format!("unit {unit}: the latest change is taken back: {content:?}"));
        } else {
            self.judge.published.push(hash(UnitId(unit), name, version));
            let words = if is_bad(version) { ", which is bad" } else { "" };
            self.tell(|| format!("unit {unit}: name {name} has version {version}{words}"));
        }
        let before = self.live.insert(unit, content.clone());
        self.previous.extend(before.map(|before| (unit, before)));
        for number in 0..self.replicas.len() {
            let at = self.now + self.dice.roll(20) * TICK_MS;
            self.replicas[number].coming.push((at, unit, self.last_version, content.clone()));
        }
    }

    /// A new process, with the state on disk.
    fn restart(&mut self, number: usize) {
        self.tell(|| format!("r{number} restarts"));
        let now = self.time();
        let share = self.share(number);
        self.ledger.restart(number);
        let plan = self.plan_of(number);
        let replica = &mut self.replicas[number];
        let record = replica.rollout.record(now);
        replica.rollout = Rollout::restore(plan, record, Duration::ZERO, now);
        replica.rollout.share(share, &keys(), now);
        (replica.admission, replica.cut) = (Admission::NOBODY, None);
        (replica.is_away, replica.is_new) = (true, true);
        (replica.tallied, replica.heard) = (Tally::default(), None);
        replica.heard_done.clear();
        (replica.alone.is_next, replica.alone.next_of_all) = (false, None);
        for unit in replica.units.values_mut() {
            (unit.candidate, unit.latest) = (None, None);
            if let Some(newcomer) = &mut unit.newcomer {
                // Nothing of it is on disk.
                *newcomer = Newcomer::new(newcomer.unit());
                unit.stable = unit.live.clone();
            }
        }
        for client in &mut replica.clients {
            client.served = None;
        }
        self.condemn(number);
        self.compare(number);
        self.outputs(number);
    }

    /// A new process without a state on disk: its control plane gives it the newest content, and it knows
    /// nothing older. Its clients have what they had.
    fn begin_cold(&mut self, number: usize) {
        self.tell(|| format!("r{number} begins without a checkpoint"));
        let (now, plan, share) = (self.time(), self.plan_of(number), self.share(number));
        self.ledger.restart(number);
        let replica = &mut self.replicas[number];
        replica.rollout = Rollout::new(plan);
        replica.rollout.share(share, &keys(), now);
        (replica.admission, replica.cut) = (Admission::NOBODY, None);
        (replica.is_away, replica.is_new) = (true, true);
        (replica.tallied, replica.heard) = (Tally::default(), None);
        replica.heard_done.clear();
        replica.heard_halted.clear();
        replica.condemned.clear();
        replica.coming.clear();
        replica.alone =
            Alone { thresholds: std::mem::take(&mut replica.alone.thresholds), ..Alone::default() };
        let contents: BTreeMap<u64, Content> =
            replica.units.keys().map(|id| (*id, replica.known(*id, &self.live[id]))).collect();
        for (id, unit) in &mut replica.units {
            let live = contents[id].clone();
            let newcomer = Some(Newcomer::new(keys()[&UnitId(*id)]));
            let heard = self.last_version;
            *unit = Unit { stable: live.clone(), live, heard, newcomer, began_cold: true, ..Unit::default() };
        }
        for client in &mut replica.clients {
            client.served = None;
        }
        self.condemn(number);
        self.compare(number);
        self.outputs(number);
    }

    /// A client goes to another replica with its unit.
    fn move_client(&mut self, from: usize) {
        let to = self.dice.roll(self.replicas.len() as u64) as usize;
        let unit_is_there = |client: &Client, replica: &Replica| replica.units.contains_key(&client.unit);
        let place = self.replicas[from]
            .clients
            .iter()
            .position(|client| !client.stays && unit_is_there(client, &self.replicas[to]));
        if let Some(place) = place.filter(|_| from != to) {
            self.tell(|| format!("a client goes from r{from} to r{to}"));
            let client = self.replicas[from].clients.remove(place);
            self.replicas[to].is_new = true;
            self.replicas[to].clients.push(Client { served: None, since: self.now, ..client });
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        let dice = &mut self.dice;
        self.ledger.tick(now, || dice.roll(3) * TICK_MS);
        for number in 0..self.replicas.len() {
            for delivery in self.ledger.deliver(number, now) {
                self.deliver(number, delivery);
                self.outputs(number);
            }
            self.hear_control_plane(number);
            let time = self.time();
            let replica = &mut self.replicas[number];
            if replica.rollout.poll_timeout().is_some_and(|due| due <= time) {
                replica.rollout.handle_timeout(time);
                self.outputs(number);
            }
            if self.replicas[number].next_tally <= now {
                self.replicas[number].next_tally = now + 1_000;
                self.tally(number);
                self.outputs(number);
            }
            self.serve(number);
            if let Some((_, operator)) = self.operator.as_mut().filter(|_| now.is_multiple_of(1_000)) {
                let fault = operator.fault_of_reach(number, &self.replicas[number], now);
                if let Some((invariant, words)) = fault {
                    self.fail(invariant, format!("r{number} {words}"));
                }
            }
        }
    }

    fn deliver(&mut self, number: usize, delivery: Delivery) {
        let (now, wall) = (self.time(), self.now * 1_000);
        let replica = &mut self.replicas[number];
        replica.is_new = true;
        match delivery {
            Delivery::Event(event) => {
                if let LedgerEvent::Lost(_) = &event {
                    replica.is_away = true;
                }
                let entries = match &event {
                    LedgerEvent::Loaded(entries) => {
                        if std::mem::take(&mut replica.is_away) {
                            replica.here_since = self.now;
                        }
                        if let Some((_, operator)) = &mut self.operator {
                            operator.returned(number);
                        }
                        replica.heard_tallies.clear();
                        replica.heard_halts.clear();
                        entries.clone()
                    }
                    LedgerEvent::Changed(entry) => vec![entry.clone()],
                    LedgerEvent::Gone { key, .. } => {
                        replica.heard_tallies.remove(key);
                        replica.heard_halts.remove(key);
                        Vec::new()
                    }
                    LedgerEvent::Lost(_) => Vec::new(),
                };
                replica.hear(&entries, self.now);
                replica.rollout.hear_ledger(event, wall, now);
            }
            Delivery::Wrote(ticket, result) => replica.rollout.wrote(ticket, result, now),
        }
    }

    fn hear_control_plane(&mut self, number: usize) {
        let now = self.now;
        let replica = &mut self.replicas[number];
        let coming = std::mem::take(&mut replica.coming);
        let (due, later): (Vec<_>, Vec<_>) = coming.into_iter().partition(|(at, ..)| *at <= now);
        replica.coming = later;
        let mut is_changed = false;
        for (_, id, change, content) in due {
            // A later word of the control plane may have come before.
            let content = replica.known(id, &content);
            if let Some(unit) = replica.units.get_mut(&id).filter(|unit| change > unit.heard) {
                unit.heard = change;
                is_changed |= unit.live != content;
                unit.live = content;
            }
        }
        if is_changed {
            self.replicas[number].is_new = true;
            self.compare(number);
            self.outputs(number);
        }
    }

    fn compare(&mut self, number: usize) {
        let now = self.time();
        let replica = &mut self.replicas[number];
        for (id, unit) in &mut replica.units {
            if unit.live == unit.stable {
                unit.latest = None;
            }
            let from_stable = unit.live != unit.stable;
            let from_candidate = unit.latest.as_ref().map_or(from_stable, |latest| *latest != unit.live);
            replica.rollout.compared(UnitId(*id), Differs { from_stable, from_candidate }, now);
        }
    }

    fn outputs(&mut self, number: usize) {
        while let Some(output) = self.replicas[number].rollout.poll_output() {
            self.replicas[number].is_new = true;
            self.perform(number, output);
        }
    }

    fn perform(&mut self, number: usize, output: Output) {
        if !matches!(&output, Output::Write(write) if write.key.starts_with("tally/")) {
            self.decided_at = self.now;
        }
        match output {
            Output::Cut { push, units } => self.cut(number, push, &units),
            Output::Admit(admission) => self.admit(number, admission),
            Output::Back { push } => {
                let units = self.replicas[number].units.values_mut();
                units.for_each(|unit| drop(unit.candidate.take_if(|(candidate, _)| *candidate == push)));
                self.compare(number);
            }
            Output::Settle { push } => {
                for unit in self.replicas[number].units.values_mut() {
                    if let Some((_, content)) = unit.candidate.take_if(|(candidate, _)| *candidate == push) {
                        unit.releases.insert(push, content.clone());
                        (unit.stable, unit.latest) = (content, None);
                    }
                }
                let key = format!("done/edge/{push}");
                let is_alone = self.replicas[number].alone.pushes.contains(&push);
                if self.ledger.value(&key).is_none() && !is_alone {
                    let words = format!("r{number} gives push {push} to all, and the ledger lacks its end");
                    self.fail(SEATS, words);
                }
                self.compare(number);
            }
            Output::Event(event) => {
                self.tell(|| format!("r{number} push {}: {:?}", event.push, event.what));
            }
            Output::Write(write) => {
                let dice = &mut self.dice;
                let (key, value) = (write.key.clone(), write.value.clone());
                // Most writes are tallies, and nobody looks at the record then.
                let record = self.ledger.value(RECORD).filter(|_| !key.starts_with("tally/"));
                let before = record.map(|value| read::<PlanRecord>(value).unwrap());
                let is_new = self.ledger.value(&key).is_none();
                if self.ledger.write(number, write, self.now, || dice.roll(3) * TICK_MS) && key == RECORD {
                    self.recorded(number, before.as_ref(), &read(&value.unwrap()).unwrap());
                } else if key.starts_with("done/") && is_new && self.ledger.value(&key).is_some() {
                    let before = before.unwrap();
                    self.check_return(number);
                    // A return to known content needs none at the gate, and the first step may be on its way.
                    let seen = self.replicas[number].seen;
                    let is_at_gate = (seen.0, seen.1) == (before.push, 0);
                    let is_promoted =
                        |(_, op): &(Dice, Operator)| is_at_gate || op.has_promoted(before.push, 4);
                    let is_promoted = self.operator.as_ref().is_some_and(is_promoted);
                    if before.state == SharedState::Moving && !is_promoted {
                        let past: PastPush = read(&value.unwrap()).unwrap();
                        self.check_evidence(number, &before, &past.changed);
                    }
                }
            }
            Output::Release { .. } => {}
            Output::Serve { release } if self.operator.is_some() => {
                self.serve_release(number, release);
            }
            Output::Ask { .. } | Output::Stay { .. } | Output::Serve { .. } | Output::Open => {
                self.fail("I30", format!("r{number}: {output:?}"));
            }
        }
    }

    fn cut(&mut self, number: usize, push: u64, units: &[UnitId]) {
        let now = self.time();
        let replica = &mut self.replicas[number];
        let (mut pushed, mut contents, mut before) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        replica.barred = None;
        for id in units {
            let unit = replica.units.get_mut(&id.0).unwrap();
            let mut part = unit_push(*id, unit);
            let changes = unit.live.iter().filter(|(name, version)| unit.stable[name] != **version);
            for (name, version) in changes {
                let (type_url, text, content) = content(*name, *version);
                let shared = replica.rollout.condemned_by_all();
                if shared.is_some_and(|shared| shared.end(&type_url, &text, content).is_some()) {
                    self.counts[5] += u64::from(replica.condemned.insert((*name, *version)));
                }
                if replica.condemned.contains(&(*name, *version)) {
                    part.condemned = Some((type_url.clone(), text.clone(), content));
                }
                if replica.heard_condemned.end(&type_url, &text, content).is_some() {
                    replica.barred = Some(push);
                }
            }
            before.insert(id.0, unit.latest.clone());
            if !part.is_empty() {
                contents.insert(id.0, unit.live.clone());
                unit.latest = Some(unit.live.clone());
            }
            pushed.push(part);
        }
        replica.cut = Some((push, contents));
        let is_begun = replica.rollout.ready(pushed, now);
        if let (true, Some((_, operator))) = (is_begun, &mut self.operator)
            && let Some(step) = replica.alone.next_of_all.take()
        {
            operator.forced.insert(push);
            operator.force(std::iter::empty(), step, push);
        }
        if is_begun && std::mem::take(&mut replica.alone.is_next) {
            let words = replica.rollout.report().shared.unwrap().diverged;
            if words.iter().any(|words| **words == *format!("push {push} was begun for it alone")) {
                let contents = replica.cut.iter().flat_map(|(_, contents)| contents);
                let changes =
                    contents.flat_map(|(id, content)| hashes(UnitId(*id), content)).collect::<Vec<_>>();
                replica.alone.changes.extend(changes);
                replica.alone.pushes.insert(push);
                replica.alone.thresholds.insert(push, 10_000);
            }
        }
        if !is_begun {
            before.into_iter().for_each(|(id, latest)| replica.units.get_mut(&id).unwrap().latest = latest);
            self.compare(number);
        }
    }

    fn admit(&mut self, number: usize, admission: Admission) {
        let replica = &mut self.replicas[number];
        if let Some((_, contents)) = replica.cut.take_if(|(push, _)| *push == admission.push) {
            for (id, content) in contents {
                replica.units.get_mut(&id).unwrap().candidate = Some((admission.push, content));
            }
        }
        let before = std::mem::replace(&mut replica.admission, admission);
        if (replica.reached.0, replica.reached.1) != (admission.push, admission.step) {
            replica.reached = (admission.push, admission.step, self.now);
        }
        let grows = match before.push == admission.push {
            true => (admission.step, admission.threshold) > (before.step, before.threshold),
            // A process that begins anew remembers a halt.
            false => admission.step > 0 && admission.state != RolloutState::Halted,
        };
        let is_alone = replica.alone.is_now || replica.alone.pushes.contains(&admission.push);
        let is_cut_off = replica.is_away && grows && !is_alone;
        let is_forced = self.operator.as_ref().is_some_and(|(_, op)| op.forced.contains(&admission.push));
        let is_barred = replica.barred == Some(admission.push) && !is_forced && !is_alone;
        if is_barred && admission.threshold > 0 {
            let words = format!("r{number} gives push {}, which brings a condemned content", admission.push);
            self.fail("I30", words);
        }
        if is_cut_off {
            self.fail(GONE, format!("r{number} is cut off, and admits {admission:?} after {before:?}"));
        }
    }

    /// Gives clients what they may have.
    fn serve(&mut self, number: usize) {
        let time = self.time();
        let replica = &mut self.replicas[number];
        let is_due = replica.look_at.is_some_and(|due| due <= time);
        if !std::mem::take(&mut replica.is_new) && !is_due {
            return;
        }
        let mut faults = Vec::new();
        let waits = self.look_at_newcomers(number, time);
        let record = self.ledger.value(RECORD).map(|value| read::<PlanRecord>(value).unwrap());
        let replica = &mut self.replicas[number];
        let mut clients = std::mem::take(&mut replica.clients);
        for client in &mut clients {
            let unit = &replica.units[&client.unit];
            let seat = Seat { bucket: client.bucket, labelled_step: None };
            let candidate = unit.candidate.as_ref().filter(|(push, _)| {
                *push == replica.admission.push && replica.admission.admits(seat, client.served)
            });
            if let Some((push, content)) = candidate {
                if client.served != Some(*push) {
                    faults.extend(self.judge.faults_of_push(replica, client, *push, record.as_ref()));
                    let is_forced = self.operator.as_ref().is_some_and(|(_, op)| op.forced.contains(push));
                    if !is_forced && !replica.alone.pushes.contains(push) {
                        faults.extend(fault_of_halted(replica, client.unit, *push, content));
                    }
                }
                client.served = Some(*push);
            }
            let content = match (candidate, waits.get(&client.unit)) {
                (Some((_, candidate)), _) => candidate,
                (None, Some(admission)) if admission.admits_to(admission.push, seat, client.served) => {
                    client.served = Some(admission.push);
                    &unit.live
                }
                (None, Some(_)) => {
                    // Nothing older is here, so the client keeps what it has, and be it bad.
                    client.excused.extend(hashes(UnitId(client.unit), &client.content));
                    continue;
                }
                (None, None) => &unit.stable,
            };
            if unit.began_cold {
                let is_of_unit = |change: &ChangeHash| candidate.is_none() || unit.given.contains(change);
                client.excused.extend(hashes(UnitId(client.unit), content).filter(is_of_unit));
            }
            if client.content != *content {
                if unit.began_cold && candidate.is_none() {
                    let fault = replica.fault_of_newcomer(client, content, &self.judge.pushes);
                    faults.extend(fault.map(|words| (SEATS, words)));
                }
                if !unit.began_cold {
                    faults.extend(self.judge.fault_of_content(replica, client, content));
                }
                (client.content, client.since) = (content.clone(), self.now);
            }
        }
        replica.clients = clients;
        let served: Vec<u64> = replica.units.keys().filter(|id| !waits.contains_key(id)).copied().collect();
        for unit in served {
            let stable = replica.units[&unit].stable.clone();
            let is_left = replica.is_left(unit, &stable);
            let given =
                hashes(UnitId(unit), &stable).filter(|change| is_left || !replica.has_heard_of(*change));
            let given: Vec<_> = given.collect();
            replica.units.get_mut(&unit).unwrap().given.extend(given);
        }
        for (invariant, words) in faults {
            self.fail(invariant, format!("r{number} {words}"));
        }
    }

    /// The units whose clients wait, each with those that the push in the ledger has admitted.
    fn look_at_newcomers(&mut self, number: usize, now: Time) -> BTreeMap<u64, Admission> {
        let replica = &mut self.replicas[number];
        replica.look_at = None;
        let Some(word) = replica.rollout.join_word(now) else { return BTreeMap::new() };
        let mut waits = BTreeMap::new();
        for (id, unit) in &mut replica.units {
            let Some(newcomer) = &mut unit.newcomer else { continue };
            let holds = unit.live != unit.stable;
            let content = |_| {
                let types = vec![newcomer_type(UnitId(*id), &unit.stable)];
                NewcomerContent { types, is_newest: !holds }
            };
            match newcomer.look(&word, content, now) {
                JoinStanding::Settled => {
                    (unit.newcomer, self.decided_at) = (None, self.now);
                }
                JoinStanding::Waits(wait) if word.policy == JoinPolicy::Wait => {
                    replica.look_at = replica.look_at.into_iter().chain(wait.due).min();
                    let admits = wait.is_of_push && !holds;
                    waits.insert(*id, if admits { word.admission } else { Admission::NOBODY });
                    let is_news = wait.push.is_some() && !std::mem::replace(&mut unit.has_waited, true);
                    self.counts[4] += u64::from(is_news);
                }
                JoinStanding::Waits(_) | JoinStanding::Free => {}
            }
        }
        waits
    }

    fn tally(&mut self, number: usize) {
        self.serve(number);
        let (now, time) = (self.now, self.time());
        let replica = &mut self.replicas[number];
        if !replica.rollout.wants_tally() {
            return;
        }
        let (mut tally, mut rejected) = (Tally::default(), Vec::new());
        let Some(report) = replica.rollout.under_way() else { return };
        for client in replica.clients.iter().filter(|client| report.units.contains(&UnitId(client.unit))) {
            let seat = Seat { bucket: client.bucket, labelled_step: None };
            if !replica.admission.is_seated(seat) {
                tally.smallest.push(client.bucket);
                continue;
            }
            tally.voices += 1;
            let counts = &mut tally.admitted;
            let unit = &replica.units[&client.unit];
            let has = unit.candidate.as_ref().is_some_and(|(_, content)| *content == client.content);
            if !has || now < client.since + client.takes {
                counts.pending += 1;
            } else if client.content.values().any(|version| is_bad(*version)) {
                counts.rejected += 1;
                tally.blamed.push(UnitId(client.unit));
                let news = client.content.iter().filter(|(name, version)| unit.stable[name] != **version);
                let bad = news.filter(|(_, version)| is_bad(**version));
                rejected.extend(bad.map(|(name, version)| (*name, *version)));
            } else {
                counts.accepted += 1;
            }
        }
        tally.smallest.sort_unstable();
        tally.smallest.truncate(1);
        replica.tallied = tally.clone();
        replica.rollout.tally(tally, time);
        let before = replica.condemned.len();
        replica.condemned.extend(rejected);
        if replica.condemned.len() > before {
            self.condemn(number);
        }
    }

    /// Tells the ledger of the condemned contents of a replica.
    fn condemn(&mut self, number: usize) {
        let now = self.time();
        let replica = &mut self.replicas[number];
        let hash = |(name, version): &(u64, u64)| {
            let (type_url, name, version) = content(*name, *version);
            (ContentHash::new(&type_url, &name, version), Time::from_micros(DAY_MS * 7_000))
        };
        replica.rollout.condemn(replica.condemned.iter().map(hash).collect(), now);
    }
}
