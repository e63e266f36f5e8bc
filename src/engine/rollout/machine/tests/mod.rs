//! A plan on scripts, and on random tallies.

mod gathering;
mod guards;
mod random;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::change::NameList;
use crate::engine::rollout::plan::{Guards, HaltOn, Step};
use crate::engine::rollout::push::{Growth, TypePush};
use crate::engine::rollout::report::{Note, Verdict};
use crate::engine::rollout::tally::{Control, Counts};
use crate::xds::{ResourceName, TypeUrl};

const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn plan() -> Plan {
    Plan::new("edge")
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
    let of = TypePush {
        type_url: TypeUrl::of_message(LISTENER),
        added: NameList::default(),
        changed,
        removed: NameList::default(),
        resources: Growth { before: 1, after: 1 },
        bytes: Growth { before: 100, after: 110 },
        largest: Some((ResourceName::from("main"), Growth { before: 100, after: 110 })),
    };
    UnitPush { unit: unit(number), types: vec![of], condemned: None, is_current: true }
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
}

impl World {
    fn new() -> World {
        World::of(plan())
    }

    fn of(plan: Plan) -> World {
        let rollout = Rollout::new(Arc::new(plan));
        let (events, admissions, released, cuts) = (vec![], vec![], vec![], vec![]);
        World { rollout, now: 0, events, admissions, released, cuts }
    }

    /// Runs a call of the machine at a time, and collects its outputs.
    fn run(&mut self, ms: u64, call: impl FnOnce(&mut Rollout, Time)) {
        assert!(ms >= self.now, "time goes on");
        self.now = ms;
        call(&mut self.rollout, at(ms));
        while let Some(output) = self.rollout.poll_output() {
            match output {
                Output::Cut { push, units } => self.cuts.push((push, units)),
                Output::Admit(admission) => self.admissions.push(admission),
                Output::Event(event) => self.events.push(event.what),
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

    fn ready(&mut self, ms: u64, units: Vec<UnitPush>) {
        self.run(ms, |rollout, now| rollout.ready(units, now));
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

    fn past(&self) -> Vec<(u64, Outcome)> {
        let past = self.rollout.report().past;
        past.iter().map(|push| (push.number, push.end.unwrap().outcome)).collect()
    }
}
