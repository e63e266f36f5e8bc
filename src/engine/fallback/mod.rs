//! Which server of a list serves one session (A71, A95).
//!
//! A session asks the servers `0..=active` of a list for all that it wants, and takes everything from one of them, `serving`
//! (RLY-40). It goes down when the lowest server that it asks is unreachable and it lacks something (FBK-1, FBK-12), and
//! everything is asked of the next server then (FBK-4), while those above stay asked and retried (FBK-5). It is served from
//! there once that server has supplied it all (RLY-41), and comes back when a higher server is heard again and has all of it
//! (FBK-8, RLY-44).
//!
//! ```text
//!                 lost, and something lacks: Open               has it all: Serve
//!   serving = active ─────────────────────▶ serving < active ──────────────────────▶ serving = active
//!          ▲                                      │                                          │
//!          └──────────────────────────────────────┴──── a higher one is heard and has it all: Serve
//! ```

mod settings;
#[cfg(test)]
mod tests;

pub use settings::{Policy, Settings};

use std::time::Duration;

use super::Time;
use super::reach::Reach;
use crate::engine::planted::{Bug, planted};

/// After so many changes of server in close succession, a session is held where it is (FU25).
const STRIKES_MAX: u8 = 3;

/// What a session sees of one server that it asks.
#[derive(Clone, Debug)]
pub struct Sight {
    pub reach: Reach,
    /// How much of what the session wants is UNKNOWN there (RLY-2).
    pub unknown: usize,
    /// It answered for all that the session wants since it was last lost.
    pub is_current: bool,
    /// Its sources took note of all that is wanted: before that, nobody can say that something lacks (FBK-1).
    pub is_noted: bool,
}

impl Sight {
    fn has_all(&self) -> bool {
        self.unknown == 0
    }
}

/// What a session is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Ask the next server, too.
    Open,
    /// Be served by this one of the servers that are asked, and ask those below `active` no longer.
    Serve { server: u16, active: u16 },
}

/// What comes of a look at the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub next: Option<Move>,
    /// When to look again although nothing happened.
    pub look_at: Option<Time>,
}

/// The view of one session on one server list.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    serving: u16,
    active: u16,
    /// Changes of `serving` in close succession, and when the last one was.
    strikes: u8,
    changed_at: Time,
}

impl Fallback {
    /// The server that everything is taken from.
    pub fn serving(&self) -> u16 {
        self.serving
    }

    /// The lowest server that is asked.
    pub fn active(&self) -> u16 {
        self.active
    }

    /// The servers that are asked beside the one that serves.
    pub fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let serving = self.serving;
        (0..=self.active).filter(move |server| *server != serving)
    }

    /// Served by the preferred server, and asking no other.
    pub fn is_at_rest(&self) -> bool {
        self.active == 0
    }

    /// What to do, given what is seen of the servers `0..=active`; `servers`: how many there are.
    pub fn decide(&self, settings: &Settings, servers: u16, sights: &[Sight], now: Time) -> Decision {
        let (Some(serving), Some(lowest)) =
            (sights.get(usize::from(self.serving)), sights.get(usize::from(self.active)))
        else {
            return Decision::default();
        };
        let mut decision = self.go_up(settings, sights, now);
        if decision.next.is_some() {
            return decision;
        }
        if !serving.is_noted {
            return decision;
        }
        if !serving.reach.is_lost() && !planted(Bug::LeavesServerThatIsHeard) {
            return decision;
        }
        let lacks = !serving.has_all() || planted(Bug::LeavesThoughNothingLacks);
        let is_heard_since = |sight: &Sight| match sight.reach {
            Reach::Heard { since } => Some(since + settings.resolve_timeout),
            Reach::Pending | Reach::Lost { .. } => None,
        };
        if self.serving < self.active {
            if !lacks && !settings.on_reachability_only {
                // What lacked is wanted no longer, or came after all.
                return self.serve(self.serving, self.serving, settings, now, decision);
            }
            let timeout = is_heard_since(lowest);
            let is_ready = lowest.has_all() && (lacks || lowest.reach.is_heard());
            if is_ready || timeout.is_some_and(|at| at <= now) {
                return self.serve(self.active, self.active, settings, now, decision);
            }
            decision.look_at = earlier(decision.look_at, timeout);
        }
        let is_lost = lowest.reach.is_lost() || planted(Bug::LeavesServerThatIsHeard);
        if !is_lost || !(lacks || settings.on_reachability_only) {
            return decision;
        }
        if self.active + 1 < servers {
            decision.next = Some(Move::Open);
            return decision;
        }
        self.make_do(settings, sights, now, decision)
    }

    /// A higher server that is heard again and has all that is wanted, or had time enough (FBK-8, RLY-44).
    fn go_up(&self, settings: &Settings, sights: &[Sight], now: Time) -> Decision {
        let mut decision = Decision::default();
        for (server, sight) in (0..self.active).zip(sights).filter(|_| !planted(Bug::NeverComesBack)) {
            let Reach::Heard { since } = sight.reach else { continue };
            let timeout = since + settings.resolve_timeout;
            if (sight.has_all() && sight.is_current) || timeout <= now {
                return self.serve(server, server, settings, now, decision);
            }
            decision.look_at = earlier(decision.look_at, Some(timeout));
        }
        decision
    }

    /// No server is reachable, and none has it all: the one that knows most serves (RLY-46).
    fn make_do(&self, settings: &Settings, sights: &[Sight], now: Time, decision: Decision) -> Decision {
        let unknown = |(_, sight): &(u16, &Sight)| sight.unknown;
        let Some((best, sight)) = (0..=self.active).zip(sights).min_by_key(unknown) else { return decision };
        let is_better = sights.get(usize::from(self.serving)).is_some_and(|own| sight.unknown < own.unknown);
        if !is_better {
            return decision;
        }
        self.serve(best, self.active, settings, now, decision)
    }

    fn serve(
        &self,
        server: u16,
        active: u16,
        settings: &Settings,
        now: Time,
        decision: Decision,
    ) -> Decision {
        let held_until = self.held_until(settings).filter(|until| server != self.serving && *until > now);
        match held_until {
            Some(until) => Decision { look_at: earlier(decision.look_at, Some(until)), ..decision },
            None if (server, active) == (self.serving, self.active) => decision,
            None => Decision { next: Some(Move::Serve { server, active }), ..decision },
        }
    }

    /// FU25: until when a session that changed its server over and over stays where it is.
    fn held_until(&self, settings: &Settings) -> Option<Time> {
        (self.strikes >= STRIKES_MAX).then(|| self.changed_at + settings.hold_down)
    }

    /// The move was made.
    pub fn make(&mut self, to: Move, settings: &Settings, now: Time) {
        match to {
            Move::Open => self.active += 1,
            Move::Serve { server, active } => {
                if server != self.serving {
                    let is_quiet = self.strikes == 0 || now.since(self.changed_at) >= quiet(settings);
                    self.strikes = if is_quiet { 1 } else { self.strikes.saturating_add(1) };
                    self.changed_at = now;
                }
                (self.serving, self.active) = (server, active);
            }
        }
        debug_assert!(self.serving <= self.active, "what serves is asked");
    }
}

/// A session that changed its server no more for so long has a clean record.
fn quiet(settings: &Settings) -> Duration {
    settings.hold_down * 2
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}
