//! The events of a schedule, drawn from its seed before the run, so that single events can be removed.

use std::ops::Range;

use super::failing::Failings;
use super::guarded::Hold;
use super::rng::{Rng, mix};
use super::words::{ALL, ALL_FEW, Mask};

/// The minimum number of events in a schedule.
pub const EVENTS_MIN: usize = 200;

/// From this seed on worlds have the additions of [`Plan::grow`]. Lower seeds keep their schedules.
pub const GROWN: u64 = 1 << 20;
/// From this seed on worlds have the additions of [`Plan::grow_again`].
pub const GROWN_AGAIN: u64 = 1 << 21;

/// From this seed on worlds have the additions of [`Plan::grow_wires`].
pub const GROWN_WIRES: u64 = 1 << 47;
/// From this seed on worlds have the additions of [`Plan::grow_reloads`].
pub const GROWN_RELOADS: u64 = 1 << 48;
/// From this seed on worlds with reloads have [`Plan::pauses`].
pub const GROWN_PAUSES: u64 = GROWN_RELOADS + (1 << 40);
/// From this seed on reloads change server lists, too.
pub const GROWN_LISTS: u64 = 1 << 49;

/// From this seed on worlds have a plan of rollouts, and are apart from all others (`waves/`).
pub const WAVES: u64 = 1 << 50;
/// From this seed on plans of rollouts have a hook.
pub const GROWN_HOOKS: u64 = WAVES + (1 << 20);
/// From this seed on rollouts have lists of two servers.
pub const GROWN_FALLBACK: u64 = WAVES + (1 << 25);
/// In these schedules clients of a step go away, and come back as others. Their lists have one server.
pub const REPLACED: Range<u64> = WAVES + (1 << 26)..GROWN_SIBLINGS;
/// From this seed up to `GROWN_ANEW` the units of a list look at each other for their first answers.
pub const GROWN_SIBLINGS: u64 = WAVES + (1 << 27);
/// In these seeds classes sleep, and sources begin anew under a plan.
pub const GROWN_ANEW: Range<u64> = WAVES + (1 << 30)..WAVES + (1 << 31);

/// How the servers of a list are reached (RPC-1, RPC-2, RST-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Aggregated,
    /// A stream for each type.
    PerType,
    /// A poll for each type, again and again.
    Rest,
}

/// Whether faults continue to the end, or cease so that everything must come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Safety,
    Liveness,
}

/// Microseconds.
pub const MILLI: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The wildcard of CDS and LDS, and EDS and RDS by the names in these.
    Envoy,
    /// One listener by name, then its route, clusters and endpoints by name, in a chain.
    Grpc,
    /// Subscribes to anything.
    Free,
    /// Subscribes to anything, sends false nonces, rejects, floods.
    Hostile,
}

#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub kind: Kind,
    pub delta: bool,
    pub class: usize,
    /// The maximum time to read a message, and to answer.
    pub read_within: u64,
    pub answers_within: u64,
    /// The percentage of rejected responses.
    pub rejects: u64,
    /// The client spells the wildcard `*`.
    pub star: bool,
}

#[derive(Clone, Debug)]
pub struct ServerPlan {
    pub delta: bool,
    /// The server never reports absence.
    pub mute: bool,
    /// The maximum latency of a message, including the wait in the server.
    pub latency: u64,
}

/// The settings of a whole schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub mode: Mode,
    pub classes: usize,
    /// Two for each list.
    pub servers: Vec<ServerPlan>,
    /// The servers of a list have the same resources.
    pub agree: bool,
    pub clients: Vec<ClientPlan>,
    pub coalescing: u64,
    pub gather: u64,
    pub legacy_wildcard: bool,
    /// A session's subscriptions reach its sources late.
    pub slow_watches: bool,
    /// Some resources have a time to live.
    pub ttls: bool,
    /// The servers of a list replace each other (A71).
    pub fallback: bool,
    /// The percentage of servers' messages that may be corrupted.
    pub wrong: u64,
    /// The relay keeps a checkpoint, and restarts from it.
    pub checkpoint: bool,
    /// The existing names.
    pub names: Mask,
    /// Answers come in several messages, and messages in parts.
    pub parts: bool,
    /// Servers wait before each further message of an answer, as servers do that are starting.
    pub pauses: bool,
    /// Clients change to the other class.
    pub moves: bool,
    /// Mass deletions are held back.
    pub mass: Option<Hold>,
    /// Routes and listeners name clusters, and come to name others.
    pub routes: bool,
    pub failings: Failings,
    /// By list.
    pub wires: [Wire; 2],
    /// The time between two polls, which the machines at most double.
    pub refresh: u64,
    /// Other configurations come into force.
    pub reloads: bool,
    /// The classes have equal answers.
    pub twins: bool,
    /// Configurations have other server lists.
    pub lists: bool,
}

/// Events of later worlds: removes most of a type from a server, or restores the type; an operator confirms.
pub const VANISH: u8 = 100;
pub const CONFIRM: u8 = 101;
/// A client changes to the other class.
pub const CHANGE_CLASS: u8 = 102;
/// A route changes to another cluster.
pub const FLIP: u8 = 103;
/// Puts names in error at a server, or makes its responses unusable.
pub const FAIL_NAMES: u8 = 104;
pub const TURN_VOID: u8 = 105;
/// A server has no service for a type, or has it again.
pub const UNSERVE: u8 = 106;
/// A server ends one stream with a status of its own.
pub const END_BY_SERVER: u8 = 107;
/// Another configuration, with other classes.
pub const RELOAD: u8 = 108;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// The time since the previous event.
    pub gap: u64,
    pub what: u8,
    /// Chooses among the present candidates.
    pub choice: u64,
}

impl Plan {
    pub fn of_seed(seed: u64) -> Plan {
        let mut rng = Rng::new(mix(seed) ^ 0x5eed);
        let mode = if seed.is_multiple_of(2) { Mode::Liveness } else { Mode::Safety };
        let server = |rng: &mut Rng| ServerPlan {
            delta: rng.percent(60),
            mute: rng.percent(20),
            latency: [MILLI, 20 * MILLI, 300 * MILLI, 3 * SECOND][rng.below(4) as usize],
        };
        let classes = 1 + rng.below(2) as usize;
        let count = 2 + rng.below(3) as usize;
        let mut plan = Plan {
            seed,
            mode,
            classes,
            servers: (0..4).map(|_| server(&mut rng)).collect(),
            agree: rng.percent(40),
            clients: (0..count).map(|_| client(&mut rng, classes)).collect(),
            coalescing: [0, 10 * MILLI, 200 * MILLI][rng.below(3) as usize],
            gather: [0, 50 * MILLI][rng.below(2) as usize],
            legacy_wildcard: rng.percent(20),
            slow_watches: rng.percent(40),
            ttls: rng.percent(25),
            fallback: rng.percent(50),
            wrong: [0, 0, 3, 15][rng.below(4) as usize],
            checkpoint: rng.percent(60),
            names: ALL_FEW,
            parts: false,
            pauses: (GROWN_PAUSES..GROWN_LISTS).contains(&seed),
            moves: false,
            mass: None,
            routes: false,
            failings: Failings::default(),
            wires: [Wire::Aggregated; 2],
            refresh: SECOND,
            reloads: false,
            twins: false,
            lists: seed >= GROWN_LISTS,
        };
        if seed >= GROWN {
            plan.grow();
        }
        if seed >= GROWN_AGAIN {
            plan.grow_again();
        }
        if seed >= GROWN_WIRES {
            plan.grow_wires();
        }
        if seed >= GROWN_RELOADS {
            plan.grow_reloads();
        }
        plan
    }

    /// Draws the additions of later worlds, apart from the rest.
    fn grow(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x6706);
        if rng.percent(20) {
            self.names = ALL;
            let more = rng.below(7) as usize;
            self.clients.extend((0..more).map(|_| client(&mut rng, self.classes)));
            let hold =
                [Hold::For(SECOND), Hold::For(8 * SECOND), Hold::For(30 * SECOND), Hold::UntilConfirmed];
            self.mass = rng.percent(60).then(|| hold[rng.below(4) as usize]);
        }
        self.parts = rng.percent(50) || self.pauses;
        self.moves = self.classes == 2 && rng.percent(40);
    }

    /// Draws the latest additions.
    fn grow_again(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x6708);
        self.routes = rng.percent(50);
        self.failings = Failings { errors: rng.percent(40), voids: rng.percent(15) };
    }

    /// Draws the wires.
    fn grow_wires(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x670a);
        use Wire::{Aggregated, PerType, Rest};
        self.wires = match rng.below(8) {
            0..2 => [Aggregated, Aggregated],
            2..4 => [PerType, PerType],
            4..6 => [Rest, Rest],
            6 => [PerType, Rest],
            _ => [Rest, PerType],
        };
        self.refresh = [SECOND, 3 * SECOND, 10 * SECOND][rng.below(3) as usize];
    }

    /// Draws the reloads.
    fn grow_reloads(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x670c);
        (self.reloads, self.classes) = (true, 2);
        self.twins = rng.percent(50);
    }

    pub fn wire(&self, server: usize) -> Wire {
        self.wires[server / 2]
    }

    pub fn acts(&self) -> Vec<Act> {
        let mut rng = Rng::new(mix(self.seed) ^ 0xac75);
        let count = EVENTS_MIN + rng.below(60) as usize;
        let act = |rng: &mut Rng| Act {
            gap: match rng.below(100) {
                0..55 => rng.below(2 * MILLI),
                55..80 => rng.below(40 * MILLI),
                80..97 => rng.below(2 * SECOND),
                _ => rng.below(40 * SECOND),
            },
            what: rng.below(100) as u8,
            choice: rng.next(),
        };
        let mut acts: Vec<_> = (0..count).map(|_| act(&mut rng)).collect();
        if self.seed >= GROWN {
            self.grow_acts(&mut acts);
        }
        acts
    }

    /// Replaces some events with events that only later worlds have.
    fn grow_acts(&self, acts: &mut [Act]) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x6707);
        let mut kinds = Vec::new();
        if self.names == ALL {
            kinds.extend([VANISH, VANISH, CONFIRM]);
        }
        if self.moves {
            kinds.push(CHANGE_CLASS);
        }
        if self.routes {
            kinds.extend([FLIP, FLIP]);
        }
        if self.failings.errors {
            kinds.extend([FAIL_NAMES, FAIL_NAMES]);
        }
        if self.failings.voids {
            kinds.push(TURN_VOID);
        }
        if self.wires.iter().any(|wire| *wire != Wire::Aggregated) {
            kinds.extend([UNSERVE, UNSERVE, END_BY_SERVER]);
        }
        if self.reloads {
            kinds.extend([RELOAD, RELOAD]);
        }
        for act in acts.iter_mut().filter(|_| !kinds.is_empty()) {
            if rng.percent(8) {
                act.what = kinds[rng.below(kinds.len() as u64) as usize];
            }
        }
    }
}

fn client(rng: &mut Rng, classes: usize) -> ClientPlan {
    let kind =
        [Kind::Envoy, Kind::Envoy, Kind::Grpc, Kind::Free, Kind::Free, Kind::Hostile][rng.below(6) as usize];
    let within = |rng: &mut Rng| [0, 5 * MILLI, 400 * MILLI, 20 * SECOND][rng.below(4) as usize];
    ClientPlan {
        kind,
        delta: rng.percent(50),
        class: rng.below(classes as u64) as usize,
        read_within: if rng.percent(60) { MILLI } else { within(rng) },
        answers_within: if rng.percent(60) { MILLI } else { within(rng) },
        rejects: if kind == Kind::Hostile { 30 } else { [0, 0, 0, 10][rng.below(4) as usize] },
        star: rng.percent(50),
    }
}
