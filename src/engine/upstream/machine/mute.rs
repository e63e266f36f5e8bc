//! A server that receives requests and never answers.
//!
//! Silence is an answer to a client that states its held versions. From a server that has never answered,
//! silence is a sign that the server does not know the client: a control plane with a configuration for each
//! node id has none for the relay's node id.

use std::time::Duration;

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;

/// The maximum silence of a server that never answered. A response takes milliseconds, and the resource timer
/// is equally long (TMR-1). So observers learn of the cause and of the effect at about the same time.
const ANSWER_DUE: Duration = Duration::from_secs(10);

impl Upstream {
    /// The time at which the silence has lasted too long. A server with marks has identified itself as a
    /// sluice, and the silence means that its own server has not answered yet (ADR 14).
    pub(super) fn mute_at(&self) -> Option<Time> {
        let Phase::Open(stream) = &self.phase else { return None };
        let can_say_so = self.polls() || stream.has_marks;
        let asked = stream.asked.filter(|_| !self.has_spoken && !stream.is_mute && !can_say_so)?;
        Some(asked + ANSWER_DUE)
    }

    pub(super) fn find_mute(&mut self, now: Time) {
        if self.mute_at().is_none_or(|at| at > now) {
            return;
        }
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_mute = true;
            self.event(Event::Unanswered);
        }
    }
}
