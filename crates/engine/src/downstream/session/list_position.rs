//! The position of a session in server lists with more than one server (RLY-40).
//!
//! A session takes all resources of a list from one server, chosen by [`Fallback`]. Each poll of the session
//! checks the requested servers ([`Session::look`](super::Session::look)), and the session moves as a whole
//! ([`Session::shift`](super::Session::shift)). The client's content stays, so that only differences are
//! sent: clusters before routes, removals last.

use std::sync::Arc;

use crate::Time;
use crate::annotations::ErrorKind;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::router::{List, Router};
use crate::downstream::sources::{ListId, SourceId};
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::fallback::{Fallback, FallbackDecision, FallbackSettings, Sight};
use crate::reachability::Reachability;
use crate::snapshot::Snapshot;
use sluice_xds::{ResourceName, TypeUrl};

/// The sources of a part that are found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The sources that serve the part.
    Serving,
    /// The sources that the part is bound for.
    Last,
}

/// The positions of a session in all lists of several servers that it uses.
#[derive(Debug, Default)]
pub(super) struct ListPositions {
    pub(super) list: Vec<ListPosition>,
    /// The session moves to another configuration.
    is_moving: bool,
}

/// One list, or one type of a list.
#[derive(Debug)]
pub(super) struct ListPosition {
    pub list: List,
    /// `None`: all types.
    pub(super) type_url: Option<TypeUrl>,
    pub fallback: Fallback,
    /// While the session moves to another configuration: the state by the former one.
    former_fallback: Option<Box<Fallback>>,
    /// A move failed: the session keeps its server until this time.
    pub(super) refused_until: Option<Time>,
    /// The former sources' content, as long as removals that need the last bytes may wait (RLY-51).
    pub previous: Option<Box<PreviousSources>>,
}

#[derive(Debug, Default)]
pub(super) struct PreviousSources {
    pub snapshots: Snapshots,
    pub(super) until: Time,
}

impl ListPositions {
    /// The position in a list with collections, created at the first use; `None` if the list has one server.
    /// Collections that are new during a move have a former state, too, which the moves of the new sources
    /// leave alone.
    pub(super) fn enter(
        &mut self,
        id: ListId,
        type_url: &TypeUrl,
        which: Which,
        router: &dyn Router,
    ) -> Option<&ListPosition> {
        let index = match self.list.iter().position(|position| position.covers(type_url, id)) {
            Some(index) => index,
            None => {
                let list = router.fallback(id)?;
                let type_url = list.by_type.then(|| type_url.clone());
                self.list.reserve_exact(1);
                let has_former = self.is_moving && which == Which::Serving;
                self.list.push(ListPosition {
                    list,
                    type_url,
                    fallback: Fallback::default(),
                    former_fallback: has_former.then(Box::default),
                    refused_until: None,
                    previous: None,
                });
                self.list.len() - 1
            }
        };
        self.list.get(index)
    }

    /// The position in a list that is new to the session, whose server at `serving` serves the session
    /// already.
    pub fn begin_at(&mut self, id: ListId, type_url: &TypeUrl, serving: u16, router: &dyn Router) {
        if !self.list.iter().any(|position| position.covers(type_url, id))
            && self.enter(id, type_url, Which::Last, router).is_some()
            && let Some(position) = self.list.last_mut()
        {
            position.fallback = Fallback::at(serving.min(position.list.servers.saturating_sub(1)));
        }
    }

    /// Another configuration: each list is looked at anew from the state of its serving server on.
    pub(super) fn begin_move(&mut self) {
        self.is_moving = true;
        for position in &mut self.list {
            match &position.former_fallback {
                Some(previous) => position.fallback = (**previous).clone(),
                None => position.former_fallback = Some(Box::new(position.fallback.clone())),
            }
        }
    }

    /// The session has moved, or stays.
    pub(super) fn end_move(&mut self) {
        self.is_moving = false;
        self.list.iter_mut().for_each(|position| position.former_fallback = None);
    }

    /// Remembers a source that served a part of this list until now. A list of one server has a position for
    /// that time.
    pub(super) fn remember(
        &mut self,
        id: ListId,
        type_url: &TypeUrl,
        source: SourceId,
        snapshot: Option<Arc<Snapshot>>,
        until: Time,
        router: &dyn Router,
    ) {
        if self.enter(id, type_url, Which::Last, router).is_none() {
            let settings = FallbackSettings::default();
            let list = List { id, servers: 1, by_type: false, settings, deleting: 0 };
            let fallback = Fallback::default();
            let (former_fallback, refused_until, previous) = (None, None, None);
            self.list.push(ListPosition {
                list,
                type_url: None,
                fallback,
                former_fallback,
                refused_until,
                previous,
            });
        }
        let Some(position) = self.list.iter_mut().find(|position| position.covers(type_url, id)) else {
            return;
        };
        let previous = position.previous.get_or_insert_default();
        if previous.until != until {
            previous.snapshots.clear();
            previous.until = until;
        }
        if !previous.snapshots.iter().any(|(other, _)| *other == source) {
            previous.snapshots.push((source, snapshot));
        }
    }

    /// Takes other rules of fallback over. The id of a list stands for its servers, so positions stay valid.
    pub(super) fn configure(&mut self, list: &dyn Fn(ListId) -> Option<List>) {
        for position in &mut self.list {
            if let Some(configured) = list(position.list.id) {
                position.list = configured;
            }
        }
    }

    /// Forgets lists, and types of lists, without collections.
    pub(super) fn keep(&mut self, is_used: impl Fn(&ListPosition) -> bool) {
        self.list.retain(is_used);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ListPosition> {
        self.list.iter()
    }

    /// The lists with a move so recent that removals may still wait.
    pub(super) fn moved(&self) -> Vec<ListId> {
        self.list
            .iter()
            .filter(|position| position.previous.is_some())
            .map(|position| position.list.id)
            .collect()
    }

    /// Whether the wait of all removals is over in some list that the session has moved in.
    pub(super) fn has_waited(&self, now: Time) -> bool {
        self.list
            .iter()
            .any(|position| position.previous.as_ref().is_some_and(|previous| previous.until <= now))
    }

    /// Drops last bytes after the wait of all removals. `awaited`: the lists whose former content is needed
    /// for longer.
    pub(super) fn forget_former(&mut self, awaited: &[ListId], now: Time) {
        let mut is_over = false;
        for position in &mut self.list {
            if let Some(previous) = position.previous.as_mut().filter(|_| awaited.contains(&position.list.id))
            {
                previous.until = previous.until.max(now + ORDER_WAIT_MAX);
            }
            is_over |= position.previous.take_if(|previous| previous.until <= now).is_some();
        }
        if is_over {
            self.list.retain(|position| position.list.servers > 1 || position.previous.is_some());
        }
    }
}

impl ListPosition {
    /// The state for sources of the former configuration, or of the one that the session is bound for.
    pub fn fallback_of(&self, which: Which) -> &Fallback {
        match (which, &self.former_fallback) {
            (Which::Serving, Some(previous)) => previous,
            (Which::Serving, None) | (Which::Last, _) => &self.fallback,
        }
    }

    /// A list that another configuration leaves as it is moves at once, also during a move to that
    /// configuration. Names that are asked for meanwhile come from the same server.
    pub(super) fn serve_as_bound(&mut self) {
        if let Some(previous) = &mut self.former_fallback {
            **previous = self.fallback.clone();
        }
    }

    /// Whether the position serves the collections in a type of a list.
    pub(super) fn covers(&self, type_url: &TypeUrl, list: ListId) -> bool {
        self.list.id == list && self.type_url.as_ref().is_none_or(|covered| covered == type_url)
    }

    /// The parts that the position serves.
    pub(super) fn parts<'a>(
        &'a self,
        subscriptions: &'a [Subscription],
    ) -> impl Iterator<Item = (&'a Subscription, &'a Part)> {
        let parts = parts(subscriptions);
        parts.filter(|(subscription, part)| self.covers(&subscription.type_url, part.asked.list))
    }

    /// The parts that the position serves, or will.
    pub(super) fn parts_bound_for<'a>(
        &'a self,
        subscriptions: &'a [Subscription],
    ) -> impl Iterator<Item = (&'a Subscription, &'a Part)> {
        let parts = parts(subscriptions);
        parts.filter(|(subscription, part)| self.covers(&subscription.type_url, part.bound_for().list))
    }

    /// The next move, and the time of the next look.
    pub(super) fn decide(
        &self,
        subscriptions: &[Subscription],
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> FallbackDecision {
        if let Some(until) = self.refused_until.filter(|until| *until > now) {
            return FallbackDecision { next: None, look_at: Some(until) };
        }
        let sights: Vec<_> =
            (0..=self.fallback.active()).map(|server| self.sight(subscriptions, server, latest)).collect();
        self.fallback.decide(&self.list.settings, self.list.servers, &sights, now)
    }

    /// The state of one server of a list, as seen by this session. A single lost source makes the server
    /// unreachable.
    fn sight(
        &self,
        subscriptions: &[Subscription],
        server: u16,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Sight {
        let mut sight = Sight { reach: Reachability::Pending, unknown: 0, is_current: true, is_noted: true };
        let mut is_heard = true;
        for (subscription, part) in self.parts_bound_for(subscriptions) {
            let (is_serving, asked) = (server == self.fallback.serving(), part.bound_for());
            let source = match is_serving {
                true => Some(asked.source),
                false => asked.others().find(|(other, _)| *other == server).map(|(_, source)| source),
            };
            let Some(source) = source else { continue };
            sight.unknown += unknown(subscription, part, source, latest);
            if is_serving {
                sight.unknown =
                    sight.unknown.saturating_sub(self.unknown_stand_ins(subscription, part, asked, latest));
            }
            let Some(snapshot) = latest(source) else { continue };
            let standing = snapshot.standing();
            let types = snapshot.of(&subscription.type_url);
            sight.is_noted &= types.is_some_and(|types| types.view(&part.collection).is_some());
            sight.is_current = sight.is_current
                && standing
                    .of(&subscription.type_url)
                    .is_some_and(|of_type| of_type.is_current_for(&part.collection));
            let reach = standing.reach_of(&subscription.type_url);
            is_heard &= reach.is_heard();
            let is_later = reach.since() > sight.reach.since();
            let stands = sight.reach.is_lost() && !reach.is_lost();
            if !stands && (reach.is_lost() || is_later) {
                sight.reach = reach.clone();
            }
        }
        if sight.reach.is_heard() && !is_heard {
            sight.reach = Reachability::Pending;
        }
        sight
    }
}

/// All parts of a session.
pub(super) fn parts(subscriptions: &[Subscription]) -> impl Iterator<Item = (&Subscription, &Part)> {
    subscriptions
        .iter()
        .flat_map(|subscription| subscription.parts.iter().map(move |part| (subscription, part)))
}

/// The number of names of a part that are UNKNOWN at a source. A name with an error counts as known
/// (FBK-3). Only the relay's own error for an unreachable server (ERR-10) is no answer, but the reason to
/// ask another server.
pub(super) fn unknown(
    subscription: &Subscription,
    part: &Part,
    source: SourceId,
    latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
) -> usize {
    let all = part.names().map_or(1, |names| names.len());
    let Some(snapshot) = latest(source) else { return all };
    let view = snapshot.of(&subscription.type_url).and_then(|types| types.view(&part.collection));
    let Some(view) = view else { return all };
    if view.unknown_len() == 0 {
        return 0;
    }
    let is_known = |name: &ResourceName| view.has(name) || view.knows_absent(name) || view.knows_glob(name);
    let asked = |name: &ResourceName| part.names().is_some_and(|names| names.contains(name));
    let is_answer = |name: &ResourceName| view.annotations().error_kind(name) != Some(ErrorKind::Unreachable);
    let errors = view.annotations().errors().map(|(name, _)| name);
    let errors = errors.filter(|name| asked(name) && !is_known(name) && is_answer(name)).count();
    view.unknown_len().saturating_sub(errors)
}
