//! The progress of a client in a type: unsent content, and the client's verdicts on answers (RLY-50, RLY-51).

use std::sync::Arc;

use crate::downstream::order::acknowledged::RejectedContent;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::nonces::{Judged, Verdict};
use crate::downstream::subscription::part::{Key, Part};
use crate::view::View;
use sluice_xds::Variant;

impl Part {
    /// The content before a response, and before all that the client rejected earlier and never accepted. `sent`: the content
    /// with the response.
    pub(super) fn before_rejected(&self, before: Arc<View>, sent: &View) -> Arc<View> {
        match &self.rejected {
            Some(rejected) => rejected.before_again(before, sent),
            None => before,
        }
    }
}

impl Subscription {
    /// Keeps the content before a response that goes out while another one is unanswered.
    pub fn note_stage(&mut self, nonce: u64) {
        if self.nonces.is_waiting() {
            let so_far = self.content_so_far();
            self.stages.add(nonce, so_far);
        }
    }

    /// The client's content is about to be made due again, as if it were unknown. A verdict on an unanswered response is about what
    /// the response brought (TRU-3).
    pub fn keep_content(&mut self) {
        if self.nonces.is_waiting() {
            let so_far = self.content_so_far();
            self.stages.begin(so_far);
        }
    }

    /// The content of each part after the messages so far: an answer may take several.
    fn content_so_far(&self) -> Vec<(Key, Arc<View>)> {
        let parts = self.parts.iter();
        parts.map(|part| (part.key(), self.part_so_far(part).held.clone())).collect()
    }

    /// Keeps the content before an answer until the client has answered it.
    pub fn remember(&mut self) {
        for part in &mut self.parts {
            part.before.get_or_insert_with(|| part.held.clone());
        }
    }

    /// Takes a verdict on a response. Returns whether something is due again by it.
    pub(in crate::downstream) fn take_verdict(
        &mut self,
        nonce: Option<u64>,
        (verdict, judged): (&Verdict, &Judged),
        variant: Variant,
    ) -> bool {
        if let Verdict::Nack { .. } = verdict {
            self.note_rejected(nonce, judged.carried.rejected());
        }
        self.follow(nonce, verdict, variant);
        self.send_rejected_again(nonce, verdict)
    }

    /// Notes the client's ACK or NACK of a response.
    pub fn follow(&mut self, nonce: Option<u64>, verdict: &Verdict, variant: Variant) {
        let waiting = self.nonces.is_waiting();
        match verdict {
            Verdict::Ack { .. } => {
                if self.type_url.kind().refers_to_clusters() {
                    self.acknowledged.ack(nonce);
                }
                if !waiting {
                    self.accept(variant);
                } else if let Some(nonce) = nonce {
                    // Only what was sent since is unanswered.
                    for part in &mut self.parts {
                        let after = self.stages.after(nonce, part).cloned();
                        part.before = after.or(part.before.take());
                    }
                }
            }
            Verdict::Nack { .. } => self.reject(nonce.filter(|_| waiting)),
            Verdict::Stale | Verdict::None => return,
        }
        self.stages.end(nonce, waiting);
        self.end_unread(nonce, waiting);
        for part in self.parts.iter_mut().filter(|_| !waiting) {
            part.before = None;
        }
    }

    /// Notes an ACK of all responses. An ACK of other content accepts nothing that was rejected, as the ACK of a removal.
    fn accept(&mut self, variant: Variant) {
        let full = self.is_full(variant);
        for part in &mut self.parts {
            part.is_first &= part.at.is_none();
            let Some(rejected) = part.rejected.take() else { continue };
            let before = self.stages.of(part).next().or(part.before.as_ref());
            // The client accepted the complete set, or every rejected name with other content or once more.
            let stands =
                !full && rejected.stands((before.map(|before| &**before), &*part.held), part.kind(), variant);
            part.rejected = Some(rejected).filter(|_| stands);
        }
        if self.parts.iter().all(|part| part.rejected.is_none()) {
            self.nonces.former_nack = None;
        }
    }

    /// Notes a rejection: the client keeps its former content. `older`: the nonce of the rejected response, if later ones are
    /// unanswered, which may still be accepted (NON-1).
    fn reject(&mut self, older: Option<u64>) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let pending = self.pending.as_ref().and_then(|answer| answer.parts.get(index));
            let newest = pending.map_or(&part.held, |answered| &answered.view);
            let after = older.and_then(|nonce| self.stages.after(nonce, part));
            let sent = after.unwrap_or(newest).clone();
            let before = part.before.take().unwrap_or_else(|| part.held.clone());
            if older.is_some() {
                part.before = Some(if after.is_some() { before.clone() } else { part.held.clone() });
            }
            if before.id() != sent.id() {
                let before = part.before_rejected(before, &sent);
                part.rejected = Some(Box::new(RejectedContent { before, sent }));
            }
        }
    }

    /// Whether the client has ACKed this type's content of this source, as of this count of carried
    /// responses.
    pub(in crate::downstream) fn has_followed(
        &self,
        source: SourceId,
        carried: u64,
        turn: &Turn<'_>,
    ) -> bool {
        if !self.type_url.kind().refers_to_clusters() {
            return true;
        }
        let own = || self.parts.iter().filter(|part| part.source() == source);
        if own().any(|part| part.rejected.is_some()) {
            return false;
        }
        let has_news = |part: &Part| part.has_news(part.view_in(turn, &self.type_url));
        let nothing_left = || !self.nonces.is_waiting() && self.pending.is_none() && !own().any(has_news);
        self.acknowledged.covers(carried) || own().next().is_none() || nothing_left()
    }

    /// Whether unsent content is due, as far as visible without a composition.
    pub fn is_due(&self, turn: &Turn<'_>) -> bool {
        self.pending.is_some()
            || self.parts.iter().any(|part| part.has_news(part.view_in(turn, &self.type_url)))
    }

    /// Whether a source has unsent content, apart from withheld removals.
    pub(super) fn has_unsent(&self, turn: &Turn<'_>) -> bool {
        let is_behind = |part: &Part, view: &View| {
            part.is_behind(part.due(view)) && !(part.held.is_empty() && view.is_empty())
        };
        let views = self.parts.iter().map(|part| (part, part.view_in(turn, &self.type_url)));
        self.pending.is_some()
            || views.into_iter().any(|(part, view)| view.is_some_and(|view| is_behind(part, view)))
    }

    /// Whether news of this type cannot be sent before the client's ACK, so that the routing types must
    /// wait (RLY-50). Removals, renewed TTLs and errors are no such news.
    pub fn holds_back(&self, turn: &Turn<'_>) -> bool {
        self.nonces.is_waiting()
            && self.parts.iter().any(|part| {
                let view = part.view_in(turn, &self.type_url);
                view.is_some_and(|view| {
                    let only_adds =
                        part.withheld.is_none() && !part.held.may_lose(view) && view.annotations().is_empty();
                    part.is_behind(part.due(view)) && (only_adds || part.held.has_news_in(view))
                })
            })
    }
}
