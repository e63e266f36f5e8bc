//! The settings of `proof:`, as the machine obeys them.

use std::time::Duration;

use sluice_setting::{count, seconds, settings, time};

/// The consequence of a confirmed divergence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The divergence is told, and nothing moves (PRF-26).
    #[default]
    Warn,
    /// The clients with the values that explain the divergence leave the class for classes of their own
    /// (PRF-27).
    Split,
    /// New streams of the class are refused the type, until the divergence ends (PRF-28).
    Refuse,
}

/// The number of witnesses, which stay open (PRF-19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Count(u32),
    /// A share of the server's members, in thousandths: 20 for `2%`. A share of a small fleet is 4 at least,
    /// as far as there are members: 2 % of 100 members would cover hardly any value.
    Share(u32),
}

/// Witnesses of one server, whatever the setting (PRF-19).
pub const STANDING_MAX: usize = 256;
/// Witnesses of a small fleet, if the share is not 0.
const STANDING_MIN: usize = 4;

impl Standing {
    /// The number of witnesses for so many members.
    pub fn of_members(self, members: usize) -> usize {
        let count = match self {
            Standing::Count(count) => count as usize,
            Standing::Share(0) => 0,
            Standing::Share(thousandths) => {
                (members * thousandths as usize / 1_000).max(STANDING_MIN).min(members)
            }
        };
        count.min(STANDING_MAX)
    }
}

impl Default for Standing {
    fn default() -> Standing {
        Standing::Share(20)
    }
}

settings! {
    /// The numbers of `proof:` for each server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ProofPace {
        /// Samples at once: 2, so that a lagging sample does not stop the others (PRF-19).
        streams: u32 = 2, count(1..=64);
        /// Shadows begun in a minute: 12, one every 5 s. A refused begin counts (PRF-19).
        per_minute: u32 = 12, count(1..=1_200);
        /// The age from which on a difference counts: 5 s, longer than a server takes to push to all
        /// streams (PRF-13).
        settle: Duration = seconds(5), time(seconds(1)..=seconds(600));
        /// The memory of versions, and the time after which a late stream is told as lagging: 60 s (PRF-12).
        window: Duration = seconds(60), time(seconds(10)..=seconds(3_600));
        /// No shadow is begun while first answers take so many times longer than usual: 2 (PRF-20).
        slow_down: u32 = 2, count(1..=100);
    }
}

/// The settings of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProofSettings {
    pub policy: Policy,
    pub pace: ProofPace,
    pub standing: Standing,
    /// `secrets: versions`: Secrets are compared by version. Otherwise shadows do not ask for them (PRF-7).
    pub compares_secrets: bool,
    /// The bound of bytes held by shadows alone (`limits.shadow_bytes`).
    pub shadow_bytes: u64,
}
