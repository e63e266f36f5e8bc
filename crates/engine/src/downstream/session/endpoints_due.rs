//! Endpoints that are due because the client was sent their clusters before its first request for endpoints
//! (ORD-5, RLY-52).
//!
//! A reconnecting client may be sent a changed cluster first, and ask for the endpoints later, with the
//! versions that it holds. These versions equal ours, but the client waits for a response: without a
//! response the changed cluster stays warming.

use std::sync::Arc;

use crate::downstream::subscription::Subscription;
use sluice_xds::ResourceName;

/// The maximum number of lists. A client asks for endpoints after one or a few answers of clusters. After
/// more answers the lists cost too much memory, and all presented endpoints are sent again.
const LISTS_MAX: usize = 16;

/// State until the first request for endpoints on the stream. The lists belong to the encoded answers, and
/// all clients with the same answer share them.
#[derive(Debug, Default)]
pub struct EndpointsDue {
    lists: Vec<Arc<[ResourceName]>>,
    /// The limit was exceeded: all presented endpoints are due.
    all: bool,
}

impl EndpointsDue {
    /// Adds the endpoints of clusters that were sent.
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

    /// The lists; none if there were too many.
    pub fn lists(&self) -> &[Arc<[ResourceName]>] {
        &self.lists
    }

    /// Forces the due endpoints. The first request for endpoints, with the presented versions, must be
    /// applied before.
    pub fn settle(&self, subscription: &mut Subscription) {
        if self.all {
            return subscription.force_all();
        }
        for name in self.lists.iter().flat_map(|list| list.iter()) {
            subscription.force(name);
        }
    }
}
