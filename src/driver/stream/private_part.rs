//! The shared part and the private part of one stream at one source.
//!
//! Names that may not be shared form the private part of a subscription. A control plane has a separate source
//! for the private part. A directory gives all clients the same answers, and has a single source. There, the
//! two parts are two sessions, because a session has one subscription per type.

use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;

/// The numbers of sources and streams count from 0, and never reach this bit.
const PRIVATE_BIT: u64 = 1 << 63;

/// The source's id in the private part of a stream.
pub(crate) fn private_source(id: SourceId) -> SourceId {
    SourceId(id.0 | PRIVATE_BIT)
}

/// The source behind an id.
pub(crate) fn shared_source(id: SourceId) -> SourceId {
    SourceId(id.0 & !PRIVATE_BIT)
}

/// The session of a stream at the source with this id.
pub(crate) fn session_at(stream: SessionId, source: SourceId) -> SessionId {
    SessionId(stream.0 | (source.0 & PRIVATE_BIT))
}
