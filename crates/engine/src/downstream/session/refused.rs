//! Contents that a plan refuses to clients with other content (WAV-22).
//!
//! A source has given a refused content as a first answer, because nothing older is known there. A client
//! that comes from another class or server, or comes back, keeps its content: for the client the source has
//! no answer yet. So a complete set waits, nothing is removed, and the next other content is sent as ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::downstream::order::turn::Snapshots;
use crate::downstream::subscription::Subscription;
use crate::snapshot::Snapshot;
use sluice_xds::{ResourceName, TypeUrl};

/// The names that the client has, or may have, in other than the refused versions.
pub(super) type Kept = BTreeSet<(TypeUrl, ResourceName)>;

/// Whether some snapshot has contents that the client is refused. Nearly always there are none.
#[inline]
pub(super) fn has_refused(newest: &Snapshots, is_relay: bool) -> bool {
    let has_refused =
        |snapshot: &Arc<Snapshot>| snapshot.refused().is_some_and(|refused| refused.binds(is_relay));
    newest.iter().any(|(_, snapshot)| snapshot.as_ref().is_some_and(has_refused))
}

/// The refused contents of which the client has other versions. `earlier`: those at the last look.
#[cold]
pub(super) fn find_kept(
    subscriptions: &[Subscription],
    newest: &Snapshots,
    earlier: Option<&Kept>,
    is_relay: bool,
) -> Kept {
    let mut kept = Kept::new();
    for (source, snapshot) in newest {
        let refused = snapshot.as_ref().and_then(|snapshot| snapshot.refused());
        let refused = refused.filter(|refused| refused.binds(is_relay));
        for (type_url, name, version) in refused.iter().flat_map(|refused| refused.iter()) {
            let mut subscription =
                subscriptions.iter().filter(|subscription| subscription.type_url == *type_url);
            let key = (type_url.clone(), name.clone());
            let was_kept = earlier.is_some_and(|kept| kept.contains(&key));
            let asks =
                |subscription: &&Subscription| subscription.parts.iter().any(|part| part.source() == *source);
            let subscription = subscription.next().filter(asks);
            if subscription.is_some_and(|subscription| subscription.has_another(name, *version, was_kept)) {
                kept.insert(key);
            }
        }
    }
    kept
}

/// The snapshots as far as they have answers for the client.
pub(super) fn without_refused(
    subscriptions: &[Subscription],
    kept: &Kept,
    mut snapshots: Snapshots,
) -> Snapshots {
    for (source, snapshot) in &mut snapshots {
        let Some(snapshot) = snapshot else { continue };
        let Some(refused) = snapshot.refused().cloned() else { continue };
        for (type_url, name, version) in refused.iter() {
            if !kept.contains(&(type_url.clone(), name.clone())) {
                continue;
            }
            let subscriptions =
                subscriptions.iter().filter(|subscription| subscription.type_url == *type_url);
            let parts = subscriptions.flat_map(|subscription| &subscription.parts);
            let parts = parts.filter(|part| part.source() == *source && part.collection.covers(name));
            for part in parts {
                if let Some(types) = Arc::make_mut(snapshot).of_mut(type_url) {
                    types.withhold(&part.collection, name, *version);
                }
            }
        }
    }
    snapshots
}
