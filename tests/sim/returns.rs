//! The judge of returns: a session that a lower server serves goes back once a higher one can be had again (FBK-8, RLY-44).
//!
//! When that must be so at the latest, the reference knows: the higher server has had its time since it is heard. Only a
//! session that changed its server over and over stays where it is for a while (FU25).

use super::current::Wants;
use super::hearing::Heard;
use super::places::{PLACES, Place};
use super::relay::StreamSlot;
use super::schedule::SECOND;
use super::track::State;
use super::words::{bits, names_of_list};
use super::world::{Invariant, World};

/// A server that is heard again has this long to supply everything.
const RESOLVE: u64 = 15 * SECOND;
/// So many changes of server, each soon after the one before, and a session stays for this long.
const STRIKES: u32 = 3;
const HOLD_DOWN: u64 = 30 * SECOND;

/// What the judge knows of the moves of one session in one list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moves {
    at: u64,
    strikes: u32,
}

impl Moves {
    pub fn note(&mut self, now: u64) {
        let is_quiet = self.strikes == 0 || self.at + 2 * HOLD_DOWN <= now;
        self.strikes = if is_quiet { 1 } else { self.strikes + 1 };
        self.at = now;
    }

    /// Whether the last move is no longer ago than this.
    pub fn is_within(&self, time: u64, now: u64) -> bool {
        self.strikes > 0 && now <= self.at + time
    }

    fn is_held(&self, now: u64) -> bool {
        self.strikes >= STRIKES && now < self.at + HOLD_DOWN
    }
}

impl World {
    /// A session looked at its servers, and was served by these before.
    pub fn note_moves(&mut self, stream: &mut StreamSlot, before: [usize; PLACES]) {
        for place in self.places(stream) {
            let (serving, before) = (self.serving(stream, place), before[place.number()]);
            if serving != before {
                stream.moves[place.number()].note(self.now);
            }
            if serving < before {
                self.judge_return(stream, place);
            }
        }
    }

    /// I10, I6: a session asks a lower server only if the one that serves it is lost, and is served by one only then.
    pub fn judge_shift(&mut self, stream: &StreamSlot, before: [usize; PLACES], asked: &[Place]) {
        for place in self.places(stream) {
            let (list, before) = (place.list, before[place.number()]);
            let former = self.slot_at(stream, list, before);
            let now = self.serving(stream, place);
            let asks_second = self.second_of(stream, list).is_some_and(|slot| self.asks(stream, place, slot));
            let opens = asks_second && !asked.contains(&place);
            // A type that joins the list by another configuration may be what the list lacks.
            let joined = self.bound_for(stream, place);
            if opens && !self.lacks(stream, place, former) && !self.lacks(stream, joined, former) {
                let who = self.show_stream(stream);
                self.fail(Invariant::Gate, || {
                    format!("{who} asks a second server of list {list}, and lacks nothing")
                });
            }
            if opens {
                self.tell(|| format!("client {} asks the second server of list {list}", stream.client));
            }
            if now != before {
                self.tell(|| format!("client {} is served by server {now} of list {list}", stream.client));
            }
            if (opens || now > before) && !self.slots[former].reach_at(place, self.now).is_lost() {
                let who = self.show_stream(stream);
                self.fail(Invariant::Gate, || {
                    format!("{who} leaves server {before} of list {list}, which is not lost")
                });
            }
        }
    }

    /// What a session wants of a place, type by type.
    fn wants(&self, stream: &StreamSlot, place: Place) -> impl Iterator<Item = Wants> + use<> {
        let wants = |ty: usize| {
            let held = &stream.mirror[ty];
            let wildcard = place.list != 1 && held.asked && held.wildcard;
            Wants { ty, wildcard, names: held.wanted & names_of_list(place.list) }
        };
        place.types().map(wants).collect::<Vec<_>>().into_iter()
    }

    /// A session went back to the first server. Two cases need no reason: the server had its time, and the
    /// second server is lost as well, so that the server that knows most serves (RLY-46). Else the first server
    /// has everything that the session wants, where an error is a state like any other (FBK-3), and has answered
    /// for all of it since it is heard again (RLY-44).
    fn judge_return(&mut self, stream: &StreamSlot, place: Place) {
        let (first, list) = (self.slot_at(stream, place.list, 0), place.list);
        let Heard::Yes(since) = self.slots[first].reach_at(place, self.now) else { return };
        let second = self.second_of(stream, list).map(|second| self.slots[second].reach_at(place, self.now));
        let is_asked_for_long = since + RESOLVE <= self.now;
        if is_asked_for_long || second.is_some_and(Heard::is_lost) {
            return;
        }
        let source = &self.slots[first].reference;
        // A type that leaves the list by another configuration is served by its former source still.
        let stays: Vec<_> = self.bound_for(stream, place).types().collect();
        let mut wants = self.wants(stream, place).filter(|wants| stays.contains(&wants.ty));
        let unanswered = wants.find(|wants| !source.may_be_current(*wants, self.now));
        let mut alone =
            place.types().filter(|ty| stays.contains(ty)).map(|ty| Place { ty: Some(ty), ..place });
        let why = match unanswered {
            _ if alone.any(|place| self.owes(stream, place, first)) => "which lacks something".to_owned(),
            Some(wants) => format!("which did not answer for {wants:?}"),
            None => return,
        };
        let who = self.show_stream(stream);
        self.fail(Invariant::Revert, || format!("{who} goes back to the first server of list {list}, {why}"));
    }

    /// Whether something that a client asks for is unknown to the source that serves it.
    pub fn lacks(&self, stream: &StreamSlot, place: Place, slot: usize) -> bool {
        let source = &self.slots[slot].reference;
        place.types().any(|ty| {
            let held = &stream.mirror[ty];
            let unknown = |name: usize| source.names[ty][name].state() == State::Unknown;
            let lacks_members = place.list != 1 && held.asked && held.wildcard && !source.complete[ty];
            lacks_members || bits(held.wanted & names_of_list(place.list)).any(unknown)
        })
    }

    /// Whether a source has neither content nor an error nor the absence of something that a client asks for (FBK-3).
    pub fn owes(&self, stream: &StreamSlot, place: Place, slot: usize) -> bool {
        let source = &self.slots[slot].reference;
        place.types().any(|ty| {
            let held = &stream.mirror[ty];
            let tracks = &source.names[ty];
            // A resource that was rejected is an error, too.
            let is_owed = |name: usize| {
                tracks[name].state() == State::Unknown
                    && tracks[name].failed.is_none()
                    && !source.is_in_doubt(ty)
            };
            let owes_members = place.list != 1 && held.asked && held.wildcard && !source.complete[ty];
            owes_members || bits(held.wanted & names_of_list(place.list)).any(is_owed)
        })
    }

    /// A session that lacks something at its first server, which is lost, asks the second one. The second one serves once it has
    /// everything, or had its time (FBK-1, RLY-41). To be called when a session has looked at its servers.
    pub fn judge_falls(&mut self, stream: &StreamSlot) {
        if !self.plan.fallback || stream.moving.is_some() || !stream.watches.is_empty() {
            return;
        }
        for place in self.places(stream) {
            let second = self.second_of(stream, place.list).filter(|_| self.serving(stream, place) == 0);
            let Some(second) = second else { continue };
            let first = self.slot_at(stream, place.list, 0);
            let is_lost =
                self.slots[first].reach_at(place, self.now).is_lost() && !self.slots[first].is_apart;
            if !is_lost || !self.owes(stream, place, first) {
                continue;
            }
            let is_over = match self.slots[second].reach_at(place, self.now) {
                Heard::Yes(since) => since + RESOLVE <= self.now && !self.slots[second].is_apart,
                Heard::Pending | Heard::Lost(_) => false,
            };
            let is_held = stream.moves[place.number()].is_held(self.now);
            let why = match self.asks(stream, place, second) {
                false => "and does not ask the second one",
                true if !is_held && !self.lacks(stream, place, second) => "though the second one has it all",
                true if !is_held && is_over => "though the second one had its time",
                true => continue,
            };
            let (who, list) = (self.show_stream(stream), place.list);
            self.fail(Invariant::Revert, || {
                format!("{who} lacks something at the first server of list {list}, which is lost, {why}")
            });
        }
    }

    /// To be called when a session has looked at its servers.
    pub fn judge_returns(&mut self, stream: &StreamSlot) {
        if stream.moving.is_some() {
            return self.judge_moving(stream);
        }
        for place in self.places(stream) {
            if self.serving(stream, place) == 0 {
                continue;
            }
            let (first, list) = (self.slot_at(stream, place.list, 0), place.list);
            let Heard::Yes(since) = self.slots[first].reach_at(place, self.now) else { continue };
            let is_held = stream.moves[place.number()].is_held(self.now);
            let since = since.max(stream.came_at.unwrap_or(0));
            let is_over = since + RESOLVE <= self.now;
            let source = &self.slots[first].reference;
            let is_answered = self.wants(stream, place).all(|wants| source.must_be_current(wants));
            let has_all = is_answered && !self.lacks(stream, place, first) && stream.watches.is_empty();
            if !is_held && (has_all || is_over) {
                let why = match has_all {
                    true => "though the first answered for all it wants".to_owned(),
                    false => format!("{} s after the first is back", (self.now - since) / SECOND),
                };
                let who = self.show_stream(stream);
                self.fail(Invariant::Revert, || {
                    format!("{who} stays with the second server of list {list}, {why}")
                });
            }
        }
    }
}
