//! Handed-over messages, and their effects on the session.

use std::sync::Arc;

use crate::Time;
use crate::downstream::answer::Answer;
use crate::downstream::answer::key::AnswerKey;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::session::Session;
use crate::downstream::subscription::carried::Passed;
use crate::view::View;
use sluice_xds::{Kind, ResourceName, SetMark, Version};

impl Session {
    /// Records a handover: the answer was composed into `chunks` messages, and the message at `answer.chunk`
    /// goes out now. `version` is the version of this message, `endpoints` are the names that must follow
    /// (ORD-5), and `targets` and `told_names` come from the composition. Returns the nonce, or `None` if the
    /// answer had no message.
    #[allow(
        clippy::too_many_arguments,
        reason = "what the composition says, of which the driver keeps only this"
    )]
    pub fn commit(
        &mut self,
        index: usize,
        answer: &Answer,
        chunks: usize,
        version: Version,
        endpoints: &Arc<[ResourceName]>,
        targets: &[Arc<View>],
        told_names: &Arc<[ToldNames]>,
        now: Time,
    ) -> Option<u64> {
        let subscription = self.subscriptions.get_mut(index)?;
        let (is_last, is_first) = (answer.chunk + 1 >= chunks, subscription.nonces.latest().is_none());
        let is_update = subscription.nonces.version_sent().is_some()
            && answer.parts.iter().any(|part| !part.held.is_empty());
        let changed_at = answer.parts.iter().map(|part| part.view.changed_at()).max().filter(|_| is_update);
        let carried = subscription.carry(answer, is_last, chunks > 0, &mut self.passed);
        if chunks > 0 {
            // With the first message, because a newer answer may replace the rest.
            subscription.remember(self.carried + 1);
        }
        if is_last {
            match targets.is_empty() {
                true => subscription.arrive(answer, chunks > 0),
                false => subscription.arrive(&answer.brought_to(targets), chunks > 0),
            }
        } else {
            subscription.begin_rest(answer, told_names, targets);
        }
        if chunks == 0 {
            return None;
        }
        self.carried += 1;
        let nonce = self.carried;
        if let Some(forgotten) = subscription.nonces.send(nonce, version, now, changed_at, carried) {
            Passed::add_overtaken(&mut self.passed, forgotten.whole());
        }
        if chunks > 1 {
            let told_names = answer.rest.as_ref().map_or(told_names, |rest| &rest.told_names);
            subscription.note_message(nonce, told_names, answer.chunk);
        } else {
            subscription.note_only_message(nonce, answer);
        }
        if is_last {
            // Rounds, releases and later messages may be older than the sources' content.
            let is_newest = self.round.is_none() && self.lanes.is_none() && answer.rest.is_none();
            subscription.delivery.sent_after = is_newest.then_some(self.news);
            subscription.delivery.acknowledged.hand_over(answer.begun, nonce);
        }
        // With the first message, because newer clusters may replace the rest; with the last message for
        // endpoints that the client asked for meanwhile.
        if (is_last || answer.chunk == 0) && answer.type_url.kind() == Kind::Cluster && !endpoints.is_empty()
        {
            self.force_endpoints(endpoints);
            self.await_endpoints(endpoints, nonce, is_first, now);
        }
        Some(nonce)
    }

    /// Forces the endpoints of clusters that were just sent. Before the first request for endpoints, notes
    /// them for later.
    fn force_endpoints(&mut self, endpoints: &Arc<[ResourceName]>) {
        let eds = self.subscriptions.iter_mut();
        let mut is_asked_for = false;
        for subscription in eds.filter(|s| s.type_url.kind() == Kind::ClusterLoadAssignment) {
            is_asked_for = true;
            for name in endpoints.iter() {
                subscription.force(name);
            }
        }
        // Order binds only within a stream (ORD-9), and a stream of a single type carries no endpoints.
        if !is_asked_for && self.kind.service.is_none() {
            self.endpoints_due.get_or_insert_default().add(endpoints);
        }
    }

    /// Records and returns the mark for the message of this answer that was just committed; `None` if no
    /// mark is due.
    pub fn mark(&mut self, index: usize, answer: &Answer, chunks: usize) -> Option<SetMark> {
        if !self.kind().marks || answer.chunk + 1 < chunks {
            return None;
        }
        let marks = self.subscriptions.get_mut(index)?.set_marks_mut()?;
        marks.take(&answer.parts)
    }

    /// Gives up the rest of this subscription's answer. The next answer is built from the snapshots of that
    /// time.
    pub fn begin_anew(&mut self, index: usize) {
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            subscription.interrupt();
        }
    }

    /// As [`Self::begin_anew`], for each unfinished answer whose key satisfies the condition.
    pub fn give_up(&mut self, is_given_up: impl Fn(&AnswerKey) -> bool) {
        for subscription in &mut self.subscriptions {
            if subscription.pending_key().is_some_and(|key| is_given_up(&key)) {
                subscription.interrupt();
            }
        }
    }
}
