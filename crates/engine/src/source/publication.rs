//! The snapshot of a source, its changes, and the sessions to wake.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use super::api::SourceSettings;
use super::attachment::Attachment;
use super::linger::Linger;
use super::sessions::SourceSessions;
use super::type_cache::TypeCache;
use crate::Time;
use crate::cache::{News, SessionId, Stamp, WildcardCache};
use crate::change::Change;
use crate::reachability::Reachability;
use crate::snapshot::Snapshot;
use sluice_xds::TypeUrl;

#[derive(Debug)]
pub(super) struct Publication {
    pub(super) stamp: Stamp,
    pub(super) snapshot: Snapshot,
    is_changed: bool,
    /// Changes of content that the driver has not taken yet.
    pub(super) changes: Vec<Change>,
    pub(super) news: News,
    woken_at: Option<Time>,
    /// A type, or a part of a type, became current. Sessions on another server may wait for the answer.
    has_answered: bool,
    /// The types whose content changed since the last sharing.
    pub(super) unshared: BTreeSet<TypeUrl>,
    /// The types whose server was heard since the last sharing.
    pub(super) heard: BTreeSet<TypeUrl>,
}

impl Publication {
    pub(super) fn new(id: u64) -> Publication {
        Publication {
            stamp: Stamp::new(id),
            snapshot: Snapshot::default(),
            is_changed: false,
            changes: Vec::new(),
            news: News::default(),
            woken_at: None,
            has_answered: false,
            unshared: BTreeSet::new(),
            heard: BTreeSet::new(),
        }
    }

    /// The current snapshot, if there was a change since the last call.
    pub(super) fn take_snapshot(&mut self) -> Option<Arc<Snapshot>> {
        std::mem::take(&mut self.is_changed).then(|| Arc::new(self.snapshot.clone()))
    }

    /// Takes a changed type over from its caches. Returns false if the type is empty, and is removed.
    pub(super) fn settle(
        &mut self,
        type_url: &TypeUrl,
        cache: &mut TypeCache,
        is_restored: bool,
        now: Time,
    ) -> bool {
        let (stamp, news) = (self.stamp.at(now), &mut self.news);
        cache.keep_departed(type_url.kind().is_cluster_side());
        cache.all_mut().for_each(|cache| cache.settle(stamp, news));
        self.snapshot.set_last_change(stamp.last_change());
        self.changes.extend(news.changes.drain(..).map(|change| change.of(type_url)));
        self.is_changed = true;
        if cache.is_empty() {
            self.snapshot.remove(type_url);
            return false;
        }
        self.unshared.insert(type_url.clone());
        // The rest of the standing is as published before: `note_standing` detects its changes.
        self.snapshot.replace(type_url, cache.snapshot(), is_restored);
        true
    }

    /// Takes a type over whose maps have other nodes with equal content.
    pub(super) fn renew(&mut self, type_url: &TypeUrl, cache: &TypeCache) {
        self.snapshot.renew(type_url, cache.snapshot());
        self.is_changed = true;
    }

    /// Publishes whether the server can be heard, at all and for each type, and the current types (ADR 18).
    pub(super) fn note_standing(
        &mut self,
        attachment: &Attachment,
        types: &BTreeMap<TypeUrl, Box<TypeCache>>,
        sessions: &SourceSessions,
        settings: &SourceSettings,
        linger: &mut Linger,
    ) {
        let reach = attachment.reach();
        // A new reason or text of the loss wakes no session.
        let mut is_news = discriminant(&reach) != discriminant(self.snapshot.standing().reach());
        for (type_url, cache) in types {
            let of_type = attachment.reach_of(type_url);
            let is_lost = of_type.as_ref().is_some_and(Reachability::is_lost);
            linger.hold_type(type_url, is_lost && !settings.private);
            is_news |= self.note_type(type_url, of_type, cache, attachment, settings.tells_reach);
        }
        if reach != *self.snapshot.standing().reach() {
            linger.hold(reach.is_lost() && !settings.private);
            self.snapshot.standing_mut().set_reach(reach);
            self.is_changed = true;
        }
        if is_news && settings.tells_reach {
            self.news.first.extend(sessions.ids());
        }
    }

    /// Publishes the standing of one type. Returns true if sessions have to choose their server again.
    fn note_type(
        &mut self,
        type_url: &TypeUrl,
        reach: Option<Reachability>,
        cache: &TypeCache,
        attachment: &Attachment,
        tells_reach: bool,
    ) -> bool {
        let Some(standing) = self.snapshot.standing_mut().of_mut(type_url) else { return false };
        let (was_current, is_current) = (standing.is_current, attachment.is_current(type_url));
        // Staleness wakes no session; its end does.
        let mut is_news = is_current && !was_current;
        self.is_changed |= was_current != is_current;
        standing.is_current = is_current;
        let is_provisional = attachment.is_provisional(type_url);
        if is_provisional != standing.is_provisional {
            // The confirmation is news for clients with content from elsewhere.
            if !is_provisional {
                self.news.update.extend(cache.wildcard.iter().flat_map(WildcardCache::sessions));
            }
            standing.is_provisional = is_provisional;
            self.is_changed = true;
        }
        let answered = match is_current || !tells_reach {
            true => None,
            false => attachment.answered(type_url),
        };
        let is_same = match (&standing.answered, &answered) {
            (Some(before), Some(answered)) => before.is_same(answered),
            (before, answered) => before.is_none() && answered.is_none(),
        };
        if !is_same {
            // Only observers find the sessions of the names, once for many answers (RLY-54).
            let before = standing.answered.as_deref();
            let says_more = answered.as_ref().is_some_and(|answered| answered.says_more(before));
            self.has_answered |= !was_current && says_more;
            standing.answered = answered.map(Arc::new);
            self.is_changed = true;
        }
        if standing.reach != reach {
            is_news |= standing.reach.as_ref().map(discriminant) != reach.as_ref().map(discriminant);
            standing.reach = reach;
            self.is_changed = true;
        }
        is_news
    }

    /// The time to wake sessions with changes: at once after a quiet period, else gathered (RLY-54).
    pub(super) fn wake_at(&self, coalescing: Duration) -> Option<Time> {
        if self.news.update.is_empty() && !self.has_answered {
            return None;
        }
        Some(self.woken_at.map_or(Time::ZERO, |last| last + coalescing))
    }

    /// The sessions to wake at once, because they wait for a first answer.
    pub(super) fn take_first(&mut self) -> Vec<SessionId> {
        sorted(std::mem::take(&mut self.news.first))
    }

    /// The sessions to wake with changes, if their time has come.
    pub(super) fn take_due(
        &mut self,
        sessions: &SourceSessions,
        coalescing: Duration,
        now: Time,
    ) -> Vec<SessionId> {
        if self.wake_at(coalescing).is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.woken_at = Some(now);
        let mut update = std::mem::take(&mut self.news.update);
        if std::mem::take(&mut self.has_answered) {
            update.extend(sessions.ids());
        }
        sorted(update)
    }
}

fn sorted(mut sessions: Vec<SessionId>) -> Vec<SessionId> {
    sessions.sort_unstable();
    sessions.dedup();
    sessions
}
