//! The end of a stream as a sign about its client (TRU-1, WAV-12).

use std::sync::Arc;

use crate::driver::ground::plans::{PlanHandle, StreamClient};
use crate::driver::source::handle::SourceHandle;
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
            let client = StreamClient { stream: self.id, node: inner.node.clone() };
            watched.note_end(client, is_lost, &inner.session, sources, &newest(&inner.sources), now);
        }
    }

    /// Tells all plans of a rejection (TRU-1). The ACK and the NACK of a relay are no evidence.
    pub(crate) fn tell_plans_of_rejection(&self, inner: &Inner, now: Time) {
        if self.shared.plans.is_empty() || self.is_relay() {
            return;
        }
        for plan in self.shared.plans.all().iter() {
            let Some(watched) = plan.watched() else {
                if let Some(node) = inner.node.as_ref().filter(|_| inner.keeps_push_of(plan)) {
                    plan.note_late_rejecter(node.id.as_str().into());
                }
                continue;
            };
            let sources = inner.sources.iter().map(|(id, _)| *id);
            let client = StreamClient { stream: self.id, node: inner.node.clone() };
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
    /// Whether the client keeps the halted push of a plan (WAV-16).
    fn keeps_push_of(&self, plan: &Arc<PlanHandle>) -> bool {
        let admission = plan.admission();
        let served = self.sources.served_push();
        let is_kept = |source: &SourceHandle| {
            source.judge().is_some_and(|judge| Arc::ptr_eq(&judge, plan))
                && source.published().candidate_of(admission.push).is_some()
        };
        admission.holders_only
            && served == Some(admission.push)
            && self.sources.iter().any(|(_, source)| is_kept(source))
    }

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
