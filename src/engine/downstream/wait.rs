//! Waits of complete sets for names (RLY-5, ADR 12).
//!
//! A client deletes its resources that are missing in a complete set. So a set waits for an UNKNOWN name if
//! the client was sent the name on this stream, or may have the resource from before: the client presented
//! a version with the first request of the type. These waits have no end of their own. A client that comes
//! from another server keeps its cache and presents no version (A71), so the first set on a stream waits
//! for the other names too, for a short time.
//!
//! No later set waits for a newly requested name, because the absence deletes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::AnswerPart;
use super::dialect::Dialect;
use super::order::Turn;
use super::session::Session;
use super::subscription::{Key, SourceId, Subscription};
use crate::engine::Time;
use crate::engine::interest::{HashSeed, Interest, NameSet, Shape};
use crate::engine::planted::{Bug, planted};
use crate::engine::view::View;
use crate::xds::{ResourceName, SotwRequest, TypeUrl};

/// The first set waits this long for a name without any sign while the server answers for the type. Servers
/// send all their resources within a few round trips. A name that is still missing then mostly does not
/// exist.
const ANSWERED: Duration = Duration::from_secs(1);

/// The first set waits for names at most this long after the first request of the type, while the server
/// does not answer. Clients give a name up after 15 s (TMR-2), and the known names must come before the end
/// of that time.
const UNANSWERED: Duration = Duration::from_secs(10);

/// A server's first answer for a type wakes no session, so a waiting session looks again after this time.
const LOOK: Duration = Duration::from_millis(500);

/// The state before the first answer of a type on a stream.
#[derive(Debug)]
pub struct First {
    asked_at: Time,
    /// The names of a first request with a version: the client may have each name.
    returning: Vec<NameSet>,
    /// The first request asked for the wildcard too, and the wildcard may have brought any name.
    returns_to_all: bool,
    /// The sources whose server answers for the type, with the time when this stream first noticed.
    answered: Vec<(SourceId, Time)>,
}

impl First {
    /// Forgets names outside these sets: the client gave up the names, and no longer has them.
    pub fn keep(&mut self, wanted: &BTreeMap<Key, NameSet>, seed: HashSeed) {
        for set in &mut self.returning {
            let is_gone = |name: &&ResourceName| !wanted.values().any(|wanted| wanted.contains(name));
            let gone: Vec<_> = set.iter().filter(is_gone).cloned().collect();
            for name in &gone {
                set.remove(name, seed);
            }
        }
    }

    fn may_have(&self, name: &ResourceName) -> bool {
        self.returns_to_all || self.returning.iter().any(|set| set.contains(name))
    }

    /// The end of the wait for names of this part, and the time of the next look.
    fn patience(
        &mut self,
        part: &AnswerPart,
        source: SourceId,
        type_url: &TypeUrl,
        now: Time,
    ) -> (Time, Time) {
        let end = self.asked_at + UNANSWERED;
        let answers = part.snapshot.of(type_url).is_some_and(|types| types.is_current);
        // Some members of the glob are known, so the rest is on the way.
        let is_told = matches!(part.interest, Interest::Globs(_)) && !part.view.is_empty();
        if !answers || is_told {
            self.answered.retain(|(known, _)| *known != source);
            return (end, end.min(now + LOOK));
        }
        let since = self.answered.iter().find(|(known, _)| *known == source).map(|(_, since)| *since);
        if since.is_none() {
            self.answered.push((source, now));
        }
        let end = end.min(since.unwrap_or(now) + ANSWERED);
        (end, end)
    }
}

/// A client's wait for a complete set.
#[derive(Clone, Debug)]
pub struct Hold {
    /// One of the missing names.
    pub name: ResourceName,
    /// The source that does not know the name.
    pub source: SourceId,
    /// The start of the client's wait, for this name or for earlier names.
    pub since: Time,
    /// The time of the next look if no event comes first.
    look_at: Option<Time>,
    /// No time ends the wait. The value stays while a new look decides about the wait.
    is_timeless: bool,
    /// The operator was told of the wait.
    pub is_told: bool,
}

impl Hold {
    /// Whether no time ends the wait for a single name. Nothing else may tell the operator then.
    pub fn is_endless(&self) -> bool {
        self.is_timeless && !self.name.is_wildcard()
    }
}

struct Awaited {
    index: usize,
    name: ResourceName,
    look_at: Option<Time>,
}

impl Session {
    /// The waits of this session for names, each with its type.
    pub fn holds(&mut self) -> impl Iterator<Item = (&TypeUrl, &mut Hold)> {
        let holds = self.subscriptions.iter_mut();
        holds.filter_map(|subscription| Some((&subscription.type_url, subscription.hold.as_deref_mut()?)))
    }
}

impl Subscription {
    /// Notes the first request of the type. Its names must be parts already.
    pub(super) fn begin(&mut self, request: &SotwRequest, now: Time) {
        let names = self.parts.iter().filter_map(|part| part.names());
        let returning = match request.version_info.is_empty() {
            true => Vec::new(),
            false => names.map(|names| (**names).clone()).collect(),
        };
        let returns_to_all = !request.version_info.is_empty() && self.is_wildcard();
        self.first = Some(Box::new(First { asked_at: now, returning, returns_to_all, answered: Vec::new() }));
    }

    /// The time of the next look for a missing name.
    pub(super) fn look_at(&self) -> Option<Time> {
        self.hold.as_ref().and_then(|hold| hold.look_at)
    }

    /// Begins a new decision about the wait.
    pub(super) fn look(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.look_at = None;
        }
    }

    /// Notes that the first answer went out.
    pub(super) fn end_first(&mut self, answer: &super::answer::Answer) {
        // An error in place of a name may end while the client still has a copy (ERR-4).
        let is_excused =
            answer.dialect.errors_alone && !answer.parts.iter().all(|part| part.view.is_complete());
        self.first.take_if(|_| !is_excused);
    }

    /// Whether the complete set has to wait for a name. Notes the name.
    pub(super) fn must_wait(&mut self, parts: &[AnswerPart], turn: &Turn<'_>) -> bool {
        let Some(Awaited { index, name, look_at }) = self.awaited(parts, turn.now) else {
            self.hold = None;
            return false;
        };
        let source = self.parts.get(index).map_or(SourceId(0), |part| part.source());
        let before = self.hold.take();
        let since = before.as_ref().map_or(turn.now, |before| before.since);
        let is_told = before.is_some_and(|before| before.is_told);
        let is_timeless = look_at.is_none();
        self.hold = Some(Box::new(Hold { name, source, since, look_at, is_timeless, is_told }));
        true
    }

    fn awaited(&mut self, parts: &[AnswerPart], now: Time) -> Option<Awaited> {
        let open = || parts.iter().enumerate().filter(|(_, part)| !part.view.is_complete());
        open().next().filter(|_| !planted(Bug::PartialCompleteSet))?;
        // Sets always wait for the whole wildcard.
        if let Some((index, _)) = open().find(|(_, part)| matches!(part.interest, Interest::Wildcard)) {
            return Some(Awaited { index, name: ResourceName::new("*"), look_at: None });
        }
        let doubt = Doubt { parts, dialect: self.dialect, last: self.hold.as_ref().map(|hold| &hold.name) };
        let returning =
            self.first.as_ref().filter(|first| first.returns_to_all || !first.returning.is_empty());
        for (index, part) in open() {
            let returns = || {
                let first = returning?;
                doubt.names(part).find(|name| first.may_have(name)).cloned()
            };
            if let Some(name) = doubt.sent(index, part).or_else(returns) {
                return Some(Awaited { index, name, look_at: None });
            }
        }
        let first = self.first.as_mut().filter(|_| self.flight.latest().is_none())?;
        let mut awaited: Option<Awaited> = None;
        for (index, part) in open() {
            let source = self.parts.get(index)?.source();
            let (until, look_at) = first.patience(part, source, &self.type_url, now);
            let Some(name) = doubt.names(part).next().filter(|_| until > now) else { continue };
            let awaited = awaited.get_or_insert_with(|| Awaited { index, name: name.clone(), look_at: None });
            awaited.look_at = awaited.look_at.into_iter().chain([look_at]).min();
        }
        awaited
    }
}

/// The UNKNOWN names of the parts of an answer.
struct Doubt<'a> {
    parts: &'a [AnswerPart],
    dialect: Dialect,
    /// The name of the last wait. The wait mostly continues for the same name, and no search is necessary.
    last: Option<&'a ResourceName>,
}

impl<'a> Doubt<'a> {
    /// The UNKNOWN names of one part, as the client asked for them.
    fn names(&self, part: &'a AnswerPart) -> impl Iterator<Item = &'a ResourceName> {
        let asked = part.interest.names();
        let last = self.last.filter(|last| asked.is_some_and(|asked| asked.contains(last)));
        last.into_iter().chain(asked.into_iter().flat_map(|asked| asked.iter())).filter(|name| {
            let is_known = part.view.has(name) || part.view.knows_absent(name) || part.view.knows_glob(name);
            !is_known && !self.is_covered(&part.view, name)
        })
    }

    /// A missing name that the client was sent.
    fn sent(&self, index: usize, part: &AnswerPart) -> Option<ResourceName> {
        let is_open = |name: &ResourceName| {
            part.interest.covers(name) && !part.view.knows_gone(name) && !self.is_covered(&part.view, name)
        };
        if !part.held.is_empty() {
            let mut own = part.held.beside(&part.view);
            if let Some((name, _)) = own.find(|(name, _)| is_open(name)) {
                return Some(name);
            }
        }
        // A name that was requested in addition to the wildcard: the client has the wildcard's content.
        let others =
            || self.parts.iter().enumerate().filter(|(other, part)| *other != index && !part.held.is_empty());
        others().next().filter(|_| part.interest.shape() == Shape::Names)?;
        self.names(part).find(|name| others().any(|(_, other)| other.held.has(name))).cloned()
    }

    /// Whether another part supplies the name, or the client takes an error for an answer about the name
    /// (ERR-4, ERR-8).
    fn is_covered(&self, view: &View, name: &ResourceName) -> bool {
        self.dialect.errors_alone && view.remarks().error(name).is_some()
            || self.parts.iter().any(|part| part.view.has(name))
    }
}
