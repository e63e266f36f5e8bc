//! A plan on scripts, and on random tallies.

mod commands;
mod enforce;
mod gathering;
mod guards;
mod hook;
mod load;
mod lost;
mod pins;
mod random;
mod records;
mod relays;
mod replaced;
mod shared;
mod steps;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::rollout::Admission;
use crate::rollout::plan::{Guards, HaltOn, Mode, OnHalt, Step};
use crate::rollout::push::{Growth, ReleaseDigest, TypePush, UnitPush};
use crate::rollout::report::{Note, Reason, Verdict};
use crate::rollout::tally::{Control, Counts};
use sluice_engine::change::NameList;
use sluice_xds::{ResourceName, TypeUrl};

const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn plan() -> Plan {
    Plan::new("edge")
}

fn enforcing() -> Plan {
    Plan { mode: Mode::Enforce, ..plan() }
}

fn at(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

fn unit(number: u64) -> UnitId {
    UnitId(number)
}

/// One changed listener.
fn unit_push(number: u64) -> UnitPush {
    let mut changed = NameList::default();
    changed.add(&ResourceName::from("main"));
    let part = TypePush {
        type_url: TypeUrl::of_message(LISTENER),
        added: NameList::default(),
        changed,
        removed: NameList::default(),
        resources: Growth { before: 1, after: 1 },
        bytes: Growth { before: 100, after: 110 },
        largest: Some((ResourceName::from("main"), Growth { before: 100, after: 110 })),
    };
    UnitPush {
        unit: unit(number),
        types: vec![part],
        condemned: None,
        findings: Vec::new(),
        is_current: true,
        is_former: false,
        returns_to: None,
        stable: ReleaseDigest(0),
        candidate: ReleaseDigest(1),
        shared: None,
    }
}

fn accepted(count: u64) -> Counts {
    Counts { accepted: count, ..Counts::default() }
}

fn admitted(admitted: Counts) -> Tally {
    Tally { admitted, ..Tally::default() }
}

struct World {
    rollout: Rollout,
    now: u64,
    events: Vec<What>,
    admissions: Vec<Admission>,
    released: Vec<u64>,
    cuts: Vec<(u64, Vec<UnitId>)>,
    /// The outputs that move clients, in order.
    moves: Vec<Output>,
    /// The questions to the hook: pushes and steps.
    asked: Vec<(u64, u8)>,
}

impl World {
    fn new() -> World {
        World::of(plan())
    }

    fn of(plan: Plan) -> World {
        let rollout = Rollout::new(Arc::new(plan));
        let (events, admissions, released, cuts) = (vec![], vec![], vec![], vec![]);
        World { rollout, now: 0, events, admissions, released, cuts, moves: vec![], asked: vec![] }
    }

    /// Runs a call of the machine at a time, and collects its outputs.
    fn run(&mut self, ms: u64, call: impl FnOnce(&mut Rollout, Time)) {
        assert!(ms >= self.now, "time goes on");
        self.now = ms;
        call(&mut self.rollout, at(ms));
        while let Some(output) = self.rollout.poll_output() {
            match output {
                Output::Cut { push, units } => self.cuts.push((push, units)),
                Output::Admit(admission) => {
                    self.admissions.push(admission);
                    self.moves.push(output);
                }
                Output::Back { .. }
                | Output::Stay { .. }
                | Output::Settle { .. }
                | Output::Serve { .. }
                | Output::Open => self.moves.push(output),
                Output::Ask { push, step } => self.asked.push((push, step)),
                Output::Event(event) => self.events.push(event.what),
                Output::Write(write) => panic!("a plan without a ledger writes {write:?}"),
                Output::Release { push } => self.released.push(push),
            }
        }
    }

    fn changed(&mut self, ms: u64, number: u64) {
        self.run(ms, |rollout, now| rollout.changed(unit(number), now));
    }

    /// Runs the timer, which must be due at this time.
    fn timer(&mut self, ms: u64) {
        assert_eq!(self.rollout.poll_timeout(), Some(at(ms)));
        self.run(ms, Rollout::handle_timeout);
    }

    fn ready(&mut self, ms: u64, units: Vec<UnitPush>) -> bool {
        let mut has_begun = false;
        self.run(ms, |rollout, now| has_begun = rollout.ready(units, now));
        has_begun
    }

    fn tally(&mut self, ms: u64, tally: Tally) {
        self.run(ms, |rollout, now| rollout.tally(tally, now));
    }

    /// A push of unit 1 whose first step begins at 1 s.
    fn pushed(plan: Plan) -> World {
        let mut world = World::of(plan);
        world.changed(0, 1);
        world.timer(1_000);
        world.ready(1_000, vec![unit_push(1)]);
        world
    }

    /// The newest content of a unit, compared with stable and with the candidate.
    fn live(&mut self, ms: u64, number: u64, from_stable: bool, from_candidate: bool) {
        let differs = Differs { from_stable, from_candidate };
        self.run(ms, |rollout, now| rollout.compared(unit(number), differs, now));
    }

    /// A push of an enforcing plan whose first step begins at 1 s.
    fn enforced(units: &[u64]) -> World {
        let mut world = World::of(enforcing());
        world.push_of(units);
        world
    }

    fn push_of(&mut self, units: &[u64]) {
        let ms = self.now;
        units.iter().for_each(|number| self.live(ms, *number, true, true));
        self.timer(ms + 1_000);
        self.ready(ms + 1_000, units.iter().map(|number| unit_push(*number)).collect());
        units.iter().for_each(|number| self.live(ms + 1_000, *number, true, false));
    }

    fn state(&self) -> RolloutState {
        self.rollout.report().state
    }

    fn push(&self) -> Arc<PushReport> {
        self.rollout.report().push.unwrap()
    }

    fn verdict(&self) -> Verdict {
        self.push().verdict.clone().unwrap()
    }

    fn step(&self) -> (u8, u16) {
        let last = self.admissions.last().unwrap();
        (last.step, last.threshold)
    }

    fn push_number(&self) -> Option<u64> {
        self.rollout.report().push.map(|push| push.number)
    }

    fn past(&self) -> Vec<(u64, Outcome)> {
        let past = self.rollout.report().past;
        past.iter().map(|push| (push.number, push.end.unwrap().outcome)).collect()
    }
}
