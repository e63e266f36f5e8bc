//! The ids of traces. Each follows from the name of its change or act, so that a log line, an event or a link
//! can name a trace that is not made yet (OBS-13).

use opentelemetry::trace::{SpanId, TraceId};

/// The ids of one process. Names are unique only within a process, so each has a key of its own.
#[derive(Clone, Debug)]
pub(super) struct Ids([u8; 32]);

impl Ids {
    pub(super) fn new() -> Ids {
        let mut key = [0; 32];
        fastrand::fill(&mut key);
        Ids(key)
    }

    /// The id of a trace, and of its first span.
    pub(super) fn of(&self, name: &str) -> (TraceId, SpanId) {
        let hash = *blake3::keyed_hash(&self.0, name.as_bytes()).as_bytes();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash[..16]);
        span.copy_from_slice(&hash[16..24]);
        // 0 would be no id.
        (TraceId::from(u128::from_be_bytes(trace).max(1)), SpanId::from(u64::from_be_bytes(span).max(1)))
    }
}
