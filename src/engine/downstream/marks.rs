//! What a client that reads marks is told to be whole (ADR 14).
//!
//! A delta client is told what is there so far, and cannot see when that is all. One that is a relay has to know. A mark goes
//! with the last message of an answer, or with an empty one if nothing else is to be said. It is no part of the body, which is
//! shared with clients that read no marks.

use std::collections::BTreeSet;

use super::answer::{Answer, AnswerPart};
use super::session::Session;
use super::spelling::key_of;
use super::subscription::Subscription;
use crate::engine::interest::Interest;
use crate::engine::view::ViewId;
use crate::xds::mark::GLOBS_MAX;
use crate::xds::{DeltaRequest, ResourceName, SetMark};

/// What one subscription was told to be whole.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// How many requests of the type came on the stream.
    requests: u64,
    /// The first answers were marked as whole. What is asked for by name later needs no mark.
    whole: bool,
    /// Those that are asked for, and were marked.
    globs: BTreeSet<ResourceName>,
    /// The views at which no mark was due, so that nobody looks through many globs again and again.
    looked_at: Option<ViewId>,
}

impl Marks {
    /// The mark that may go with an answer by which the client is brought to the views of these parts.
    fn due(&self, parts: &[AnswerPart]) -> Option<SetMark> {
        let whole = !self.whole && !parts.is_empty() && parts.iter().all(|part| part.view.is_complete());
        let globs = parts.iter().filter_map(|part| match &part.interest {
            Interest::Globs(globs) => Some((globs, &part.view)),
            Interest::Wildcard | Interest::Names(_) => None,
        });
        let asked: usize = globs.clone().map(|(globs, _)| globs.len()).sum();
        let globs = globs.filter(|_| asked > self.globs.len());
        let known = globs.flat_map(|(globs, view)| globs.iter().filter(|glob| view.knows_glob(glob)));
        let news = known.filter(|glob| !self.globs.contains(*glob)).take(GLOBS_MAX);
        let globs: Vec<_> = news.cloned().collect();
        (whole || !globs.is_empty()).then_some(SetMark { requests: self.requests, whole, globs })
    }
}

impl Session {
    /// The mark that goes with the message of this answer that was just committed.
    pub fn mark(&mut self, index: usize, answer: &Answer, chunks: usize) -> Option<SetMark> {
        if !self.kind().marks || answer.chunk + 1 < chunks {
            return None;
        }
        let marks = self.subscriptions.get_mut(index)?.marks.as_deref_mut()?;
        let mark = marks.due(&answer.parts)?;
        marks.whole |= mark.whole;
        marks.globs.extend(mark.globs.iter().cloned());
        Some(mark)
    }
}

impl Subscription {
    /// A request of a client that reads marks. A collection that it takes up, or takes up again, has to be marked.
    pub(super) fn note_for_marks(&mut self, request: &DeltaRequest) {
        let marks = self.marks.get_or_insert_default();
        marks.requests += 1;
        for name in request.subscribe.iter().chain(&request.unsubscribe) {
            if name.is_wildcard() {
                (marks.whole, marks.looked_at) = (false, None);
            } else if name.is_glob() {
                marks.looked_at = None;
                let key = key_of(name, &self.type_url).ok().flatten();
                marks.globs.remove(key.as_ref().unwrap_or(name));
            }
        }
    }

    /// Whether a mark is due and nothing else.
    pub(super) fn marks_alone(&mut self, has_news: bool, parts: &[AnswerPart]) -> bool {
        let Some(marks) = self.marks.as_mut().filter(|_| !has_news) else { return false };
        let at = Some(parts.iter().fold(ViewId::default(), |id, part| id.derived(part.view.id())));
        let is_due = marks.looked_at != at && marks.due(parts).is_some();
        if !is_due {
            marks.looked_at = at;
        }
        is_due
    }
}
