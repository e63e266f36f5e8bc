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
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::AnswerPart;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::part::Key;
use crate::view::View;
use sluice_xds::{ResourceName, TypeUrl};

/// The first set waits this long for a name without any sign while the server answers for the type. Servers
/// send all their resources within a few round trips. A name that is still missing then mostly does not
/// exist.
pub(super) const ANSWERED: Duration = Duration::from_secs(1);

/// The first set waits for names at most this long after the first request of the type, while the server
/// does not answer. Clients give a name up after 15 s (TMR-2), and the known names must come before the end
/// of that time.
pub(super) const UNANSWERED: Duration = Duration::from_secs(10);

/// A server's first answer for a type wakes no session, so a waiting session looks again after this time.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The state before the first answer of a type on a stream.
#[derive(Debug)]
pub struct First {
    pub(super) asked_at: Time,
    /// The names of a first request with a version: the client may have each name.
    pub(super) returning: Vec<NameSet>,
    /// The first request asked for the wildcard too, and the wildcard may have brought any name.
    pub(super) returns_to_all: bool,
    /// The sources whose server answers for the type, with the time when this stream first noticed.
    pub(super) answered: Vec<(SourceId, Time)>,
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

    pub(super) fn may_have(&self, name: &ResourceName) -> bool {
        self.returns_to_all || self.returning.iter().any(|set| set.contains(name))
    }

    /// The end of the wait for names of this part, and the time of the next look.
    pub(super) fn patience(
        &mut self,
        part: &AnswerPart,
        source: SourceId,
        type_url: &TypeUrl,
        now: Time,
    ) -> (Time, Time) {
        let end = self.asked_at + UNANSWERED;
        let answers = part.snapshot.standing().of(type_url).is_some_and(|standing| standing.is_current);
        // Some members of the glob are known, so the rest is on the way.
        let is_told = matches!(part.collection, Collection::Globs(_)) && !part.view.is_empty();
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
    pub(super) is_timeless: bool,
    /// The operator was told of the wait.
    pub is_told: bool,
}

impl NameWait {
    /// Whether no time ends the wait for a single name. Nothing else may tell the operator then.
    pub fn is_endless(&self) -> bool {
        self.is_timeless && !self.name.is_wildcard()
    }
}

pub(super) struct Awaited {
    pub(super) index: usize,
    pub(super) name: ResourceName,
    pub(super) look_at: Option<Time>,
}

/// The UNKNOWN names of the parts of an answer.
pub(super) struct Doubt<'a> {
    pub(super) parts: &'a [AnswerPart],
    pub(super) features: ClientFeatures,
    /// The name of the last wait. The wait mostly continues for the same name, and no search is necessary.
    pub(super) last: Option<&'a ResourceName>,
}

impl<'a> Doubt<'a> {
    /// The UNKNOWN names of one part, as the client asked for them.
    pub(super) fn names(&self, part: &'a AnswerPart) -> impl Iterator<Item = &'a ResourceName> {
        let asked = part.collection.names();
        let last = self.last.filter(|last| asked.is_some_and(|asked| asked.contains(last)));
        last.into_iter().chain(asked.into_iter().flat_map(|asked| asked.iter())).filter(|name| {
            let is_known = part.view.has(name) || part.view.knows_absent(name) || part.view.knows_glob(name);
            !is_known && !self.is_covered(&part.view, name)
        })
    }

    /// A missing name that the client was sent.
    pub(super) fn sent(&self, index: usize, part: &AnswerPart) -> Option<ResourceName> {
        let is_open = |name: &ResourceName| {
            part.collection.covers(name) && !part.view.knows_gone(name) && !self.is_covered(&part.view, name)
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
        others().next().filter(|_| part.collection.kind() == CollectionKind::Names)?;
        self.names(part).find(|name| others().any(|(_, other)| other.held.has(name))).cloned()
    }

    /// Whether another part supplies the name, or the client takes an error for an answer about the name
    /// (ERR-4, ERR-8).
    pub(super) fn is_covered(&self, view: &View, name: &ResourceName) -> bool {
        self.features.errors_alone && view.annotations().error(name).is_some()
            || self.parts.iter().any(|part| part.view.has(name))
    }
}
