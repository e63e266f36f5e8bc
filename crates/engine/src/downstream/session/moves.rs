//! Moves of a session between the servers of a list (RLY-40).

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::annotations::ErrorKind;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::Session;
use crate::downstream::session::list_position::ListPosition;
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::session::routing::Which;
use crate::downstream::sources::{ListId, SourceId};
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::fallback::{Decision, Sight};
use crate::reachability::Reachability;
use crate::snapshot::Snapshot;
use sluice_xds::{ResourceName, Status, TypeUrl};

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

impl Session {
    /// Whether a [`Session::shift`] or a [`Session::adopt`] is due, and the time of the next look. `latest` as for
    /// [`Session::poll_answer`].
    pub fn look(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, now: Time) -> Look {
        let is_due = self.may_settle(latest, now) || self.owes_unasked(latest);
        let mut all = Look { is_due, look_at: self.settles_at() };
        for position in self.positions.iter() {
            let decision = self.decide(position, latest, now);
            all.is_due |= decision.next.is_some();
            let former = position.former.as_ref().map(|former| former.until);
            all.look_at = all.look_at.into_iter().chain(decision.look_at).chain(former).min();
        }
        all
    }

    /// Moves this session to the servers that should serve the session now. `router`: by the configuration in force.
    pub fn shift(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        now: Time,
    ) -> Shift {
        let mut shift = Shift::default();
        for index in 0..self.positions.0.len() {
            let servers = self.positions.0.get(index).map_or(0, |position| position.list.servers);
            // Every server may be opened and passed over, and then one of the servers serves.
            for _ in 0..=servers {
                let Some(position) = self.positions.0.get(index) else { break };
                let Some(next) = self.decide(position, latest, now).next else { break };
                let (list, type_url) = (position.list.id, position.type_url.clone());
                let from = position.fallback.serving();
                let is_moving = self.parts_bound_for(position).any(|(_, part)| part.is_moving());
                let former = self.parts_of(position).map(|(_, part)| part.source());
                let former: Snapshots = former.map(|source| (source, latest(source))).collect();
                let Some(position) = self.positions.0.get_mut(index) else { break };
                let before = position.fallback.clone();
                position.fallback.make(next, &position.list.settings, now);
                let to = position.fallback.serving();
                let is_of = |of: &TypeUrl, part: &Part| {
                    part.bound_for().list == list && type_url.as_ref().is_none_or(|own| own == of)
                };
                let replaced = self.replace_where(&is_of, Which::Last, router);
                let Some(position) = self.positions.0.get(index) else { break };
                let has_next = self.parts_bound_for(position).any(|(_, part)| part.next.is_some());
                let Some(position) = self.positions.0.get_mut(index) else { break };
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
                    self.remember_former(index, former, latest, now);
                    self.round = None;
                }
            }
        }
        if self.may_settle(latest, now) {
            shift.watches.extend(self.settle(latest, router, now));
            shift.is_settled = true;
        }
        shift
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

    fn decide(
        &self,
        position: &ListPosition,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Decision {
        if let Some(until) = position.refused_until.filter(|until| *until > now) {
            return Decision { next: None, look_at: Some(until) };
        }
        let sights: Vec<_> =
            (0..=position.fallback.active()).map(|server| self.sight(position, server, latest)).collect();
        position.fallback.decide(&position.list.settings, position.list.servers, &sights, now)
    }

    /// The state of one server of a list, as seen by this session. A single lost source makes the server
    /// unreachable.
    fn sight(
        &self,
        position: &ListPosition,
        server: u16,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Sight {
        let mut sight = Sight { reach: Reachability::Pending, unknown: 0, is_current: true, is_noted: true };
        let mut is_heard = true;
        for (subscription, part) in self.parts_bound_for(position) {
            let (is_serving, asked) = (server == position.fallback.serving(), part.bound_for());
            let source = match is_serving {
                true => Some(asked.source),
                false => asked.others().find(|(other, _)| *other == server).map(|(_, source)| source),
            };
            let Some(source) = source else { continue };
            sight.unknown += unknown(subscription, part, source, latest);
            if is_serving {
                sight.unknown = sight.unknown.saturating_sub(position.unknown_stand_ins(
                    subscription,
                    part,
                    asked,
                    latest,
                ));
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
