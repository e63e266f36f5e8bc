//! The types that clients reject. The server's state of a resource does not show the clients' verdict.

use std::collections::BTreeMap;

use crate::driver::api::status::{
    ConfigStatus, NackStatus, ResourceFilter, ResourceStatus, SessionTypeStatus, StatusView,
};

/// The length of a NACK's text in the list of resources, where thousands of items may repeat the text.
/// `/clients` has the stored text.
const TEXT_CHARS_MAX: usize = 200;

/// The number of sessions between two turns of other tasks.
const SESSIONS_PER_TURN: usize = 64;

/// The NACKs of clients for one type from one server and class. A NACK refers to a whole response; only the
/// text may name a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourceRejection {
    /// Clients whose last verdict on the type is a NACK.
    pub(super) clients: usize,
    /// The text of the latest NACK.
    pub(super) text: String,
}

/// Type, server and class.
type Key = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Rejections(BTreeMap<Key, (ResourceRejection, std::time::SystemTime)>);

impl Rejections {
    /// Iterates over all streams, one at a time.
    pub(super) async fn gather(relay: &(impl StatusView + ?Sized), filter: &ResourceFilter) -> Rejections {
        let mut rejections = Rejections::default();
        for (number, session) in relay.sessions().enumerate() {
            for status in session.types.iter().filter(|status| filter.wants_type(&status.type_url)) {
                if let (ConfigStatus::Error, Some(nack)) = (status.state, &status.nack) {
                    rejections.add(status, nack);
                }
            }
            if number % SESSIONS_PER_TURN == SESSIONS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        rejections
    }

    fn add(&mut self, status: &SessionTypeStatus, nack: &NackStatus) {
        // A type may come from several servers or classes, separated by commas.
        let listed = |texts: &Option<std::sync::Arc<str>>| {
            let texts = texts.as_deref().unwrap_or_default();
            texts.split(", ").map(str::to_owned).collect::<Vec<_>>()
        };
        for server in listed(&status.server) {
            for class in listed(&status.class) {
                let key = (status.type_url.as_str().to_owned(), server.clone(), class);
                let new = || (ResourceRejection { clients: 0, text: String::new() }, nack.at);
                let (rejection, at) = self.0.entry(key).or_insert_with(new);
                rejection.clients += 1;
                if rejection.clients == 1 || nack.at > *at {
                    *at = nack.at;
                    rejection.text = nack.detail.chars().take(TEXT_CHARS_MAX).collect();
                }
            }
        }
    }

    /// The rejections of the type, server and class of a resource.
    pub(super) fn find(&self, resource: &ResourceStatus) -> Option<&ResourceRejection> {
        if self.0.is_empty() {
            return None;
        }
        let key =
            (resource.type_url.as_str().to_owned(), resource.server.to_string(), resource.class.to_string());
        self.0.get(&key).map(|(rejection, _)| rejection)
    }
}
