//! Clients that bring content of a wildcard from an earlier stream (ADR 52).
//!
//! The client may have resources that the source has not been sent yet. A set that counts as whole by the end of the first
//! answers is provisional for a while, and does not count as whole for these clients: delta clients are told of no removal,
//! and a complete set waits. Clients without content are served at once.

use std::sync::Arc;

use crate::downstream::order::turn::{Snapshots, Turn};
use crate::downstream::session::Session;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use sluice_xds::Variant;

impl Session {
    /// Looks anew for parts with content from elsewhere.
    pub(super) fn note_returning(&mut self) {
        let is_returning = self.parts().any(|(_, part)| part.is_returning);
        self.is_returning = is_returning;
    }

    /// The client polls: the next poll brings the rest of a set.
    pub fn doubt_nothing(&mut self) {
        self.is_returning = false;
        let parts = self.subscriptions.iter_mut().flat_map(|subscription| &mut subscription.parts);
        parts.for_each(|part| part.is_returning = false);
    }

    /// Ends the doubt about parts if the source knows the whole set by now, or has everything from the client. A round begins anew: its
    /// snapshots are from before, and may lack what has come since.
    pub(super) fn end_returns(&mut self, newest: &Snapshots) {
        if !self.is_returning {
            return;
        }
        for subscription in &mut self.subscriptions {
            let (type_url, presented) = (&subscription.type_url, subscription.presented_version());
            for part in subscription.parts.iter_mut().filter(|part| part.is_returning) {
                let snapshot = newest.iter().find(|(source, _)| *source == part.source());
                let Some((_, Some(snapshot))) = snapshot else { continue };
                if part.has_returned(snapshot, type_url, presented) {
                    part.is_returning = false;
                    self.round = None;
                }
            }
        }
        self.note_returning();
    }

    /// Replaces the views of provisional sets for parts with content from elsewhere.
    pub(super) fn doubt(&self, snapshots: &mut Snapshots) {
        for (subscription, part) in self.parts().filter(|(_, part)| part.is_returning) {
            let own = snapshots.iter_mut().find(|(source, _)| *source == part.source());
            let Some((_, Some(own))) = own else { continue };
            let standing = own.standing().of(&subscription.type_url);
            if !standing.is_some_and(|standing| standing.is_provisional) {
                continue;
            }
            let Some(types) = Arc::make_mut(own).of_mut(&subscription.type_url) else { continue };
            let view = &mut types.wildcard.view;
            // A new listener may need the address of one whose removal is in doubt (DEL-26).
            let waits_whole =
                self.kind.variant == Variant::Delta && subscription.type_url.kind().may_exclude();
            *view = match view.take() {
                Some(view) if view.is_complete() => (!waits_whole).then(|| Arc::new(view.doubted())),
                partial => partial.filter(|_| !waits_whole),
            };
        }
    }
}

impl Subscription {
    /// Whether a complete set waits, and would bring something (ORD-10).
    pub(super) fn owes_returning(&self, variant: Variant, turn: &Turn<'_>) -> bool {
        let view = |part: &Part| part.view_in(turn, &self.type_url);
        let waits = |part: &Part| part.is_returning && view(part).is_some_and(|view| !view.is_complete());
        let has_news = |part: &Part| view(part).is_some_and(|view| part.held.has_news_in(view));
        self.is_full(variant) && self.parts.iter().any(waits) && self.parts.iter().any(has_news)
    }
}
