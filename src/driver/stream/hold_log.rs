//! Logs clients that wait for a name (RLY-5, ADR 12).

use tracing::warn;

use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;

impl StreamState {
    /// Logs each wait once, after the resource timeout of the server that has not answered. Returns when to
    /// look again.
    pub(crate) fn note_holds(&self, inner: &mut Inner, now: Time) -> Option<Time> {
        let Inner { session, sources, node, .. } = inner;
        let mut next: Option<Time> = None;
        for (type_url, wait) in session.name_waits().filter(|(_, wait)| wait.is_endless() && !wait.is_told) {
            let Some((_, source)) = sources.iter().find(|(id, _)| *id == wait.source) else { continue };
            let server = source.serving_server();
            let due = wait.since + server.resource_timeout(type_url);
            if due > now {
                next = next.into_iter().chain([due]).min();
                continue;
            }
            wait.is_told = true;
            let Some(suppressed) = self.shared.throttle.allow("clients kept waiting") else { continue };
            let node_id = node.as_ref().map_or("", |node| node.id.as_str());
            let name: String = wait.name.as_str().chars().take(200).collect();
            warn!(node = node_id, stream = self.number(), %type_url, name, server = %server.uri, suppressed,
                "a client gets no update of a type: the server has not said whether a resource exists that the \
                    client may have");
        }
        next
    }
}
