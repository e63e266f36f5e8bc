//! The end of a stream as a sign about its client (TRU-1, WAV-12).

use std::time::Duration;

use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;

/// A stream that ends this soon after a response may have ended because of the response.
pub(crate) const LOST_WITHIN: Duration = Duration::from_secs(60);

impl StreamState {
    /// Whether the client went without a word: the relay ended neither the stream nor the connection, and the client did not
    /// close its half.
    pub(crate) fn is_lost(&self, inner: &Inner) -> bool {
        inner.end.is_none() && !self.peer.connection.is_left()
    }
}

impl Inner {
    /// Counts a lost stream at the sources of the types that the client was just sent.
    pub(crate) fn count_loss(&self, now: Time) {
        for of in self.session.subscriptions() {
            if of.nonces.sent_at().is_none_or(|sent| now.since(sent) > LOST_WITHIN) {
                continue;
            }
            let has_part = |id| of.parts.iter().any(|part| part.source() == id);
            for (_, source) in self.sources.iter().filter(|(id, _)| has_part(*id)) {
                source.losses.add(&of.type_url, now);
            }
        }
    }
}
