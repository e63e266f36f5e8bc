//! The invariants of releases, at every publication and every response.

use std::sync::Arc;

use sluice_engine::cache::Known;
use sluice_engine::snapshot::Snapshot;
use sluice_xds::Request;

use super::client::Want;
use super::content::{GATED, cluster_of, is_gated};
use super::reference::{Contents, Releases};
use super::relay::{Given, Judged, Open, Stream};
use super::world::{Table, World};
use crate::removals::REST;
use crate::schedule::{MILLI, SECOND};
use crate::words::{
    CDS, EDS, LDS, Mask, OLD, RDS, SHORT, TYPES, bit, bits, read, show, show_content, version,
};
use crate::world::Invariant;

impl World {
    // === publications ===

    /// The releases that a unit publishes are those of the reference.
    pub fn judge_published(&mut self, unit: usize) {
        self.note_routes_of(unit);
        let published = self.units[unit].published.clone();
        let of = &self.reference.units[unit];
        let (lanes, is_holding) = (published.lanes.as_deref(), of.stable.is_some());
        if lanes.is_some() != is_holding {
            return self.fail(self.for_lanes(), || {
                format!("unit {unit} holds: {}, and should: {is_holding}", !is_holding)
            });
        }
        let Some(lanes) = lanes else { return };
        let candidate = of.candidate.as_ref().map(|(push, _)| *push);
        if lanes.candidate.as_ref().map(|(push, _)| *push) != candidate {
            return self.fail(Invariant::OneRelease, || format!("unit {unit} has not push {candidate:?}"));
        }
        let stable = of.stable.clone().map(|own| ("stable", (own, lanes.stable.clone())));
        let candidate = of.candidate.clone().zip(lanes.candidate.clone());
        let candidate = candidate.map(|((_, own), (_, of))| ("the candidate", (own, of)));
        for (who, (own, snapshot)) in stable.into_iter().chain(candidate) {
            self.judge_lane(unit, who, &own, &snapshot);
        }
    }

    /// The invariant for gated content of a lane that is not the release's.
    fn for_lanes(&self) -> Invariant {
        if self.reference.pin.is_some() { Invariant::PinFreeze } else { Invariant::OneRelease }
    }

    fn judge_lane(&mut self, unit: usize, who: &str, own: &Contents, snapshot: &Arc<Snapshot>) {
        let found = Contents::of(&self.words, snapshot);
        let live = self.reference.units[unit].live.clone();
        for ty in [CDS, EDS, LDS, RDS] {
            let invariant = if is_gated(ty) { self.for_lanes() } else { Invariant::Flow };
            for name in 0..OLD {
                let (expected, found) = (own.names.get(&(ty, name)), found.names.get(&(ty, name)));
                if expected == found {
                    continue;
                }
                let is_held_back = found.is_none() && live.names.contains_key(&(ty, name));
                let invariant = if is_held_back { Invariant::Newcomers } else { invariant };
                let text = format!(
                    "{who} of unit {unit} has {} {} = {found:?}, and should have {expected:?}",
                    SHORT[ty],
                    show(bit(name))
                );
                return self.fail(invariant, || text);
            }
            if is_gated(ty) && own.members[ty] != found.members[ty] {
                let is_held_back = found.members[ty].is_none();
                let invariant = if is_held_back { Invariant::Newcomers } else { invariant };
                let text = format!(
                    "{who} of unit {unit} has all {} = {:?}, and should have {:?}",
                    SHORT[ty], found.members[ty], own.members[ty]
                );
                return self.fail(invariant, || text);
            }
            self.judge_views(unit, who, ty, snapshot);
        }
    }

    /// The views of a release show the release's content.
    fn judge_views(&mut self, unit: usize, who: &str, ty: usize, snapshot: &Arc<Snapshot>) {
        let Some(of) = snapshot.of(&self.words.types[ty]) else { return };
        let lives = self.units[unit].live.of(&self.words.types[ty]).cloned().unwrap_or_default();
        for (id, live) in lives.names.sets.iter() {
            let Some(set) = of.names.sets.get(id) else {
                return self.fail(Invariant::Newcomers, || format!("{who} of unit {unit} lacks a set"));
            };
            for name in live.names.iter() {
                let known = of.names.entries.get(name).cloned().unwrap_or_default();
                let shown = set.view.version_of(name);
                let due = known.resource().map(|resource| {
                    let (ty, name, class, content) = read(resource);
                    version(ty, name, class, content)
                });
                let is_known = shown.is_some() || set.view.knows_absent(name);
                if shown != due || is_known == matches!(known, Known::Unknown) {
                    let text = format!("a view of {who} of unit {unit} shows {} {name} wrong", SHORT[ty]);
                    return self.fail(Invariant::OneRelease, || text);
                }
            }
        }
    }

    // === requests ===

    /// The contents that a reconnecting client presents.
    pub fn reference_presents(&mut self, id: u64, has: &Table) {
        if let Some(Some(stream)) = self.streams.get_mut(id as usize) {
            (stream.of.sent, stream.of.accepted) = (*has, *has);
        }
    }

    pub fn judge_request(&mut self, stream: &mut Stream, request: &Request) {
        let (url, nonce, error) = match request {
            Request::Sotw(of) => (&of.type_url, &of.response_nonce, &of.error_detail),
            Request::Delta(of) => (&of.type_url, &of.response_nonce, &of.error_detail),
        };
        let Some(ty) = self.words.types.iter().position(|known| known.as_str() == url) else { return };
        let former = stream.of.wants[ty];
        stream.of.wants[ty] = match request {
            Request::Sotw(of) => Want {
                names: self.words.mask_of(&of.resource_names),
                wildcard: of.resource_names.iter().any(|name| name.is_wildcard()),
            },
            Request::Delta(of) => {
                let has_star = |list: &[sluice_xds::ResourceName]| list.iter().any(|name| name.is_wildcard());
                let (add, remove) = (self.words.mask_of(&of.subscribe), self.words.mask_of(&of.unsubscribe));
                Want {
                    names: former.names & !remove | add,
                    wildcard: former.wildcard && !has_star(&of.unsubscribe) || has_star(&of.subscribe),
                }
            }
        };
        let want = stream.of.wants[ty];
        stream.of.known[ty] |= self.presented(request);
        for name in (0..OLD).filter(|name| !want.covers(*name)) {
            (stream.of.sent[ty][name], stream.of.accepted[ty][name]) = (0, 0);
            stream.of.known[ty] &= !bit(name);
        }
        // Who asks by name instead of by the wildcard, or the other way round, gave up what it asked for before.
        let has_left =
            |name: &usize| former.names & !want.names & bit(*name) != 0 || former.wildcard && !want.wildcard;
        let left = (0..OLD).filter(has_left).fold(0, |mask: Mask, name| mask | bit(name));
        stream.of.open[ty].iter_mut().for_each(|open| open.given_up |= left);
        stream.of.give_up(ty, (left, left & former.names), want);
        if ty == CDS && self.clients[stream.client].plan.delta {
            let by_name = if want.wildcard { former.names } else { 0 };
            stream.of.left_by_name = (stream.of.left_by_name | by_name) & !want.names;
        }
        if former != want || !stream.of.has_asked[ty] {
            let is_first = !std::mem::replace(&mut stream.of.has_asked[ty], true);
            self.await_answer(stream, ty, (former, is_first));
        }
        let Some(at) = stream.of.open[ty].iter().position(|open| open.nonce == *nonce) else { return };
        let answered: Vec<Open> = stream.of.open[ty].drain(..=at).collect();
        stream.of.rejected[ty] = error.is_some();
        stream.of.has_accepted[ty] |= error.is_none();
        if error.is_none() {
            let accepted = &mut stream.of.accepted[ty];
            for open in &answered {
                stream.of.answered_without[ty] |= stream.of.dropped[ty] & !open.given_up;
                if open.is_full {
                    // The removals of a set that the client rejected before, too.
                    *accepted = [0; OLD];
                }
                bits(open.removed).filter(|name| *name < OLD).for_each(|name| accepted[name] = 0);
                // Of a name that the client gave up meanwhile there is nothing to accept.
                let put = open.put.iter().filter(|(name, _)| want.covers(*name));
                put.for_each(|(name, content)| accepted[*name] = *content);
            }
        }
        if let (Some(error), Some(open)) = (error, answered.last()) {
            let is_latest = stream.of.open[ty].is_empty();
            self.reference_rejects(stream, ty, open, &error.message);
            // The verdict on the latest response covers those that the client left unanswered (NON-5).
            for skipped in answered.iter().rev().skip(1).filter(|_| is_latest) {
                self.reference_rejects_content(stream, ty, skipped);
            }
        }
    }

    /// The names in what a delta request presents.
    fn presented(&self, request: &Request) -> Mask {
        let Request::Delta(of) = request else { return 0 };
        let names = of.initial_resource_versions.iter().filter_map(|(name, _)| self.words.name_of(name));
        names.fold(0, |all, name| all | bit(name))
    }

    /// The names that the relay finds in what a SotW request presented, by type: the version of the whole set is that of the release
    /// when the relay looks for the first answer.
    pub fn found_as_presented(&self, stream: &Stream) -> [Mask; TYPES] {
        let mut found = [0; TYPES];
        if self.clients[stream.client].plan.delta {
            return found;
        }
        let (_, release) = self.release_for(stream.place(), stream.of.push);
        for ty in [CDS, LDS].into_iter().filter(|ty| stream.of.wants[*ty].wildcard) {
            let is_first = stream.of.has_asked[ty] && !stream.of.is_answered[ty];
            if is_first && release.members[ty] == Some(stream.of.sent[ty]) {
                let names = (0..OLD).filter(|name| stream.of.sent[ty][*name] != 0);
                found[ty] = names.fold(0, |all, name| all | bit(name));
            }
        }
        found
    }

    // === responses ===

    pub fn judge_given(&mut self, stream: &mut Stream, given: &Given) {
        let (ty, want) = (given.ty, stream.of.wants[given.ty]);
        stream.of.awaited.end(given, self.now);
        stream.of.is_answered[ty] = true;
        self.settle_push(stream, given);
        let (push, release) = self.release_for(stream.place(), stream.of.push);
        let (lacks, release) = (release.lacks(ty, want), release.into_owned());
        let foreign = given.put.iter().filter(|of| !self.is_due(stream, given, **of, &release));
        for (name, content) in foreign.copied().collect::<Vec<_>>() {
            self.judge_foreign(stream, ty, name, (content, release.for_want(ty, name, want)));
        }
        let omitted = bits(left_out(given)).filter(|name| stream.of.sent[ty][*name] != 0);
        let removed = omitted.fold(given.removed, |mask: Mask, name| mask | bit(name));
        self.judge_removed(stream, (ty, removed), &release);
        if ty == RDS {
            self.judge_routes(stream, given, &release);
        }
        // Of what a client brings along the relay may not know what the client has to lose.
        let lost = removed & stream.of.known[ty];
        let given_up = std::mem::take(&mut stream.of.given_up[ty]);
        // A name that was first asked for after the cut is none of the push, but may have the push's content.
        let brings = |lost: Mask, of: fn(&Releases) -> Option<(&Contents, &Contents)>| -> Vec<_> {
            let of_push = push.iter().flat_map(|push| self.releases_with(stream.unit, (want, lacks), *push));
            let of_push = of_push.filter_map(|(want, releases)| Some((want, of(releases)?)));
            of_push.flat_map(|(want, of)| brings_between(of, want, given, lost)).collect()
        };
        let has = push.filter(|_| !brings(lost, Releases::lanes).is_empty());
        // A client that may have rejected a push may have what it lost, too, and is told of the loss again (WAV-10).
        let may_lose = self.reference.may_have_rejected(self.clients[stream.client].plan.node);
        // Content of a higher server in the place of what the push removes is a removal, too (RLY-42).
        let other = given.put.iter().filter(|(name, content)| stream.of.sent[ty][*name] != *content);
        let replaced = other.fold(0, |all: Mask, (name, _)| all | bit(*name));
        let is_lost = |lost| !brings(lost, Releases::lanes).is_empty();
        let left_out = if may_lose && (replaced | removed) == 0 { left_out(given) } else { 0 };
        if has.is_none() && (may_lose && is_lost(removed) || is_lost(replaced | left_out)) {
            stream.of.equal = push;
            stream.of.retold = push.filter(|_| is_lost(left_out)).or(stream.of.retold);
        }
        // What the client gave up, had before, or had from the server before in the list, may be nothing of the push.
        let is_own = push.is_some_and(|push| {
            let own = self.reference.units[stream.unit].lanes_with(push);
            let sent = &stream.of.sent[ty];
            let is_new = |(name, content): &(usize, u32)| sent[*name] != *content;
            own.is_some_and(|own| brings_between(own, want, given, lost & !given_up).iter().any(is_new))
        });
        let may_be_back = has.is_some() && !is_own;
        let of_push = brings(lost, Releases::latest_cut);
        stream.of.may_be_back |= may_be_back;
        let brings = push.filter(|_| !of_push.is_empty());
        stream.of.note_told(given, want, removed);
        // A route may come to lead to a cluster whose removal has rested.
        self.note_routes_left(stream, &release);
        let ever = &mut self.clients[stream.client].ever;
        ever.extend(given.put.iter().map(|(name, content)| (ty, *name, *content)));
        let (nonce, at, put, is_full) = (given.nonce.clone(), self.now, given.put.clone(), given.is_full);
        let beside = brings.or(stream.of.open[ty].back().and_then(|open| open.beside));
        stream.of.open[ty].push_back(Open {
            nonce,
            at,
            unit: stream.unit,
            push: brings,
            of_push,
            beside,
            put,
            removed,
            given_up: 0,
            is_full,
        });
        stream.of.push = has.or(stream.of.push.filter(|_| push.is_some()));
    }

    /// Names that a response takes from the client.
    fn judge_removed(&mut self, stream: &Stream, (ty, removed): (usize, Mask), release: &Contents) {
        let want = stream.of.wants[ty];
        for name in bits(removed).filter(|name| *name < OLD) {
            let due = release.for_want(ty, name, want);
            let is_late =
                || ty == EDS && (self.was_newest(stream, (name, 0)) || self.stood_in(stream, ty, (name, 0)));
            if due.is_some_and(|due| due != 0) && want.covers(name) && !is_late() {
                self.judge_foreign(stream, ty, name, (0, due));
            }
            if ty == CDS && stream.of.sent[CDS][name] != 0 {
                self.judge_removal(stream, name, release);
            }
        }
    }

    /// Whether a client of this release may be sent the content.
    fn is_due(
        &self,
        stream: &Stream,
        given: &Given,
        (name, content): (usize, u32),
        release: &Contents,
    ) -> bool {
        let (ty, want) = (given.ty, stream.of.wants[given.ty]);
        let due = release.for_want(ty, name, want);
        let is_gone = due.is_none_or(|due| due == 0);
        !want.covers(name)
            || due == Some(content)
            || due.is_none() && self.stands_in(stream, ty, (name, content))
            || is_gone && self.is_last(stream, ty, (name, content))
            || due == Some(0) && self.is_restated(stream, given, (name, content))
            || ty == EDS && self.was_newest(stream, (name, content))
            || (ty == EDS || stream.of.sent[ty][name] == 0) && self.stood_in(stream, ty, (name, content))
    }

    /// Whether a client that may have rejected the push has this content in its place.
    fn is_restated(&self, stream: &Stream, given: &Given, (name, content): (usize, u32)) -> bool {
        let (ty, node) = (given.ty, self.clients[stream.client].plan.node);
        let of_node = self.clients.iter().filter(|client| client.plan.node == node);
        let mut of_node = of_node.filter(|client| client.ever.contains(&(ty, name, content)));
        // A complete set keeps what the client may have of the rejected push, with bytes that everybody may have.
        let is_kept = given.is_full && self.was_given(stream, ty, (name, content));
        self.reference.may_have_rejected(node) && (is_kept || of_node.next().is_some())
    }

    /// The push that a client has content of, where the responses so far leave it open.
    fn settle_push(&self, stream: &mut Stream, given: &Given) {
        let is_whole = |had| self.is_from(stream, given, had);
        if stream.of.may_be_back && !is_whole(stream.of.push) && is_whole(None) {
            (stream.of.push, stream.of.may_be_back) = (None, false);
        }
        if stream.of.equal.is_some() {
            let (_, release) = self.release_for(stream.place(), stream.of.push);
            let is_due = given.put.iter().all(|of| self.is_due(stream, given, *of, &release));
            let (ty, want) = (given.ty, stream.of.wants[given.ty]);
            let has_due =
                |name| want.covers(name) && release.for_want(ty, name, want).is_some_and(|due| due != 0);
            let mut left_out = bits(left_out(given)).filter(|name| stream.of.sent[ty][*name] != 0);
            let is_retold = stream.of.retold == stream.of.equal && left_out.any(has_due);
            if !is_due || is_retold || bits(given.removed).any(|name| name < OLD && has_due(name)) {
                stream.of.push = stream.of.equal;
            }
        }
    }

    /// Whether a response has the content of the release for a client that has content of this push, and removes nothing else than what the release lacks.
    fn is_from(&self, stream: &Stream, given: &Given, had: Option<u64>) -> bool {
        let (_, release) = self.release_for(stream.place(), had);
        let (ty, want) = (given.ty, stream.of.wants[given.ty]);
        let is_kept = |of| self.is_last(stream, ty, of) || self.is_restated(stream, given, of);
        let mut names = (0..OLD).filter(|name| want.covers(*name));
        names.all(|name| {
            let due = release.for_want(ty, name, want).unwrap_or(0);
            let put = given.put.iter().find(|(put, _)| *put == name).map(|(_, content)| *content);
            let is_removed = given.removed & bit(name) != 0 || given.is_full && stream.of.sent[ty][name] != 0;
            match put {
                Some(content) => due == content || due == 0 && is_kept((name, content)),
                None => due == 0 || !is_removed,
            }
        })
    }

    /// Whether endpoints were the newest a moment ago: a client that is slow gets them with the routes that have waited for it
    /// (ORD-10).
    fn was_newest(&self, stream: &Stream, (name, content): (usize, u32)) -> bool {
        let of = &self.clients[stream.client].plan;
        let is_slow = of.reads_within.max(of.answers_within) >= 100 * MILLI || !of.falls_silent;
        let higher = stream.unit.checked_sub(self.plan.lists);
        let units = [Some(stream.unit), higher].into_iter().flatten();
        let mut former = units.flat_map(|unit| &self.reference.units[unit].former_endpoints);
        let mut was_newest = || former.any(|(at, of)| *of == (name, content) && self.now < at + 10 * SECOND);
        // After a move, removals and the types beside them wait for routes (RLY-51).
        let has_moved = stream.of.former.as_ref().is_some_and(|(_, until)| self.now < *until);
        (is_slow || has_moved) && was_newest()
    }

    /// Whether the server came to have a resource while the types of a round were sent, and the one before in the list supplied it so far
    /// (RLY-42).
    fn stood_in(&self, stream: &Stream, ty: usize, (name, content): (usize, u32)) -> bool {
        let higher = stream.unit.checked_sub(self.plan.lists);
        let there = higher.map(|unit| self.release_at((stream.client, unit), stream.of.push).1);
        let by_name = Want { wildcard: false, ..stream.of.wants[ty] };
        there.is_some_and(|there| there.for_want(ty, name, by_name) == Some(content))
    }

    /// Whether a client has content of a push that its unit may serve it, although the client was sent none: equal content was
    /// there before.
    pub fn has_equal(&self, stream: &Stream) -> Option<u64> {
        let (push, release) = self.release_for(stream.place(), stream.of.push.or(stream.of.equal));
        let stable = self.reference.units[stream.unit].stable();
        let is_had = |ty: usize, name: usize| {
            let want = stream.of.wants[ty];
            let [old, new] = [stable, &*release].map(|of| of.for_want(ty, name, want));
            want.covers(name) && old.is_some() && old != new && new == Some(stream.of.sent[ty][name])
        };
        let mut names = GATED.iter().flat_map(|ty| (0..OLD).map(move |name| (*ty, name)));
        push.filter(|_| names.any(|(ty, name)| is_had(ty, name)))
    }

    /// Whether a content may stand for one that the client has and its release lacks: the same, that of a release that
    /// everybody may have (WAV-9), or the last endpoints of the unit. A client that gave endpoints up and asks for them again may
    /// still have the cluster.
    fn is_last(&self, stream: &Stream, ty: usize, (name, content): (usize, u32)) -> bool {
        let sent = stream.of.sent[ty][name];
        let of = &self.reference.units[stream.unit];
        let is_deserted = || {
            let deserted = of.deserted.get(&name);
            deserted.is_some_and(|(at, of)| *of == content && self.now < at + 30 * SECOND)
        };
        let is_departed = || ty == EDS && (of.departed.get(&name) == Some(&content) || is_deserted());
        let is_needed = sent != 0 || ty == EDS && stream.of.sent[CDS][name] != 0;
        let is_given =
            || self.was_given(stream, ty, (name, content)) || self.stands_in(stream, ty, (name, content));
        sent == content || is_needed && (is_departed() || is_given())
    }

    /// Whether a content is that of a release that everybody may have.
    fn was_given(&self, stream: &Stream, ty: usize, (name, content): (usize, u32)) -> bool {
        let want = stream.of.wants[ty];
        // Last bytes of a server stay with a client that moves to another one of the list.
        let list = self.plan.list_of(stream.unit);
        let units = (0..self.plan.servers).map(|server| list + server * self.plan.lists);
        units.map(|unit| &self.reference.units[unit]).any(|of| {
            let releases = of.history.iter().map(|(_, release)| release);
            let mut releases = releases.chain(&of.given).chain(&of.unheld).chain([of.stable()]);
            releases.any(|of| of.for_want(ty, name, want) == Some(content))
        })
    }

    /// A response has something else than the client's release.
    fn judge_foreign(&mut self, stream: &Stream, ty: usize, name: usize, (found, due): (u32, Option<u32>)) {
        let of = &self.reference.units[stream.unit];
        let want = stream.of.wants[ty];
        let candidate = of.candidate.as_ref().and_then(|(_, of)| of.for_want(ty, name, want));
        let halted = self.reference.halted.as_ref().and_then(|halted| halted.contents.get(&stream.unit));
        let halted = halted.and_then(|halted| halted.for_want(ty, name, want));
        let invariant = match () {
            () if !is_gated(ty) => Invariant::Flow,
            () if self.reference.pin.is_some() => Invariant::PinFreeze,
            () if halted == Some(found) && found != 0 => Invariant::BlastRadius,
            () if candidate == Some(found) => Invariant::Admission,
            () => Invariant::OneRelease,
        };
        let text = format!(
            "client {} is sent {} {}={}, and its release has {}",
            stream.client,
            SHORT[ty],
            show(bit(name)),
            show_content(found),
            due.map_or("no answer".to_owned(), show_content)
        );
        self.fail(invariant, || text);
    }

    /// No route of a release goes before the clusters of the release.
    fn judge_routes(&mut self, stream: &Stream, given: &Given, release: &Contents) {
        // A set whose members are not all known cannot be sent, and the routing types do not wait for it (RLY-5, ORD-10).
        let want = stream.of.wants[CDS];
        let mut named = bits(want.names).filter(|name| *name < OLD);
        let is_partial = want.wildcard && release.members[CDS].is_none()
            || named.any(|name| release.for_want(CDS, name, want).is_none());
        if is_partial && !self.clients[stream.client].plan.delta {
            return;
        }
        for (route, content) in &given.put {
            let cluster = cluster_of(*content);
            let want = stream.of.wants[CDS];
            let is_there = release.for_want(CDS, cluster, want).is_some_and(|of| of != 0);
            let is_new = stream.of.sent[RDS][*route] != *content;
            if is_new && is_there && want.covers(cluster) && stream.of.sent[CDS][cluster] == 0 {
                if self.is_stuck(stream) || stream.of.rejected[CDS] || !stream.of.has_accepted[CDS] {
                    continue;
                }
                let text = format!(
                    "client {} is sent the route {} before its cluster {}",
                    stream.client,
                    show(bit(*route)),
                    show(bit(cluster))
                );
                return self.fail(Invariant::OneRelease, || text);
            }
        }
    }

    /// The relay looks for what a client has to be sent next, and finds clusters gone.
    pub fn judge_lacking(&self, stream: &mut Stream) {
        let (_, release) = self.release_for(stream.place(), stream.of.push);
        for cluster in 0..OLD {
            let is_lacking = release.for_want(CDS, cluster, stream.of.wants[CDS]) == Some(0);
            let is_lacking = is_lacking && stream.of.sent[CDS][cluster] != 0;
            let since = stream.of.lacking[cluster].unwrap_or(self.now);
            stream.of.lacking[cluster] = is_lacking.then_some(since);
        }
        self.note_routes_left(stream, &release);
    }

    /// A release of a unit may have come to know other routes.
    fn note_routes_of(&mut self, unit: usize) {
        for id in 0..self.streams.len() {
            let Some(mut stream) = self.streams[id].take_if(|stream| stream.unit == unit) else { continue };
            let (_, release) = self.release_for(stream.place(), stream.of.push);
            self.note_routes_left(&mut stream, &release);
            self.streams[id] = Some(stream);
        }
    }

    fn note_routes_left(&self, stream: &mut Stream, release: &Contents) {
        for cluster in 0..OLD {
            let since = stream.of.lacking[cluster];
            let is_delta = self.clients[stream.client].plan.delta;
            let left = since.map_or(0, |_| routes_left(stream, release, (cluster, is_delta)));
            // The removal waits for routes that change within its rest.
            let has_rested = since.is_some_and(|since| self.now >= since + REST);
            let kept = if has_rested { stream.of.left[cluster] } else { 0 };
            stream.of.left[cluster] = left | kept;
        }
    }

    /// No cluster goes before the routes to it, unless it has waited for them for 15 s, or they change after its rest (RLY-51).
    fn judge_removal(&mut self, stream: &Stream, cluster: usize, release: &Contents) {
        let is_new = !(stream.of.has_accepted[CDS] && stream.of.has_accepted[RDS]);
        let has_waited = stream.of.lacking[cluster].is_some_and(|since| self.now >= since + 15 * SECOND);
        let has_rejected = stream.of.rejected.iter().any(|rejected| *rejected);
        let is_left = stream.of.left_by_name & bit(cluster) != 0;
        let has_no_bytes = !self.clients[stream.client].plan.delta && self.has_other_bytes(stream, cluster);
        if is_new || is_left || has_waited || has_rejected || has_no_bytes || self.is_stuck(stream) {
            return;
        }
        for route in (0..OLD).filter(|route| stream.of.left[cluster] & bit(*route) == 0) {
            let sent = stream.of.sent[RDS][route];
            let due = release.for_want(RDS, route, stream.of.wants[RDS]);
            let is_newer = due.is_some_and(|due| due != sent && due != 0 && cluster_of(due) != cluster);
            if sent != 0 && cluster_of(sent) == cluster && is_newer {
                let text = format!(
                    "client {} loses the cluster {} before its route {} changes",
                    stream.client,
                    show(bit(cluster)),
                    show(bit(route))
                );
                return self.fail(Invariant::OneRelease, || text);
            }
        }
    }
}

impl Judged {
    /// The client asks no longer for names as it did before, and for some of them not by name.
    fn give_up(&mut self, ty: usize, (left, left_by_name): (Mask, Mask), want: Want) {
        self.given_up[ty] |= left;
        self.dropped[ty] = (self.dropped[ty] | left_by_name) & !want.names;
        self.answered_without[ty] &= self.dropped[ty] & !left;
    }

    /// The client was told of resources, and of names without one.
    fn note_told(&mut self, given: &Given, want: Want, removed: Mask) {
        super::client::take(&mut self.sent[given.ty], given, want);
        let put = given.put.iter().filter(|(name, _)| want.covers(*name));
        let put = put.fold(0, |all: Mask, (name, _)| all | bit(*name));
        self.known[given.ty] = self.known[given.ty] & !removed | put;
        self.dropped[given.ty] &= !put;
        self.answered_without[given.ty] &= !put;
        if given.ty == CDS {
            self.left_by_name &= !(put | removed);
        }
    }
}

/// The routes of a client that lead to a cluster, and that its release has unchanged or does not know. In the state of the world, no
/// response says that a route is gone, so nothing waits for it.
fn routes_left(stream: &Stream, release: &Contents, (cluster, is_delta): (usize, bool)) -> Mask {
    let want = stream.of.wants[RDS];
    let is_left = |route: &usize| {
        let sent = stream.of.sent[RDS][*route];
        let due = release.for_want(RDS, *route, want);
        let is_due = due.is_none_or(|due| due == sent || due == 0 && !is_delta);
        sent != 0 && cluster_of(sent) == cluster && want.covers(*route) && is_due
    };
    (0..OLD).filter(is_left).fold(0, |mask: Mask, route| mask | bit(route))
}

/// The names that a complete set does not have. A complete set without anything new tells a client that rejected something of removals
/// again, also of names that the client never had (WAV-10).
fn left_out(given: &Given) -> Mask {
    let is_left_out = |name: &usize| given.is_full && given.put.iter().all(|(put, _)| put != name);
    (0..OLD).filter(is_left_out).fold(0, |mask: Mask, name| mask | bit(name))
}

/// The content of a push in a response, by the stable content and the push's own.
fn brings_between(
    (stable, candidate): (&Contents, &Contents),
    want: Want,
    given: &Given,
    removed: Mask,
) -> Vec<(usize, u32)> {
    let both = |name| [stable, candidate].map(|of| of.for_want(given.ty, name, want));
    let is_new = |(name, content): &(usize, u32)| {
        let [stable, candidate] = both(*name);
        stable.is_some() && stable != candidate && candidate == Some(*content)
    };
    let is_gone = |name: &usize| {
        let [stable, candidate] = both(*name);
        stable.is_some_and(|of| of != 0) && candidate == Some(0)
    };
    if !is_gated(given.ty) {
        return Vec::new();
    }
    let gone = bits(removed).filter(|name| *name < OLD).filter(is_gone).map(|name| (name, 0));
    given.put.iter().copied().filter(is_new).chain(gone).collect()
}
