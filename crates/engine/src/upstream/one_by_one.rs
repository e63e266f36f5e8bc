//! Asks for one type after the other, where the server ends each stream before any answer (ADR 15).
//!
//! A stream restates all types at once. If the server refuses one of them, no stream lasts long enough for an
//! answer, and nothing shows which type the server means. So after [`ENDS`] such streams the types are asked
//! for one by one, with [`STEP`] in between, until the server answers any of them. A type that ends the
//! stream after the server bore another type is to blame. Each stream begins with another type, because the
//! end after the first type shows nothing: the server may refuse the type, or serve nobody.

use std::time::Duration;

use crate::Time;
use sluice_xds::TypeUrl;

/// One end without an answer may be the end of the server's process, and the next one its start.
const ENDS: u32 = 2;

/// A refused type usually ends the stream sooner.
const STEP: Duration = Duration::from_secs(1);

/// The number of streams in sequence that the server ended itself, before any answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SilentEnds(u32);

impl SilentEnds {
    /// Counts the end of a stream. `is_silent`: the server's own status brought the end soon after a request,
    /// before any answer.
    pub(super) fn count(&mut self, is_silent: bool) {
        self.0 = if is_silent { self.0.saturating_add(1) } else { 0 };
    }

    /// Returns true if the types have to be asked for one by one.
    pub(super) fn are_many(self) -> bool {
        self.0 >= ENDS
    }
}

/// The types that the present stream was asked for one by one.
#[derive(Debug, Default)]
pub(super) struct TypeSequence {
    count: usize,
    last: Option<(TypeUrl, Time)>,
}

impl TypeSequence {
    /// Notes the first request for a type.
    pub(super) fn note(&mut self, type_url: &TypeUrl, now: Time) {
        self.count += 1;
        self.last = Some((type_url.clone(), now));
    }

    /// The type after whose request the stream ended; the server bore the types before.
    pub(super) fn culprit(&self) -> Option<&TypeUrl> {
        self.last.as_ref().map(|(type_url, _)| type_url).filter(|_| self.count > 1)
    }

    /// The time from which the next type may be asked for; `None` before the first type.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.last.as_ref().map(|(_, at)| *at + STEP)
    }

    /// The next one of the types that were not asked for, in rank order, if its time has come.
    pub(super) fn next_type<'a>(
        &self,
        unasked: &[&'a TypeUrl],
        ends: SilentEnds,
        now: Time,
    ) -> Option<&'a TypeUrl> {
        let next = match &self.last {
            Some((_, at)) if *at + STEP > now => return None,
            Some((last, _)) => unasked.iter().find(|type_url| **type_url > last).or(unasked.first()),
            None => unasked.get(ends.0.saturating_sub(ENDS) as usize % unasked.len().max(1)),
        };
        next.copied()
    }
}
