//! The words of an attack: strands, outcome, bounds.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::arena::{Mode, Target};
use crate::flood::Frames;

pub const BOTH: &[Mode] = &[Mode::Plain, Mode::Tls];
pub const PLAIN: &[Mode] = &[Mode::Plain];
pub const TLS: &[Mode] = &[Mode::Tls];

/// The time for the close of an attacker (F16).
pub const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// The time after an attack in which the relay gives its memory back.
pub const FREED_WITHIN: Duration = Duration::from_secs(5);

/// Memory that an attack may take (F16).
pub const GROWTH_MAX: u64 = 32 << 20;

pub type Run = fn(Strand) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;

pub enum Script {
    /// The same frames again and again, on a few connections.
    Frames(Frames),
    Own(Run),
}

/// An attack by one mode.
#[derive(Clone)]
pub struct Strand {
    pub target: Target,
    pub mode: Mode,
    pub until: Instant,
    /// A run of `--long`, with more connections.
    pub is_long: bool,
}

impl Strand {
    /// The number of connections, for a long run and for a short run.
    pub fn count(&self, long: usize, short: usize) -> usize {
        if self.is_long { long } else { short }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// The result of a strand.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub opened: u64,
    /// Connections closed by the relay, or answered rightly.
    pub closed: u64,
    /// The longest time from the opening to the close.
    pub slowest: Duration,
    pub faults: Vec<String>,
}

impl Outcome {
    pub fn fault(&mut self, text: impl Into<String>) {
        // A few tell enough.
        if self.faults.len() < 3 {
            self.faults.push(text.into());
        }
    }

    pub fn add(&mut self, other: Outcome) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.slowest = self.slowest.max(other.slowest);
        other.faults.into_iter().for_each(|fault| self.fault(fault));
    }

    /// A connection for which a close is right.
    pub fn of_close(begin: Instant, is_closed: bool) -> Outcome {
        let mut outcome = Outcome { opened: 1, ..Outcome::default() };
        outcome.slowest = begin.elapsed();
        if is_closed {
            outcome.closed = 1;
        } else {
            outcome.fault(format!("still open after {:.1?}", begin.elapsed()));
        }
        outcome
    }
}

/// A metric for the attack: the sum over these values of the label.
pub struct Sign {
    pub metric: &'static str,
    pub label: &'static str,
    pub values: &'static [&'static str],
    /// Shows the present: read while the attack goes on, and not after.
    pub is_gauge: bool,
}

const fn counter(metric: &'static str, label: &'static str, values: &'static [&'static str]) -> Sign {
    Sign { metric, label, values, is_gauge: false }
}

pub const fn handshakes(results: &'static [&'static str]) -> Sign {
    counter("sluice_tls_handshakes_total", "result", results)
}

pub const fn closes(reasons: &'static [&'static str]) -> Sign {
    counter("sluice_downstream_connections_closed_total", "reason", reasons)
}

pub const fn goaways(reasons: &'static [&'static str]) -> Sign {
    counter("sluice_downstream_goaways_total", "reason", reasons)
}

pub const fn limits(names: &'static [&'static str]) -> Sign {
    counter("sluice_limit_hits_total", "limit", names)
}

pub struct Attack {
    pub name: &'static str,
    pub modes: &'static [Mode],
    /// Duration in a short run.
    pub short: Duration,
    pub growth_max: u64,
    /// The same for a short run, whose limits may be lower.
    pub short_growth_max: u64,
    /// The bound for the memory [`FREED_WITHIN`] after the attack.
    pub left_max: u64,
    /// The bound for a new client's first answer.
    pub connect_max: Duration,
    pub shown_by: Option<Sign>,
    /// Each closed connection counts in the metric.
    pub counts_each: bool,
    pub script: Script,
}

/// An attack with the usual bounds.
pub const fn attack(name: &'static str, modes: &'static [Mode], shown_by: Sign, script: Script) -> Attack {
    Attack {
        name,
        modes,
        short: Duration::from_millis(700),
        growth_max: GROWTH_MAX,
        short_growth_max: GROWTH_MAX,
        left_max: u64::MAX,
        connect_max: Duration::from_millis(300),
        shown_by: Some(shown_by),
        counts_each: true,
        script,
    }
}

impl Attack {
    pub const fn lasts(self, seconds: u64) -> Attack {
        Attack { short: Duration::from_secs(seconds), ..self }
    }

    pub const fn grows(self, mib: u64) -> Attack {
        Attack { growth_max: mib << 20, short_growth_max: mib << 20, ..self }
    }

    pub const fn grows_in_short(self, mib: u64) -> Attack {
        Attack { short_growth_max: mib << 20, ..self }
    }

    pub const fn leaves(self, left_max: u64) -> Attack {
        Attack { left_max, ..self }
    }

    pub const fn counts_some(self) -> Attack {
        Attack { counts_each: false, ..self }
    }

    pub const fn connects_within(self, connect_max: Duration) -> Attack {
        Attack { connect_max, ..self }
    }
}
