//! Units that go and come back under a plan: their task fails, another class takes their place, or their clients sleep (RLY-14, WAV-8).

use sluice_checkpoint::format::encode;
use sluice_engine::downstream::SourceId;
use sluice_engine::source::Image;
use sluice_fleet::rollout::UnitId;

use super::client::Client;
use super::reference::Releases;
use super::world::{Job, World};
use crate::schedule::SECOND;

impl World {
    /// All clients of a list leave, for longer than names linger.
    pub fn sleep_list(&mut self, list: usize) {
        let all = (0..self.clients.len()).filter(|client| self.clients[*client].plan.list == list);
        let all: Vec<_> = all.collect();
        self.tell(|| format!("clients {all:?} sleep"));
        for client in &all {
            self.clients[*client].has_left = true;
            self.disconnect(*client, false);
        }
        let length = 6 * SECOND + self.rng.below(20 * SECOND);
        self.after(length, Job::WakeList(list));
    }

    pub fn wake_list(&mut self, list: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].plan.list == list && std::mem::take(&mut self.clients[client].has_left) {
                let delay = 1 + self.rng.below(SECOND);
                self.after(delay, Job::Reconnect(client));
            }
        }
    }

    /// A newcomer finds no room. The class of the unit gives its place away, unless it has clients or a hold.
    pub fn displace(&mut self, unit: usize) {
        let former = UnitId(self.id_of(unit));
        let is_used = self.streams.iter().flatten().any(|of| of.told.contains(&SourceId(former.0)));
        let has_hold = self.units[unit].published.lanes.is_some() || self.pilot.rollout.keeps_hold(former);
        if is_used || has_hold || !self.pilot.is_idle() {
            return;
        }
        self.tell(|| format!("unit {unit} gives its place away"));
        self.note(60, unit as u64, 0);
        self.renew(unit);
        let time = self.time();
        self.pilot.rollout.gone(former, time);
        self.reference.units[unit] = std::mem::take(&mut self.reference.units[unit]).displaced();
        // Nobody remembers what its clients may have of pushes that they rejected.
        let list = self.plan.list_of(unit);
        self.clients.iter_mut().filter(|of| of.plan.list == list).for_each(Client::be_forgotten);
        self.wake_pilot();
    }

    /// The task of a unit with a halted or pinned hold fails, and the unit begins anew from the stable content.
    pub fn fail_task(&mut self, unit: usize) {
        let former = UnitId(self.id_of(unit));
        if !self.pilot.rollout.keeps_hold(former) || !self.pilot.is_idle() {
            return;
        }
        self.tell(|| format!("the task of unit {unit} fails"));
        self.note(61, unit as u64, 0);
        let told = |client: &usize| {
            let stream = self.clients[*client].stream.and_then(|id| self.streams[id as usize].as_ref());
            stream.is_some_and(|stream| stream.told.contains(&SourceId(former.0)))
        };
        let clients: Vec<_> = (0..self.clients.len()).filter(told).collect();
        clients.into_iter().for_each(|client| self.disconnect(client, false));
        let published = self.units[unit].published.clone();
        self.renew(unit);
        self.reference.units[unit] = std::mem::take(&mut self.reference.units[unit]).failed();
        let image = Image { snapshot: (**published.stable()).clone(), ..Image::default() };
        let mut file = Vec::new();
        let mut sink = |piece: &[u8]| {
            file.extend_from_slice(piece);
            Ok(())
        };
        encode(&self.header_of(unit), &image, &mut sink).expect("memory takes all bytes");
        self.begin_from(unit, &file);
        self.hold(unit);
        if let Some(restated) = &published.restated {
            self.units[unit].lanes.restate(restated);
        }
        self.publish_lanes(unit);
        let (id, time) = (UnitId(self.id_of(unit)), self.time());
        if self.pilot.rollout.began_anew(former, id, time) {
            self.pilot.known.begin_anew(former, id);
        }
        self.note_change(unit);
    }

    /// Tells units that their hold outlives the names that they forget.
    pub fn keep_holds(&mut self) {
        for unit in 0..self.units.len() {
            let id = UnitId(self.id_of(unit));
            if !self.pilot.rollout.keeps_hold(id) {
                self.pilot.kept.remove(&id);
            } else if self.pilot.kept.insert(id) {
                self.units[unit].lanes.keep();
                self.reference.units[unit].is_kept = true;
                if self.plan.begins_anew {
                    self.hold(unit);
                    self.publish_lanes(unit);
                }
            }
        }
    }

    /// The lanes hold what the unit began with, until its server has confirmed it.
    pub fn hold(&mut self, unit: usize) {
        if self.units[unit].source.is_restored() {
            self.units[unit].lanes.hold();
            self.reference.units[unit].hold();
        }
    }

    /// The server has confirmed the content of before.
    pub fn confirm(&mut self, unit: usize) {
        self.units[unit].lanes.confirm();
        if self.reference.units[unit].confirm() {
            self.publish_lanes(unit);
        }
    }

    /// A source without content, in the place of the unit's.
    fn renew(&mut self, unit: usize) {
        let links: Vec<_> = self.links.iter().filter(|(_, link)| link.unit == unit).map(|of| *of.0).collect();
        for id in links {
            self.links.remove(&id);
            self.servers[unit].close(id);
        }
        self.lives[unit] += 1;
        self.start_unit(unit);
    }
}

impl Releases {
    /// The task of the unit has failed: only stable is left, as after a restart. What the plan has cut is known as before.
    fn failed(self) -> Releases {
        let (cut, latest) = (self.cut.clone(), self.latest.clone());
        Releases { cut, latest, ..self.restarted() }
    }

    /// Another class has taken the place of the unit: it knows nothing. Clients may have what they were given.
    fn displaced(self) -> Releases {
        Releases { given: self.given, ..Releases::default() }
    }
}
