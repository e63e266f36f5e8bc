//! Endpoints that a client is owed because of clusters that it was sent before it asked for any endpoints (ORD-5, RLY-52).
//!
//! A client that reconnects may be sent a changed cluster first, and ask for the endpoints later, with the versions that it
//! holds. These versions are equal to ours, but the client waits for a response: it warms the changed cluster by that alone.

use std::sync::Arc;

use super::subscription::Subscription;
use crate::xds::ResourceName;

/// A client asks for endpoints after one answer of clusters, or a few. After more the memory is not worth its price: then all
/// endpoints that it presents are sent again.
const LISTS_MAX: usize = 16;

/// It exists until the first request for endpoints on the stream. The lists are those of the encoded answers, which all
/// clients at the same place share.
#[derive(Debug, Default)]
pub struct Owed {
    lists: Vec<Arc<[ResourceName]>>,
    /// There were too many lists.
    all: bool,
}

impl Owed {
    /// Clusters were sent of which these are the endpoints.
    pub fn add(&mut self, endpoints: &Arc<[ResourceName]>) {
        if self.all || self.lists.last().is_some_and(|last| Arc::ptr_eq(last, endpoints)) {
            return;
        }
        if self.lists.len() >= LISTS_MAX {
            (self.lists, self.all) = (Vec::new(), true);
            return;
        }
        self.lists.push(endpoints.clone());
    }

    /// The client asked for endpoints for the first time, and said what it holds.
    pub fn settle(self, subscription: &mut Subscription) {
        if self.all {
            return subscription.force_all();
        }
        for name in self.lists.iter().flat_map(|list| list.iter()) {
            subscription.force(name);
        }
    }
}
