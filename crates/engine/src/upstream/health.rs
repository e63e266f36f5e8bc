//! The state of the server, as the streams of the machine show it.
//!
//! A server is **heard** (CLI-1) from its first response on a stream. A server without news may send nothing
//! at all after a reconnect: to a client that states its held versions, silence is the answer (DEL-35,
//! STR-10). A silent server is heard if the stream has stayed open for the time of the resource timers after
//! all requests, and the transport was alive afterwards. So an unreachable server that comes back
//! unchanged does not stay unreachable.
//!
//! A server that answers and dies, over and over, is no error by A57 and A88, so that neither an error nor a
//! fallback would ever follow. Deliberately against CLI-1 and CLI-2, the server counts as unreachable after
//! several short streams in short time. The server is heard again only when a stream has lived for a while
//! after the first response (FU9). Streams that the server asked the relay to leave, and streams that lived
//! long enough, never count (RLY-48).
//!
//! Silence is an answer to a client that states its held versions. From a server that has never answered,
//! silence is a sign that the server does not know the client: a control plane with a configuration for each
//! node id has none for the relay's node id. The server is **mute** then.

use std::collections::VecDeque;
use std::time::Duration;

use super::api::{Event, OutputQueue};
use super::backoff::BackoffSettings;
use super::one_by_one::SilentEnds;
use super::stream::{ServerStream, StreamEvidence};
use crate::Time;
use crate::reachability::Reachability;
use sluice_xds::{Code, Status};

/// The maximum silence of a server that never answered. A response takes milliseconds, and the resource timer
/// is equally long (TMR-1). So observers learn of the cause and of the effect at about the same time.
const ANSWER_DUE: Duration = Duration::from_secs(10);

/// The state of the server over all streams.
#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    pub(super) reach: Reachability,
    /// The reason for the unreachability, or for the end of the last stream.
    pub(super) last_error: Option<Status>,
    /// The time since which the server has no service for the type of this stream, and the server's status.
    pub(super) unserved: Option<(Time, Status)>,
    pub(super) flaps: Flaps,
    /// The server's own identifier.
    pub(super) control_plane: String,
    /// REST: the last poll was answered.
    pub(super) is_polled: bool,
    /// The server has answered since the first subscription, or before the restart of the relay.
    pub(super) has_spoken: bool,
    pub(super) silent_ends: SilentEnds,
}

impl ServerHealth {
    /// The server can be heard on a stream. Reported once for each stream.
    pub(super) fn hear(&mut self, evidence: &mut StreamEvidence, now: Time, outputs: &mut OutputQueue) {
        if std::mem::replace(&mut evidence.is_heard, true) {
            return;
        }
        self.last_error = None;
        // Lasting silence, too, shows that the service is there again.
        self.unserved = None;
        self.reach.hear(now);
        outputs.event(Event::Heard);
    }

    /// The server is unreachable.
    pub(super) fn lose(&mut self, status: Status, now: Time, outputs: &mut OutputQueue) {
        self.unserved = None;
        self.reach.lose(status.clone(), now);
        self.last_error = Some(status.clone());
        outputs.event(Event::Unreachable { status });
    }

    /// The server has no service for the only type of the stream. Returns false if that is no news.
    ///
    /// RLY-25, RLY-40: a type without a service says nothing about the server's other types.
    pub(super) fn lack_service(&mut self, status: &Status, now: Time) -> bool {
        if self.unserved.is_some() {
            return false;
        }
        self.reach = Reachability::Pending;
        self.unserved = Some((now, status.clone()));
        true
    }

    /// Forgets the server, except for its last words.
    pub(super) fn forget(&mut self) {
        self.reach = Reachability::Pending;
        self.has_spoken = false;
        self.silent_ends = SilentEnds::default();
        self.unserved = None;
        self.flaps = Flaps::default();
    }

    /// Notes the identifier of a response. Returns true if another process had answered before, as far as the
    /// server says so.
    pub(super) fn note_control_plane(&mut self, identifier: &str) -> bool {
        if identifier.is_empty() || identifier == self.control_plane {
            return false;
        }
        let previous = std::mem::replace(&mut self.control_plane, identifier.to_owned());
        !previous.is_empty()
    }

    /// Records the end of an answered stream. Returns true if the end makes the server unsteady.
    pub(super) fn note_end(&mut self, stream: &ServerStream, backoff: &BackoffSettings, now: Time) -> bool {
        let is_short = now.since(stream.opened) < backoff.short_life;
        is_short && !stream.evidence.is_dismissed && self.flaps.add(backoff, now)
    }

    /// The time at which an unsteady server has been steady for long enough.
    pub(super) fn steady_at(&self, stream: &ServerStream, backoff: &BackoffSettings) -> Option<Time> {
        let evidence = &stream.evidence;
        let answered = evidence.answered.or(evidence.silent).filter(|_| self.flaps.is_unsteady)?;
        Some(answered + backoff.short_life)
    }

    /// The time at which the silence has lasted too long. A server with marks has identified itself as a
    /// sluice, and the silence means that its own server has not answered yet (ADR 14).
    pub(super) fn mute_at(&self, stream: &ServerStream, polls: bool) -> Option<Time> {
        let can_say_so = polls || stream.has_marks;
        let is_silent = !self.has_spoken && !stream.evidence.is_mute && !can_say_so;
        Some(stream.evidence.asked.filter(|_| is_silent)? + ANSWER_DUE)
    }

    /// Returns true if the stream is asked for one type after the other ([`super::one_by_one`]).
    pub(super) fn is_careful(&self, stream: &ServerStream) -> bool {
        stream.evidence.answered.is_none() && self.silent_ends.are_many()
    }
}

/// The reason why an unsteady server is unreachable. `last`: the status at the end of the last stream.
pub(super) fn unsteady_status(settings: &BackoffSettings, last: &Status) -> Status {
    let BackoffSettings { unsteady_ends, unsteady_within, .. } = settings;
    let text = format!(
        "{unsteady_ends} streams within {unsteady_within:?} ended soon after they were answered, the last one with {last}"
    );
    Status::new(Code::Unavailable, text)
}

/// Answered streams that ended soon afterwards, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Flaps {
    ends: VecDeque<Time>,
    /// There were too many such ends, and no stream has lasted since.
    pub(super) is_unsteady: bool,
}

impl Flaps {
    /// Returns true if the end makes the server unsteady.
    fn add(&mut self, settings: &BackoffSettings, now: Time) -> bool {
        self.ends.push_back(now);
        while self.ends.front().is_some_and(|end| now.since(*end) > settings.unsteady_within) {
            self.ends.pop_front();
        }
        if self.is_unsteady || self.ends.len() < settings.unsteady_ends {
            return false;
        }
        self.ends.clear();
        self.is_unsteady = true;
        true
    }
}
