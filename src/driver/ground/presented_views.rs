//! The views that reconnecting clients present, with one copy of equal contents (RLY-6).
//!
//! After an outage, or a restart of the relay, all clients of a fleet present the same resources. The relay
//! keeps the view until an upstream has reported the removals. The table holds views weakly: a view ends with
//! the last stream that holds it.

use sluice_engine::view::{View, ViewId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// No sweep happens with fewer entries.
const SWEEP_MIN: usize = 64;

#[derive(Debug, Default)]
pub struct PresentedViews {
    table: Mutex<ViewTable>,
}

#[derive(Debug, Default)]
struct ViewTable {
    views: HashMap<ViewId, Weak<View>>,
    /// At this number of entries, the dead entries are swept.
    sweep_at: usize,
}

impl PresentedViews {
    /// Returns the equal view that another stream holds already, else this view. The comparison of maps of
    /// 100,000 names runs outside of the lock, because all reconnecting streams take the lock.
    pub fn share(&self, view: View) -> Arc<View> {
        let held = self.table.lock().views.get(&view.id()).and_then(Weak::upgrade);
        if let Some(held) = held
            && held.presents_the_same(&view)
        {
            return held;
        }
        let view = Arc::new(view);
        let mut table = self.table.lock();
        if table.views.len() >= table.sweep_at.max(SWEEP_MIN) {
            table.views.retain(|_, view| view.strong_count() > 0);
            table.sweep_at = 2 * table.views.len();
        }
        table.views.insert(view.id(), Arc::downgrade(&view));
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::collection::HashSeed;
    use sluice_xds::{ResourceName, Version};

    fn view(count: u128) -> View {
        let versions = (0..count).map(|n| (ResourceName::from(format!("name-{n}")), Version(n + 1)));
        View::presented(versions, HashSeed(7))
    }

    #[test]
    fn rly_6_clients_with_the_same_names_cost_one_map() {
        let presented = PresentedViews::default();
        let first = presented.share(view(1000));
        for _ in 0..200 {
            // Each client sends its own names, and the relay keeps a single copy.
            assert!(Arc::ptr_eq(&presented.share(view(1000)), &first));
        }
        assert_eq!(presented.table.lock().views.len(), 1);
        assert!(!Arc::ptr_eq(&presented.share(view(999)), &first));
    }

    #[test]
    fn views_without_a_stream_are_swept() {
        let presented = PresentedViews::default();
        for n in 1..1000 {
            drop(presented.share(view(n)));
        }
        assert!(presented.table.lock().views.len() <= SWEEP_MIN);
        let held: Vec<_> = (1..200).map(|n| presented.share(view(n))).collect();
        assert_eq!(held.len(), 199);
        assert!(presented.table.lock().views.len() <= 2 * held.len() + SWEEP_MIN);
    }
}
