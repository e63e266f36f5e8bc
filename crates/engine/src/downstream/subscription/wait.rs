//! Decides whether an answer waits for a name (RLY-5, DEL-26).

use crate::Time;
use crate::collection::Collection;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::name_wait::{
    ANSWERED, Awaited, Doubt, First, LOOK, NameWait, UNANSWERED,
};
use sluice_xds::{ResourceName, SotwRequest, Variant, Version};

impl Subscription {
    /// Whether the client has a name in another version, or may have it from an earlier stream. `was_kept`: it had before the latest answer.
    pub(in crate::downstream) fn has_another(
        &self,
        name: &ResourceName,
        version: Version,
        was_kept: bool,
    ) -> bool {
        let mut held = self.parts.iter().filter_map(|part| part.held.version_of(name)).peekable();
        let has_some = held.peek().is_some();
        let is_wanted = || self.parts.iter().any(|part| part.collection.covers(name));
        let returns = || self.first.as_ref().is_some_and(|first| first.may_have(name));
        let may_have = || !has_some && (was_kept || returns()) && is_wanted();
        held.any(|of| of != version) || may_have()
    }

    /// Notes the first request of the type. Its names must be parts already.
    pub(in crate::downstream) fn begin(&mut self, request: &SotwRequest, now: Time) {
        let names = self.parts.iter().filter_map(|part| part.names());
        let returning = match request.version_info.is_empty() {
            true => Vec::new(),
            false => names.map(|names| (**names).clone()).collect(),
        };
        let brings = !request.version_info.is_empty();
        let returns_to_all = brings && self.is_wildcard();
        self.first = Some(Box::new(First { asked_at: now, returning, returns_to_all, answered: Vec::new() }));
        self.parts.iter_mut().for_each(|part| part.bring_if(brings));
    }

    /// The time of the next look for a missing name.
    pub(in crate::downstream) fn look_at(&self) -> Option<Time> {
        self.name_wait.as_ref().and_then(|wait| wait.look_at)
    }

    /// Begins a new decision about the wait.
    pub(super) fn look(&mut self) {
        if let Some(wait) = &mut self.name_wait {
            wait.look_at = None;
        }
    }

    /// The time of the next look while the routing types wait for the first answer of this type; `None` if there is no wait
    /// (ORD-12). The routing types wait for the wildcard and for globs, and for names until the server answers for the type without them:
    /// as long as a first complete set, so that both keep within the patience of clients (TMR-2).
    pub(in crate::downstream) fn owes_first(&self, variant: Variant, turn: &Turn<'_>) -> Option<Time> {
        if self.nonces.latest().is_some() {
            return None;
        }
        let asked_at = self.nonces.since;
        let open = self.parts.iter().filter_map(|part| {
            let snapshot = turn.snapshot(part.source());
            let view = snapshot.and_then(|snapshot| snapshot.of(&self.type_url)?.view(&part.collection));
            let standing = snapshot.and_then(|snapshot| snapshot.standing().of(&self.type_url));
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

    /// Notes that the first answer went out.
    pub(super) fn end_first(&mut self, answer: &Answer) {
        // An error in place of a name may end while the client still has a copy (ERR-4).
        let is_excused =
            answer.features.errors_alone && !answer.parts.iter().all(|part| part.view.is_complete());
        self.first.take_if(|_| !is_excused);
    }

    /// Whether the answer has to wait for a name. Notes the name.
    pub(super) fn must_wait(&mut self, parts: &[AnswerPart], full: bool, turn: &Turn<'_>) -> bool {
        let awaited = match full {
            true => self.awaited(parts, turn.now),
            false => self.awaited_room(parts, turn.now),
        };
        let Some(Awaited { index, name, look_at }) = awaited else {
            self.name_wait = None;
            return false;
        };
        let source = self.parts.get(index).map_or(SourceId(0), |part| part.source());
        let before = self.name_wait.take();
        let since = before.as_ref().map_or(turn.now, |before| before.since);
        let is_told = before.is_some_and(|before| before.is_told);
        let is_timeless = look_at.is_none();
        self.name_wait = Some(Box::new(NameWait { name, source, since, look_at, is_timeless, is_told }));
        true
    }

    /// The membership without which the removal of a client's listener cannot be told. A new listener may need the
    /// address of the other (DEL-26). Nothing waits for withheld names: the server has them, and may have them for long.
    /// The end of the first answers comes a moment after the last of them, and may never come: no update waits for ever.
    fn awaited_room(&self, parts: &[AnswerPart], now: Time) -> Option<Awaited> {
        if !self.type_url.kind().may_exclude() {
            return None;
        }
        let until = self.name_wait.as_ref().map_or(now, |wait| wait.since) + ANSWERED;
        if until <= now {
            return None;
        }
        parts.iter().enumerate().filter(|(_, part)| part.view.lacks_an_answer()).find_map(|(index, part)| {
            let mut lacking = part.held.beside(&part.view).map(|(name, _)| name);
            let name = match part.collection {
                Collection::Wildcard => lacking.next().map(|_| ResourceName::new("*")),
                Collection::Globs(_) => lacking.find(|name| !part.view.knows_gone(name))?.glob(),
                Collection::Names(_) => None,
            };
            Some(Awaited { index, name: name?, look_at: Some(until) })
        })
    }

    fn awaited(&mut self, parts: &[AnswerPart], now: Time) -> Option<Awaited> {
        let open = || parts.iter().enumerate().filter(|(_, part)| !part.view.is_complete());
        open().next()?;
        // Sets always wait for the whole wildcard.
        if let Some((index, _)) = open().find(|(_, part)| matches!(part.collection, Collection::Wildcard)) {
            return Some(Awaited { index, name: ResourceName::new("*"), look_at: None });
        }
        let doubt =
            Doubt { parts, features: self.features, last: self.name_wait.as_ref().map(|wait| &wait.name) };
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
        let first = self.first.as_mut().filter(|_| self.nonces.latest().is_none())?;
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
