//! The judge of first answers by rank (ORD-12).
//!
//! It looks at routes with resources on streams that stay in their class: what an empty answer says names no cluster.

use super::held::Sent;
use super::relay::StreamSlot;
use super::schedule::SECOND;
use super::words::{CDS, EDS, SHORT};
use super::world::{Invariant, World};

/// The time for which routing types wait for the first answer of a wildcard.
const FIRST: u64 = 10 * SECOND;

impl World {
    /// To be called for a response of a routing type that has not waited too long (ORD-10).
    pub fn judge_firsts(&mut self, stream: &StreamSlot, sent: &Sent) {
        if sent.put.is_empty() || stream.came_at.is_some() || stream.moving.is_some() {
            return;
        }
        if let Some(ty) = [CDS, EDS].into_iter().find(|ty| self.owes_first(stream, sent.ty, *ty)) {
            let who = self.show_stream(stream);
            self.fail(Invariant::Order, || {
                format!("ORD-12: {who} is sent {} before its first {}", SHORT[sent.ty], SHORT[ty])
            });
        }
    }

    /// Whether nothing of a wildcard was sent, although the source of the routes does not know all of it yet.
    fn owes_first(&self, stream: &StreamSlot, routing: usize, ty: usize) -> bool {
        let (held, slot) = (&stream.mirror[ty], self.slot_of(stream, 0, ty));
        let is_owed =
            held.asked && held.wildcard && held.nonce.is_empty() && self.now < held.asked_at + FIRST;
        is_owed && slot == self.slot_of(stream, 0, routing) && !self.slots[slot].reference.complete[ty]
    }
}
