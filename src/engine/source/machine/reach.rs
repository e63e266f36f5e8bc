//! Publishes whether the server can be heard, as a whole and for one type (ADR 18).

use std::mem::discriminant;
use std::sync::Arc;

use super::Source;
use crate::engine::cache::WildcardCache;
use crate::engine::reachability::Reachability;
use crate::xds::TypeUrl;

impl Source {
    /// Whether the server can be heard for one type; `None` where all types share the answer.
    pub fn reach_of(&self, type_url: &TypeUrl) -> Option<Reachability> {
        self.attachment.reach_of(type_url)
    }

    /// Publishes whether the server can be heard, at all and for each type, and the current types.
    pub(super) fn note_reach(&mut self) {
        let reach = self.attachment.reach();
        // A new reason or text of the loss wakes no session.
        let mut is_news = discriminant(&reach) != discriminant(self.snapshot.standing().reach());
        for (type_url, cache) in &self.types {
            let is_current = self.attachment.is_current(type_url);
            let of_type = self.attachment.reach_of(type_url);
            let is_lost = of_type.as_ref().is_some_and(Reachability::is_lost);
            self.linger.hold_type(type_url, is_lost && !self.settings.private);
            let Some(standing) = self.snapshot.standing_mut().of_mut(type_url) else { continue };
            let was_current = standing.is_current;
            if was_current != is_current {
                standing.is_current = is_current;
                self.snapshot_changed = true;
                // Staleness wakes no session; its end does.
                is_news |= is_current;
            }
            let is_provisional = self.attachment.is_provisional(type_url);
            if is_provisional != standing.is_provisional {
                // The confirmation is news for clients with content from elsewhere.
                if !is_provisional {
                    self.news.update.extend(cache.wildcard.iter().flat_map(WildcardCache::sessions));
                }
                standing.is_provisional = is_provisional;
                self.snapshot_changed = true;
            }
            let answered = match is_current || !self.settings.tells_reach {
                true => None,
                false => self.attachment.answered(type_url),
            };
            let is_same = match (&standing.answered, &answered) {
                (Some(before), Some(answered)) => before.is_same(answered),
                (before, answered) => before.is_none() && answered.is_none(),
            };
            if !is_same {
                // Only observers find the sessions of the names, once for many answers (RLY-54).
                self.has_answered |= !was_current
                    && answered
                        .as_ref()
                        .is_some_and(|answered| answered.says_more(standing.answered.as_deref()));
                standing.answered = answered.map(Arc::new);
                self.snapshot_changed = true;
            }
            if standing.reach != of_type {
                is_news |= standing.reach.as_ref().map(discriminant) != of_type.as_ref().map(discriminant);
                standing.reach = of_type;
                self.snapshot_changed = true;
            }
        }
        if reach != *self.snapshot.standing().reach() {
            self.linger.hold(reach.is_lost() && !self.settings.private);
            self.snapshot.standing_mut().set_reach(reach);
            self.snapshot_changed = true;
        }
        if is_news && self.settings.tells_reach {
            self.news.first.extend(self.sessions.keys());
        }
    }
}
