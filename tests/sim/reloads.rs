//! Other configurations of the running relay: classes are split and merged, server lists change (`lists.rs`), and the
//! sessions of other classes and lists move (REL-6). In half of these worlds the classes have equal answers (`Plan::twins`), so that a move is no byte.

use sluice_engine::authority::Authority;
use sluice_engine::downstream::{Moved, Shift};

use super::held::{Held, Sent};
use super::lists::{Lists, number_of};
use super::places::{PLACES, Place};
use super::relay::StreamSlot;
use super::rng::Rng;
use super::schedule::SECOND;
use super::words::{Content, TYPES, names_of_list, of_other_class};
use super::world::{Invariant, World};

/// The time after which a session is served by its new class, whatever this class knows.
const RESOLVE: u64 = 15 * SECOND;

/// A client with complete sets keeps resources that only the former class had for this time at most.
const LAST_BYTES: u64 = 30 * SECOND;

/// A stream's move to another class, or to other lists.
#[derive(Clone, Copy, Debug)]
pub struct ClassMove {
    pub to: usize,
    pub lists: Lists,
    pub since: u64,
}

impl World {
    /// Another configuration comes into force: each client has a class by its rules.
    pub fn reconfigure(&mut self, rng: &mut Rng) {
        if self.plan.lists && rng.percent(75) {
            self.change_lists(rng);
        }
        let (merges, subset) = (rng.percent(20), rng.next());
        let has_same_classes = self.plan.lists && rng.percent(60);
        for client in 0..self.configured.len() {
            if has_same_classes {
                continue;
            }
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
        let (lists, mut routes) = (self.lists, self.routes(to, self.lists));
        let is_on_its_way = stream.moving.is_some();
        let is_concerned = to != stream.class || is_on_its_way || self.is_relisted(stream, &routes);
        let found = stream.session.reclassify(&mut routes, time);
        let Ok(watches) = found else {
            return self.fail(Invariant::Hygiene, || "a class was refused".to_owned());
        };
        if !is_concerned && (stream.session.is_moving() || !watches.is_empty()) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Silence, || {
                format!("{who} moves, and neither its class nor its lists changed")
            });
        }
        let is_other = is_concerned || lists != stream.lists;
        stream.moving = Some(ClassMove { to, lists, since: self.now }).filter(|_| is_other);
        self.queue_watches(stream, watches);
        self.settle_unless_moving(stream);
    }

    /// To be called when the subscriptions of a stream have changed.
    pub fn keep_moving(&mut self, stream: &mut StreamSlot) {
        let Some(ClassMove { to, lists, .. }) = stream.moving else { return };
        let time = self.time();
        let found = stream.session.keep_moving(&mut self.routes(to, lists), time);
        self.queue_watches(stream, found.unwrap_or_default());
        self.settle_unless_moving(stream);
    }

    fn settle_unless_moving(&mut self, stream: &mut StreamSlot) {
        if let Some(moving) = stream.moving.filter(|_| !stream.session.is_moving()) {
            self.settle(stream, moving);
        }
    }

    /// A session was shifted, and has come to its new class and its new lists. Slots `before` served the session.
    pub fn judge_settled(
        &mut self,
        stream: &mut StreamSlot,
        shift: &Shift,
        before: [[usize; TYPES]; 2],
    ) -> bool {
        let Some(moving) = stream.moving.filter(|_| shift.is_settled) else {
            return false;
        };
        let (class, lists) = (stream.class, stream.lists);
        self.settle(stream, moving);
        let slots = self.served_slots(stream);
        // The server that served before may lack as much as before, and so may an authority that was unknown.
        let was_nobody = |slot: usize| self.slots[slot].is_nobody;
        let is_other = |list: usize, ty: usize| {
            let (slot, before) = (slots[list][ty], before[list][ty]);
            // A type whose class and list stay may move between the servers of its list at the same time.
            let of = |lists: Lists| lists.id(lists.of(list, ty));
            let has_other = moving.to != class || of(lists) != of(moving.lists);
            slot != before && has_other && !was_nobody(before)
        };
        let owes = (0..2).flat_map(|list| (0..TYPES).map(move |ty| (list, ty))).any(|(list, ty)| {
            let place = self.place(stream, list, ty);
            let alone = Place { ty: Some(ty), ..place };
            is_other(list, ty)
                && self.serving(stream, place) == 0
                && self.owes(stream, alone, slots[list][ty])
        });
        if self.now < moving.since + RESOLVE && owes {
            let who = self.show_stream(stream);
            self.fail(Invariant::Gate, || {
                format!("{who} moves to {moving:?}, which lacks something: {before:?} {slots:?}")
            });
        }
        true
    }

    /// The servers of the other class take turns before the session is there. These turns count, too, when the machines ask
    /// whether a session moved too often (FU25).
    pub fn note_moves_ahead(&mut self, stream: &mut StreamSlot, moves: &[Moved]) {
        for moved in moves {
            let ty = moved.type_url.as_ref().map_or(0, |url| self.words.type_of(url));
            let place = number_of(moved.list) * TYPES + ty;
            stream.moves[place].note(self.now);
        }
    }

    /// REL-6: a session moves in time.
    pub fn judge_moving(&mut self, stream: &StreamSlot) {
        if let Some(moving) = stream.moving.filter(|moving| moving.since + RESOLVE <= self.now) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Revert, || format!("{who} stays with its former class: {moving:?}"));
        }
    }

    fn settle(&mut self, stream: &mut StreamSlot, ClassMove { to, lists, .. }: ClassMove) {
        stream.moving = None;
        if to == stream.class && lists == stream.lists {
            return;
        }
        self.tell(|| format!("client {} is served by class {to}", stream.client));
        self.note(51, stream.id, to as u64);
        let regroups = lists.lacks_authority != stream.lists.lacks_authority;
        if lists.lacks_authority && regroups {
            stream.told_nobody = [0; TYPES];
        }
        stream.mirror.iter_mut().for_each(Held::come);
        stream.lists = lists;
        stream.came_at = Some(self.now);
        (0..PLACES).for_each(|place| stream.moves[place].note(self.now));
        if regroups {
            self.regroup(stream, to);
        }
        if to == stream.class {
            return;
        }
        stream.class = to;
        if !self.plan.twins {
            for (held, flight) in stream.mirror.iter_mut().zip(&mut stream.flights) {
                held.resources = held.resources.map(of_other_class);
                flight.come_from_other_class();
            }
        }
        self.turn_client(stream.client, to);
    }

    /// That no server is asked for a name any more is told once, also of an absent name: it is an error now (FED-3). And
    /// the end of this error is told once.
    pub fn excuse_errors(&self, stream: &mut StreamSlot, sent: &Sent) {
        let told = (sent.removed | sent.errors) & names_of_list(1);
        let former = stream.told_nobody[sent.ty];
        if stream.lists.is_nobody(1) {
            stream.told_nobody[sent.ty] |= told;
            stream.mirror[sent.ty].due |= told & !former;
        } else {
            stream.told_nobody[sent.ty] &= !(told | sent.put_mask());
            stream.mirror[sent.ty].due |= told & former;
        }
    }

    /// Names may belong to another list by other authorities (FED-3).
    fn regroup(&mut self, stream: &mut StreamSlot, class: usize) {
        let mut parts = stream.session.subscriptions().iter().flat_map(|of| &of.parts);
        if parts.all(|part| part.group.authority == Authority::None) {
            return;
        }
        match stream.session.regroup(&mut self.routes(class, stream.lists)) {
            Ok(watches) => self.queue_watches(stream, watches),
            Err(_) => self.fail(Invariant::Hygiene, || "other authorities were refused".to_owned()),
        }
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

    /// Whether a stream came from another class, or from other lists, and may have last bytes from there: after this move, or after a later
    /// one from a server that said nothing of what the client had.
    pub fn came_lately(&self, stream: &StreamSlot) -> bool {
        stream.came_at.is_some() && stream.moves.iter().any(|of| of.is_within(LAST_BYTES, self.now))
    }

    /// The content of a resource, as a stream of this class knows it.
    pub fn content_for(&self, stream: &StreamSlot, class: usize, content: Content) -> Content {
        if class == self.told_class(stream.class) { content } else { of_other_class(content) }
    }
}
