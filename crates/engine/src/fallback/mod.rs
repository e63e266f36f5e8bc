//! The choice of the server in a list that serves one session (A71, A95).
//!
//! A session subscribes to all its names at the servers `0..=active` of a list, and takes all resources from
//! a single server, `serving` (RLY-40). A session goes down when the server `active` is unreachable and some
//! resource is missing (FBK-1, FBK-12). The session then subscribes to everything at the next server (FBK-4),
//! while the higher servers stay subscribed and are retried (FBK-5). The next server serves once it has
//! supplied everything (RLY-41). The session goes back when a higher server is heard again and has everything
//! (FBK-8, RLY-44).
//!
//! ```text
//!                 lost, and something lacks: Open               has it all: Serve
//!   serving = active ─────────────────────▶ serving < active ──────────────────────▶ serving = active
//!          ▲                                      │                                          │
//!          └──────────────────────────────────────┴──── a higher one is heard and has it all: Serve
//! ```

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Time;
use super::reachability::Reachability;
use sluice_setting::{Setting, hours, ms, seconds, time};

/// A recovered higher server takes its clients back after at most this time, even with resources missing
/// (RLY-44). A lower server serves after the same time, even with resources missing (RLY-41). 15 s is gRPC's
/// own resource timer.
pub const RESOLVE_TIMEOUT: Setting<Duration> =
    Setting::new("resolve_timeout", seconds(15), time(ms(100)..=seconds(600)));

/// A client whose server changed three times within this time stays with its server for as long (FU25). Zero:
/// never.
pub const HOLD_DOWN: Setting<Duration> = Setting::new("hold_down", seconds(30), time(ms(0)..=hours(1)));

/// The rules that a server list follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FallbackPolicy {
    /// gRPC's rules (A71): each client goes down the list when its server is unreachable and a resource is
    /// missing, and comes back as soon as a higher server has all its resources.
    #[default]
    Grpc,
    /// Envoy's rules: the second server is used only while the first server has never answered; see
    /// [`upstream`](crate::upstream).
    Envoy,
}

/// The settings of one server list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackSettings {
    pub policy: FallbackPolicy,
    /// `fallback_on_reachability_only` (FBK-17): clients leave an unreachable server even without missing
    /// resources.
    pub on_reachability_only: bool,
    /// See [`RESOLVE_TIMEOUT`].
    pub resolve_timeout: Duration,
    /// See [`HOLD_DOWN`].
    pub hold_down: Duration,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        FallbackSettings {
            policy: FallbackPolicy::Grpc,
            on_reachability_only: false,
            resolve_timeout: RESOLVE_TIMEOUT.default,
            hold_down: HOLD_DOWN.default,
        }
    }
}

/// After this many quick changes of server, a session stays with its server for a while (FU25).
const STRIKES_MAX: u8 = 3;

/// The state of one subscribed server, as a session sees it.
#[derive(Clone, Debug)]
pub struct Sight {
    pub reach: Reachability,
    /// The number of the session's names that are UNKNOWN at the server (RLY-2).
    pub unknown: usize,
    /// The server has answered for everything that the session wants since the last loss.
    pub is_current: bool,
    /// The server's sources have processed all subscriptions. Before, missing resources cannot be counted
    /// (FBK-1).
    pub is_noted: bool,
}

impl Sight {
    fn has_all(&self) -> bool {
        self.unknown == 0
    }
}

/// An action for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Subscribe at the next server, too.
    Open,
    /// Take resources from `server`, and unsubscribe from servers below `active`.
    Serve { server: u16, active: u16 },
}

/// The result of a check of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallbackDecision {
    pub next: Option<Move>,
    /// The time of the next check if no event comes.
    pub look_at: Option<Time>,
}

/// The state of one session on one server list.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    serving: u16,
    active: u16,
    /// Changes of `serving` in quick succession, and the time of the last change.
    strikes: u8,
    changed_at: Time,
}

impl Fallback {
    /// The state of a session that this server serves already.
    pub fn at(server: u16) -> Fallback {
        Fallback { serving: server, active: server, ..Fallback::default() }
    }

    /// The server that supplies all resources.
    pub fn serving(&self) -> u16 {
        self.serving
    }

    /// The lowest subscribed server.
    pub fn active(&self) -> u16 {
        self.active
    }

    /// The subscribed servers except the serving server.
    pub fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let serving = self.serving;
        (0..=self.active).filter(move |server| *server != serving)
    }

    /// The preferred server serves, and no other server is subscribed.
    pub fn is_at_rest(&self) -> bool {
        self.active == 0
    }

    /// The next move, for the states of the servers `0..=active`. `servers`: the length of the list.
    pub fn decide(
        &self,
        settings: &FallbackSettings,
        servers: u16,
        sights: &[Sight],
        now: Time,
    ) -> FallbackDecision {
        let (Some(serving), Some(lowest)) =
            (sights.get(usize::from(self.serving)), sights.get(usize::from(self.active)))
        else {
            return FallbackDecision::default();
        };
        let mut decision = self.go_up(settings, sights, now);
        if decision.next.is_some() {
            return decision;
        }
        if !serving.is_noted {
            return decision;
        }
        if !serving.reach.is_lost() {
            return decision;
        }
        let lacks = !serving.has_all();
        let is_heard_since = |sight: &Sight| match sight.reach {
            Reachability::Heard { since } => Some(since + settings.resolve_timeout),
            Reachability::Pending | Reachability::Lost { .. } => None,
        };
        if self.serving < self.active {
            if !lacks && !settings.on_reachability_only {
                // The missing names are no longer wanted, or have arrived.
                return self.serve(self.serving, self.serving, settings, now, decision);
            }
            let timeout = is_heard_since(lowest);
            let is_ready = lowest.has_all() && (lacks || lowest.reach.is_heard());
            if is_ready || timeout.is_some_and(|at| at <= now) {
                return self.serve(self.active, self.active, settings, now, decision);
            }
            decision.look_at = earlier(decision.look_at, timeout);
        }
        if !lowest.reach.is_lost() || !(lacks || settings.on_reachability_only) {
            return decision;
        }
        if self.active + 1 < servers {
            decision.next = Some(Move::Open);
            return decision;
        }
        self.make_do(settings, sights, now, decision)
    }

    /// Moves to a higher server that is heard again, and has everything or had enough time (FBK-8, RLY-44).
    fn go_up(&self, settings: &FallbackSettings, sights: &[Sight], now: Time) -> FallbackDecision {
        let mut decision = FallbackDecision::default();
        for (server, sight) in (0..self.active).zip(sights) {
            let Reachability::Heard { since } = sight.reach else { continue };
            let timeout = since + settings.resolve_timeout;
            if (sight.has_all() && sight.is_current) || timeout <= now {
                return self.serve(server, server, settings, now, decision);
            }
            decision.look_at = earlier(decision.look_at, Some(timeout));
        }
        decision
    }

    /// No server is reachable, and none has everything: the server with the fewest unknown names serves
    /// (RLY-46).
    fn make_do(
        &self,
        settings: &FallbackSettings,
        sights: &[Sight],
        now: Time,
        decision: FallbackDecision,
    ) -> FallbackDecision {
        let best = (0..=self.active).zip(sights).min_by_key(|(_, sight)| sight.unknown);
        let Some((best, sight)) = best else { return decision };
        let serving = sights.get(usize::from(self.serving));
        let is_better = serving.is_some_and(|serving| sight.unknown < serving.unknown);
        if !is_better {
            return decision;
        }
        self.serve(best, self.active, settings, now, decision)
    }

    fn serve(
        &self,
        server: u16,
        active: u16,
        settings: &FallbackSettings,
        now: Time,
        decision: FallbackDecision,
    ) -> FallbackDecision {
        let held_until = self.held_until(settings).filter(|until| server != self.serving && *until > now);
        match held_until {
            Some(until) => FallbackDecision { look_at: earlier(decision.look_at, Some(until)), ..decision },
            None if (server, active) == (self.serving, self.active) => decision,
            None => FallbackDecision { next: Some(Move::Serve { server, active }), ..decision },
        }
    }

    /// FU25: the end of the hold after repeated changes of server.
    fn held_until(&self, settings: &FallbackSettings) -> Option<Time> {
        (self.strikes >= STRIKES_MAX).then(|| self.changed_at + settings.hold_down)
    }

    /// The move was made.
    pub fn make(&mut self, to: Move, settings: &FallbackSettings, now: Time) {
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

/// A session without changes of server for this time has a clean record.
fn quiet(settings: &FallbackSettings) -> Duration {
    settings.hold_down * 2
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}
