//! The judge of first answers: what a client newly asks for, and its release knows, comes soon, whatever waits, bakes or is halted
//! (I27). Newcomers never wait for a bake.

use sluice_engine::snapshot::Snapshot;

use super::client::Want;
use super::relay::{Given, Stream};
use super::world::World;
use crate::schedule::{MILLI, SECOND};
use crate::words::{CDS, EDS, LDS, Mask, OLD, RDS, SHORT, TYPES, bit, bits, show};
use crate::world::Invariant;

/// The time between two looks at the streams.
const LOOK_EVERY: u64 = 100 * MILLI;

/// The latest first answer to a client that reads and answers at once: its earlier types are answered first.
const AT_ONCE: u64 = 2 * SECOND;

/// The same for others: routing types wait 15 s at most for ACKs of clusters and endpoints (ORD-10), and then for the reader.
const IN_ORDER: u64 = 40 * SECOND;

/// The time for which first answers of routing types wait for the first answer of a type of the cluster side (ORD-12).
const FIRST_BY_RANK: u64 = 10 * SECOND;

/// The time for which routing types wait for the endpoints of new clusters (ORD-13).
const ENDPOINTS: u64 = 2 * SECOND;

/// The names that a client newly asks for, by type.
#[derive(Debug, Default)]
pub struct Awaited {
    names: [Mask; TYPES],
    waits: [Option<Wait>; TYPES],
    /// The times of the first requests, of types without an answer on the stream.
    unanswered: [Option<u64>; TYPES],
    /// The time of the latest response with clusters.
    clusters_at: Option<u64>,
}

/// A wait for a first answer.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The time since which the release of the client knows something to send it.
    since: u64,
    /// The time since which the client owes nothing, too.
    free_since: u64,
}

impl World {
    /// A client asks for more than before.
    pub fn await_answer(&self, stream: &mut Stream, ty: usize, (former, is_first): (Want, bool)) {
        let want = stream.of.wants[ty];
        // What a SotW client presents with a version is known to the relay only if it is the release's.
        let presents = is_first && !self.clients[stream.client].plan.delta && stream.of.sent[ty] != [0; OLD];
        let is_new = |name: &usize| want.covers(*name) && (is_first || !former.covers(*name));
        let names = (0..OLD).filter(is_new).filter(|name| stream.of.sent[ty][*name] == 0);
        let awaited = &mut stream.of.awaited;
        awaited.names[ty] |= names.filter(|_| !presents).fold(0, |mask, name| mask | bit(name));
        for name in (0..OLD).filter(|name| !want.covers(*name)) {
            awaited.names[ty] &= !bit(name);
        }
        awaited.waits[ty] = None;
        if is_first {
            awaited.unanswered[ty] = Some(self.now);
        }
        self.is_answer_due(stream, ty);
    }

    /// Looks at all streams before the clock moves on to `next`.
    pub fn look_at_newcomers(&mut self, next: u64) {
        if next < self.looked_at + LOOK_EVERY {
            return;
        }
        self.looked_at = next;
        for id in 0..self.streams.len() {
            let Some(mut stream) = self.streams[id].take() else { continue };
            self.judge_stranded(&mut stream, next);
            for ty in [CDS, EDS, LDS, RDS] {
                let is_due = self.is_answer_due(&mut stream, ty);
                let begin = |at: u64| Wait { since: at, free_since: at };
                let mut wait = match stream.of.awaited.waits[ty] {
                    _ if self.is_doubtful() => begin(next),
                    wait => wait.unwrap_or(begin(self.now)),
                };
                if !self.is_free(&stream, next) || stream.of.awaited.may_wait(ty, next) {
                    wait.free_since = next;
                }
                stream.of.awaited.waits[ty] = is_due.then_some(wait);
                if is_due && (next > wait.since + IN_ORDER || next > wait.free_since + AT_ONCE) {
                    self.fail_for_newcomer(&stream, ty, wait.since);
                }
            }
            self.streams[id] = Some(stream);
        }
    }

    /// Whether more of a server's first set may come: complete sets wait for clients with a version, and their routes wait behind.
    /// Listeners wait for clients with versions (ADR 52).
    pub fn is_doubtful(&self) -> bool {
        let is_provisional = |snapshot: &Snapshot, ty: usize| {
            snapshot.standing().of(&self.words.types[ty]).is_some_and(|of| of.is_provisional)
        };
        self.units.iter().any(|unit| [CDS, EDS, LDS, RDS].iter().any(|ty| is_provisional(&unit.live, *ty)))
    }

    fn fail_for_newcomer(&mut self, stream: &Stream, ty: usize, since: u64) {
        let (client, names) = (stream.client, stream.of.awaited.names[ty]);
        let seconds = (self.now - since) / SECOND;
        let text = format!("client {client} has had no answer for {} {} for", SHORT[ty], show(names));
        self.fail(Invariant::Newcomers, || format!("{text} {seconds} s"));
    }

    /// Whether the release of a client has a first answer. Where it has nothing to send, later content is an update, and the wait is over.
    fn is_answer_due(&self, stream: &mut Stream, ty: usize) -> bool {
        let answer = self.first_answer(stream, ty);
        if answer == Some(false) {
            stream.of.awaited.names[ty] = 0;
        }
        answer == Some(true)
    }

    /// Whether the release of a client has something of what the client newly asks for; `None` if the release does not know all that
    /// the client asks for.
    fn first_answer(&self, stream: &Stream, ty: usize) -> Option<bool> {
        let (want, names) = (stream.of.wants[ty], stream.of.awaited.names[ty]);
        if names == 0 {
            return None;
        }
        let (_, release) = self.release_for(stream.place(), stream.of.push);
        let is_whole = !want.wildcard || release.members[ty].is_some();
        let mut asked = bits(want.names).filter(|name| *name < OLD);
        let is_known = is_whole && asked.all(|name| release.for_want(ty, name, want).is_some());
        let has_some = || bits(names).any(|name| release.for_want(ty, name, want).is_some_and(|of| of != 0));
        is_known.then(has_some)
    }

    /// Whether a client reads and answers at once, and owes no answer until `next`.
    fn is_free(&self, stream: &Stream, next: u64) -> bool {
        let plan = &self.clients[stream.client].plan;
        let is_fast = plan.reads_within <= 100 * MILLI && plan.answers_within <= 100 * MILLI;
        let oldest = stream.of.open.iter().filter_map(|open| open.front()).map(|open| open.at).min();
        let owes = oldest.is_some_and(|at| next > at + SECOND);
        is_fast && !owes
    }
}

impl Awaited {
    /// Another server serves the client: its types go out in order from the first one on, whatever was on its way (WAV-9, WAV-18).
    pub fn begin_again(&mut self) {
        self.waits = Default::default();
    }

    /// A response of a type is an answer to what the client asked for: what it lacks comes after its ACK.
    pub fn end(&mut self, given: &Given, now: u64) {
        (self.names[given.ty], self.waits[given.ty]) = (0, None);
        self.unanswered[given.ty] = None;
        if given.ty == CDS {
            self.clusters_at = Some(now);
        }
    }

    /// Whether a routing type may wait for the cluster side of the same client at some moment since the last look.
    fn may_wait(&self, ty: usize, next: u64) -> bool {
        let is_within =
            |since: Option<u64>, time: u64| since.is_some_and(|since| next <= since + time + LOOK_EVERY);
        let is_unanswered = |side: usize| is_within(self.unanswered[side], FIRST_BY_RANK);
        let is_routing = ty == LDS || ty == RDS;
        is_routing && (is_unanswered(CDS) || is_unanswered(EDS) || is_within(self.clusters_at, ENDPOINTS))
    }
}
