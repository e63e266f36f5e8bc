//! The reference model of checkpoints at a source: their content, and the part that is unconfirmed after a
//! restart.

use std::collections::BTreeMap;

use sluice_engine::collection::CollectionKind;
use sluice_xds::Variant;

use super::reference::Source;
use super::schedule::SECOND;
use super::track::{State, Track};
use super::words::{Content, Mask, NAMES, SDS, TYPES, bit, bits};

/// The minimum life of a restored source without sessions.
pub(super) const PATIENCE_MIN: u64 = 10 * SECOND;

/// One resource in a checkpoint.
#[derive(Clone, Debug)]
pub struct Saved {
    pub content: Content,
    /// The server's version, if it may be presented.
    pub version: Box<str>,
    /// The end of the time to live, and its length.
    pub expires: Option<(u64, u64)>,
}

pub type Names = BTreeMap<usize, Saved>;

/// The checkpoint of a source.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    pub names: [Names; TYPES],
    /// The members of complete wildcards.
    pub members: [Option<Names>; TYPES],
}

impl Checkpoint {
    /// The checkpoint at a later time: resources with a time to live may have expired. After a clock set
    /// back, their state is unknown, and so is that of wildcards that include them.
    pub fn at(mut self, now: u64, is_set_back: bool) -> Checkpoint {
        let lives = |saved: &Saved| saved.expires.is_none_or(|(at, _)| at > now && !is_set_back);
        for names in &mut self.names {
            names.retain(|_, saved| lives(saved));
        }
        for members in &mut self.members {
            let is_lost =
                |members: &Names| is_set_back && members.values().any(|saved| saved.expires.is_some());
            *members = members.take().filter(|members| !is_lost(members));
            members.iter_mut().for_each(|members| members.retain(|_, saved| lives(saved)));
        }
        self
    }

    /// The resources known by name, and the known members.
    pub fn masks(&self) -> [(Mask, Option<Mask>); TYPES] {
        let mask = |names: &Names| names.keys().fold(0, |mask, name| mask | bit(*name));
        std::array::from_fn(|ty| (mask(&self.names[ty]), self.members[ty].as_ref().map(mask)))
    }
}

/// The part of a source in the state of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Restoring {
    /// The collections without an answer of the server, and whether the request presents all their known
    /// resources.
    unheard: BTreeMap<(usize, CollectionKind), bool>,
    /// The time since which the source has no session.
    pub(super) unwatched_since: Option<u64>,
}

impl Restoring {
    pub fn has(&self, ty: usize, kind: CollectionKind) -> bool {
        self.unheard.contains_key(&(ty, kind))
    }

    /// A part of a type is in the state of the checkpoint, and the server has not answered for it (I14).
    pub fn has_type(&self, ty: usize) -> bool {
        self.unheard.keys().any(|(of, _)| *of == ty)
    }
}

impl Source {
    /// The present content that may be kept (RLY-7): no Secrets, no absent or unknown names. Versions are
    /// meaningful only in delta (RLY-64).
    pub fn checkpoint(&self, is_delta: bool) -> Checkpoint {
        let saved = |track: &Track| match track.state() {
            State::Present(content) => {
                let version = if is_delta { track.upstream_version.clone() } else { Box::default() };
                Some(Saved { content, version, expires: track.expires })
            }
            State::Absent | State::Unknown => None,
        };
        let all = |tracks: &[Track; NAMES]| -> Names {
            let there = tracks.iter().enumerate().filter_map(|(name, track)| Some((name, saved(track)?)));
            there.collect()
        };
        let mut checkpoint = Checkpoint::default();
        for ty in (0..TYPES).filter(|ty| *ty != SDS) {
            checkpoint.names[ty] = all(&self.names[ty]);
            checkpoint.members[ty] =
                (self.demand[ty].wildcard && self.complete[ty]).then(|| all(&self.members[ty]));
        }
        checkpoint
    }

    /// The source begins with the content of a checkpoint.
    pub fn restore(&mut self, checkpoint: &Checkpoint, now: u64) {
        self.moment += 1;
        let moment = self.moment;
        let is_restated = |names: &Names| names.values().all(|saved| !saved.version.is_empty());
        let put = |track: &mut Track, saved: &Saved| {
            track.set(State::Present(saved.content), moment);
            track.upstream_version.clone_from(&saved.version);
            track.expires = saved.expires;
        };
        self.has_expiries = true;
        self.restoring = Restoring::default();
        for ty in 0..TYPES {
            let names = &checkpoint.names[ty];
            if !names.is_empty() {
                names.iter().for_each(|(name, saved)| put(&mut self.names[ty][*name], saved));
                self.demand[ty].held |= checkpoint.masks()[ty].0;
                self.restoring.unheard.insert((ty, CollectionKind::Names), is_restated(names));
            }
            if let Some(members) = &checkpoint.members[ty] {
                for name in 0..NAMES {
                    match members.get(&name) {
                        Some(saved) => put(&mut self.members[ty][name], saved),
                        None => self.members[ty][name].set(State::Absent, moment),
                    }
                }
                self.demand[ty].wildcard = true;
                (self.complete[ty], self.confirmed[ty]) = (true, false);
                self.restoring.unheard.insert((ty, CollectionKind::Wildcard), is_restated(members));
            }
        }
        self.settle_patience(now);
    }

    /// A known name is kept while the server has not answered for it since the restart.
    pub fn is_kept(&self, ty: usize, name: usize) -> bool {
        let is_present = matches!(self.names[ty][name].state(), State::Present(_));
        is_present && self.restoring.has(ty, CollectionKind::Names)
    }

    /// The server has answered for a collection.
    pub fn confirm(&mut self, ty: usize, kind: CollectionKind, now: u64) {
        if self.restoring.unheard.remove(&(ty, kind)).is_some() {
            self.settle_interest(ty, now);
            self.settle_patience(now);
        }
    }

    /// A server that knows all presented resources, and was silent for long enough on a live stream, has no
    /// changes (RLY-29, DEL-35).
    pub fn hear_silence(&mut self, now: u64) {
        self.hear_silence_of(now, now);
    }

    /// Silence ends with the first bytes of a message, at `until`.
    pub fn hear_silence_of(&mut self, until: u64, now: u64) {
        let timeout = self.resource_timeout;
        for stream in self.streams.iter_mut().flatten() {
            let (variant, signs, is_receiving) = (stream.variant, stream.signs, stream.receiving.is_some());
            for (ty, said) in stream.types.iter_mut().enumerate() {
                let is_silent =
                    |(since, before): (u64, u32)| since + timeout <= until && signs > before && !is_receiving;
                let is_unsaid = match variant {
                    Variant::Sotw => !said.is_rejected,
                    Variant::Delta => !said.is_answered,
                };
                said.was_silent |= is_unsaid && said.asked_at.is_some_and(is_silent);
                let hears_silence = !said.is_answered && said.asked_at.is_some_and(is_silent);
                self.confirmed[ty] |= hears_silence
                    && !said.is_current
                    && said.wildcard
                    && !said.gave_up_wildcard
                    && self.complete[ty]
                    && said.unconfirmed == 0;
                // A rejected type is as old as before (I9).
                said.is_current |= match said.is_answered {
                    true => !said.is_rejected && (variant == Variant::Sotw || said.is_settled()),
                    false => said.asked_at.is_some_and(is_silent),
                };
            }
        }
        let restated = self.restoring.unheard.iter().filter(|(_, is_restated)| **is_restated);
        let due: Vec<_> = restated.map(|(key, _)| *key).filter(|(ty, _)| self.is_current(*ty)).collect();
        due.into_iter().for_each(|(ty, kind)| self.confirm(ty, kind, now));
    }

    /// The server has answered for each subscribed collection of a type, by messages or by silence.
    fn is_current(&self, ty: usize) -> bool {
        let demand = &self.demand[ty];
        let wanted = [(true, demand.wildcard), (false, demand.held != 0)];
        let says = |wildcard: bool| {
            self.streams.iter().flatten().any(|stream| {
                let said = &stream.types[ty];
                said.wildcard == wildcard && said.is_current
            })
        };
        let mut wanted = wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).peekable();
        // Collections without subscribers have no verdict.
        wanted.peek().is_some() && wanted.all(|(wildcard, _)| says(wildcard))
    }

    pub fn settle_patience(&mut self, now: u64) {
        let is_unwatched = !self.restoring.unheard.is_empty() && self.sessions.is_empty();
        let since = self.restoring.unwatched_since.filter(|_| is_unwatched);
        self.restoring.unwatched_since = since.or_else(|| is_unwatched.then_some(now));
    }

    /// Gives up content without a session and without an answer for long enough, whether or not the server is
    /// lost: it can be restored again.
    pub fn give_up_restored(&mut self, now: u64) {
        let patience = self.linger.max(PATIENCE_MIN);
        if self.restoring.unwatched_since.is_none_or(|since| since + patience > now) {
            return;
        }
        for (ty, kind) in std::mem::take(&mut self.restoring).unheard.into_keys() {
            match kind {
                CollectionKind::Wildcard => self.free_wildcard(ty),
                CollectionKind::Names | CollectionKind::Globs => {
                    let is_present =
                        |name: &usize| matches!(self.names[ty][*name].state(), State::Present(_));
                    let there: Vec<_> = bits(self.demand[ty].held).filter(is_present).collect();
                    there.into_iter().for_each(|name| self.free(ty, name));
                }
            }
        }
    }
}
