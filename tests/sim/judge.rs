//! The judge: what must hold after every step, whatever happened before.

use std::time::Duration;

use sluice_engine::cache::Known;
use sluice_engine::collection::CollectionKind;
use sluice_engine::downstream::Verdict;
use sluice_engine::snapshot::Standing;
use sluice_engine::source::Attachment;
use sluice_engine::upstream::Cause;
use sluice_xds::{Request, Resource, TypeUrl, Variant};

use super::held::{Held, Sent};
use super::reference::Source;
use super::relay::{Slot, StreamSlot, show_sent};
use super::schedule::{MILLI, SECOND, Wire};
use super::track::State;
use super::words::{
    ALL, CDS, Content, EDS, Mask, NAMES, SHORT, TYPES, bit, bits, has_endpoints, is_cluster_side, is_old,
    is_routing, names_of_list, of_other_class, read, show, show_content,
};
use super::world::{Invariant, World};

/// How long routing types wait for the cluster side, and removals for the routing types (ORD-10, RLY-51).
const HOLD: u64 = 15 * SECOND;

/// Why a response cannot be explained by a moment of the reference.
struct Unexplained {
    invariant: Invariant,
    text: String,
}

/// What a client should see of a name at a moment.
pub fn due_of(source: &Source, ty: usize, name: usize, held: &Held, is_full: bool, moment: u32) -> State {
    let mut due = State::Absent;
    if held.wildcard && is_old(name) {
        due = source.members[ty][name].state_at(moment);
    }
    if held.wanted & bit(name) != 0 {
        match source.names[ty][name].state_at(moment) {
            State::Unknown if due == State::Absent => due = State::Unknown,
            State::Present(content) => due = State::Present(content),
            // That it does not exist is an answer; a complete set waits until the wildcard is known too (RLY-5).
            State::Absent if due == State::Unknown && !is_full => due = State::Absent,
            // What becomes of a name that its own subscription knows to be absent, the wildcard says (DEL-22).
            State::Unknown | State::Absent => {}
        }
    }
    due
}

impl World {
    // === what clients ask for ===

    pub fn judge_request(&mut self, stream: &mut StreamSlot, request: &Request, verdict: Option<&Verdict>) {
        let (url, nonce, error) = match request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        };
        let Some(ty) = self.words.types.iter().position(|known| known.as_str() == url) else { return };
        let is_first = !stream.mirror[ty].asked;
        let carried = stream.flights[ty].carried();
        let expected = match is_first || nonce.is_empty() {
            true => "none",
            false => stream.flights[ty].judge(nonce, error.is_some()),
        };
        let found = match verdict {
            Some(Verdict::Ack { .. }) => "ACK",
            Some(Verdict::Nack { .. }) => "NACK",
            Some(Verdict::Stale) => "stale",
            Some(Verdict::None) => "none",
            None => "an error",
        };
        if found != expected {
            let who = self.show_stream(stream);
            self.fail(Invariant::Nonces, || {
                format!("{who}: {nonce:?} is {expected}, and was taken for {found}")
            });
        }
        let mirror = &mut stream.mirror[ty];
        match request {
            Request::Sotw(request) => {
                let star = request.resource_names.iter().any(|name| name.is_wildcard());
                let names = self.words.mask_of(&request.resource_names);
                mirror.note_sotw(names, star, !request.version_info.is_empty(), self.now);
                mirror.want_sotw(names, star);
                if expected == "ACK" {
                    mirror.has_read(carried);
                }
            }
            Request::Delta(request) => {
                let has_star =
                    |names: &[sluice_xds::ResourceName]| names.iter().any(|name| name.is_wildcard());
                let star = match (has_star(&request.subscribe), has_star(&request.unsubscribe)) {
                    (_, true) => Some(false),
                    (true, false) => Some(true),
                    (false, false) => None,
                };
                let names = request.initial_resource_versions.iter().map(|(name, _)| name);
                let presented = self.words.mask_of(names);
                if is_first {
                    mirror.begin(star == Some(true) || request.subscribe.is_empty(), self.now);
                    for name in bits(ALL & !presented) {
                        mirror.resources[name] = 0;
                    }
                }
                let add = self.words.mask_of(&request.subscribe);
                let given_up = self.words.mask_of(&request.unsubscribe);
                let is_all = star == Some(false);
                mirror.unread |= stream.flights[ty].carried() & if is_all { ALL } else { given_up };
                mirror.want_delta(add, given_up, star, presented);
            }
        }
        if ty == EDS && is_first {
            stream.forced |= stream.early & mirror.mask() & mirror.wanted;
        }
    }

    // === what clients are sent ===

    /// Every byte is of the type, the name and the class for which it is served (I3).
    pub fn judge_bytes(&mut self, stream: &StreamSlot, ty: usize, resource: &Resource) {
        let (of_type, name, class, content) = read(resource);
        let is_named = self.words.name_of(&resource.name) == Some(name);
        // Last bytes of the former class (RLY-51).
        let is_last =
            self.came_lately(stream) && is_cluster_side(ty) && stream.mirror[ty].resources[name] != 0;
        if of_type != ty || !is_named || class != self.told_class(stream.class) && !is_last {
            let who = self.show_stream(stream);
            self.fail(Invariant::Isolation, || {
                format!(
                    "{who} of class {} is sent {} {} of class {class}, {}",
                    stream.class,
                    SHORT[of_type],
                    resource.name,
                    show_content(content)
                )
            });
        }
    }

    pub fn judge_sent(&mut self, stream: &mut StreamSlot, sent: &Sent) {
        let who = self.show_stream(stream);
        self.tell(|| format!("client {} is sent {}", stream.client, show_sent(&SHORT, sent)));
        if sent.nonce.is_empty() || !stream.nonces.insert(sent.nonce.clone()) {
            self.fail(Invariant::Nonces, || format!("{who}: the nonce {:?} is not unique", sent.nonce));
        }
        let (ty, put) = (sent.ty, sent.put_mask());
        let mirror = &stream.mirror[ty];
        let asked = mirror.wanted | if mirror.wildcard { super::words::ALL_OLD } else { 0 };
        if put & !asked != 0 {
            self.fail(Invariant::Isolation, || {
                format!("SUB-18: {who} never asked for {} {}", SHORT[ty], show(put & !asked))
            });
        }
        if put & sent.removed != 0 || put.count_ones() as usize != sent.put.len() {
            self.fail(Invariant::JustifiedRemoval, || format!("DEL-16: {who} is told of a name twice"));
        }
        let first = &mut stream.mirror[ty];
        first.is_early = first.nonce.is_empty() && self.now < first.asked_at + SECOND;
        for list in 0..2 {
            self.explain(stream, sent, list);
        }
        let says_nothing = put | sent.removed | sent.errors | sent.beats == 0;
        let slot = self.slot_of(stream, 0, ty);
        if stream.variant == Variant::Delta && says_nothing && !self.slots[slot].reference.complete[ty] {
            self.fail(Invariant::JustifiedRemoval, || {
                format!("{who} is told that there is no {}, and nobody knows", SHORT[ty])
            });
        }
        self.judge_order(stream, sent);
        self.judge_removals(stream, sent);
        self.note_routing(stream, sent);
        let is_routing = is_routing(ty);
        let before = stream.mirror[ty].resources;
        let (due, known) = (stream.mirror[ty].due, stream.mirror[ty].known);
        let is_asked_anew = stream.mirror[ty].due_all;
        // A complete set says nothing of a name that was asked for anew and that nobody knows yet: that is still to come.
        let owed = if sent.is_full { due & !put & self.unknown_names(stream, ty) } else { 0 };
        // Nor may one of a round, which is as old as the round.
        let is_of_round = is_routing && (stream.is_round || self.now >= stream.routes_free_at + HOLD);
        let said_again = if sent.is_full && is_of_round { due & !put } else { 0 };
        stream.mirror[ty].due &= !owed;
        self.excuse_errors(stream, sent);
        let idle = stream.mirror[ty].take(sent);
        stream.mirror[ty].due |= owed | said_again;
        if idle != 0 {
            let rejected = bits(idle & put)
                .any(|name| stream.flights[ty].rejected(name) == stream.mirror[ty].resources[name]);
            let invariant = if rejected { Invariant::NackContainment } else { Invariant::Silence };
            self.fail(invariant, || {
                format!("{who} is sent {} {} again without a reason", SHORT[ty], show(idle & ALL))
            });
        }
        if ty == CDS {
            expect_endpoints(stream, sent, before, if is_asked_anew { !0 } else { due | !known });
        }
        if ty == EDS {
            stream.forced &= !(put | sent.removed);
        }
        if is_routing {
            // What waited too long goes as a round of all routing types, from one snapshot.
            stream.is_round |= self.now >= stream.routes_free_at + HOLD;
            stream.routes_free_at = self.now;
        }
        stream.flights[ty].send(sent);
    }

    /// Finds the first moment of the reference, not before the one that the client was shown last (I2), at which all of the
    /// response was true together (I7b), and every removal in it justified (I4).
    fn explain(&mut self, stream: &StreamSlot, sent: &Sent, list: usize) {
        let slot = self.slot_of(stream, list, sent.ty);
        let (ty, held) = (sent.ty, &stream.mirror[sent.ty]);
        let asks = held.wanted & names_of_list(list) != 0 || (list == 0 && held.wildcard);
        let told = (sent.put_mask() | sent.removed) & names_of_list(list);
        if !asks && told == 0 {
            return;
        }
        let is_full = held.is_full(ty, stream.variant);
        let source = &self.slots[slot].reference;
        // While a lower server serves, a name that it lacks is as the higher one supplied it (RLY-42); and what only the one
        // before had may be withheld (RLY-51).
        let here = stream.lists.of(list, ty);
        let first = self.slot_at(stream, here, 0);
        let others = [Some(first), self.second_of(stream, here)].into_iter().flatten();
        let others = others.filter(|other| *other != slot && self.plan.fallback);
        // A stream that came from another class, or from other lists, may keep what only the former sources had.
        let former = self.all_slots_of(list).filter(|of| *of != slot && self.came_lately(stream));
        let of_list: Vec<&Source> = others.map(|other| &self.slots[other].reference).collect();
        let came_at = stream.came_at.unwrap_or_default();
        let former = former.map(|other| (&self.slots[other].reference, self.slots[other].moment_at(came_at)));
        let others: Vec<Other<'_>> = of_list.iter().map(|of| (*of, of.moment)).chain(former).collect();
        let is_lower = slot != first;
        let higher = if is_lower { of_list.as_slice() } else { &[] };
        let last = self.clients[stream.client].explained.get(&slot).map_or(0, |moments| moments[ty]);
        let mut why = None;
        let mut moment = last;
        let names = names_of_list(list);
        while moment <= source.moment {
            match holds_at(higher, &others, source, sent, held, names, is_full, moment) {
                Ok(()) => break,
                Err(unexplained) => why = Some(unexplained),
            }
            moment += 1;
        }
        if moment <= source.moment {
            self.clients[stream.client].explained.entry(slot).or_default()[ty] = moment;
            return;
        }
        let is_old = (0..last)
            .any(|moment| holds_at(higher, &others, source, sent, held, names, is_full, moment).is_ok());
        // Each name is as it was at some moment, and not all at the same one.
        let is_torn = bits(names).all(|name| {
            (last..=source.moment).any(|moment| {
                holds_at(higher, &others, source, sent, held, bit(name), is_full, moment).is_ok()
            })
        });
        let Some(why) = why else { return };
        let who = self.show_stream(stream);
        let is_mixed = is_lower || (self.plan.fallback && why.invariant == Invariant::Isolation);
        let invariant = match (is_old, is_mixed) {
            (true, _) => Invariant::NoGoingBack,
            _ if is_torn => Invariant::AtomicResponses,
            (false, true) => Invariant::Revert,
            (false, false) => why.invariant,
        };
        self.fail(invariant, || format!("{who}, {} of list {list}, of slot {slot}: {}", SHORT[ty], why.text));
    }

    /// Names that a client asks for and of which nobody knows whether they exist.
    fn unknown_names(&self, stream: &StreamSlot, ty: usize) -> Mask {
        let unknown = (0..2).flat_map(|list| {
            let names = &self.slots[self.slot_of(stream, list, ty)].reference.names[ty];
            let wanted = stream.mirror[ty].wanted & names_of_list(list);
            bits(wanted).filter(|name| names[*name].state() == State::Unknown)
        });
        unknown.fold(0, |mask, name| mask | bit(name))
    }

    /// RLY-50: no routing type runs ahead of the clusters and endpoints that were there before it.
    fn judge_order(&mut self, stream: &StreamSlot, sent: &Sent) {
        let overdue = stream.is_round || self.now >= stream.routes_free_at + HOLD;
        if !is_routing(sent.ty) || overdue || !stream.watches.is_empty() {
            return;
        }
        self.judge_firsts(stream, sent);
        for list in 0..2 {
            let slot = self.slot_of(stream, list, sent.ty);
            let explained = self.clients[stream.client].explained.get(&slot).copied().unwrap_or_default();
            let source = &self.slots[slot].reference;
            let route = explained[sent.ty];
            // Types that other servers serve are not comparable.
            for ty in [CDS, EDS].into_iter().filter(|ty| self.slot_of(stream, list, *ty) == slot) {
                let held = &stream.mirror[ty];
                let is_full = held.is_full(ty, stream.variant);
                let due = |name: usize| due_of(source, ty, name, held, is_full, source.moment);
                // A set that waits for a name (RLY-5) cannot be sent, and the routing types do not wait for it: it may wait for
                // ever (ORD-10). The first one may wait for names without a sign.
                let waits_for = |name: usize| held.nonce.is_empty() || held.needs(name);
                let is_open = is_full
                    && (held.wildcard && !source.complete[ty]
                        || bits(self.plan.names).any(|name| due(name) == State::Unknown && waits_for(name)));
                // Without a resource no route names a cluster of a set that waits (ADR 52).
                let is_free = sent.put.is_empty() && source.is_provisional(ty);
                if !held.asked || is_open || is_free {
                    continue;
                }
                let behind = bits(names_of_list(list)).find(|name| {
                    let State::Present(content) = due_of(source, ty, *name, held, is_full, route) else {
                        return false;
                    };
                    let changed = source.names[ty][*name]
                        .changed_at(route)
                        .max(source.members[ty][*name].changed_at(route));
                    // What is gone again by now, or has changed since, may be so in the snapshot that the route was taken from.
                    let stands = due(*name) == State::Present(content)
                        && source.names[ty][*name]
                            .changed_at(source.moment)
                            .max(source.members[ty][*name].changed_at(source.moment))
                            == changed;
                    // Where its own subscription knows nothing of it yet, the client keeps what it has. Where that knows it to be
                    // gone, what the wildcard has comes with the next response, and routes do not wait for it.
                    let own = source.names[ty][*name].state();
                    let is_open = held.wanted & bit(*name) != 0
                        && (own == State::Unknown || (held.wildcard && own == State::Absent));
                    stands
                        && !is_open
                        && held.resources[*name] != content
                        && explained[ty] < changed
                        && changed < route
                });
                if let Some(name) = behind {
                    let who = self.show_stream(stream);
                    let text =
                        format!("{who} is sent {} before {} {}", SHORT[sent.ty], SHORT[ty], show(bit(name)));
                    return self.fail(Invariant::Order, || text);
                }
            }
        }
    }

    // === what sources hold ===

    /// The snapshot of a source is what the reference says.
    pub fn compare(&mut self, slot: usize) {
        if self.failure.is_some() {
            return;
        }
        let snapshot = self.slots[slot].snapshot.clone();
        for ty in 0..TYPES {
            let types = snapshot.of(&self.words.types[ty]);
            let wanted = self.slots[slot].reference.wanted(ty);
            let known = types.map_or(0, |types| self.words.mask_of(types.names.entries.keys()));
            if known != wanted {
                let invariant =
                    if known & !wanted != 0 { Invariant::Hygiene } else { Invariant::UpstreamEconomy };
                let (known, wanted) = (show(known), show(wanted));
                return self.fail(invariant, || {
                    format!("slot {slot} keeps {} {known}, and {wanted} are wanted", SHORT[ty])
                });
            }
            for name in bits(known) {
                let known =
                    types.and_then(|types| types.names.entries.get(&self.words.names[ty][name])).cloned();
                self.compare_name(slot, ty, name, &known.unwrap_or_default());
            }
            if let Some(types) = types {
                self.judge_restored(slot, ty, snapshot.standing());
                self.judge_errors(slot, ty, types);
            }
            let wildcard = types.and_then(|types| types.wildcard.view.as_ref());
            let reference = &self.slots[slot].reference;
            if wildcard.is_some() != reference.wants_wildcard(ty) {
                return self.fail(Invariant::Hygiene, || {
                    format!("slot {slot} keeps a {} wildcard, or none", SHORT[ty])
                });
            }
            if let (Some(view), Some(types)) = (wildcard, types) {
                if view.is_complete() != reference.complete[ty] {
                    let is_early = view.is_complete();
                    let invariant =
                        if is_early { Invariant::JustifiedRemoval } else { Invariant::NoLostUpdate };
                    return self.fail(invariant, || {
                        format!("slot {slot} takes {} for whole: {is_early}", SHORT[ty])
                    });
                }
                self.judge_provisional(slot, ty, snapshot.standing());
                for name in bits(self.plan.names) {
                    let member = types
                        .wildcard
                        .members
                        .get(&self.words.names[ty][name])
                        .map(|cached| read(&cached.resource).3);
                    let due = match self.slots[slot].reference.members[ty][name].state() {
                        State::Present(content) => Some(content),
                        State::Unknown | State::Absent => None,
                    };
                    self.compare_content(slot, ty, name, "member", member, due);
                }
            }
        }
        if let Some(ty) = self.slots[slot].reference.is_early.filter(|_| !self.plan.pauses) {
            self.fail(Invariant::JustifiedRemoval, || {
                format!(
                    "slot {slot} takes {} for whole, and more of the first answer is on its way",
                    SHORT[ty]
                )
            });
        }
        self.judge_held_back(slot);
        self.judge_memory(slot);
    }

    /// ADR 52: a wildcard is provisional until nothing more of it can come from the server's first answers.
    fn judge_provisional(&mut self, slot: usize, ty: usize, standing: &Standing) {
        let standing = standing.of(&self.words.types[ty]);
        let is_provisional = standing.is_some_and(|standing| standing.is_provisional);
        if is_provisional != self.slots[slot].reference.is_provisional(ty) {
            self.fail(Invariant::JustifiedRemoval, || {
                format!("slot {slot} has a provisional {} wildcard: {is_provisional}", SHORT[ty])
            });
        }
    }

    /// FU18: what is told to be held back is what is.
    fn judge_held_back(&mut self, slot: usize) {
        let Slot { source: Some(source), reference, .. } = &self.slots[slot] else { return };
        if reference.guard.hold.is_none() {
            return;
        }
        let types = &self.words.types;
        let wrong = (0..TYPES).find(|ty| source.held_back(&types[*ty]) != reference.guard.count(*ty));
        if let Some(ty) = wrong {
            let (found, due) = (source.held_back(&types[ty]), reference.guard.count(ty));
            self.fail(Invariant::JustifiedRemoval, || {
                format!("slot {slot} holds {found} deletions of {} back, and should {due}", SHORT[ty])
            });
        }
    }

    fn compare_name(&mut self, slot: usize, ty: usize, name: usize, known: &Known) {
        let now = self.now;
        let reference = &mut self.slots[slot].reference;
        let state = reference.names[ty][name].state();
        match (known, state) {
            (Known::Unknown, State::Unknown) if !reference.is_overdue(ty, name, now) => {}
            (Known::Absent(_), State::Absent) => {}
            (Known::Absent(Cause::Timeout), State::Unknown) if reference.time_out(ty, name, now) => {}
            (Known::Absent(cause), state) => {
                let invariant =
                    if *cause == Cause::Expired { Invariant::Ttl } else { Invariant::JustifiedRemoval };
                self.fail(invariant, || {
                    format!(
                        "slot {slot} takes {} {} for absent ({cause:?}), which is {state:?}",
                        SHORT[ty],
                        show(bit(name))
                    )
                });
            }
            (known, state) => {
                let found = known.resource().map(|resource| read(resource).3);
                let due = if let State::Present(content) = state { Some(content) } else { None };
                if due.is_none() && found.is_none() {
                    return self.fail(Invariant::NoLostUpdate, || {
                        format!(
                            "slot {slot} knows nothing of {} {}, which is absent",
                            SHORT[ty],
                            show(bit(name))
                        )
                    });
                }
                self.compare_content(slot, ty, name, "name", found, due);
            }
        }
    }

    fn compare_content(
        &mut self,
        slot: usize,
        ty: usize,
        name: usize,
        what: &str,
        found: Option<Content>,
        due: Option<Content>,
    ) {
        if found == due {
            return;
        }
        let reference = &self.slots[slot].reference;
        let track = if what == "name" { &reference.names[ty][name] } else { &reference.members[ty][name] };
        let invariant = match (found, due) {
            (Some(_), None) if track.has_expired => Invariant::Ttl,
            (None, Some(_)) => Invariant::JustifiedRemoval,
            _ => Invariant::NoLostUpdate,
        };
        self.fail(invariant, || {
            let text = |content: Option<Content>| content.map_or("nothing".to_owned(), show_content);
            format!(
                "slot {slot} has {} as the {} {what} {}, which is {}",
                text(found),
                SHORT[ty],
                show(bit(name)),
                text(due)
            )
        });
    }

    /// I8: nothing keeps old snapshots but streams that are in the middle of something.
    fn judge_memory(&mut self, slot: usize) {
        let streams = self.streams.iter().flatten().count();
        let published = &mut self.slots[slot].published;
        if published.len() < 24 {
            return;
        }
        published.retain(|snapshot| snapshot.strong_count() > 0);
        let kept = published.len();
        // A type that moved to another server keeps the former server's snapshot for a while, and the stream in
        // hand is not among the streams.
        let kept_max = match self.slots[slot].wire {
            Wire::Aggregated => 3 + 2 * streams,
            Wire::PerType | Wire::Rest => 3 + (2 + TYPES) * (streams + 1),
        };
        if kept > kept_max {
            self.fail(Invariant::BoundedMemory, || {
                format!("slot {slot}: {kept} snapshots are kept by {streams} streams")
            });
        }
    }

    // === what servers are asked ===

    pub fn judge_written(&mut self, slot: usize, index: usize, request: &Request) {
        let url = match request {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        };
        let Some(ty) = self.words.types.iter().position(|known| known.as_str() == url) else { return };
        let now = self.now;
        let listed = |world: &World| {
            let stream = world.slots[slot].reference.streams.get(index).and_then(Option::as_ref);
            stream.map(|stream| (stream.types[ty].listed, stream.types[ty].asked)).unwrap_or_default()
        };
        let (before, asked) = listed(self);
        let claims = match request {
            Request::Sotw(request) => !request.version_info.is_empty(),
            Request::Delta(request) => {
                let mut versions = request.initial_resource_versions.iter();
                versions.len() > 0 && versions.all(|(_, version)| !version.is_empty())
            }
        };
        self.slots[slot].reference.claims(index, ty, claims);
        let (add, remove, star) = match request {
            Request::Sotw(request) => {
                let mask = self.words.mask_of(&request.resource_names);
                let star = request.resource_names.iter().any(|name| name.is_wildcard());
                (mask & !before, before & !mask, star || request.resource_names.is_empty())
            }
            Request::Delta(request) => {
                let star =
                    request.subscribe.iter().any(|name| name.is_wildcard()) || request.subscribe.is_empty();
                // Where other servers stand in for it, it must be given something to say (RLY-44).
                let provoking = usize::from(self.plan.fallback);
                let claims = request.initial_resource_versions.iter().enumerate();
                for (name, version) in claims
                    .filter(|(at, (_, version))| *at >= provoking || !version.is_empty())
                    .map(|(_, claim)| claim)
                {
                    let Some(name) = self.words.name_of(name) else { continue };
                    if asked || !self.slots[slot].reference.holds(ty, name, version) {
                        self.fail(Invariant::NoLostUpdate, || {
                            format!(
                                "slot {slot} claims {} {} in version {version:?}",
                                SHORT[ty],
                                show(bit(name))
                            )
                        });
                    }
                }
                (self.words.mask_of(&request.subscribe), self.words.mask_of(&request.unsubscribe), star)
            }
        };
        let reference = &mut self.slots[slot].reference;
        let twice = reference.wrote(index, ty, add, remove, star, now);
        let gives_up_wildcard = match request {
            Request::Delta(request) => request.unsubscribe.iter().any(|name| name.is_wildcard()),
            Request::Sotw(request) => {
                asked && request.resource_names.is_empty() && !self.plan.legacy_wildcard
            }
        };
        if gives_up_wildcard {
            reference.unsubscribed_wildcard(index, ty);
        }
        if twice != 0 {
            self.fail(Invariant::UpstreamEconomy, || {
                format!("slot {slot}.{index} asks twice for {} {}", SHORT[ty], show(twice))
            });
        }
    }

    /// I6: what a server is asked for is what is wanted or lingers, but for the time that changes are gathered.
    pub fn judge_listed(&mut self, slot: usize) {
        let (now, within) = (self.now, self.plan.gather + 20 * MILLI);
        let mut late = None;
        let legacy = self.plan.legacy_wildcard;
        let Slot { reference, source, .. } = &mut self.slots[slot];
        // A poll's names are judged when it is written.
        if reference.polls {
            return reference.want_polls(now);
        }
        let wanted: [Mask; TYPES] = std::array::from_fn(|ty| reference.wanted(ty));
        let streams = reference.streams.iter_mut().enumerate();
        for (index, stream) in streams.filter_map(|(index, stream)| Some((index, stream.as_mut()?))) {
            for (ty, said) in
                stream.types.iter_mut().enumerate().filter(|(_, said)| said.asked && !said.wildcard)
            {
                let is_here =
                    kind_of(source.as_ref(), index, &self.words.types[ty]) == Some(CollectionKind::Names);
                let wanted = if is_here { wanted[ty] } else { 0 };
                if said.listed == wanted || (legacy && wanted == 0) {
                    said.differs_since = None;
                } else if now > *said.differs_since.get_or_insert(now) + within {
                    late = Some((ty, said.listed));
                }
            }
        }
        if let Some((ty, listed)) = late {
            self.fail(Invariant::UpstreamEconomy, || {
                format!(
                    "slot {slot} asks for {} {}, and {} are wanted",
                    SHORT[ty],
                    show(listed),
                    show(wanted[ty])
                )
            });
        }
    }

    /// CLI-4: a server that does not answer is not asked again at once.
    pub fn judge_retry(&mut self, slot: usize, index: usize, answered: bool, retry_in: Duration) {
        let server = self.slots[slot].server;
        let refuses_delta = !self.servers[server].delta;
        if !answered && !refuses_delta && retry_in < Duration::from_millis(790) {
            self.fail(Invariant::Hygiene, || format!("slot {slot}.{index} tries again in {retry_in:?}"));
        }
        if retry_in > Duration::from_secs(37) {
            self.fail(Invariant::Convergence, || {
                format!("slot {slot}.{index} tries again in {retry_in:?} only")
            });
        }
    }
}

/// Which collection of a type the engine has put on a stream; that is its own affair.
pub fn kind_of(
    source: Option<&sluice_engine::source::Source>,
    index: usize,
    type_url: &TypeUrl,
) -> Option<CollectionKind> {
    match source?.attachment() {
        Attachment::Streams(streams) => streams.kind_of(index, type_url),
        Attachment::Files(_) => None,
    }
}

/// Whether all that a response says of these names was true after the response of the server with this number.
#[allow(clippy::too_many_arguments, reason = "the response, who gets it, and what it is held against")]
fn holds_at(
    higher: &[&Source],
    others: &[Other<'_>],
    source: &Source,
    sent: &Sent,
    held: &Held,
    names: Mask,
    is_full: bool,
    moment: u32,
) -> Result<(), Unexplained> {
    let ty = sent.ty;
    let told = sent.put_mask() | sent.removed;
    for name in bits(names).filter(|name| is_full || told & bit(*name) != 0) {
        let due = due_of(source, ty, name, held, is_full, moment);
        let found = sent.content(name);
        let (names, members) = (&source.names[ty][name], &source.members[ty][name]);
        let is_last = |content: Content| {
            names.last_content(moment) == Some(content) || members.last_content(moment) == Some(content)
        };
        let because = |invariant: Invariant| {
            let found = found.map_or("gone".to_owned(), show_content);
            let text = format!(
                "{} is told as {found}, and was never {due:?} together with the rest",
                show(bit(name))
            );
            Err(Unexplained { invariant, text: text.replace("never", "at last") })
        };
        match (found, due) {
            (Some(found), State::Present(content)) if found == content => {}
            // What left the cluster side is withheld, or sent once more behind its cluster, with its last bytes (RLY-51, SST-6).
            (Some(found), State::Absent | State::Unknown)
                if is_cluster_side(ty)
                    && (held.mask() | held.known) & bit(name) != 0
                    && is_last(found)
                    && due_is_gone(due, is_full) => {}
            (Some(found), _)
                if !matches!(names.state_at(moment), State::Present(_))
                    && stands_in(others, held, ty, name, found) => {}
            (Some(found), State::Absent | State::Unknown)
                if is_cluster_side(ty)
                    && !others.is_empty()
                    && held.resources[name] != 0
                    && (held.resources[name] == found || was_supplied(others, ty, name, found)) => {}
            (Some(_), State::Present(_)) => return because(Invariant::NoLostUpdate),
            (Some(_), _) => return because(Invariant::Isolation),
            // A lower server's word deletes nothing that the higher one supplied (RLY-42).
            (None, State::Absent) if held.resources[name] != 0 && is_supplied(higher, held, ty, name) => {
                return because(Invariant::JustifiedRemoval);
            }
            // Content from elsewhere, that the server may send yet.
            (None, State::Absent)
                if source.is_provisional(ty)
                    && held.brings(name)
                    && members.last_content(moment).or(names.last_content(moment)).is_none() =>
            {
                return because(Invariant::JustifiedRemoval);
            }
            (None, State::Absent) => {}
            // A name that the client cannot have (RLY-5).
            (None, State::Unknown)
                if is_full && !is_of_wildcard(held, name, members.state_at(moment)) && !held.needs(name) => {}
            (None, State::Unknown) if !is_full && sent.removed & bit(name) == 0 => {}
            (None, _) => return because(Invariant::JustifiedRemoval),
        }
    }
    Ok(())
}

/// A wildcard is never told in part.
fn is_of_wildcard(held: &Held, name: usize, member: State) -> bool {
    held.wildcard && is_old(name) && member == State::Unknown
}

/// A named resource that the other server of the list has.
fn is_supplied(others: &[&Source], held: &Held, ty: usize, name: usize) -> bool {
    let has = |other: &&Source| matches!(other.names[ty][name].state(), State::Present(_));
    held.wanted & bit(name) != 0 && others.iter().any(has)
}

/// Another source, and the moment since which its content may be last bytes.
type Other<'a> = (&'a Source, u32);

/// What another server of the list had last, or the former class when the stream left, and since.
fn was_supplied(others: &[Other<'_>], ty: usize, name: usize, found: Content) -> bool {
    others.iter().any(|(other, since)| {
        let tracks = [&other.names[ty][name], &other.members[ty][name]];
        let mut contents = [found, of_other_class(found)].into_iter();
        contents.any(|content| tracks.iter().any(|track| track.had_since(content, *since)))
    })
}

/// A named resource as another server of the list supplies it.
fn stands_in(others: &[Other<'_>], held: &Held, ty: usize, name: usize, found: Content) -> bool {
    let supplied = |(other, _): &Other<'_>| other.names[ty][name].last_content(other.moment) == Some(found);
    held.wanted & bit(name) != 0 && others.iter().any(supplied)
}

/// Of a complete set, nothing may be unknown (RLY-5).
fn due_is_gone(due: State, is_full: bool) -> bool {
    due == State::Absent || !is_full
}

/// Clusters were sent that take endpoints: those that changed, are new, or are in `again`, have to be sent with their endpoints
/// (ORD-5).
fn expect_endpoints(stream: &mut StreamSlot, sent: &Sent, before: [Content; NAMES], again: Mask) {
    for (name, content) in sent.put.iter().filter(|(_, content)| has_endpoints(*content)) {
        let is_changed = before[*name] != *content;
        if !is_changed && again & bit(*name) == 0 {
            continue;
        }
        let endpoints = &mut stream.mirror[EDS];
        endpoints.due |= bit(*name);
        if is_changed {
            let holds = endpoints.resources[*name] != 0 && endpoints.wanted & bit(*name) != 0;
            stream.forced |= if holds { bit(*name) } else { 0 };
            stream.early |= if stream.mirror[EDS].asked { 0 } else { bit(*name) };
        }
    }
}
