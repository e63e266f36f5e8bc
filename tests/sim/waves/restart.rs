//! Restarts of the relay: the units begin from stable, and the plan from its record (WAV-8).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_checkpoint::format::{decode, encode};
use sluice_checkpoint::{Header, Identity};
use sluice_engine::lanes::Restated;
use sluice_fleet::evidence::Content;
use sluice_fleet::rollout::{PinEnd, PushRecord, Record, Rollout, UnitId};

use super::client::Client;
use super::pilot::{Pilot, Rejected};
use super::reference::{Contents, Pin};
use super::world::World;
use crate::schedule::SECOND;
use crate::world::Invariant;

/// The condemned contents, each with the time left.
type Condemned = Vec<(Content, Duration)>;

/// The state on the disk.
#[derive(Default)]
pub struct Disk {
    /// With the time of writing.
    record: Option<(Record, Condemned, u64)>,
    /// The units of the record, which outlive its process.
    units: Vec<UnitId>,
    /// The rejected pushes, and of each unit what clients may have of them.
    rejected: (Rejected, Vec<Option<Arc<Restated>>>),
}

impl World {
    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000) + Duration::from_micros(self.now)
    }

    /// Keeps the state of the plan.
    pub fn keep(&mut self) {
        let record = self.pilot.rollout.record(self.time());
        let now = self.time();
        let condemned = self.pilot.rejecters.condemned().latest_first();
        let condemned = condemned.map(|(end, content)| (content.clone(), end.since(now))).collect();
        self.disk.record = Some((record, condemned, self.now));
        self.disk.units = (0..self.units.len()).map(|unit| UnitId(self.id_of(unit))).collect();
        let restated = self.units.iter().map(|unit| unit.published.restated.clone());
        self.disk.rejected = (self.pilot.rejected.clone(), restated.collect());
        self.judge_clocks();
    }

    /// Ends the process, and begins another one from the disk.
    pub fn restart(&mut self) {
        self.tell(|| "the relay restarts".to_owned());
        self.note(20, 0, 0);
        let files: Vec<_> = (0..self.units.len()).map(|unit| self.file_of(unit)).collect();
        for client in 0..self.clients.len() {
            if self.clients[client].stream.take().is_some() {
                let delay = 1 + self.rng.below(3 * SECOND);
                self.after(delay, super::world::Job::Reconnect(client));
            }
        }
        self.streams.iter_mut().for_each(|stream| drop(stream.take()));
        for (id, link) in std::mem::take(&mut self.links) {
            self.servers[link.unit].close(id);
        }
        // Another process reads the configuration anew.
        self.pilot = Pilot::new(self.plan.rollout());
        self.judge_seats();
        self.start_units();
        self.reference_restarts();
        for (unit, file) in files.iter().enumerate() {
            self.begin_from(unit, file);
        }
        self.restore_plan();
        self.wake_pilot();
    }

    /// Each client has the seat that it had in the process before (WAV-13).
    fn judge_seats(&mut self) {
        let is_other = |client: &&Client| self.pilot.plan.seat(&client.node) != client.seat;
        if let Some(client) = self.clients.iter().find(is_other) {
            let (id, seat, had) = (client.node.id.clone(), self.pilot.plan.seat(&client.node), client.seat);
            self.fail(Invariant::Determinism, || format!("client {id} has {seat:?}, and had {had:?} before"));
        }
    }

    fn file_of(&self, unit: usize) -> Vec<u8> {
        let this = &self.units[unit];
        let image = this.source.image(self.time());
        let image = match this.published.held() {
            Some(stable) => image.serving(stable),
            None => image,
        };
        let header = self.header_of(unit);
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        encode(&header, &image, &mut sink).expect("memory takes all bytes");
        bytes
    }

    pub fn header_of(&self, unit: usize) -> Header {
        let identity = Identity { list: "xds_servers".into(), server: "cp".into(), class: [unit as u8; 32] };
        Header { identity, relay: [7; 32], written_at: self.wall(), confirmed_at: self.wall() }
    }

    pub fn begin_from(&mut self, unit: usize, file: &[u8]) {
        let stable = self.reference.units[unit].live.clone();
        let time = self.time();
        match decode(file, self.wall()) {
            Ok(restored) => self.units[unit].source.restore(&restored.types, Duration::ZERO, time),
            Err(fault) => {
                return self.fail(Invariant::CrashSafeDisk, || format!("a file is refused: {fault}"));
            }
        }
        self.reference.units[unit].live = Contents::default();
        self.drain(unit);
        let found = self.reference.units[unit].live.clone();
        if stable.differs(&found) {
            let text = format!("unit {unit} begins from {found:?}, and stable was {stable:?}");
            self.fail(Invariant::Determinism, || text);
        }
    }

    fn restore_plan(&mut self) {
        let Some((record, condemned, at)) = self.disk.record.clone() else {
            (self.reference.frozen_until, self.reference.pin) = (None, None);
            return;
        };
        let passed = Duration::from_micros(self.now - at);
        let halted = record.push.clone();
        // A push that an operator paused is halted from now on.
        let is_other = |push: &&PushRecord| push.number != self.reference.push.number;
        if let Some(former) = halted.as_ref().filter(is_other) {
            // The record was written before the latest push.
            self.reference.push = super::reference::Push { number: former.number, ..Default::default() };
        }
        self.reference.push.is_halted = halted.is_some();
        // What was not kept yet is as if it had not been.
        self.reference.frozen_until = record.frozen_ms.map(|left| at + left.0.as_micros() as u64);
        self.reference.pin = record.pin.map(|pin| Pin {
            until: if let PinEnd::Left(left) = pin.until { Some(at + left.as_micros() as u64) } else { None },
            ends_by_change: pin.until == PinEnd::NextPush,
        });
        self.reference.halted = None;
        self.reference.condemned = condemned.iter().map(|(content, _)| content.clone()).collect();
        let left = condemned.into_iter().map(|(content, left)| (content, left.saturating_sub(passed)));
        let time = self.time();
        self.pilot.rejecters.condemn_again(left, time);
        self.pilot.rollout = Rollout::restore(self.pilot.plan.clone(), record, passed, self.time());
        for (unit, former) in self.disk.units.clone().iter().enumerate() {
            let id = UnitId(self.id_of(unit));
            let of_push = halted.iter().flat_map(|push| &push.units).find(|of| of.unit == *former);
            if let Some(of) = of_push {
                self.pilot.known.halted_before(id, of.candidate);
            }
            self.pilot.rollout.found(*former, id);
        }
        let (rejected, restated) = self.disk.rejected.clone();
        for (unit, restated) in restated.iter().enumerate().filter(|_| !rejected.nodes.is_empty()) {
            if let Some(restated) = restated {
                self.units[unit].lanes.restate(restated);
                self.publish_lanes(unit);
            }
        }
        self.pilot.rejected = rejected;
    }

    /// The releases of the process before: only stable is left.
    fn reference_restarts(&mut self) {
        for of in &mut self.reference.units {
            *of = std::mem::take(of).restarted();
        }
        let push = std::mem::take(&mut self.reference.push);
        self.reference.rejecters.extend(push.maybe_rejecting().map(|(_, node)| *node));
        (self.reference.hooked, self.reference.is_thawed, self.reference.is_unpinned) = Default::default();
        self.reference.known = BTreeSet::new();
        self.reference.known_perhaps = BTreeSet::new();
        self.reference.push =
            super::reference::Push { rejecting: Default::default(), beside: Default::default(), ..push };
    }
}
