//! The move of a session to the sources of another configuration: another node class, or other server lists (REL-6,
//! ADR 36).
//!
//! As in fallback, the session asks the new sources beside the former ones, which serve until the new sources know
//! everything that the session wants. Then the session moves as a whole, and the ordinary difference of two views is
//! all that is sent. Equal content is no difference, and nothing is removed before the new content is whole.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::session::Session;
use crate::downstream::session::moves::unknown;
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::session::routing::Which;
use crate::downstream::sources::{Asked, SourceId};
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::snapshot::Snapshot;
use sluice_xds::Status;

/// A move that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    /// The new sources serve from this time on, whatever they know.
    pub until: Time,
}

impl Session {
    /// Finds the sources of all parts by another configuration, which `router` reads. Until the session has moved,
    /// the caller routes requests by the former configuration, and calls [`Session::keep_moving`] after each.
    ///
    /// # Errors
    /// The router's error for a source. The session stays as before.
    pub fn reclassify(&mut self, router: &mut dyn Router, now: Time) -> Result<Vec<Watch>, Status> {
        self.positions.begin_move();
        self.find_next(router, |wait| now + wait)
    }

    /// As [`Session::reclassify`], after a change of the subscriptions. The time of the move stays.
    pub fn keep_moving(&mut self, router: &mut dyn Router, now: Time) -> Result<Vec<Watch>, Status> {
        let until = self.moving.map(|moving| moving.until);
        self.find_next(router, |wait| until.unwrap_or(now + wait))
    }

    /// Whether the session is on its way to the sources of another configuration.
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    fn find_next(
        &mut self,
        router: &mut dyn Router,
        until: impl Fn(Duration) -> Time,
    ) -> Result<Vec<Watch>, Status> {
        let (mut found, mut wait, mut refused) = (Vec::new(), Duration::ZERO, None);
        for subscription in &self.subscriptions {
            let type_url = &subscription.type_url;
            for part in &subscription.parts {
                let list = router.list(type_url, part.group);
                // A server that serves already, and stays in the list, is left only for a better one.
                let serving = router.position_of(list, part.source()).unwrap_or(0);
                self.positions.begin_at(list, type_url, serving, router);
                match Asked::find(type_url, part.group, Which::Last, &mut self.positions, router) {
                    Ok(asked) => found.push(asked),
                    Err(status) => refused = Some(status),
                }
                wait = wait.max(router.resolve_timeout(list));
            }
        }
        if let Some(status) = refused {
            if self.moving.is_none() {
                self.positions.end_move();
            }
            self.list_sources();
            return Err(status);
        }
        let (mut found, mut watches, mut is_moving) = (found.into_iter(), Vec::new(), false);
        for subscription in &mut self.subscriptions {
            for (part, asked) in subscription.parts.iter_mut().zip(found.by_ref()) {
                let before: Vec<_> = part.sources().collect();
                part.next = (part.asked != asked).then(|| Box::new(asked));
                is_moving |= part.next.is_some();
                part.watch_instead(&before, &subscription.type_url, &mut watches);
            }
        }
        self.moving = is_moving.then(|| Moving { until: until(wait) });
        if !is_moving {
            self.positions.end_move();
        }
        self.list_sources();
        Ok(watches)
    }

    /// The time of the move, whatever the new sources know.
    pub(super) fn settles_at(&self) -> Option<Time> {
        self.moving.map(|moving| moving.until)
    }

    /// Whether the session has its new sources to be served from.
    pub(super) fn may_settle(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>, now: Time) -> bool {
        let Some(moving) = self.moving else { return false };
        let mut moved = self.parts().filter(|(_, part)| part.is_moving());
        moving.until <= now
            || moved.all(|(subscription, part)| self.is_known_next(subscription, part, latest))
    }

    /// Whether the next source of a part knows everything that the client wants, by a server that can be heard.
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

    /// Takes all content from the new sources from now on. The client's content stays, and so do last bytes of the
    /// former sources for a while (RLY-51).
    pub(super) fn settle(
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
                let (before, former): (Vec<_>, _) = (part.sources().collect(), part.source());
                let Some(next) = part.next.take() else { continue };
                part.serve_from(*next, router);
                part.watch_instead(&before, &type_url, &mut watches);
                if part.source() != former {
                    let of = (part.asked.list, &type_url);
                    self.positions.remember(of, (former, latest(former)), until, router);
                    self.round = None;
                }
            }
        }
        self.moving = None;
        self.positions.end_move();
        self.list_sources();
        watches
    }
}
