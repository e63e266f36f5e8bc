//! The judge of removals from the cluster side. A control plane may report that a cluster is gone a moment
//! before the route that makes this safe. So the removal rests for a moment, and then waits until the client
//! has ACKed the routes that no longer name the cluster (RLY-51).
//!
//! The exceptions, which hold for both demands:
//!
//! - A client that asked for a name again, or gave the name up, is told at once.
//! - Nothing waits for routing types of another server, of which this server's removals know nothing, nor of
//!   routing types that moved here a moment ago.
//! - Nothing is kept for a client that rejected the last response with the name.
//! - A move between servers shows the client the other server's state at once (README.md, Open).
//!
//! The demands are limited to removals whose time is known beyond doubt, see [`World::gone_since`].

use sluice_xds::Variant;

use super::held::Sent;
use super::judge::due_of;
use super::relay::StreamSlot;
use super::routes::tracks;
use super::schedule::{MILLI, SECOND};
use super::track::{State, Track};
use super::words::{ALL, ALL_OLD, LDS, RDS, SHORT, bit, bits, is_cluster_side, list_of, names_of_list, show};
use super::world::{Invariant, World};

/// A removal of the cluster side waits at least this long for a change of the routing types.
pub(super) const REST: u64 = 25 * MILLI;

/// A resource that existed for so long before its removal was not removed earlier within the same rest.
const STEADY: u64 = SECOND;

impl World {
    /// To be called once the response is explained, and before the client holds it.
    pub fn judge_removals(&mut self, stream: &StreamSlot, sent: &Sent) {
        let held = &stream.mirror[sent.ty];
        if !is_cluster_side(sent.ty) {
            return;
        }
        let gone = if sent.is_full { held.mask() & !sent.put_mask() } else { sent.removed & held.mask() };
        let again = held.due | held.stale | if held.due_all { ALL } else { 0 };
        for name in bits(gone & !again) {
            self.judge_gone(stream, sent, name);
        }
    }

    fn judge_gone(&mut self, stream: &StreamSlot, sent: &Sent, name: usize) {
        let (ty, list) = (sent.ty, list_of(name));
        let slot = self.slot_of(stream, list, ty);
        let has_moved =
            |of: usize| stream.moves[self.place(stream, list, of).number()].is_within(REST, self.now);
        let routing = [LDS, RDS].into_iter().filter(|routing| {
            let held = &stream.mirror[*routing];
            let asks = held.wanted & names_of_list(list) != 0 || (held.wildcard && list == 0);
            held.asked && asks && self.slot_of(stream, list, *routing) == slot && !has_moved(*routing)
        });
        // Without routing types there is nothing that the removal could wait for.
        let Some(routes_since) = routing.map(|ty| stream.mirror[ty].asked_at).min() else { return };
        if stream.flights[ty].has_rejected(name) || has_moved(ty) {
            return;
        }
        let early = self.gone_since(stream, sent, name, routes_since).filter(|at| self.now < *at + REST);
        let early = early.filter(|_| !self.was_gone(stream, sent, name));
        if let Some(at) = early {
            let (who, after) = (self.show_stream(stream), self.now - at);
            return self.fail(Invariant::Order, || {
                format!("{who} is told after {after} µs that {} {} is gone", SHORT[ty], show(bit(name)))
            });
        }
        if self.judges_uses(stream) && stream.routing.sent[ty] & bit(name) != 0 {
            self.judge_use(stream, ty, name);
        }
    }

    /// Whether a name was gone when the stream last looked, returned as it was, and left again since: no view shows this.
    fn was_gone(&self, stream: &StreamSlot, sent: &Sent, name: usize) -> bool {
        let (ty, held) = (sent.ty, &stream.mirror[sent.ty]);
        let slot = self.slot_of(stream, list_of(name), ty);
        let (source, then) = (&self.slots[slot].reference, self.slots[slot].moment_at(stream.looked_at));
        tracks(source, held, ty, name).any(|track| {
            let mut later = track.history.iter().filter(|entry| entry.from > then);
            track.state_at(then) == State::Absent
                && later.any(|entry| matches!(entry.state, State::Present(_)))
                && track.last_content(then) == track.last_content(source.moment)
        })
    }

    /// The time at which this stream found a name gone, if that is clear.
    fn gone_since(&self, stream: &StreamSlot, sent: &Sent, name: usize, routes_since: u64) -> Option<u64> {
        let (ty, held) = (sent.ty, &stream.mirror[sent.ty]);
        let slot = self.slot_of(stream, list_of(name), ty);
        let (this, source) = (&self.slots[slot], &self.slots[slot].reference);
        // The last answer of the server about the name, for delta clients. Where names are asked for beside the
        // wildcard, a name may go because of either. A complete set can keep only names whose last bytes its
        // source still has.
        let asked = held.wanted | if held.wildcard { ALL_OLD } else { 0 };
        let is_plain = !held.is_mixed() && held.known & asked & bit(name) != 0;
        let explained = self.clients[stream.client].explained.get(&slot).map(|moments| moments[ty]);
        let answered =
            explained.filter(|_| is_plain && stream.variant == Variant::Delta).and_then(|moment| {
                let track = if held.wildcard { &source.members[ty][name] } else { &source.names[ty][name] };
                let changed = track.changed_at(moment);
                let (at, came) =
                    (this.time_of(changed), this.time_of(track.changed_at(changed.saturating_sub(1))));
                (came + STEADY < at && routes_since <= at).then_some(at)
            });
        // Where routes name clusters: the removal of a resource of this server, which this stream sent. Where the
        // client has the name by the wildcard and by name, the first loss counts. Content of a former class is not of
        // this server.
        let is_sent = self.judges_uses(stream) && stream.routing.sent[ty] & bit(name) != 0;
        let is_gone = || {
            let is_full = held.is_full(ty, stream.variant);
            due_of(source, ty, name, held, is_full, source.moment) == State::Absent
        };
        let had = |track: &&Track| track.has_had(held.resources[name]);
        let left = tracks(source, held, ty, name).filter(had);
        let left = left.filter_map(|track| track.left_at(source.moment)).min();
        let left = left.filter(|_| is_sent && is_gone()).map(|moment| this.when(moment).unwrap_or(self.now));
        answered.into_iter().chain(left).max()
    }
}
