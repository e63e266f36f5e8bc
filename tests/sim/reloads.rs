//! Other configurations of the running relay: classes are split and merged, and the sessions of other classes move
//! (REL-6). In half of these worlds the classes have equal answers (`Plan::twins`), so that a move is no byte.

use sluice::engine::downstream::{Moved, Shift};

use super::places::PLACES;
use super::relay::StreamSlot;
use super::rng::Rng;
use super::schedule::SECOND;
use super::words::{Content, of_other_class};
use super::world::{Invariant, World};

/// The time after which a session is served by its new class, whatever this class knows.
const RESOLVE: u64 = 15 * SECOND;

/// A client with complete sets keeps resources that only the former class had for this time at most.
const LAST_BYTES: u64 = 30 * SECOND;

/// A stream's move to another class.
#[derive(Clone, Copy, Debug)]
pub struct ClassMove {
    pub to: usize,
    pub since: u64,
}

impl World {
    /// Another configuration comes into force: each client has a class by its rules.
    pub fn reconfigure(&mut self, rng: &mut Rng) {
        let (merges, subset) = (rng.percent(20), rng.next());
        for client in 0..self.configured.len() {
            let flips = subset >> (client % 64) & 1;
            self.configured[client] = if merges { 0 } else { self.configured[client] ^ flips as usize };
        }
        let classes = self.configured.clone();
        self.tell(|| format!("another configuration: the clients are of the classes {classes:?}"));
        self.note(50, subset, u64::from(merges));
        for id in 0..self.streams.len() {
            let Some(mut stream) = self.streams[id].take() else { continue };
            self.reclassify(&mut stream);
            self.streams[id] = Some(stream);
            self.wake(id as u64);
        }
    }

    fn reclassify(&mut self, stream: &mut StreamSlot) {
        let (to, time) = (self.configured[stream.client], self.time());
        let is_concerned = to != stream.class || stream.moving.is_some();
        let found = stream.session.reclassify(&mut self.routes(to), time);
        let Ok(watches) = found else {
            return self.fail(Invariant::Hygiene, || "a class was refused".to_owned());
        };
        if !is_concerned && (stream.session.is_moving() || !watches.is_empty()) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Silence, || format!("{who} moves, and its class did not change"));
        }
        stream.moving = Some(ClassMove { to, since: self.now }).filter(|_| is_concerned);
        self.queue_watches(stream, watches);
        self.settle_unless_moving(stream);
    }

    /// To be called when the subscriptions of a stream have changed.
    pub fn keep_moving(&mut self, stream: &mut StreamSlot) {
        let Some(ClassMove { to, .. }) = stream.moving else { return };
        let time = self.time();
        let found = stream.session.keep_moving(&mut self.routes(to), time);
        self.queue_watches(stream, found.unwrap_or_default());
        self.settle_unless_moving(stream);
    }

    fn settle_unless_moving(&mut self, stream: &mut StreamSlot) {
        if let Some(ClassMove { to, .. }) = stream.moving.filter(|_| !stream.session.is_moving()) {
            self.settle(stream, to);
        }
    }

    /// A session was shifted, and has come to its new class.
    pub fn judge_settled(&mut self, stream: &mut StreamSlot, shift: &Shift) -> bool {
        let Some(ClassMove { to, since }) = stream.moving.filter(|_| shift.is_settled) else {
            return false;
        };
        let is_other = to != stream.class;
        self.settle(stream, to);
        let owes = |world: &World| {
            let mut places = world.places().filter(|place| world.serving(stream, *place) == 0);
            places.any(|place| world.owes(stream, place, world.first_of(stream, place.list)))
        };
        if is_other && self.now < since + RESOLVE && owes(self) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Gate, || format!("{who} moves to class {to}, which lacks something"));
        }
        true
    }

    /// The servers of the other class take turns before the session is there. These turns count, too, when the machines ask
    /// whether a session moved too often (FU25).
    pub fn note_moves_ahead(&mut self, stream: &mut StreamSlot, moves: &[Moved]) {
        for moved in moves {
            let ty = moved.type_url.as_ref().map_or(0, |url| self.words.type_of(url));
            let place = self.place(moved.list.0 as usize, ty);
            stream.moves[place.number()].note(self.now);
        }
    }

    /// REL-6: a session moves in time.
    pub fn judge_moving(&mut self, stream: &StreamSlot) {
        if let Some(moving) = stream.moving.filter(|moving| moving.since + RESOLVE <= self.now) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Revert, || format!("{who} stays with its former class: {moving:?}"));
        }
    }

    fn settle(&mut self, stream: &mut StreamSlot, to: usize) {
        stream.moving = None;
        if to == stream.class {
            return;
        }
        self.tell(|| format!("client {} is served by class {to}", stream.client));
        self.note(51, stream.id, to as u64);
        stream.class = to;
        stream.came_at = Some(self.now);
        (0..PLACES).for_each(|place| stream.moves[place].note(self.now));
        if !self.plan.twins {
            for (held, flight) in stream.mirror.iter_mut().zip(&mut stream.flights) {
                held.resources = held.resources.map(of_other_class);
                flight.come_from_other_class();
            }
        }
        self.turn_client(stream.client, to);
    }

    /// The resources of a client are those of another class from now on.
    pub fn turn_client(&mut self, client: usize, class: usize) {
        if self.clients[client].plan.class == class {
            return;
        }
        self.plan.clients[client].class = class;
        self.clients[client].plan.class = class;
        if !self.plan.twins {
            for held in &mut self.clients[client].types {
                held.resources = held.resources.map(of_other_class);
            }
        }
    }

    /// The class that resources of a class name.
    pub fn told_class(&self, class: usize) -> usize {
        if self.plan.twins { 0 } else { class }
    }

    /// Whether a stream came from another class so recently that it may have last bytes of that class.
    pub fn came_lately(&self, stream: &StreamSlot) -> bool {
        stream.came_at.is_some_and(|at| self.now <= at + LAST_BYTES)
    }

    /// The content of a resource, as a stream of this class knows it.
    pub fn content_for(&self, stream: &StreamSlot, class: usize, content: Content) -> Content {
        if class == self.told_class(stream.class) { content } else { of_other_class(content) }
    }
}
