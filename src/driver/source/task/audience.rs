//! The streams of a source.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::driver::source::handle::{Subscriber, failed};
use crate::driver::source::member::Member;
use sluice_engine::cache::SessionId;
use sluice_engine::downstream::SourceId;
use sluice_xds::{Node, RelayId, RelayPath, TypeUrl};

/// The streams that ask the source for something.
pub(super) struct Audience {
    streams: HashMap<SessionId, Arc<dyn Subscriber>>,
    /// Only for a class that shows a client's node to its server.
    pub(super) member: Option<Member>,
    /// Another class has the source's place. The source ends when its streams have left.
    is_displaced: bool,
}

impl Audience {
    pub(super) fn new(shows_member: bool) -> Audience {
        Audience { streams: HashMap::new(), member: shows_member.then(Member::default), is_displaced: false }
    }

    pub(super) fn add(&mut self, stream: Arc<dyn Subscriber>, source: SourceId) {
        if self.is_displaced {
            stream.clone().displaced(source);
        }
        self.streams.insert(stream.id(), stream);
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        self.streams.remove(&session);
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.is_displaced
    }

    /// Another class has the source's place from now on.
    pub(super) fn displace(&mut self, source: SourceId) {
        self.is_displaced = true;
        self.streams.values().for_each(|stream| stream.clone().displaced(source));
    }

    /// Wakes these streams. `relays_only`: no other stream has anything new.
    pub(super) fn wake(&self, sessions: &[SessionId], relays_only: bool) {
        for session in sessions {
            if let Some(stream) = self.streams.get(session)
                && (!relays_only || stream.relays().is_some())
            {
                stream.wake();
            }
        }
    }

    pub(super) fn wake_all(&self) {
        self.streams.values().for_each(|stream| stream.wake());
    }

    /// Sends these streams to private sources for some names of a type (CCH-1).
    pub(super) fn divert(&self, sessions: &[SessionId], type_url: &TypeUrl) {
        let streams = sessions.iter().filter_map(|session| self.streams.get(session));
        streams.for_each(|stream| stream.clone().divert(type_url.clone()));
    }

    /// The path of the next call (TIR-2), behind the client with most relays on the way. The call is for all
    /// clients, and a loop is in the longest path.
    pub(super) fn relay_path(&self, relay: &RelayId) -> RelayPath {
        let paths = self.streams.values().filter_map(|stream| stream.relays());
        let longest = paths.max_by_key(|path| (path.hops(), Reverse(*path)));
        RelayPath::through(longest, relay)
    }

    /// The number of streams that owe an answer to each change. Locks one stream at a time.
    pub(super) fn waiting(&self, source: SourceId) -> HashMap<u64, u32> {
        let mut waiting = HashMap::new();
        for stream in self.streams.values() {
            for number in stream.awaited_changes(source) {
                *waiting.entry(number).or_default() += 1;
            }
        }
        waiting
    }

    /// When to choose another member even if nobody comes or goes.
    pub(super) fn member_due(&self) -> Option<Instant> {
        self.member.as_ref().and_then(Member::due)
    }

    /// The node of another member, if the shown member has left.
    pub(super) fn choose_member(&mut self, source: SourceId) -> Option<Node> {
        self.member.as_mut()?.follow(&self.streams, source, Instant::now())
    }

    /// The source has failed. Its streams would wait for ever; their clients reconnect after the end (FP11).
    pub(super) fn end_all(&self) {
        self.streams.values().for_each(|stream| stream.end(failed()));
    }
}
