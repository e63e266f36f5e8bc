//! Which streams of a source work: where each type has a stream of its own, one may fail for itself.

use std::collections::BTreeSet;

use crate::engine::source::StreamIndex;

/// A stream is up from its opening, or its first answer, to its end; it is lost from the failure that made its server
/// unreachable to its next answer.
#[derive(Debug, Default)]
pub struct Health {
    up: BTreeSet<StreamIndex>,
    lost: BTreeSet<StreamIndex>,
}

impl Health {
    pub fn connected(&mut self, stream: StreamIndex) {
        self.up.insert(stream);
    }

    pub fn answered(&mut self, stream: StreamIndex) {
        self.up.insert(stream);
        self.lost.remove(&stream);
    }

    pub fn ended(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
    }

    pub fn unreachable(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
        self.lost.insert(stream);
    }

    /// Nothing is wanted of it any more, or it is renewed.
    pub fn closed(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
        self.lost.remove(&stream);
    }

    pub fn is_any_up(&self) -> bool {
        !self.up.is_empty()
    }

    pub fn is_any_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i14_one_stream_that_fails_makes_a_source_stale_and_not_disconnected() {
        let mut health = Health::default();
        health.connected(0);
        health.answered(0);
        health.unreachable(1);
        assert_eq!((health.is_any_up(), health.is_any_lost()), (true, true));
        health.answered(0);
        assert!(health.is_any_lost(), "the answer of one is not that of the other");
        health.ended(0);
        assert!(!health.is_any_up());
        health.closed(1);
        assert!(!health.is_any_lost(), "what nobody wants is not missed");
    }
}
