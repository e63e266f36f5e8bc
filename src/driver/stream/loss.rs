//! The end of a stream as a sign about its client (TRU-1, WAV-12).

use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::evidence::{LOST_WITHIN, Leavers as _};

impl StreamState {
    /// Whether the client went without a word: the relay ended neither the stream nor the connection, and the client did not
    /// close its half.
    pub(crate) fn is_lost(&self, inner: &Inner) -> bool {
        inner.end.is_none() && !self.peer.connection.is_left()
    }

    /// Tells all plans of the end of the stream.
    pub(crate) fn tell_plans(&self, inner: &Inner, is_lost: bool, now: Time) {
        if self.shared.plans.is_empty() || self.is_relay() {
            return;
        }
        for plan in self.shared.plans.all().iter() {
            let Some(watched) = plan.watched() else {
                if is_lost {
                    plan.leavers().note(inner.node.as_ref().map_or("", |node| &node.id), now);
                }
                continue;
            };
            let sources = inner.sources.iter().map(|(id, _)| *id).collect();
            let client = (self.id, inner.node.clone(), is_lost);
            watched.note_end(client, &inner.session, sources, &newest(&inner.sources), now);
        }
    }

    /// Tells all plans of a rejection (TRU-1). The ACK and the NACK of a relay are no evidence.
    pub(crate) fn tell_plans_of_rejection(&self, inner: &Inner, now: Time) {
        if self.shared.plans.is_empty() || self.is_relay() {
            return;
        }
        for plan in self.shared.plans.all().iter() {
            let Some(watched) = plan.watched() else { continue };
            let sources = inner.sources.iter().map(|(id, _)| *id);
            let client = (self.id, inner.node.clone());
            if watched.note_rejection(client, &inner.session, sources, &newest(&inner.sources), now) {
                plan.note_rejected();
            }
        }
    }

    /// Whether the client is a relay: the ACK of a relay means structure (TIR-1).
    pub(crate) fn is_relay(&self) -> bool {
        self.peer.relays.is_some()
    }
}

impl Inner {
    /// Counts a lost stream at the sources of all types with a recent response.
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
