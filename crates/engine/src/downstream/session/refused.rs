//! Contents that a plan refuses to clients with other content (WAV-22).
//!
//! A source has given a refused content as a first answer, because nothing older is known there. A client that comes from another class or
//! server, or comes back, keeps its content: for the client the source has no answer yet. So a complete set waits, nothing is removed, and
//! the next other content is sent as ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::Session;
use crate::downstream::subscription::Subscription;
use sluice_xds::{ResourceName, TypeUrl};

/// The names that the client has, or may have, in other than the refused versions.
pub(super) type Kept = BTreeSet<(TypeUrl, ResourceName)>;

impl Session {
    /// A relay is served everything: its own plans judge (TIR-1).
    pub fn serve_all(&mut self) {
        self.is_served_all = true;
    }

    /// Notes the refused contents of which the client has other versions. Nearly always there are no refused contents.
    #[inline]
    pub(super) fn note_kept(&mut self, newest: &Snapshots) {
        if has_refused(newest) && !self.is_served_all {
            self.find_kept(newest);
        } else if self.kept.is_some() {
            self.kept = None;
        }
    }

    #[cold]
    fn find_kept(&mut self, newest: &Snapshots) {
        let mut kept = Kept::new();
        for (source, snapshot) in newest {
            let refused = snapshot.as_ref().and_then(|snapshot| snapshot.refused());
            for (type_url, name, version) in refused.iter().flat_map(|refused| refused.iter()) {
                let subscription = self.subscriptions.iter().find(|of| of.type_url == *type_url);
                let key = (type_url.clone(), name.clone());
                let was_kept = self.kept.as_ref().is_some_and(|kept| kept.contains(&key));
                let asks = |of: &&Subscription| of.parts.iter().any(|part| part.source() == *source);
                if subscription.filter(asks).is_some_and(|of| of.has_another(name, *version, was_kept)) {
                    kept.insert(key);
                }
            }
        }
        self.kept = (!kept.is_empty()).then(|| Box::new(kept));
    }

    /// The snapshots as far as they have answers for the client.
    pub(super) fn without_refused(&self, mut snapshots: Snapshots) -> Snapshots {
        let Some(kept) = &self.kept else { return snapshots };
        for (source, snapshot) in &mut snapshots {
            let Some(snapshot) = snapshot else { continue };
            let Some(refused) = snapshot.refused().cloned() else { continue };
            for content in refused.iter().filter(|of| kept.contains(&(of.0.clone(), of.1.clone()))) {
                let (type_url, name, version) = content;
                let subscriptions = self.subscriptions.iter().filter(|of| of.type_url == *type_url);
                let parts = subscriptions.flat_map(|of| &of.parts).filter(|part| part.source() == *source);
                for part in parts.filter(|part| part.collection.covers(name)) {
                    if let Some(types) = Arc::make_mut(snapshot).of_mut(type_url) {
                        types.withhold(&part.collection, name, *version);
                    }
                }
            }
        }
        snapshots
    }

    /// Whether some snapshot has to be looked at by [`Session::without_refused`].
    pub(super) fn keeps_something(&self) -> bool {
        self.kept.is_some()
    }
}

fn has_refused(newest: &Snapshots) -> bool {
    newest.iter().any(|(_, snapshot)| snapshot.as_ref().is_some_and(|of| of.refused().is_some()))
}
