//! Marks of complete collections, for clients that read marks (ADR 14).
//!
//! A delta client receives the resources known so far, and cannot see the end of a set. A client that is a
//! relay has to know the end. A mark goes with the last message of an answer, or with an empty message if
//! nothing else is due. Marks are no part of the body, because clients that read no marks share the body.

use std::collections::BTreeSet;

use crate::collection::Collection;
use crate::downstream::answer::AnswerPart;
use crate::downstream::answer::spelling::canonical;
use crate::view::ViewId;
use sluice_xds::mark::GLOBS_MAX;
use sluice_xds::{DeltaRequest, ResourceName, SetMark, TypeUrl};

/// The marks sent on one subscription.
#[derive(Debug, Default)]
pub(in crate::downstream) struct SetMarks {
    /// The number of requests of the type on the stream.
    requests: u64,
    /// The first answers were marked as whole. Later subscriptions by name need no mark.
    whole: bool,
    /// Requested globs with a mark.
    globs: BTreeSet<ResourceName>,
    /// The views without a due mark at the last look, so that many globs are not compared again and again.
    looked_at: Option<ViewId>,
}

impl SetMarks {
    /// The mark for an answer that brings the client to the views of these parts; `None` if no mark is due.
    fn due(&self, parts: &[AnswerPart]) -> Option<SetMark> {
        let whole = !self.whole && !parts.is_empty() && parts.iter().all(|part| part.view.is_complete());
        let globs = parts.iter().filter_map(|part| match &part.collection {
            Collection::Globs(globs) => Some((globs, &part.view)),
            Collection::Wildcard | Collection::Names(_) => None,
        });
        let asked: usize = globs.clone().map(|(globs, _)| globs.len()).sum();
        let globs = globs.filter(|_| asked > self.globs.len());
        let whole_globs = globs.flat_map(|(globs, view)| globs.iter().filter(|glob| view.knows_glob(glob)));
        let news = whole_globs.filter(|glob| !self.globs.contains(*glob)).take(GLOBS_MAX);
        let globs: Vec<_> = news.cloned().collect();
        (whole || !globs.is_empty()).then_some(SetMark { requests: self.requests, whole, globs })
    }

    /// Notes a request of a client that reads marks. A collection that is requested, newly or again, needs
    /// a mark.
    pub(in crate::downstream) fn note_requests(
        &mut self,
        requests: u64,
        request: &DeltaRequest,
        type_url: &TypeUrl,
    ) {
        self.requests += requests;
        for name in request.subscribe.iter().chain(&request.unsubscribe) {
            if name.is_wildcard() {
                (self.whole, self.looked_at) = (false, None);
            } else if name.is_glob() {
                self.looked_at = None;
                let key = canonical(name, type_url).ok().flatten();
                self.globs.remove(key.as_ref().unwrap_or(name));
            }
        }
    }

    /// Whether a mark is due without other news.
    pub(super) fn is_due_alone(&mut self, parts: &[AnswerPart]) -> bool {
        let at = Some(parts.iter().fold(ViewId::default(), |id, part| id.derived(part.view.id())));
        let is_due = self.looked_at != at && self.due(parts).is_some();
        if !is_due {
            self.looked_at = at;
        }
        is_due
    }

    /// Records and returns the mark for the last message of an answer; `None` if no mark is due.
    pub(in crate::downstream) fn take(&mut self, parts: &[AnswerPart]) -> Option<SetMark> {
        let mark = self.due(parts)?;
        self.whole |= mark.whole;
        self.globs.extend(mark.globs.iter().cloned());
        Some(mark)
    }
}
