//! Moves of a session between the releases of a source (WAV-9).
//!
//! A move is like a shift between servers: the client's content stays a view, and the other release's
//! snapshot serves all types. The difference of two views is all that is sent, in the order of make before
//! break. The lanes keep the last bytes that the client needs meanwhile, once for all clients.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::{MovedSources, Snapshots};
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::lanes::Restated;
use crate::snapshot::Snapshot;
use crate::view::{PERHAPS, View};
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The time in which clients that ask by name may be on their way to other names after a move.
const MOVED_MAX: Duration = ORDER_WAIT_MAX.saturating_mul(2);

/// The releases that serve a session, and what it has to be restated. Nothing for sessions without lanes.
#[derive(Debug, Default)]
pub struct LaneMoves {
    positions: Vec<LanePosition>,
    restating: Vec<Restating>,
}

/// The release of one source that serves a session.
#[derive(Debug)]
struct LanePosition {
    source: SourceId,
    release: u64,
    /// Clients that ask by name may be on their way to other names until this time.
    moved_until: Option<Time>,
}

/// The content of one source that has to be restated.
#[derive(Debug)]
struct Restating {
    source: SourceId,
    restated: Arc<Restated>,
    /// The types that are restated already.
    done: Vec<TypeUrl>,
}

/// Follows a source to the release of a snapshot. Returns whether the session moves.
#[inline]
fn follow(
    position: &mut LanePosition,
    snapshot: Option<&Arc<Snapshot>>,
    subscriptions: &mut [Subscription],
    now: Time,
) -> bool {
    position.moved_until.take_if(|until| *until <= now);
    let release = release_of(snapshot);
    if position.release == release {
        return false;
    }
    position.release = release;
    if move_lane(subscriptions, position.source) {
        position.moved_until = Some(now + MOVED_MAX);
    }
    true
}

/// Ends what was begun with another release of a source. Returns whether the client has content of the
/// source.
#[inline]
fn move_lane(subscriptions: &mut [Subscription], source: SourceId) -> bool {
    let (mut has_content, mut has_begun) = (false, false);
    for subscription in subscriptions.iter() {
        has_begun |= subscription.delivery.pending.is_some();
        let mut of_source = subscription.parts.iter().filter(|part| part.source() == source);
        has_content |= of_source.any(|part| !part.held.is_empty());
    }
    if has_begun {
        interrupt(subscriptions, source);
    }
    has_content
}

/// Nearly all sessions have begun nothing when they move.
#[cold]
fn interrupt(subscriptions: &mut [Subscription], source: SourceId) {
    for subscription in subscriptions {
        if subscription.parts.iter().any(|part| part.source() == source) {
            subscription.interrupt();
        }
    }
}

impl LaneMoves {
    /// The sources with a recent move.
    pub(super) fn moved(&self) -> MovedSources {
        let moved = self.positions.iter().filter(|position| position.moved_until.is_some());
        moved.map(|position| position.source).collect()
    }

    /// The client rejected a push that went back, on this stream or on an earlier one: the client may have
    /// any part of it, whatever the client presents. All that differs at the source is sent again, once for
    /// each type (WAV-10).
    pub(super) fn restate(&mut self, source: SourceId, restated: Arc<Restated>) {
        self.restating.retain(|restating| restating.source != source);
        self.restating.push(Restating { source, restated, done: Vec::new() });
    }

    /// Notes the releases of these snapshots of a session's sources. Returns whether the session moves: it is
    /// served another release than before.
    #[inline]
    pub(super) fn follow(
        &mut self,
        newest: &Snapshots,
        subscriptions: &mut [Subscription],
        sources: &[SourceId],
        now: Time,
    ) -> bool {
        // Nearly all clients have one source, whose position is known.
        if self.restating.is_empty()
            && let ([position], [(source, snapshot)]) = (self.positions.as_mut_slice(), newest.as_slice())
            && position.source == *source
        {
            return follow(position, snapshot.as_ref(), subscriptions, now);
        }
        self.follow_all(newest, subscriptions, sources, now)
    }

    #[cold]
    fn follow_all(
        &mut self,
        newest: &Snapshots,
        subscriptions: &mut [Subscription],
        sources: &[SourceId],
        now: Time,
    ) -> bool {
        if self.positions.len() > newest.len() {
            self.positions.retain(|position| sources.contains(&position.source));
        }
        let mut moves = false;
        for (source, snapshot) in newest {
            moves |= follow(self.position(*source), snapshot.as_ref(), subscriptions, now);
        }
        if !self.restating.is_empty() {
            self.restate_types(subscriptions, newest);
        }
        moves
    }

    fn position(&mut self, source: SourceId) -> &mut LanePosition {
        let index = self.positions.iter().position(|position| position.source == source);
        let index = index.unwrap_or_else(|| {
            self.positions.push(LanePosition { source, release: 0, moved_until: None });
            self.positions.len() - 1
        });
        &mut self.positions[index]
    }

    fn restate_types(&mut self, subscriptions: &mut [Subscription], newest: &Snapshots) {
        for Restating { source, restated, done } in &mut self.restating {
            for subscription in subscriptions.iter_mut() {
                let type_url = &subscription.type_url;
                let has_part = || subscription.parts.iter().any(|part| part.source() == *source);
                if restated.types.contains_key(type_url) && !done.contains(type_url) && has_part() {
                    done.push(type_url.clone());
                    restate(subscription, *source, restated, newest);
                }
            }
        }
        self.restating.retain(|restating| restating.done.len() < restating.restated.types.len());
    }
}

/// Whether some snapshot is a release of a lane. Nearly always none.
#[inline]
pub(super) fn has_release(newest: &Snapshots) -> bool {
    newest.iter().any(|(_, snapshot)| release_of(snapshot.as_ref()) != 0)
}

/// The number of the release; 0 for all that is no lane.
#[inline]
fn release_of(snapshot: Option<&Arc<Snapshot>>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.lane().release)
}

/// Makes all names of a source due that differ between a release and the former one, as if the client had
/// unknown versions. What the client was sent and has to lose keeps its version: no other last bytes may
/// stand for it until then.
fn restate(subscription: &mut Subscription, source: SourceId, restated: &Restated, newest: &Snapshots) {
    subscription.interrupt();
    let Some(kinds) = restated.types.get(&subscription.type_url) else { return };
    subscription.keep_content();
    let (mut is_due, type_url) = (false, &subscription.type_url);
    for part in subscription.parts.iter_mut().filter(|part| part.source() == source) {
        let names = kinds.get(&part.kind()).into_iter().flatten();
        let snapshot = newest.iter().find(|(source, _)| *source == part.source());
        let types = snapshot.and_then(|(_, snapshot)| snapshot.as_ref()?.of(type_url));
        let view = types.and_then(|types| types.view(&part.collection));
        let is_lost = |name: &ResourceName| view.is_some_and(|view| !view.has(name)) && part.held.has(name);
        let names = names.filter(|name| part.collection.covers(name) && !is_lost(name));
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            continue;
        }
        // The client is told that a name is gone which the release lacks, and is not sent the name before.
        let is_there = |name: &ResourceName| view.is_none_or(|view| view.has(name));
        let version = |name| if is_there(name) { Version::default() } else { PERHAPS };
        names.iter().for_each(|name| View::keep_known(&mut part.held, name));
        let held = Arc::make_mut(&mut part.held);
        held.hold(names.into_iter().map(|name| (name, version(name))), std::iter::empty());
        part.at = None;
        is_due = true;
    }
    if is_due {
        subscription.end_presented();
        subscription.delivery.fresh = true;
    }
}
