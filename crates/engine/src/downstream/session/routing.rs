//! The sources of a session's subscriptions: routes each part to the sources of its group, by the router.
//!
//! A session moves between the servers of a list as a whole (RLY-40). It moves to the sources of another
//! configuration in the same way, to another node class or other server lists (REL-6, ADR 36): the session
//! asks the new sources beside the former ones, which serve until the new sources know everything that the
//! session wants. Then the ordinary difference of two views is all that is sent. Equal content is no
//! difference, and nothing is removed before the new content is whole.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKind};
use crate::downstream::memory::{SUBSCRIBED_NAME_BYTES, weight};
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::Session;
use crate::downstream::session::list_position::{ListPosition, ListPositions, Which, parts, unknown};
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::sources::ListId;
use crate::downstream::sources::{Asked, Others, SourceId};
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::{InterestChange, NameSetChange, Subscription};
use crate::snapshot::Snapshot;
use sluice_xds::{DeltaRequest, ResourceName, Status, TypeUrl, Variant};

/// A session's move to another server of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub list: ListId,
    /// `None`: all types.
    pub type_url: Option<TypeUrl>,
    pub from: u16,
    pub to: u16,
}

/// The result of a shift.
#[derive(Debug, Default)]
pub struct Shift {
    pub watches: Vec<Watch>,
    pub moves: Vec<Moved>,
    /// The session has moved to the sources of another configuration (REL-6).
    pub is_settled: bool,
    /// The router's error for a source. The session keeps its server in the list for a while.
    pub refused: Option<Status>,
}

/// The result of a look at the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// A [`Session::shift`] or a [`Session::adopt`] is due.
    pub is_due: bool,
    /// The time of the next look if no event comes.
    pub look_at: Option<Time>,
}

/// Time until the retry of a move without a source.
const RETRY: Duration = Duration::from_secs(5);

/// The limit behind an omission of unasked names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoomFor {
    /// The names of the stream.
    Names,
    /// The memory of the connection.
    Memory,
}

/// The result of an adoption.
#[derive(Debug, Default)]
pub struct Adopted {
    pub watches: Vec<Watch>,
    /// The number of names without room, by type.
    pub left_out: Vec<(TypeUrl, usize, NoRoomFor)>,
}

impl Session {
    pub(super) fn apply(
        &mut self,
        index: usize,
        change: InterestChange,
        router: &mut dyn Router,
    ) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        let (subscription, positions) = (&mut self.subscriptions[index], &mut self.positions);
        subscription.delivery.sent_after = None;
        let type_url = subscription.type_url.clone();
        // Names go first, because they keep the content of a glob or wildcard that goes with the same
        // request.
        let is_named = |(key, _): &(Key, NameSetChange)| !key.0.is_broad();
        let (names, globs): (Vec<_>, Vec<_>) = change.names.into_iter().partition(is_named);
        for ((kind, group), names) in names.into_iter().chain(globs) {
            let collection = (!names.0.is_empty()).then(|| kind.collection(names.0));
            set_part(subscription, (kind, group), collection, positions, router, &mut watches)?;
        }
        if let Some(wildcard) = change.wildcard {
            let collection = wildcard.then_some(Collection::Wildcard);
            let group = router.group_of(&type_url, None);
            set_part(
                subscription,
                (CollectionKind::Wildcard, group),
                collection,
                positions,
                router,
                &mut watches,
            )?;
        }
        subscription.keep_left(&change.left);
        let names = self.names_len();
        self.entitlement.judge_names(&self.subscriptions[index], names)?;
        self.list_sources();
        Ok(watches)
    }

    /// Routes every part again after the node of the client changed in a property that splits node classes
    /// (RLY-16). The client's content stays, so that only differences are sent.
    pub fn reroute(&mut self, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        self.replace_where(&|_, _| true, Which::Serving, router)
    }

    /// Routes the parts of a source again: the source no longer serves this session, or not yet (RLY-14).
    /// The client's content stays.
    pub fn leave(&mut self, source: SourceId, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let asks = |_: &TypeUrl, part: &Part| part.asked.sources().any(|asked| asked == source);
        self.replace_where(&asks, Which::Serving, router)
    }

    /// Routes these parts again.
    fn replace_where(
        &mut self,
        is_routed: &dyn Fn(&TypeUrl, &Part) -> bool,
        which: Which,
        router: &mut dyn Router,
    ) -> Result<Vec<Watch>, Status> {
        // All sources are found before any change: after an error the session stays as before.
        let mut all = Vec::new();
        for subscription in &self.subscriptions {
            let type_url = &subscription.type_url;
            for part in subscription.parts.iter().filter(|part| is_routed(type_url, part)) {
                all.push(find_asked(type_url, part.group, which, &mut self.positions, router)?);
            }
        }
        let (mut all, mut watches) = (all.into_iter(), Vec::new());
        for subscription in &mut self.subscriptions {
            let type_url = subscription.type_url.clone();
            let parts = || subscription.parts.iter().filter(|part| is_routed(&type_url, part));
            let asked: Vec<_> = all.by_ref().take(parts().count()).collect();
            let present = |part| if which == Which::Last { Part::bound_for(part) } else { &part.asked };
            if parts().map(present).eq(&asked) {
                continue;
            }
            subscription.interrupt();
            let (states_version, is_unanswered) =
                (subscription.presented_version().is_some(), subscription.nonces.latest().is_none());
            for (part, asked) in
                subscription.parts.iter_mut().filter(|part| is_routed(&type_url, part)).zip(asked)
            {
                let before: Vec<_> = part.sources().collect();
                match &mut part.next {
                    Some(next) if which == Which::Last => **next = asked,
                    _ => {
                        // Nothing of the former server is in the client's content (ADR 52).
                        let is_moved = part.asked.list == asked.list && part.source() != asked.source;
                        let brings = states_version || !part.held.is_empty();
                        serve_from(part, asked, router);
                        part.bring_if(is_moved && is_unanswered && brings);
                    }
                }
                watch_instead(part, &before, &type_url, &mut watches);
            }
        }
        self.list_sources();
        Ok(watches)
    }

    /// Routes names of a type whose group has changed (CCH-1). The client's content stays until the new
    /// source has other content.
    pub fn divert(&mut self, type_url: &TypeUrl, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let Some(index) = self.subscriptions.iter().position(|s| s.type_url == *type_url) else {
            return Ok(Vec::new());
        };
        let subscription = &self.subscriptions[index];
        let mut change = subscription.divert(self.seed, &|name| router.group_of(type_url, Some(name)));
        let group = router.group_of(type_url, None);
        let moves = |part: &Part| part.is_wildcard() && part.group != group;
        change.wildcard = subscription.parts.iter().any(moves).then_some(true);
        let (keys, left): (Vec<_>, _) =
            (change.names.keys().copied().collect(), subscription.held_by_names());
        let watches = self.apply(index, change, router)?;
        let parts = self.subscriptions[index].parts.iter_mut();
        parts.filter(|part| keys.contains(&part.key())).for_each(|part| part.inherit(&left));
        Ok(watches)
    }

    /// Routes the names of all types whose group has changed: the configuration has other authorities.
    pub fn regroup(&mut self, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        for index in 0..self.subscriptions.len() {
            let type_url = self.subscriptions[index].type_url.clone();
            let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
            if self.subscriptions[index].divert(self.seed, &group_of) != InterestChange::default() {
                watches.extend(self.divert(&type_url, router)?);
            }
        }
        Ok(watches)
    }

    /// Lists the sources of the parts. Unused sources and positions go, so that nothing keeps them alive.
    fn list_sources(&mut self) {
        self.note_returning();
        let parts = || self.subscriptions.iter().flat_map(|subscription| &subscription.parts);
        let asked = || parts().flat_map(Part::sources);
        self.sources.retain(|source| asked().any(|used| used == *source));
        for source in asked() {
            if !self.sources.contains(&source) {
                self.sources.push(source);
            }
        }
        let is_used = |subscription: &Subscription, position: &ListPosition| {
            let lists = |part: &Part| [part.asked.list, part.bound_for().list];
            let mut lists = subscription.parts.iter().flat_map(lists);
            lists.any(|list| position.covers(&subscription.type_url, list))
        };
        self.positions
            .keep(|position| self.subscriptions.iter().any(|subscription| is_used(subscription, position)));
    }

    /// Whether a [`Session::shift`] or a [`Session::adopt`] is due, and the time of the next look. `latest`
    /// as for [`Session::poll_answer`].
    pub fn look(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, now: Time) -> Look {
        let is_due = self.may_settle(latest, now) || self.owes_unasked(latest);
        let mut all = Look { is_due, look_at: self.transitions.moves_at };
        for position in self.positions.iter() {
            let decision = position.decide(&self.subscriptions, latest, now);
            all.is_due |= decision.next.is_some();
            let previous = position.previous.as_ref().map(|previous| previous.until);
            all.look_at = all.look_at.into_iter().chain(decision.look_at).chain(previous).min();
        }
        all
    }

    /// Moves this session to the servers that should serve the session now. `router`: by the configuration in
    /// force.
    pub fn shift(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        now: Time,
    ) -> Shift {
        let mut shift = Shift::default();
        for index in 0..self.positions.list.len() {
            let servers = self.positions.list.get(index).map_or(0, |position| position.list.servers);
            // Every server may be opened and passed over, and then one of the servers serves.
            for _ in 0..=servers {
                let Some(position) = self.positions.list.get(index) else { break };
                let Some(next) = position.decide(&self.subscriptions, latest, now).next else { break };
                let (list, type_url) = (position.list.id, position.type_url.clone());
                let from = position.fallback.serving();
                let is_moving =
                    position.parts_bound_for(&self.subscriptions).any(|(_, part)| part.is_moving());
                let serving = position.parts(&self.subscriptions).map(|(_, part)| part.source());
                let served: Snapshots = serving.map(|source| (source, latest(source))).collect();
                let Some(position) = self.positions.list.get_mut(index) else { break };
                let before = position.fallback.clone();
                position.fallback.make(next, &position.list.settings, now);
                let to = position.fallback.serving();
                let is_listed = |part_type: &TypeUrl, part: &Part| {
                    part.bound_for().list == list && type_url.as_ref().is_none_or(|url| url == part_type)
                };
                let replaced = self.replace_where(&is_listed, Which::Last, router);
                let Some(position) = self.positions.list.get(index) else { break };
                let has_next =
                    position.parts_bound_for(&self.subscriptions).any(|(_, part)| part.next.is_some());
                let Some(position) = self.positions.list.get_mut(index) else { break };
                match replaced {
                    Ok(watches) if has_next => shift.watches.extend(watches),
                    Ok(watches) => {
                        shift.watches.extend(watches);
                        position.serve_as_bound();
                    }
                    Err(status) => {
                        (position.fallback, position.refused_until) = (before, Some(now + RETRY));
                        shift.refused = Some(status);
                        break;
                    }
                }
                if from != to {
                    shift.moves.push(Moved { list, type_url, from, to });
                }
                // A session on its way to another configuration is served by its former sources still.
                if from != to && !is_moving {
                    self.remember_served(index, served, latest, now);
                }
            }
        }
        if self.may_settle(latest, now) {
            shift.watches.extend(self.settle(latest, router, now));
            shift.is_settled = true;
        }
        shift
    }

    /// Remembers the sources that served a list until now.
    fn remember_served(
        &mut self,
        index: usize,
        served: Snapshots,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) {
        let Some(position) = self.positions.list.get(index) else { return };
        let previous = self.serving().previous(position, served, latest, now);
        if let Some(position) = self.positions.list.get_mut(index) {
            position.previous = Some(Box::new(previous));
        }
        self.transitions.end_round();
    }

    /// Whether nothing can be answered and no server of some list is left to ask (RLY-4): each server is
    /// lost, or with `impatient` at least silent. Lists of one server count.
    pub fn is_stranded(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, impatient: bool) -> bool {
        self.subscriptions().iter().any(|subscription| {
            subscription.parts.iter().any(|part| {
                let type_url = &subscription.type_url;
                let position =
                    self.positions.iter().find(|position| position.covers(type_url, part.asked.list));
                let is_last =
                    position.is_none_or(|position| position.fallback.active() + 1 >= position.list.servers);
                let cut_off = |source| {
                    let reach = latest(source).map(|snapshot| snapshot.standing().reach_of(type_url).clone());
                    let reach = reach.unwrap_or_default();
                    reach.is_lost() || (impatient && !reach.is_heard())
                };
                let lacks = unknown(subscription, part, part.source(), latest) > 0;
                lacks && (is_last || impatient) && part.asked.sources().all(cut_off)
            })
        })
    }

    /// The serving server of each list of several servers, or of each type of such a list.
    pub fn served_by(&self) -> impl Iterator<Item = (ListId, u16)> {
        self.positions.iter().map(|position| (position.list.id, position.fallback.serving()))
    }

    /// Finds the sources of all parts by another configuration, which `router` reads. Until the session has
    /// moved, the caller routes requests by the former configuration, and calls [`Session::keep_moving`]
    /// after each.
    ///
    /// # Errors
    /// The router's error for a source. The session stays as before.
    pub fn reclassify(&mut self, router: &mut dyn Router, now: Time) -> Result<Vec<Watch>, Status> {
        self.positions.begin_move();
        self.find_next(router, |wait| now + wait)
    }

    /// As [`Session::reclassify`], after a change of the subscriptions. The time of the move stays.
    pub fn keep_moving(&mut self, router: &mut dyn Router, now: Time) -> Result<Vec<Watch>, Status> {
        let until = self.transitions.moves_at;
        self.find_next(router, |wait| until.unwrap_or(now + wait))
    }

    /// Whether the session is on its way to the sources of another configuration.
    pub fn is_moving(&self) -> bool {
        self.transitions.moves_at.is_some()
    }

    fn find_next(
        &mut self,
        router: &mut dyn Router,
        until: impl Fn(Duration) -> Time,
    ) -> Result<Vec<Watch>, Status> {
        let (mut all, mut wait, mut refused) = (Vec::new(), Duration::ZERO, None);
        for subscription in &self.subscriptions {
            let type_url = &subscription.type_url;
            for part in &subscription.parts {
                let list = router.list(type_url, part.group);
                // A server that serves already, and stays in the list, is left only for a better one.
                let serving = router.position_of(list, part.source()).unwrap_or(0);
                self.positions.begin_at(list, type_url, serving, router);
                match find_asked(type_url, part.group, Which::Last, &mut self.positions, router) {
                    Ok(asked) => all.push(asked),
                    Err(status) => refused = Some(status),
                }
                wait = wait.max(router.resolve_timeout(list));
            }
        }
        if let Some(status) = refused {
            if self.transitions.moves_at.is_none() {
                self.positions.end_move();
            }
            self.list_sources();
            return Err(status);
        }
        let (mut all, mut watches, mut is_moving) = (all.into_iter(), Vec::new(), false);
        for subscription in &mut self.subscriptions {
            for (part, asked) in subscription.parts.iter_mut().zip(all.by_ref()) {
                let before: Vec<_> = part.sources().collect();
                part.next = (part.asked != asked).then(|| Box::new(asked));
                is_moving |= part.next.is_some();
                watch_instead(part, &before, &subscription.type_url, &mut watches);
            }
        }
        self.transitions.set_moves_at(is_moving.then(|| until(wait)));
        self.transitions.trim();
        if !is_moving {
            self.positions.end_move();
        }
        self.list_sources();
        Ok(watches)
    }

    /// Whether the session has its new sources to be served from.
    fn may_settle(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, now: Time) -> bool {
        let Some(moves_at) = self.transitions.moves_at else { return false };
        let mut moved = parts(&self.subscriptions).filter(|(_, part)| part.is_moving());
        moves_at <= now || moved.all(|(subscription, part)| self.is_known_next(subscription, part, latest))
    }

    /// Whether the next source of a part knows everything that the client wants, by a server that can be
    /// heard.
    fn is_known_next(
        &self,
        subscription: &Subscription,
        part: &Part,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> bool {
        let (type_url, asked) = (&subscription.type_url, part.bound_for());
        let Some(snapshot) = latest(asked.source) else { return false };
        let is_noted = snapshot.of(type_url).is_some_and(|types| types.view(&part.collection).is_some());
        let standing = snapshot.standing();
        let is_restored = standing.of(type_url).is_some_and(|of_type| of_type.restored);
        if !is_noted || is_restored || standing.reach_of(type_url).is_lost() {
            return false;
        }
        let mut positions = self.positions.iter().filter(|position| position.covers(type_url, asked.list));
        let stand_ins = positions
            .next()
            .map_or(0, |position| position.unknown_stand_ins(subscription, part, asked, latest));
        unknown(subscription, part, asked.source, latest) <= stand_ins
    }

    /// Takes all content from the new sources from now on. The client's content stays, and so do last bytes
    /// of the former sources for a while (RLY-51).
    fn settle(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        now: Time,
    ) -> Vec<Watch> {
        let (mut watches, until) = (Vec::new(), now + ORDER_WAIT_MAX * 2);
        for subscription in &mut self.subscriptions {
            let type_url = subscription.type_url.clone();
            if subscription.parts.iter().any(Part::is_moving) {
                subscription.interrupt();
            }
            for part in &mut subscription.parts {
                let (before, serving): (Vec<_>, _) = (part.sources().collect(), part.source());
                let Some(next) = part.next.take() else { continue };
                serve_from(part, *next, router);
                watch_instead(part, &before, &type_url, &mut watches);
                if part.source() != serving {
                    self.positions.remember(
                        part.asked.list,
                        &type_url,
                        serving,
                        latest(serving),
                        until,
                        router,
                    );
                    self.transitions.end_round();
                }
            }
        }
        self.transitions.set_moves_at(None);
        self.transitions.trim();
        self.positions.end_move();
        self.list_sources();
        watches
    }

    /// Whether a [`Session::adopt`] is due.
    fn owes_unasked(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> bool {
        let subscriptions = self.subscriptions.iter();
        let mut types = subscriptions.filter(|subscription| subscription.type_url.is_sent_unasked());
        types.any(|subscription| self.kind.variant == Variant::Delta && subscription.owes_unasked(latest))
    }

    /// Subscribes to the unasked names of the sources, and gives adopted names up after the client was told
    /// of the removal. `charge`: whether the connection may hold so many bytes of names.
    pub fn adopt(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Adopted {
        let mut adopted = Adopted::default();
        if self.kind.variant == Variant::Sotw {
            return adopted;
        }
        for index in 0..self.subscriptions.len() {
            let Some(subscription) = self.subscriptions.get(index) else { break };
            if subscription.type_url.is_sent_unasked() && subscription.owes_unasked(latest) {
                self.adopt_of_type(index, latest, router, charge, &mut adopted);
            }
        }
        adopted
    }

    fn adopt_of_type(
        &mut self,
        index: usize,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        charge: &mut dyn FnMut(usize) -> bool,
        adopted: &mut Adopted,
    ) {
        let (names_len, names_bytes) = (self.names_len(), self.names_bytes());
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        let (type_url, grant) = (subscription.type_url.clone(), self.entitlement.grant.clone());
        let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
        let of_type = grant.of_type(&type_url).ok();
        let mut subscribe = subscription.take_unasked(latest, &group_of, of_type.as_ref());
        let unsubscribe = subscription.take_gone(latest);
        let room = (self.entitlement.limits.names_per_stream + unsubscribe.len()).saturating_sub(names_len);
        let more = subscribe.len().saturating_sub(room);
        if more > 0 {
            subscribe.truncate(room);
            adopted.left_out.push((type_url.clone(), more, NoRoomFor::Names));
        }
        let name_bytes = |name: &ResourceName| name.allocated() + SUBSCRIBED_NAME_BYTES + weight(name);
        let bytes: usize = subscribe.iter().map(name_bytes).sum();
        if !subscribe.is_empty() && !charge(names_bytes + bytes) {
            adopted.left_out.push((type_url.clone(), subscribe.len(), NoRoomFor::Memory));
            subscribe.clear();
        }
        let request = DeltaRequest { subscribe, unsubscribe, ..DeltaRequest::default() };
        if !request.asks() {
            return;
        }
        let change = subscription.take_delta(&request, self.seed, &group_of, &grant);
        match self.apply(index, change, router) {
            Ok(watches) => adopted.watches.extend(watches),
            // The source of the names serves the client already, so the router has the source.
            Err(_) => return,
        }
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            subscription.note_adopted(request.subscribe);
        }
    }
}

/// Brings one part of a subscription to the new collection, and notes the changes for its sources.
fn set_part(
    subscription: &mut Subscription,
    key: Key,
    collection: Option<Collection>,
    positions: &mut ListPositions,
    router: &mut dyn Router,
    watches: &mut Vec<Watch>,
) -> Result<(), Status> {
    let ((kind, group), type_url) = (key, subscription.type_url.clone());
    match collection {
        Some(collection) => {
            let asked = find_asked(&type_url, group, Which::Serving, positions, router)?;
            let seen = router.last_change(asked.source);
            let part = subscription.parts.iter().find(|part| part.key() == key);
            let names = part.and_then(Part::names).cloned();
            let before = subscription.set_part(group, Some((asked, collection)), kind);
            let set = subscription.parts.iter_mut().find(|part| part.key() == key);
            let Some(part) = set else { return Ok(()) };
            part.begin_changes(seen);
            // This very request may have changed the client's node class (RLY-16).
            unwatch_former(part, &before, &type_url, watches);
            for source in part.sources() {
                let (type_url, collection) = (type_url.clone(), part.collection.clone());
                watches.push(Watch::Watch { source, type_url, collection, previous: names.clone() });
            }
        }
        None => {
            let key = kind.key(group.authority.style());
            let sources = subscription.set_part(group, None, kind);
            for source in sources {
                // Names of unknown authorities have one source (FED-3), which may be asked by another part,
                // too.
                let asks = |part: &&Part| {
                    part.collection.key() == key && part.sources().any(|asked| asked == source)
                };
                let collection = subscription.parts.iter().find(asks).map(|part| part.collection.clone());
                let type_url = type_url.clone();
                watches.push(match collection {
                    Some(collection) => Watch::Watch { source, type_url, collection, previous: None },
                    None => Watch::Unwatch { source, type_url, key },
                });
            }
        }
    }
    Ok(())
}

fn serve_from(part: &mut Part, asked: Asked, router: &dyn Router) {
    let before = std::mem::replace(&mut part.asked, asked);
    if before.source != part.source() {
        part.begin_changes(router.last_change(part.source()));
    }
}

/// Notes the sources that are no longer asked, and those that are asked now.
fn watch_instead(part: &Part, before: &[SourceId], type_url: &TypeUrl, watches: &mut Vec<Watch>) {
    unwatch_former(part, before, type_url, watches);
    for source in part.sources().filter(|source| !before.contains(source)) {
        let (type_url, collection) = (type_url.clone(), part.collection.clone());
        watches.push(Watch::Watch { source, type_url, collection, previous: None });
    }
}

fn unwatch_former(part: &Part, before: &[SourceId], type_url: &TypeUrl, watches: &mut Vec<Watch>) {
    let key = part.collection.key();
    for source in before.iter().copied().filter(|source| part.sources().all(|asked| asked != *source)) {
        watches.push(Watch::Unwatch { source, type_url: type_url.clone(), key });
    }
}

/// Finds the sources of a part.
fn find_asked(
    type_url: &TypeUrl,
    group: NameGroup,
    which: Which,
    positions: &mut ListPositions,
    router: &mut dyn Router,
) -> Result<Asked, Status> {
    let list = router.list(type_url, group);
    let Some(position) = positions.enter(list, type_url, which, router) else {
        return Ok(Asked { list, source: router.source(type_url, group, 0)?, others: None });
    };
    let fallback = position.fallback_of(which);
    let source = router.source(type_url, group, fallback.serving())?;
    let mut others = Others::default();
    for server in fallback.others() {
        others.0.push((server, router.source(type_url, group, server)?));
    }
    Ok(Asked { list, source, others: (!others.0.is_empty()).then(|| Box::new(others)) })
}
