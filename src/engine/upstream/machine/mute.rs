//! A server that is asked and never says anything.
//!
//! Silence is an answer to a client that states what it holds. From a server that has never answered it is a sign that it
//! does not know who asks: a control plane that keeps its state by node id has nothing under the relay's.

use std::time::Duration;

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;

/// How long a server that never answered may be silent. A response takes milliseconds, and the resource timer is as long
/// (TMR-1), so that whoever waits is told of the cause about when it is told of the effect.
const ANSWER_DUE: Duration = Duration::from_secs(10);

impl Upstream {
    /// When the silence has lasted too long. A server that sets marks has said who it is: its silence means that it knows nothing
    /// yet itself (ADR 14).
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
