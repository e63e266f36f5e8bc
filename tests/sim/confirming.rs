//! The reference model of sets that count as whole, and are provisional until they are confirmed (ADR 52).

use super::reference::{Source, StreamType};

/// The confirmation of a wildcard that counts as whole (ADR 52).
#[derive(Clone, Copy, Debug)]
pub struct Confirming {
    pub until: u64,
    pub latest: u64,
    pub is_proving: bool,
    pub is_proven: bool,
}

/// New resources begin the silence that confirms a wildcard anew, up to so many times its length.
pub const CONFIRMED_WITHIN: u64 = 6;

impl StreamType {
    /// New resources came, or nothing that can be read.
    pub fn interrupt(&mut self, quiet: u64, now: u64) {
        if let Some(confirming) = self.confirming.as_mut().filter(|confirming| now < confirming.latest) {
            let until = (now + quiet).min(confirming.latest);
            *confirming = Confirming { until, is_proving: false, is_proven: false, ..*confirming };
        }
    }
}

impl Source {
    /// Whether the wildcard counts as whole, and more of it may come.
    pub fn is_provisional(&self, ty: usize) -> bool {
        self.complete[ty] && !self.confirmed[ty]
    }

    pub fn confirm_proven(&mut self, index: usize) {
        let Some(Some(stream)) = self
            .streams
            .get_mut(index)
            .filter(|stream| stream.as_ref().is_some_and(|stream| stream.receiving.is_none()))
        else {
            return;
        };
        for (ty, said) in stream.types.iter_mut().enumerate() {
            if said.confirming.take_if(|of| of.is_proven).is_some()
                && !said.gave_up_wildcard
                && self.demand[ty].wildcard
            {
                self.confirmed[ty] = true;
            }
        }
    }
}
