//! Clients that bring content of a wildcard from an earlier stream (ADR 52).
//!
//! The client may have resources that the source has not been sent yet. A set that counts as whole by the end
//! of the first answers is provisional for a while, and does not count as whole for these clients: delta
//! clients are told of no removal, and a complete set waits. Clients without content are served at once.

use std::sync::Arc;

use crate::downstream::order::turn::{Snapshots, Turn};
use crate::downstream::session::list_position::parts;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use sluice_xds::Variant;

/// Ends the doubt about parts if the source knows the whole set by now, or has everything from the client.
/// Returns whether the doubt about a part ended.
pub(super) fn end_returns(subscriptions: &mut [Subscription], newest: &Snapshots) -> bool {
    let mut has_ended = false;
    for subscription in subscriptions {
        let presented = subscription.presented_version();
        for part in subscription.parts.iter_mut().filter(|part| part.is_returning) {
            let snapshot = newest.iter().find(|(source, _)| *source == part.source());
            let Some((_, Some(snapshot))) = snapshot else { continue };
            if part.has_returned(snapshot, &subscription.type_url, presented) {
                part.is_returning = false;
                has_ended = true;
            }
        }
    }
    has_ended
}

/// Replaces the views of provisional sets for parts with content from elsewhere.
pub(super) fn doubt(subscriptions: &[Subscription], variant: Variant, snapshots: &mut Snapshots) {
    for (subscription, part) in parts(subscriptions).filter(|(_, part)| part.is_returning) {
        let snapshot = snapshots.iter_mut().find(|(source, _)| *source == part.source());
        let Some((_, Some(snapshot))) = snapshot else { continue };
        let standing = snapshot.standing().of(&subscription.type_url);
        if !standing.is_some_and(|standing| standing.is_provisional) {
            continue;
        }
        let Some(types) = Arc::make_mut(snapshot).of_mut(&subscription.type_url) else { continue };
        let view = &mut types.wildcard.view;
        // A new listener may need the address of one whose removal is in doubt (DEL-26).
        let waits_whole = variant == Variant::Delta && subscription.type_url.kind().may_exclude();
        *view = match view.take() {
            Some(view) if view.is_complete() => (!waits_whole).then(|| Arc::new(view.doubted())),
            partial => partial.filter(|_| !waits_whole),
        };
    }
}

/// Whether a complete set waits, and would bring something (ORD-10).
pub(super) fn owes_returning(subscription: &Subscription, variant: Variant, turn: &Turn<'_>) -> bool {
    let view = |part: &Part| part.view_in(turn, &subscription.type_url);
    let waits = |part: &Part| part.is_returning && view(part).is_some_and(|view| !view.is_complete());
    let has_news = |part: &Part| view(part).is_some_and(|view| part.held.has_news_in(view));
    let mut parts = subscription.parts.iter();
    subscription.is_full(variant) && parts.clone().any(waits) && parts.any(has_news)
}
