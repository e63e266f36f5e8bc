//! Which types clients reject: the server's word for a resource is not theirs.

use std::collections::BTreeMap;

use crate::driver::api::status::{
    ConfigStatus, NackStatus, ResourceFilter, ResourceStatus, SessionTypeStatus, StatusView,
};

/// Of a NACK's text in a list of resources, where each of thousands may repeat it. `/clients` has all that is kept.
const TEXT_CHARS_MAX: usize = 200;

/// Between two turns of other tasks.
const SESSIONS_PER_TURN: usize = 64;

/// What clients say of one type that they have from one server and class. A NACK is of a response: which of its resources is
/// meant, only its text may tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    /// Clients whose last verdict on the type is a NACK.
    pub(super) clients: usize,
    /// Of the latest one.
    pub(super) text: String,
}

/// Type, server and class.
type Key = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Rejections(BTreeMap<Key, (Rejection, std::time::SystemTime)>);

impl Rejections {
    /// Walks all streams, one at a time.
    pub(super) async fn gather(relay: &(impl StatusView + ?Sized), filter: &ResourceFilter) -> Rejections {
        let mut found = Rejections::default();
        for (number, session) in relay.sessions().enumerate() {
            for of in session.types.iter().filter(|of| filter.wants_type(&of.type_url)) {
                if let (ConfigStatus::Error, Some(nack)) = (of.state, &of.nack) {
                    found.add(of, nack);
                }
            }
            if number % SESSIONS_PER_TURN == SESSIONS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        found
    }

    fn add(&mut self, of: &SessionTypeStatus, nack: &NackStatus) {
        // A type may come from several servers, or classes, which are then listed.
        let listed = |texts: &Option<std::sync::Arc<str>>| {
            let texts = texts.as_deref().unwrap_or_default();
            texts.split(", ").map(str::to_owned).collect::<Vec<_>>()
        };
        for server in listed(&of.server) {
            for class in listed(&of.class) {
                let key = (of.type_url.as_str().to_owned(), server.clone(), class);
                let new = || (Rejection { clients: 0, text: String::new() }, nack.at);
                let (rejection, at) = self.0.entry(key).or_insert_with(new);
                rejection.clients += 1;
                if rejection.clients == 1 || nack.at > *at {
                    *at = nack.at;
                    rejection.text = nack.detail.chars().take(TEXT_CHARS_MAX).collect();
                }
            }
        }
    }

    pub(super) fn of(&self, found: &ResourceStatus) -> Option<&Rejection> {
        if self.0.is_empty() {
            return None;
        }
        let key = (found.type_url.as_str().to_owned(), found.server.to_string(), found.class.to_string());
        self.0.get(&key).map(|(rejection, _)| rejection)
    }
}
