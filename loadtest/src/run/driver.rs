//! The main loop of a run: sockets, due changes, points of the time series. Scenarios set the end of each
//! phase.

use anyhow::Result;

use super::series::Series;
use super::spec::{Source, Spec};
use super::tracker::Tracker;
use crate::client::{Fleet, Manner, Odd, Requests};
use crate::control_plane::{ControlPlane, Remote};
use crate::live::Live;
use crate::load::Received;
use crate::measure::{Process, ThreadTime, monotonic_ns, nanos};

enum Changer {
    Own(ControlPlane),
    Remote(Remote),
    Foreign,
}

/// The time of the clients' thread while updates or answers were pending.
#[derive(Clone, Copy, Default)]
pub struct Work {
    pub wall_ns: u64,
    pub thread: ThreadTime,
}

impl Work {
    /// The share of the time in which the thread ran, or waited for a CPU.
    pub fn busy(&self) -> f64 {
        let busy = self.thread.cpu_ns + self.thread.waited_ns;
        if self.wall_ns == 0 { 0.0 } else { busy as f64 / self.wall_ns as f64 }
    }
}

pub struct Driver<'a> {
    pub spec: &'a Spec,
    pub fleet: Fleet,
    pub tracker: Tracker,
    pub server: Option<Process>,
    pub began: u64,
    changer: Changer,
    series: Series,
    live: Option<&'a Live>,
    /// The time of the next change; never, if there is none.
    next_change: u64,
    /// The longest delay of a change by the tool.
    pub late_ns: u64,
    /// The time in which updates or first answers were pending.
    pub work: Work,
    working_since: Option<(u64, ThreadTime)>,
    /// Work counts from the first change on; the cost of connecting is reported separately.
    pub counting: bool,
}

impl<'a> Driver<'a> {
    pub fn new(spec: &'a Spec, live: Option<&'a Live>) -> Result<Driver<'a>> {
        let changer = match &spec.source {
            Source::Own(plan) => Changer::Own(ControlPlane::start(plan)?),
            Source::Remote(address) => Changer::Remote(Remote::connect(*address)?),
            Source::Foreign => Changer::Foreign,
        };
        let server = spec.pid.map(Process::find).transpose()?;
        let mut fleet = Fleet::new(spec.target, Requests::new(spec.profile.clone()), spec.clients)?;
        fleet.set_tls(spec.tls.clone());
        let odd = (fleet.connections() as f64 * spec.odd_share).round() as usize;
        let remembers = spec.scenario == super::Scenario::Churn || spec.odd_manner.nack;
        let manner = Manner { remembers, ..Manner::default() };
        fleet.set_manners(manner, Odd { connections: odd, manner: spec.odd_manner }, spec.retry);
        let odd_clients = (0..odd).map(|id| fleet.clients_of(id).len()).sum();
        let began = monotonic_ns();
        Ok(Driver {
            spec,
            fleet,
            tracker: Tracker::new(spec, odd_clients)?,
            server,
            began,
            changer,
            series: Series::new(began, nanos(spec.interval)),
            live,
            next_change: u64::MAX,
            late_ns: 0,
            work: Work::default(),
            working_since: None,
            counting: false,
        })
    }

    pub fn phase(&mut self, name: &str) -> Result<()> {
        self.tracker.begin_phase(name, monotonic_ns())
    }

    /// Starts or stops changes at the rate of the run.
    pub fn set_changing(&mut self, changing: bool) {
        let foreign = matches!(self.changer, Changer::Foreign);
        let never = !changing || foreign || self.spec.pace.rate <= 0.0;
        self.next_change = if never { u64::MAX } else { monotonic_ns() };
    }

    /// Makes one change, now.
    pub fn change(&mut self) -> Result<u64> {
        let now = monotonic_ns();
        self.change_at(now)?;
        Ok(now)
    }

    fn change_at(&mut self, at: u64) -> Result<()> {
        let change = self.spec.pace.change(self.tracker.changes());
        self.tracker.change(change, at);
        self.late_ns = self.late_ns.max(monotonic_ns() - at);
        self.note_work();
        match &mut self.changer {
            Changer::Own(control_plane) => control_plane.change(change, at),
            Changer::Remote(remote) => remote.change(change, at)?,
            Changer::Foreign => {}
        }
        Ok(())
    }

    /// Puts the rule of the control plane's function in force, now.
    pub fn put_rule_in_force(&mut self) -> Result<()> {
        let (kind, now) = (self.spec.pace.kind, monotonic_ns());
        self.tracker.put_rule_in_force(now);
        self.note_work();
        match &mut self.changer {
            Changer::Own(control_plane) => control_plane.put_rule_in_force(kind, now),
            Changer::Remote(remote) => remote.put_rule_in_force(kind, now)?,
            Changer::Foreign => {}
        }
        Ok(())
    }

    /// Begins or ends an outage of the control plane.
    pub fn set_up(&mut self, up: bool) -> Result<()> {
        match &mut self.changer {
            Changer::Own(control_plane) => control_plane.set_up(up),
            Changer::Remote(remote) => remote.set_up(up)?,
            Changer::Foreign => {}
        }
        Ok(())
    }

    /// The sums of the load reports at the control plane; nothing without one.
    pub fn received(&mut self) -> Result<Received> {
        match &mut self.changer {
            Changer::Own(control_plane) => Ok(control_plane.received()),
            Changer::Remote(remote) => remote.received(),
            Changer::Foreign => Ok(Received::default()),
        }
    }

    /// CPU time of the control plane's thread, if the control plane is in this process.
    pub fn control_plane_cpu_ns(&self) -> u64 {
        if let Changer::Own(control_plane) = &self.changer { control_plane.busy_ns() } else { 0 }
    }

    /// Opens a connection that was due at `since`.
    pub fn open(&mut self, id: usize, since: u64) {
        self.fleet.open(id, since, &mut self.tracker);
    }

    pub fn start_misbehaving(&mut self) {
        self.fleet.start_misbehaving();
        self.tracker.start_misbehaving(self.spec.odd_manner);
    }

    /// Fails the connections with a client that `which` selects.
    pub fn give_up(&mut self, reason: &str, which: impl Fn(&Tracker, usize) -> bool) {
        let meant: Vec<bool> = (0..self.spec.clients).map(|client| which(&self.tracker, client)).collect();
        let any = |clients: std::ops::Range<usize>| meant[clients].contains(&true);
        self.fleet.give_up(reason, &mut self.tracker, any);
    }

    /// Fails the clients that still wait for their first answer.
    pub fn give_up_waiting(&mut self) {
        let reason = format!("no complete first answer within {} s", self.spec.patience.as_secs_f64());
        self.fleet.give_up_waiting(&reason, &mut self.tracker);
    }

    /// Runs until the deadline, or until `done`; one turn at least. True if done.
    pub fn until(&mut self, deadline: u64, mut done: impl FnMut(&mut Self) -> bool) -> Result<bool> {
        loop {
            if done(self) {
                return Ok(true);
            }
            let last = monotonic_ns() >= deadline;
            self.turn(deadline)?;
            if last {
                return Ok(done(self));
            }
        }
    }

    /// One turn of the loop, until the deadline at the latest.
    pub fn turn(&mut self, deadline: u64) -> Result<()> {
        let gap = (1e9 / self.spec.pace.rate.max(1e-9)) as u64;
        while self.next_change <= monotonic_ns() {
            let at = self.next_change;
            self.next_change = at.saturating_add(gap.max(1));
            self.change_at(at)?;
        }
        if monotonic_ns() >= self.series.due() {
            self.sample()?;
        }
        let deadline = deadline.min(self.next_change).min(self.series.due());
        self.fleet.turn(deadline, &mut self.tracker)?;
        self.note_work();
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        let sample = self.series.take(&self.fleet, &mut self.tracker, self.server.as_ref())?;
        if let Some(live) = self.live {
            let phase = self.tracker.phases.last().map_or("", |phase| phase.name.as_str());
            live.show(sample, phase, self.tracker.updates.percentiles());
        }
        Ok(())
    }

    /// Records the begin and end of times with pending updates or answers.
    fn note_work(&mut self) {
        let working = self.counting && self.tracker.due() > 0;
        match self.working_since {
            None if working => self.working_since = Some((monotonic_ns(), ThreadTime::now())),
            Some((wall, thread)) if !working => {
                self.work.wall_ns += monotonic_ns() - wall;
                let used = ThreadTime::now().since(thread);
                self.work.thread.cpu_ns += used.cpu_ns;
                self.work.thread.waited_ns += used.waited_ns;
                self.working_since = None;
            }
            _ => {}
        }
    }

    /// Ends the counting of work.
    pub fn stop_counting(&mut self) {
        self.counting = false;
        self.note_work();
    }

    /// Takes the last point; returns the whole time series.
    pub fn finish(mut self) -> Result<(Finished, Vec<super::Sample>)> {
        self.sample()?;
        let finished = Finished {
            fleet: self.fleet,
            tracker: self.tracker,
            began: self.began,
            late_ns: self.late_ns,
            work: self.work,
        };
        Ok((finished, self.series.samples()))
    }
}

/// The remaining parts of a driver after the run.
pub struct Finished {
    pub fleet: Fleet,
    pub tracker: Tracker,
    pub began: u64,
    pub late_ns: u64,
    pub work: Work,
}
