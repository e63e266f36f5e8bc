//! The views that reconnecting clients present, with one copy of equal contents (RLY-6).
//!
//! After an outage, or a restart of the relay, all clients of a fleet present the same resources. The relay
//! keeps the view until an upstream has reported the removals. The table holds views weakly: a view ends with
//! the last stream that holds it.

use std::sync::Arc;

use crate::driver::ground::weak_table::WeakTable;
use sluice_engine::view::{View, ViewId};

#[derive(Debug, Default)]
pub struct PresentedViews {
    views: WeakTable<ViewId, View>,
}

impl PresentedViews {
    /// Returns the equal view that another stream holds already, else this view. The comparison of maps of
    /// 100,000 names runs outside of the lock, because all reconnecting streams take the lock.
    pub fn share(&self, view: View) -> Arc<View> {
        if let Some(held) = self.views.find(&view.id())
            && held.presents_the_same(&view)
        {
            return held;
        }
        let view = Arc::new(view);
        self.views.add(view.id(), &view);
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
        assert_eq!(presented.views.len(), 1);
        assert!(!Arc::ptr_eq(&presented.share(view(999)), &first));
    }
}
