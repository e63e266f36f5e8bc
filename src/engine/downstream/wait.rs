//! Which names a complete set waits for (RLY-5, ADR 12).
//!
//! A name that is missing in a complete set is deleted by a client that has it. So a set waits for an UNKNOWN name if the
//! client was sent it on this stream, or may have it from before: it presented a version with the first request of the
//! type. Those waits have no end of their own. A client that comes from another server keeps its cache and presents no
//! version (A71), so the first set on a stream waits for the other names too, for a short time.
//!
//! No later set waits for a name that the client asked for anew: its absence deletes nothing.

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

/// The first set waits this long for a name without any sign while the server answers for the type. Servers answer all that
/// they have within a few round trips; what is missing then is mostly a name that does not exist.
const ANSWERED: Duration = Duration::from_secs(1);

/// And this long from the first request of the type while it does not. Clients give a name up after 15 s (TMR-2), and the
/// names that are known must come before that.
const UNANSWERED: Duration = Duration::from_secs(10);

/// That a server begins to answer for a type wakes nobody: whoever waits looks again after this time.
const LOOK: Duration = Duration::from_millis(500);

/// Before the first answer of a type on a stream.
#[derive(Debug)]
pub struct First {
    asked_at: Time,
    /// The names of a first request with a version: the client may have each of them.
    returning: Vec<NameSet>,
    /// That request asked for the wildcard too, which may have brought any name.
    returns_to_all: bool,
    /// Since when this stream has seen that a source's server answers for the type.
    answered: Vec<(SourceId, Time)>,
}

impl First {
    /// The client gave up the names that are in none of these sets, and has them no longer.
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

    /// Until when names of this part are waited for, and when to look again.
    fn patience(
        &mut self,
        part: &AnswerPart,
        source: SourceId,
        type_url: &TypeUrl,
        now: Time,
    ) -> (Time, Time) {
        let end = self.asked_at + UNANSWERED;
        let answers = part.snapshot.of(type_url).is_some_and(|types| types.is_current);
        // Of a glob that is being told the rest is on its way.
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

/// A client is kept waiting for a complete set.
#[derive(Clone, Debug)]
pub struct Hold {
    /// One of the names that it waits for.
    pub name: ResourceName,
    /// The source that does not know it.
    pub source: SourceId,
    /// Since when the client has been waiting, for this name or for others before it.
    pub since: Time,
    /// When to look again although nothing happened.
    look_at: Option<Time>,
    /// No time ends it. While it is found out anew whether the client has to wait, that is as it was.
    is_timeless: bool,
    /// The operator was told.
    pub is_told: bool,
}

impl Hold {
    /// No time ends it, and it is of a single name: nothing else may tell the operator.
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
    /// Where the client is kept waiting for a name.
    pub fn holds(&mut self) -> impl Iterator<Item = (&TypeUrl, &mut Hold)> {
        let holds = self.subscriptions.iter_mut();
        holds.filter_map(|subscription| Some((&subscription.type_url, subscription.hold.as_deref_mut()?)))
    }
}

impl Subscription {
    /// The first request of the type came, and its names are parts now.
    pub(super) fn begin(&mut self, request: &SotwRequest, now: Time) {
        let names = self.parts.iter().filter_map(|part| part.names());
        let returning = match request.version_info.is_empty() {
            true => Vec::new(),
            false => names.map(|names| (**names).clone()).collect(),
        };
        let returns_to_all = !request.version_info.is_empty() && self.is_wildcard();
        self.first = Some(Box::new(First { asked_at: now, returning, returns_to_all, answered: Vec::new() }));
    }

    /// When to look again for a name that is waited for.
    pub(super) fn look_at(&self) -> Option<Time> {
        self.hold.as_ref().and_then(|hold| hold.look_at)
    }

    /// It is found out anew whether the client has to wait.
    pub(super) fn look(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.look_at = None;
        }
    }

    /// The first answer went.
    pub(super) fn end_first(&mut self, answer: &super::answer::Answer) {
        // An error that took the place of a name may end while the client still has its copy (ERR-4).
        let is_excused =
            answer.dialect.errors_alone && !answer.parts.iter().all(|part| part.view.is_complete());
        self.first.take_if(|_| !is_excused);
    }

    /// Whether the complete set has to wait for a name. It is noted which.
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
        // A wildcard is always waited for as a whole.
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

/// The names of the parts of an answer of which it is not known whether they exist.
struct Doubt<'a> {
    parts: &'a [AnswerPart],
    dialect: Dialect,
    /// The name that was waited for before: it mostly is so still, which spares a search.
    last: Option<&'a ResourceName>,
}

impl<'a> Doubt<'a> {
    /// Of one part, as they were asked for.
    fn names(&self, part: &'a AnswerPart) -> impl Iterator<Item = &'a ResourceName> {
        let asked = part.interest.names();
        let last = self.last.filter(|last| asked.is_some_and(|asked| asked.contains(last)));
        last.into_iter().chain(asked.into_iter().flat_map(|asked| asked.iter())).filter(|name| {
            let is_known = part.view.has(name) || part.view.knows_absent(name) || part.view.knows_glob(name);
            !is_known && !self.is_covered(&part.view, name)
        })
    }

    /// A name that the client was sent.
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
        // Of a name that joined the wildcard, the client has what the wildcard brought.
        let others =
            || self.parts.iter().enumerate().filter(|(other, part)| *other != index && !part.held.is_empty());
        others().next().filter(|_| part.interest.shape() == Shape::Names)?;
        self.names(part).find(|name| others().any(|(_, other)| other.held.has(name))).cloned()
    }

    /// Another part supplies the name, or an error stands in its place that the client takes for an answer (ERR-4, ERR-8).
    fn is_covered(&self, view: &View, name: &ResourceName) -> bool {
        self.dialect.errors_alone && view.remarks().error(name).is_some()
            || self.parts.iter().any(|part| part.view.has(name))
    }
}
