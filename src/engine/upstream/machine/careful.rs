//! Asks for one type after the other, where the server ends each stream before any answer (ADR 15).
//!
//! A stream restates all types at once. If the server refuses one of them, no stream lasts long enough for an
//! answer, and nothing shows which type the server means. So after [`ENDS`] such streams the types are asked for
//! one by one, with [`STEP`] in between, until the server answers any of them. A type that ends the stream after
//! the server bore another type is to blame. Each stream begins with another type, because the end after the
//! first type shows nothing: the server may refuse the type, or serve nobody.

use std::time::Duration;

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::type_request::TypeRequest;
use crate::xds::TypeUrl;

/// One end without an answer may be the end of the server's process, and the next one its start.
const ENDS: u32 = 2;

/// A refused type usually ends the stream sooner.
const STEP: Duration = Duration::from_secs(1);

/// The types that the present stream was asked for one by one.
#[derive(Debug, Default)]
pub(super) struct Careful {
    types: usize,
    last: Option<(TypeUrl, Time)>,
}

impl Careful {
    /// Notes the first request for a type.
    pub(super) fn asked(&mut self, type_url: &TypeUrl, now: Time) {
        self.types += 1;
        self.last = Some((type_url.clone(), now));
    }

    /// The type after whose request the stream ended; the server bore the types before.
    pub(super) fn guilty(&self) -> Option<&TypeUrl> {
        self.last.as_ref().map(|(type_url, _)| type_url).filter(|_| self.types > 1)
    }

    fn is_due(&self, now: Time) -> bool {
        self.last.as_ref().is_none_or(|(_, at)| *at + STEP <= now)
    }
}

impl Upstream {
    /// Returns true if the stream is asked for one type after the other.
    pub(super) fn is_careful(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.answered.is_none()) && self.silent_ends >= ENDS
    }

    /// Counts the ends in sequence that the server's own status brings soon after a request, before any answer.
    /// Without the blamed type, all others are asked for at once.
    pub(super) fn count_silent_end(&mut self, is_soon: bool) {
        let Phase::Open(stream) = &self.phase else { return };
        if !stream.is_dismissed {
            let is_silent = is_soon && stream.answered.is_none();
            self.silent_ends = if is_silent { self.silent_ends.saturating_add(1) } else { 0 };
        }
    }

    /// Some type answers, so that all others can be asked for at once.
    pub(super) fn end_care(&mut self, now: Time) {
        if std::mem::take(&mut self.silent_ends) >= ENDS {
            self.write_changes(now);
        }
    }

    /// The types with changes that may be written now.
    pub(super) fn writable(&self, now: Time) -> Vec<TypeUrl> {
        if self.is_flushing() {
            return Vec::new();
        }
        let with_news = self.subscriptions.values().filter(|of_type| of_type.has_news());
        let (mut writable, new): (Vec<_>, Vec<_>) =
            with_news.partition(|of_type| of_type.said.asked || !self.is_careful());
        if let Phase::Open(stream) = &self.phase
            && stream.careful.is_due(now)
        {
            writable.extend(self.next_of(&new, &stream.careful));
        }
        writable.into_iter().map(|of_type| of_type.type_url.clone()).collect()
    }

    fn next_of<'a>(&self, new: &[&'a TypeRequest], careful: &Careful) -> Option<&'a TypeRequest> {
        let after = |last: &TypeUrl| new.iter().find(|of_type| of_type.type_url > *last);
        let next = match &careful.last {
            Some((last, _)) => after(last).or(new.first()),
            None => new.get(self.silent_ends.saturating_sub(ENDS) as usize % new.len().max(1)),
        };
        next.copied()
    }

    /// The time of the next step.
    pub(super) fn next_step(&self) -> Option<Time> {
        let Phase::Open(stream) = &self.phase else { return None };
        if stream.is_flushing {
            return None;
        }
        let (_, at) = stream.careful.last.as_ref().filter(|_| self.is_careful())?;
        let mut types = self.subscriptions.values();
        types.any(|of_type| of_type.has_news() && !of_type.said.asked).then_some(*at + STEP)
    }

    pub(super) fn take_step(&mut self, now: Time) {
        if self.next_step().is_some_and(|at| at <= now) {
            self.write_changes(now);
        }
    }
}
