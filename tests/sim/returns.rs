//! The judge of returns: a session that a lower server serves goes back once a higher one can be had again (FBK-8, RLY-44).
//!
//! When that must be so at the latest, the reference knows: the higher server has had its time since it is heard. Only a
//! session that changed its server over and over stays where it is for a while (FU25).

use super::current::Wants;
use super::hearing::Heard;
use super::relay::StreamSlot;
use super::schedule::SECOND;
use super::track::State;
use super::words::{TYPES, bits, names_of_list};
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

    fn is_held(&self, now: u64) -> bool {
        self.strikes >= STRIKES && now < self.at + HOLD_DOWN
    }
}

impl World {
    /// A session looked at its servers, and was served by these before.
    pub fn note_moves(&mut self, stream: &mut StreamSlot, before: [usize; 2]) {
        for (list, before) in before.into_iter().enumerate() {
            let serving = self.serving(stream, list);
            if serving != before {
                stream.moves[list].note(self.now);
                self.judge_move(stream, list);
            }
            if serving < before {
                self.judge_return(stream, list);
            }
        }
    }

    /// What a session wants of a list, type by type.
    fn wants(&self, stream: &StreamSlot, list: usize) -> impl Iterator<Item = Wants> + use<> {
        let wants = |ty: usize| {
            let held = &stream.mirror[ty];
            let wildcard = list == 0 && held.asked && held.wildcard;
            Wants { ty, wildcard, names: held.wanted & names_of_list(list) }
        };
        (0..TYPES).map(wants).collect::<Vec<_>>().into_iter()
    }

    /// A session went back to the first server. Before that has answered for all that the session wants, none does, unless it
    /// had its time or the second server is lost as well (RLY-44, RLY-46).
    fn judge_return(&mut self, stream: &StreamSlot, list: usize) {
        let first = stream.class * self.servers.len() + list * 2;
        let Heard::Yes(since) = self.slots[first].reach(self.now) else { return };
        if since + RESOLVE <= self.now || self.slots[first + 1].is_lost(self.now) {
            return;
        }
        let source = &self.slots[first].reference;
        let early = self.wants(stream, list).find(|wants| !source.may_be_current(*wants, self.now));
        if let Some(wants) = early {
            let who = self.show_stream(stream);
            self.fail(Invariant::Revert, || {
                format!(
                    "{who} goes back to the first server of list {list}, which did not answer for {wants:?}"
                )
            });
        }
    }

    /// To a first server that has not had its time a session returns only if that has all, or if the second one is lost, so
    /// that who knows most serves (RLY-46).
    fn judge_move(&mut self, stream: &StreamSlot, list: usize) {
        let first = stream.class * self.servers.len() + list * 2;
        let Heard::Yes(since) = self.slots[first].reach(self.now) else { return };
        let is_early = self.now < since + RESOLVE && !self.slots[first + 1].is_lost(self.now);
        if self.serving(stream, list) == 0 && is_early && self.owes(stream, list, first) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Revert, || {
                format!("{who} returns in list {list} to a server that lacks something")
            });
        }
    }

    /// Whether something that a client asks for is unknown to the source that serves it.
    pub fn lacks(&self, stream: &StreamSlot, list: usize, slot: usize) -> bool {
        let source = &self.slots[slot].reference;
        (0..TYPES).any(|ty| {
            let held = &stream.mirror[ty];
            let unknown = |name: usize| source.names[ty][name].state() == State::Unknown;
            let lacks_members = list == 0 && held.asked && held.wildcard && !source.complete[ty];
            lacks_members || bits(held.wanted & names_of_list(list)).any(unknown)
        })
    }

    /// Whether a source has neither content nor an error nor the absence of something that a client asks for (FBK-3).
    fn owes(&self, stream: &StreamSlot, list: usize, slot: usize) -> bool {
        let source = &self.slots[slot].reference;
        (0..TYPES).any(|ty| {
            let held = &stream.mirror[ty];
            let tracks = &source.names[ty];
            // A resource that was rejected is an error, too.
            let is_owed = |name: usize| {
                tracks[name].state() == State::Unknown
                    && tracks[name].failed.is_none()
                    && !source.is_in_doubt(ty)
            };
            let owes_members = list == 0 && held.asked && held.wildcard && !source.complete[ty];
            owes_members || bits(held.wanted & names_of_list(list)).any(is_owed)
        })
    }

    /// To be called when a session has looked at its servers.
    pub fn judge_returns(&mut self, stream: &StreamSlot) {
        for list in 0..2 {
            let first = stream.class * self.servers.len() + list * 2;
            let Heard::Yes(since) = self.slots[first].reach(self.now) else { continue };
            let is_over = since + RESOLVE <= self.now && !stream.moves[list].is_held(self.now);
            let is_held = stream.moves[list].is_held(self.now);
            let source = &self.slots[first].reference;
            let is_answered = self.wants(stream, list).all(|wants| source.must_be_current(wants));
            let has_all = is_answered && !self.lacks(stream, list, first) && stream.watches.is_empty();
            if self.serving(stream, list) > 0 && has_all && !is_held {
                let who = self.show_stream(stream);
                let text = format!(
                    "{who} stays with the second server of list {list}, though the first answered for all it wants"
                );
                self.fail(Invariant::Revert, || text);
            }
            if self.serving(stream, list) > 0 && is_over {
                let (who, waited) = (self.show_stream(stream), (self.now - since) / SECOND);
                let text = format!(
                    "{who} stays with the second server of list {list}, {waited} s after the first is back"
                );
                self.fail(Invariant::Revert, || text);
            }
        }
    }
}
