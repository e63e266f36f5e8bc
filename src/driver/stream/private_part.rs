//! Two parts of one stream at one source.
//!
//! What may not be shared is a part of its own. At a control plane it has a source of its own, too. A directory answers everyone
//! alike and has one source; there the two parts of a stream are two sessions, since what a session wants of a type takes the place of
//! what it wanted before.

use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;

/// Sources and streams are counted from 0: neither comes this far.
const PRIVATE_BIT: u64 = 1 << 63;

/// The source as the private part of a stream knows it.
pub(crate) fn private_source(id: SourceId) -> SourceId {
    SourceId(id.0 | PRIVATE_BIT)
}

/// The session of a stream at a source that it knows by this number.
pub(crate) fn session_at(stream: SessionId, source: SourceId) -> SessionId {
    SessionId(stream.0 | (source.0 & PRIVATE_BIT))
}
