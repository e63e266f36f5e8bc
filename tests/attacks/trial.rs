//! One attack, measured and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::arena::{Mode, Site};
use crate::attack::{Attack, FREED_WITHIN, Outcome, Script, Sign, Strand};
use crate::fleet::{Fleet, Percentiles};
use crate::flood;

/// Two cores are shared by two relays, the attackers, the control plane and all honest clients. A short run has some
/// twenty updates, so the slowest update is the 99th percentile. Where others use the cores too, the attacked relay waits
/// longer for a core than the idle relay. Updates held up until the end of an attack take far longer.
const SHORT_FLOOR: Duration = Duration::from_millis(500);
/// A minute has enough updates for a percentile.
const LONG_FLOOR: Duration = Duration::from_millis(50);

/// The task of a connection counts a little after the close.
const COUNTED_WITHIN: Duration = Duration::from_secs(3);

/// The share of closed connections under the attack's metric. The others were closed between two states.
const COUNTED_SHARE: f64 = 0.8;

/// A release build takes less than a core for an attack (F16). Without optimization the relay takes several times as much,
/// and the figure says nothing.
const CORES_MAX: f64 = 1.0;

pub struct Trial {
    pub outcomes: BTreeMap<Mode, Outcome>,
    /// The clients of the attacked relay.
    pub percentiles: Percentiles,
    /// The clients of the other relay, at the same time on the same machine.
    pub control: Percentiles,
    is_long: bool,
    pub grown: u64,
    /// The memory that is not free a while after the attack.
    pub left: u64,
    pub cores: f64,
    /// The growth of the attack's metric.
    pub counted: f64,
}

/// The place of the attackers.
pub struct Attackers {
    pub handle: Handle,
    pub is_long: bool,
}

impl Attackers {
    /// Attacks the relay for a time, and measures the honest clients of both relays meanwhile.
    pub async fn run(
        &self,
        attack: &'static Attack,
        site: &Site,
        fleets: [&Fleet; 2],
        duration: Duration,
    ) -> Trial {
        let before = counted(site, &attack.shown_by).await;
        let (resident, cpu) = (site.relay.resident(), site.relay.cpu_time());
        let begin = Instant::now();
        let strands: Vec<_> = attack
            .modes
            .iter()
            .map(|mode| {
                let strand = Strand {
                    target: site.target.clone(),
                    mode: *mode,
                    until: begin + duration,
                    is_long: self.is_long,
                };
                (*mode, self.handle.spawn(strand_of(attack, strand)))
            })
            .collect();
        let (mut peak, mut shown) = (resident, 0.0_f64);
        let is_gauge = attack.shown_by.as_ref().is_some_and(|sign| sign.is_gauge);
        while strands.iter().any(|(_, strand)| !strand.is_finished()) {
            sleep(Duration::from_millis(20)).await;
            peak = peak.max(site.relay.resident());
            if is_gauge {
                shown = shown.max(counted(site, &attack.shown_by).await - before);
            }
        }
        let end = Instant::now();
        let cores = (site.relay.cpu_time() - cpu).as_secs_f64() / (end - begin).as_secs_f64();
        let mut outcomes = BTreeMap::new();
        for (mode, strand) in strands {
            outcomes.insert(mode, strand.await.expect("the attacker does not panic"));
        }
        let [percentiles, control] = fleets;
        let (percentiles, control) =
            (percentiles.percentiles(begin, end).await, control.percentiles(begin, end).await);
        let grown = peak.saturating_sub(resident);
        let is_long = self.is_long;
        let left = freed(site, attack, resident, end).await;
        let mut trial = Trial { outcomes, percentiles, control, is_long, grown, left, cores, counted: shown };
        let expected = trial.expected(attack);
        // Updates that did not come have taken longer than the metric may.
        let asked = Instant::now();
        while !is_gauge && trial.counted < expected && asked.elapsed() < COUNTED_WITHIN {
            trial.counted = counted(site, &attack.shown_by).await - before;
            sleep(Duration::from_millis(50)).await;
        }
        trial
    }
}

/// The memory above the memory before the attack, once it is within the bound, or at the end of the wait.
async fn freed(site: &Site, attack: &Attack, before: u64, end: Instant) -> u64 {
    loop {
        let left = site.relay.resident().saturating_sub(before);
        if left <= attack.left_max || end.elapsed() >= FREED_WITHIN {
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn strand_of(attack: &'static Attack, strand: Strand) -> Outcome {
    match &attack.script {
        Script::Frames(frames) => flood::run(strand, *frames).await,
        Script::Own(run) => run(strand).await,
    }
}

async fn counted(site: &Site, sign: &Option<Sign>) -> f64 {
    let Some(sign) = sign else { return 0.0 };
    let mut sum = 0.0;
    for value in sign.values {
        let label = format!("{}=\"{value}\"", sign.label);
        let labels: &[&str] = if sign.label.is_empty() { &[] } else { &[&label] };
        sum += site.relay.metric(sign.metric, labels).await;
    }
    sum
}

impl Trial {
    fn expected(&self, attack: &Attack) -> f64 {
        let closed: u64 = self.outcomes.values().map(|outcome| outcome.closed).sum();
        match (&attack.shown_by, attack.counts_each) {
            (None, _) => 0.0,
            (Some(_), true) => (closed as f64 * COUNTED_SHARE).max(1.0),
            (Some(_), false) => 1.0,
        }
    }

    /// The broken bounds; empty if all hold.
    pub fn faults(&self, attack: &Attack) -> Vec<String> {
        let mut faults = Vec::new();
        for (mode, outcome) in &self.outcomes {
            faults.extend(outcome.faults.iter().map(|fault| format!("{mode:?}: {fault}")));
            if outcome.opened == 0 {
                faults.push(format!("{mode:?}: no attack took place"));
            }
        }
        let growth_max = if self.is_long { attack.growth_max } else { attack.short_growth_max };
        if self.grown > growth_max {
            faults.push(format!("the relay grew by {} MiB", self.grown >> 20));
        }
        if self.left > attack.left_max {
            faults.push(format!("{} MiB were not free after {FREED_WITHIN:?}", self.left >> 20));
        }
        let (here, there) = (self.percentiles, self.control);
        let floor = if self.is_long { LONG_FLOOR } else { SHORT_FLOOR };
        let bounds = [
            ("updates", here.update, there.update, floor),
            ("new clients", here.connect, there.connect, attack.connect_max),
        ];
        for (name, found, control, floor) in bounds {
            if found > floor.max(2 * control) {
                faults
                    .push(format!("the p99 of {name} is {found:.1?}, and {control:.1?} at the other relay"));
            }
        }
        if self.counted < self.expected(attack) {
            faults.push(format!("the metric counted {}, expected {}", self.counted, self.expected(attack)));
        }
        if self.cores > CORES_MAX && !cfg!(debug_assertions) {
            faults.push(format!("the relay used {:.1} cores", self.cores));
        }
        faults
    }
}
