//! The reference's own clock: the ends of lingers, times to live and holds, and the latest time for the
//! absence of an unanswered name. The machines' timers are not consulted.

use super::reference::{Source, Stream, StreamType};
use super::restored::PATIENCE_MIN;
use super::schedule::SECOND;
use super::track::{State, Track};
use super::words::{SDS, TYPES, bits};

/// The maximum time for a sign of life after a timer has run out: a probe waits 10 s for its answer (RLY-29).
const PROOF: u64 = 15 * SECOND;

impl Source {
    /// The next time at which [`Source::pass`] has work. `is_lost`: the server is lost, by type.
    pub fn due(&self, is_lost: [bool; TYPES]) -> Option<u64> {
        let mut due = self.guard.next();
        let mut note = |at: Option<u64>| due = due.into_iter().chain(at).min();
        for ty in 0..TYPES {
            let linger = if ty == SDS { 0 } else { self.linger };
            let over = |idle: Option<(u64, bool)>| {
                let is_kept = |has_content: bool| is_lost[ty] && has_content && ty != SDS;
                idle.filter(|(_, has_content)| !is_kept(*has_content)).map(|(since, _)| since + linger)
            };
            let demand = &self.demand[ty];
            bits(demand.held).for_each(|name| note(over(demand.idle_since[name])));
            note(over(demand.wildcard_idle_since));
            if !self.has_expiries {
                continue;
            }
            let expires = |track: &Track| track.expires.map(|(at, _)| at);
            self.names[ty].iter().chain(&self.members[ty]).for_each(|track| note(expires(track)));
        }
        note(self.restoring.unwatched_since.map(|since| since + self.linger.max(PATIENCE_MIN)));
        due
    }

    /// Whether an unanswered name should long be absent (TMR-1, TMR-5, RLY-2). The timer runs from the
    /// request on, restarts when the server first answers for the type, and pauses while a message arrives.
    /// Afterwards a sign of life is awaited.
    pub fn is_overdue(&self, ty: usize, name: usize, now: u64) -> bool {
        let within = 2 * self.resource_timeout + PROOF;
        let is_over = |said: &StreamType| {
            let since = said.waiting[name].map(|(since, _)| since).zip(said.spoken_at);
            since.is_some_and(|(asked, spoken)| asked.max(spoken) + within < now)
        };
        let is_late = |stream: &Stream| {
            stream.receiving.is_none() && stream.received_at + PROOF < now && is_over(&stream.types[ty])
        };
        self.names[ty][name].state() == State::Unknown && self.streams.iter().flatten().any(is_late)
    }
}
