//! Routes and listeners that name clusters, and make before break: no client is told that a cluster is gone while a route that it
//! uses names this cluster and the relay has another one for it (RLY-51, ORD-3).

use sluice_xds::Variant;

use super::control_plane::Entry;
use super::held::{Held, Sent};
use super::judge::due_of;
use super::reference::Source;
use super::relay::{Slot, StreamSlot};
use super::rng::{Rng, mix};
use super::schedule::{MILLI, SECOND};
use super::track::{State, Track};
use super::words::{
    CDS, Content, EDS, LDS, Mask, NAMES, RDS, SHORT, TYPES, bit, bits, content, count, is_old, is_routing,
    list_of, names_of_list, nth, show,
};
use super::world::{Invariant, Job, World};

/// A removal waits this long for the routing types at the most, from when the stream sees it. Losses that are seen within a second
/// of each other may wait together, as long as the first of them.
const HOLD: u64 = 15 * SECOND;
/// It rests this long, whatever follows.
const REST: u64 = 25 * MILLI;

/// The cluster that a route or listener of this content names, among these names. It belongs to the same server list.
pub fn cluster_of(name: usize, content: Content, names: Mask) -> usize {
    let names = names_of_list(list_of(name)) & names;
    nth(names, mix(u64::from(content) << 8 | name as u64) % count(names))
}

/// What of one stream is known beside what its client holds.
#[derive(Debug, Default)]
pub struct Routing {
    /// Names that were sent on it, by type.
    pub sent: [Mask; TYPES],
    /// What the client had of a routing type before the oldest response that it has not answered.
    before: [Option<[Content; NAMES]>; TYPES],
}

impl World {
    // === what servers do ===

    /// A route comes to name another cluster. The former one goes at the same time or a while later, if nothing else names it.
    pub fn flip(&mut self, server: usize, rng: &mut Rng) {
        let class = rng.below(self.plan.classes as u64) as usize;
        let names = names_of_list(server / 2) & self.plan.names;
        let route = nth(names, rng.below(count(names)));
        let ty = if rng.percent(80) { RDS } else { LDS };
        let truth = &self.servers[server].truth[class];
        let former = truth[ty][route].map(|entry| cluster_of(route, entry.content, self.plan.names));
        let next = nth(names, rng.below(count(names)));
        if former == Some(next) {
            return;
        }
        for ty in [CDS, EDS] {
            if self.servers[server].truth[class][ty][next].is_none() {
                let entry = self.entry(server, rng);
                self.put_truth(server, class, ty, next, Some(Entry { member: true, ..entry }));
            }
        }
        let content = loop {
            self.edition += 1;
            let content = content(self.maker(server), self.edition + 4);
            if cluster_of(route, content, self.plan.names) == next {
                break content;
            }
        };
        self.put_truth(server, class, ty, route, Some(Entry { content, member: true, ttl: None }));
        self.note(42, server as u64, route as u64);
        self.tell(|| {
            let (route, next) = (show(bit(route)), show(bit(next)));
            format!("server {server} has, for class {class}, {} {route} name the cluster {next}", SHORT[ty])
        });
        if let Some(former) = former {
            let after = [0, 0, 10 * MILLI, 100 * MILLI, 2 * SECOND][rng.below(5) as usize];
            match after {
                0 => self.retire(server, class, former),
                after => self.after(after, Job::Retire(server, class, former)),
            }
        }
        for server in [server & !1, server | 1] {
            self.flush_all(server);
        }
    }

    /// A cluster goes, with its endpoints, if nothing names it.
    pub fn retire(&mut self, server: usize, class: usize, cluster: usize) {
        let truth = &self.servers[server].truth[class];
        let names = |ty: usize, route: usize| {
            truth[ty][route].is_some_and(|entry| cluster_of(route, entry.content, self.plan.names) == cluster)
        };
        let mut routes = bits(names_of_list(server / 2));
        if routes.any(|route| names(LDS, route) || names(RDS, route)) {
            return;
        }
        self.tell(|| {
            format!("server {server} retires, for class {class}, the cluster {}", show(bit(cluster)))
        });
        for ty in [CDS, EDS] {
            self.put_truth(server, class, ty, cluster, None);
        }
        for server in [server & !1, server | 1] {
            self.flush_all(server);
        }
    }

    // === what clients are told ===

    /// Before a response is taken for what the client has.
    pub fn note_routing(&mut self, stream: &mut StreamSlot, sent: &Sent) {
        let routing = &mut stream.routing;
        routing.sent[sent.ty] |= sent.put_mask();
        if is_routing(sent.ty) && !stream.flights[sent.ty].is_waiting() {
            routing.before[sent.ty] = Some(stream.mirror[sent.ty].resources);
        }
    }

    /// Whether the uses of clusters by routes are judged. Expired resources go in no order. See README.md for
    /// relays after a restart.
    pub fn judges_uses(&self, stream: &StreamSlot) -> bool {
        self.plan.routes && !self.plan.ttls && self.generation == 1 && stream.watches.is_empty()
    }

    /// A client is told that a name of the cluster side is gone: no route that the client uses names it, unless
    /// the removal waited for long enough.
    pub fn judge_use(&mut self, stream: &StreamSlot, ty: usize, cluster: usize) {
        let list = list_of(cluster);
        let here = self.slot_of(stream, list, ty);
        let slot = &self.slots[here];
        let source = &slot.reference;
        let held = &stream.mirror[ty];
        let is_full = held.is_full(ty, stream.variant);
        if due_of(source, ty, cluster, held, is_full, source.moment) != State::Absent {
            return;
        }
        let left = tracks(source, held, ty, cluster).filter_map(|track| track.left_at(source.moment)).min();
        let Some(gone_at) = left else { return };
        let since = slot.when(gone_at).unwrap_or(self.now);
        // It may have been seen to be gone before it came back in the meantime.
        let was_gone = |moment: u32| {
            let is_gone = |track: &Track| !matches!(track.state_at(moment), State::Present(_));
            let mut had = tracks(source, held, ty, cluster).filter(|of| of.left_at(source.moment).is_some());
            had.any(is_gone)
        };
        let then = |back: u64| slot.moment_at(self.now.saturating_sub(back));
        if (then(HOLD + SECOND)..=then(HOLD - SECOND)).any(was_gone) {
            return;
        }
        let routing = [LDS, RDS].into_iter().filter(|routing| self.slot_of(stream, list, *routing) == here);
        let used = routing.into_iter().find_map(|routing| {
            Some((routing, self.used_by(stream, slot, routing, cluster, (gone_at, since))?))
        });
        if let Some((routing, route)) = used {
            let (who, cluster, route) = (self.show_stream(stream), show(bit(cluster)), show(bit(route)));
            self.fail(Invariant::Order, || {
                format!(
                    "{who} is told that {} {cluster} is gone, which its {} {route} names, and not the relay's",
                    SHORT[ty], SHORT[routing]
                )
            });
        }
    }

    /// A route that the client uses, that names a cluster which left at a moment, and for which the relay has had another one in
    /// time.
    fn used_by(
        &self,
        stream: &StreamSlot,
        slot: &Slot,
        ty: usize,
        cluster: usize,
        (gone_at, since): (u32, u64),
    ) -> Option<usize> {
        let (source, held, list) = (&slot.reference, &stream.mirror[ty], list_of(cluster));
        let (flight, is_full) = (&stream.flights[ty], held.is_full(ty, stream.variant));
        let is_lower = self.serving(stream, self.place(stream, list, ty)) > 0;
        let before = stream.routing.before[ty].filter(|_| flight.is_waiting());
        bits(stream.routing.sent[ty] & names_of_list(list)).find(|name| {
            let names =
                |content: Content| content != 0 && cluster_of(*name, content, self.plan.names) == cluster;
            // A client that gives a route up before it answers does not use it any more.
            let covers = held.wildcard || held.wanted & bit(*name) != 0;
            let before = before.filter(|_| covers);
            let is_used = names(held.resources[*name]) || before.is_some_and(|of| names(of[*name]));
            let is_over = match due_of(source, ty, *name, held, is_full, source.moment) {
                State::Present(content) => !names(content),
                // In SotW a client is not told that a route is gone (SST-6), nor that a lower server has none of what the first
                // one supplied (RLY-42).
                State::Absent => !is_lower && (is_full || stream.variant == Variant::Delta),
                State::Unknown => false,
            };
            // What changes later is not waited for.
            let changed = tracks(source, held, ty, *name).map(|track| track.changed_at(source.moment)).max();
            let changed = changed.unwrap_or_default();
            let is_known = changed <= gone_at || slot.when(changed).is_some_and(|at| at < since + REST);
            // No wildcard has the names of an authority, so that a client that gave such a name up does not use it any more.
            let is_wanted = held.wanted & bit(*name) != 0 || is_old(*name);
            is_used && is_wanted && is_over && is_known && !flight.has_rejected(*name)
        })
    }
}

/// What a source knows of a name, of what a client asks for.
pub fn tracks<'a>(
    source: &'a Source,
    held: &Held,
    ty: usize,
    name: usize,
) -> impl Iterator<Item = &'a Track> {
    let named = (held.wanted & bit(name) != 0).then_some(&source.names[ty][name]);
    let member = held.wildcard.then_some(&source.members[ty][name]);
    named.into_iter().chain(member)
}

impl Slot {
    /// The moment of the reference at a time.
    pub fn moment_at(&self, time: u64) -> u32 {
        let after = self.times.partition_point(|(_, at)| *at <= time);
        after.checked_sub(1).map_or(0, |last| self.times[last].0)
    }
}
