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

use crate::Time;
use crate::collection::{Collection, HashSeed, NameSet};
use crate::downstream::answer::AnswerPart;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::parts::PartList;
use crate::view::View;
use sluice_xds::{ResourceName, TypeUrl, Variant, Version};

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

/// The state before the first answer of a type on a stream (RLY-5).
#[derive(Debug, Default)]
pub(super) struct FirstAnswer {
    /// The waits of a SotW client.
    pub(super) first: Option<First>,
    /// The versions of the client's first request.
    pub(super) presented: Option<Presented>,
}

/// The versions in the first request of a client.
#[derive(Debug)]
pub(super) enum Presented {
    /// SotW, of a wildcard client (STR-10).
    Whole(Version),
    /// Delta: the memory of the names, in bytes.
    Names(usize),
}

/// The names that the first complete set waits for.
#[derive(Debug)]
pub(super) struct First {
    asked_at: Time,
    /// The names of a first request with a version: the client may have each name.
    returning: Vec<NameSet>,
    /// Such a first request asked for the wildcard too, and the wildcard may have brought any name.
    returns_to_all: bool,
    /// The sources whose server answers for the type, with the time when this stream first noticed.
    answered: Vec<Answered>,
}

/// A source whose server answers for the type.
#[derive(Debug)]
struct Answered {
    source: SourceId,
    since: Time,
}

impl FirstAnswer {
    /// The version of a wildcard client (STR-10).
    pub(super) fn presented_version(&self) -> Option<Version> {
        match self.presented {
            Some(Presented::Whole(version)) => Some(version),
            Some(Presented::Names(_)) | None => None,
        }
    }

    /// The memory of the presented names, in bytes.
    pub(super) fn presented_bytes(&self) -> usize {
        match self.presented {
            Some(Presented::Names(bytes)) => bytes,
            Some(Presented::Whole(_)) | None => 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.first.is_none() && self.presented.is_none()
    }
}

impl First {
    /// The state after the first request. `brings`: the request has a version, so that the client may have
    /// each requested name.
    pub(super) fn new(parts: &PartList, brings: bool, now: Time) -> First {
        let names = parts.iter().filter_map(Part::names).filter(|_| brings);
        First {
            asked_at: now,
            returning: names.map(|names| (**names).clone()).collect(),
            returns_to_all: brings && parts.is_wildcard(),
            answered: Vec::new(),
        }
    }

    /// Forgets names outside these sets: the client gave up the names, and no longer has them.
    pub(super) fn keep(&mut self, sets: &BTreeMap<Key, NameSet>, seed: HashSeed) {
        for returning in &mut self.returning {
            let is_gone = |name: &&ResourceName| !sets.values().any(|names| names.contains(name));
            let gone: Vec<_> = returning.iter().filter(is_gone).cloned().collect();
            for name in &gone {
                returning.remove(name, seed);
            }
        }
    }

    pub(super) fn may_have(&self, name: &ResourceName) -> bool {
        self.returns_to_all || self.returning.iter().any(|names| names.contains(name))
    }

    /// The end of the wait for names of this part, and the time of the next look.
    fn patience(&mut self, part: &AnswerPart, source: SourceId, type_url: &TypeUrl, now: Time) -> Patience {
        let end = self.asked_at + UNANSWERED;
        let answers = part.snapshot.standing().of(type_url).is_some_and(|standing| standing.is_current);
        // Some members of the glob are known, so the rest is on the way.
        let is_told = matches!(part.collection, Collection::Globs(_)) && !part.view.is_empty();
        if !answers || is_told {
            self.answered.retain(|answered| answered.source != source);
            return Patience { until: end, look_at: end.min(now + LOOK) };
        }
        let since = self.answered.iter().find(|answered| answered.source == source);
        let since = since.map(|answered| answered.since);
        if since.is_none() {
            self.answered.push(Answered { source, since: now });
        }
        let end = end.min(since.unwrap_or(now) + ANSWERED);
        Patience { until: end, look_at: end }
    }
}

struct Patience {
    until: Time,
    look_at: Time,
}

/// A client's wait for a name, or for a membership.
#[derive(Clone, Debug)]
pub struct NameWait {
    /// One of the missing names.
    pub name: ResourceName,
    /// The source that does not know the name.
    pub source: SourceId,
    /// The start of the client's wait, for this name or for earlier names.
    pub since: Time,
    /// The time of the next look if no event comes first.
    pub(super) look_at: Option<Time>,
    /// No time ends the wait. The value stays while a new look decides about the wait.
    is_timeless: bool,
    /// The operator was told of the wait.
    pub is_told: bool,
}

impl NameWait {
    /// The wait for a name at a source, which continues an earlier wait.
    pub(super) fn new(
        awaited: Awaited,
        source: SourceId,
        before: Option<Box<NameWait>>,
        now: Time,
    ) -> NameWait {
        let Awaited { name, look_at, .. } = awaited;
        let since = before.as_ref().map_or(now, |before| before.since);
        let is_told = before.is_some_and(|before| before.is_told);
        NameWait { name, source, since, look_at, is_timeless: look_at.is_none(), is_told }
    }

    /// Whether no time ends the wait for a single name. Nothing else may tell the operator then.
    pub fn is_endless(&self) -> bool {
        self.is_timeless && !self.name.is_wildcard()
    }
}

/// A name that an answer waits for. `index`: the part of the answer.
pub(super) struct Awaited {
    pub(super) index: usize,
    name: ResourceName,
    look_at: Option<Time>,
}

/// The UNKNOWN names of the parts of an answer.
pub(super) struct Doubt<'a> {
    pub(super) type_url: &'a TypeUrl,
    pub(super) parts: &'a [AnswerPart],
    pub(super) features: ClientFeatures,
    /// The last wait. The wait mostly continues for the same name, and no search is necessary.
    pub(super) last: Option<&'a NameWait>,
}

impl<'a> Doubt<'a> {
    /// The membership without which the removal of a client's listener cannot be told. A new listener may
    /// need the address of the other (DEL-26). Nothing waits for withheld names: the server has them, and may
    /// have them for long. The end of the first answers comes a moment after the last of them, and may never
    /// come: no update waits for ever.
    pub(super) fn awaited_room(&self, now: Time) -> Option<Awaited> {
        if !self.type_url.kind().may_exclude() {
            return None;
        }
        let until = self.last.map_or(now, |wait| wait.since) + ANSWERED;
        if until <= now {
            return None;
        }
        let is_lacking = |part: &AnswerPart| part.view.lacks_an_answer() && part.collection.kind().is_broad();
        let mut lacking = self.parts.iter().enumerate().filter(|(_, part)| is_lacking(part));
        lacking.find_map(|(index, part)| {
            let kind = part.collection.kind();
            let mut lost = part.held.beside(&part.view).map(|(name, _)| name);
            let name = kind.membership_of(&lost.find(|name| !part.view.excludes(kind, name))?)?;
            Some(Awaited { index, name, look_at: Some(until) })
        })
    }

    /// A name without which a complete set cannot be sent. `first`: the state before the first answer;
    /// `sources`: the sources of the parts; `has_answers`: the client was sent an answer.
    pub(super) fn awaited(
        &self,
        first: Option<&mut First>,
        sources: &PartList,
        has_answers: bool,
        now: Time,
    ) -> Option<Awaited> {
        let open = || self.parts.iter().enumerate().filter(|(_, part)| !part.view.is_complete());
        open().next()?;
        // Sets always wait for the whole wildcard.
        if let Some((index, _)) = open().find(|(_, part)| matches!(part.collection, Collection::Wildcard)) {
            return Some(Awaited { index, name: ResourceName::new("*"), look_at: None });
        }
        let returning = first.as_deref().filter(|first| first.returns_to_all || !first.returning.is_empty());
        for (index, part) in open() {
            let returns = || {
                let first = returning?;
                self.names(part).find(|name| first.may_have(name)).cloned()
            };
            if let Some(name) = self.sent(index, part).or_else(returns) {
                return Some(Awaited { index, name, look_at: None });
            }
        }
        let first = first.filter(|_| !has_answers)?;
        let mut awaited: Option<Awaited> = None;
        for (index, part) in open() {
            let source = sources.get(index)?.source();
            let Patience { until, look_at } = first.patience(part, source, self.type_url, now);
            let Some(name) = self.names(part).next().filter(|_| until > now) else { continue };
            let awaited = awaited.get_or_insert_with(|| Awaited { index, name: name.clone(), look_at: None });
            awaited.look_at = awaited.look_at.into_iter().chain([look_at]).min();
        }
        awaited
    }

    /// The UNKNOWN names of one part, as the client asked for them.
    fn names(&self, part: &'a AnswerPart) -> impl Iterator<Item = &'a ResourceName> {
        let asked = part.collection.names();
        let last = self.last.map(|wait| &wait.name);
        let last = last.filter(|last| asked.is_some_and(|asked| asked.contains(last)));
        last.into_iter().chain(asked.into_iter().flat_map(|asked| asked.iter())).filter(|name| {
            let is_known = part.view.has(name) || part.view.knows_absent(name) || part.view.knows_glob(name);
            !is_known && !self.is_covered(&part.view, name)
        })
    }

    /// A missing name that the client was sent.
    fn sent(&self, index: usize, part: &AnswerPart) -> Option<ResourceName> {
        let is_open = |name: &ResourceName| {
            part.collection.covers(name) && !part.view.knows_gone(name) && !self.is_covered(&part.view, name)
        };
        if !part.held.is_empty() {
            let mut lost = part.held.beside(&part.view);
            if let Some((name, _)) = lost.find(|(name, _)| is_open(name)) {
                return Some(name);
            }
        }
        // A name that was requested in addition to the wildcard: the client has the wildcard's content.
        let others =
            || self.parts.iter().enumerate().filter(|(other, part)| *other != index && !part.held.is_empty());
        others().next().filter(|_| part.collection.named().is_some())?;
        self.names(part).find(|name| others().any(|(_, other)| other.held.has(name))).cloned()
    }

    /// Whether another part supplies the name, or the client takes an error for an answer about the name
    /// (ERR-4, ERR-8).
    fn is_covered(&self, view: &View, name: &ResourceName) -> bool {
        self.features.errors_alone && view.annotations().error(name).is_some()
            || self.parts.iter().any(|part| part.view.has(name))
    }
}

/// The time of the next look while the routing types wait for the first answer of a type without any
/// (ORD-12); `None` if there is no wait. The routing types wait for the wildcard and for globs, and for names
/// until the server answers for the type without them: as long as a first complete set, so that both keep
/// within the patience of clients (TMR-2). `asked_at`: the first request.
pub(super) fn first_answer_look(
    parts: &PartList,
    type_url: &TypeUrl,
    asked_at: Time,
    variant: Variant,
    turn: &Turn<'_>,
) -> Option<Time> {
    let open = parts.iter().filter_map(|part| {
        let snapshot = turn.snapshot(part.source());
        let view = snapshot.and_then(|snapshot| snapshot.of(type_url)?.view(&part.collection));
        let standing = snapshot.and_then(|snapshot| snapshot.standing().of(type_url));
        let is_answered = !part.is_broad() && standing.is_some_and(|standing| standing.is_current);
        let end = asked_at + if is_answered { ANSWERED } else { UNANSWERED };
        // A doubted set brings nothing more to a delta client (ADR 52).
        let is_doubted = variant == Variant::Delta
            && part.is_returning
            && standing.is_some_and(|standing| standing.is_provisional);
        let is_open = !is_doubted && view.is_none_or(|view| !view.is_complete()) && end > turn.now;
        is_open.then(|| if part.is_broad() || is_answered { end } else { end.min(turn.now + LOOK) })
    });
    open.min()
}
