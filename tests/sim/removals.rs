//! The judge of removals: a control plane may say that a cluster is gone a moment before the route that makes this safe, so
//! that it rests until then (RLY-51).

use sluice::xds::Variant;

use super::held::Sent;
use super::relay::StreamSlot;
use super::schedule::{MILLI, SECOND};
use super::words::{ALL, ALL_OLD, SHORT, TYPES, bit, bits, is_cluster_side, is_routing, names_of_list, show};
use super::world::{Invariant, World};

/// A removal of the cluster side waits at least this long for a change of the routing types.
const REST: u64 = 25 * MILLI;

/// What was there for so long before is gone for the first time.
const STEADY: u64 = SECOND;

impl World {
    /// To be called once the response is explained, and before the client holds it.
    pub fn judge_removals(&mut self, stream: &StreamSlot, sent: &Sent) {
        let held = &stream.mirror[sent.ty];
        // Where names are asked for beside the wildcard, a name may go because one of the two says so.
        let is_plain = is_cluster_side(sent.ty) && !held.is_mixed();
        // A complete set can keep only what its source, or the former one, still has the last bytes of.
        if !is_plain || stream.variant == Variant::Sotw {
            return;
        }
        let asked = held.wanted | if held.wildcard { ALL_OLD } else { 0 };
        // What the client asked for again, it is told at once.
        let again = held.due | if held.due_all { ALL } else { 0 };
        let gone = sent.removed & held.mask() & held.known & asked & !again;
        for list in 0..2 {
            let asks = |ty: &usize| {
                let routes = &stream.mirror[*ty];
                let names = routes.wanted & names_of_list(list) != 0;
                routes.asked && (names || (list == 0 && routes.wildcard))
            };
            let routing = (0..TYPES).filter(|ty| is_routing(*ty)).filter(asks);
            // Where the client had asked for no routing types yet, nobody knew of anything that the removal could wait for.
            let Some(routes_since) = routing.map(|ty| stream.mirror[ty].asked_at).min() else { continue };
            let slot = self.slot_of(stream, list);
            let explained = self.clients[stream.client].explained.get(&slot);
            let Some(moment) = explained.map(|moments| moments[sent.ty]) else { continue };
            let source = &self.slots[slot].reference;
            let tracks = if held.wildcard { &source.members[sent.ty] } else { &source.names[sent.ty] };
            let this = &self.slots[slot];
            let since = |name: usize| this.time_of(tracks[name].changed_at(moment));
            // Of what comes and goes, the stream may have seen an earlier removal.
            let came = |name: usize| {
                this.time_of(tracks[name].changed_at(tracks[name].changed_at(moment).saturating_sub(1)))
            };
            let is_early = |name: &usize| {
                let at = since(*name);
                self.now < at + REST && came(*name) + STEADY < at && routes_since <= at
            };
            let early = bits(gone & names_of_list(list)).find(is_early);
            if let Some(name) = early {
                let (who, ty) = (self.show_stream(stream), SHORT[sent.ty]);
                let rested = (self.now - since(name)) / MILLI;
                let text = format!("{who} is told after {rested} ms that {ty} {} is gone", show(bit(name)));
                return self.fail(Invariant::Order, || text);
            }
        }
    }
}
