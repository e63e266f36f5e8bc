//! Attacks against the built binary, with honest clients beside them, in plaintext and through TLS.
//!
//! Each attack is judged by the effect: the relay closes the attackers where a close is right, a metric shows the attack,
//! memory stays bounded, and the honest clients notice nothing.
//!
//! A run is short by default. `SLUICE_ATTACK_SECONDS=60` gives each attack a minute, more connections and the default
//! deadlines. Words after `--` select attacks by a part of the name; `--list` prints the names.
//!
//! The honest clients of a second relay, without attackers, are the control: the load of the machine delays the clients
//! of both. An attack over a bound is repeated once, for twice the time, before it fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait for other processes and sockets, which have no paused clock"
)]

#[path = "../support/mod.rs"]
mod support;

mod arena;
mod fleet;
mod frames;
mod attack;
mod crowd;
mod flood;
mod http2;
mod slow;
mod polls;
mod names;
mod hello;
mod handshakes;
mod certificates;
mod records;
mod trial;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use arena::{Site, Trust};
use attack::Attack;
use fleet::{Fleet, Ticks};
use support::ControlPlane;
use trial::{Attackers, Trial};

/// The wait for honest clients before an attack is tried again.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// Open files: thousands of attackers, and honest clients.
const DESCRIPTORS: u64 = 20_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let attacks: Vec<&'static Attack> =
        [http2::ALL, slow::ALL, polls::ALL, names::ALL, handshakes::ALL, certificates::ALL, records::ALL]
            .into_iter()
            .flatten()
            .collect();
    if words.iter().any(|word| word == "--list") {
        attacks.iter().for_each(|attack| println!("{}: test", attack.name));
        return ExitCode::SUCCESS;
    }
    // The options of cargo's harness mean nothing here.
    let filters: Vec<&String> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let is_wanted = |attack: &&Attack| {
        filters.is_empty() || filters.iter().any(|filter| attack.name.contains(filter.as_str()))
    };
    let attacks: Vec<&'static Attack> = attacks.into_iter().filter(is_wanted).collect();
    let passed = if attacks.is_empty() { 0 } else { Suite::start().run(&attacks) };
    println!("attacks: {passed} passed, {} failed, 0 skipped", attacks.len() - passed);
    if passed == attacks.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Suite {
    runtime: Runtime,
    attackers: Attackers,
    site: Site,
    /// A relay without attackers, for the control.
    _other: Site,
    fleets: [Fleet; 2],
    long: Option<Duration>,
    /// Dropped before the relays.
    _runtimes: [Runtime; 2],
}

impl Suite {
    fn start() -> Suite {
        let long = std::env::var("SLUICE_ATTACK_SECONDS").ok();
        let long = long.map(|seconds| Duration::from_secs(seconds.parse().expect("a number of seconds")));
        let hard = rlimit::Resource::NOFILE.get_hard().unwrap_or(DESCRIPTORS);
        let _ = rlimit::Resource::NOFILE.set(hard.min(DESCRIPTORS), hard);
        // Three runtimes: nobody waits for the others. The attackers take one core at most.
        let [runtime, honest, attacking] = [1, 2, 1]
            .map(|threads| Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap());
        let attackers = Attackers { handle: attacking.handle().clone(), is_long: long.is_some() };
        let trust = Arc::new(Trust::new());
        let origin = Arc::new(honest.block_on(ControlPlane::obedient()));
        let start = Site::start(&origin, &trust, long.is_some());
        let site = runtime.block_on(start);
        let other = runtime.block_on(Site::start(&origin, &trust, long.is_some()));
        let ticks = Ticks::start(&honest, origin);
        let clients = if long.is_some() { 200 } else { 50 };
        let fleets = [(&site, clients), (&other, clients / 2)]
            .map(|(site, clients)| Fleet::start(&honest, &ticks, &site.target, clients));
        fleets.iter().for_each(|fleet| runtime.block_on(fleet.settled()));
        let _runtimes = [honest, attacking];
        Suite { runtime, attackers, site, _other: other, fleets, long, _runtimes }
    }

    /// The number of attacks that achieved nothing.
    fn run(&self, attacks: &[&'static Attack]) -> usize {
        attacks.iter().filter(|attack| self.runtime.block_on(self.judge(attack))).count()
    }

    async fn judge(&self, attack: &'static Attack) -> bool {
        let duration = self.long.unwrap_or(attack.short);
        let mut faults = Vec::new();
        // A machine that does something else for a moment looks like a good attack, so that a longer attempt decides.
        for times in [1, 2, 4] {
            if !faults.is_empty() {
                println!("    once more: {}", faults.join("; "));
                let settled = self.fleets.iter().map(Fleet::settled);
                let _ = timeout(SETTLED_WITHIN, futures_util::future::join_all(settled)).await;
            }
            faults = self.attempt(attack, duration * times).await;
            if faults.is_empty() {
                return true;
            }
        }
        // `tests/run` reads the name.
        println!("FAILED {}\n    {}", attack.name, faults.join("; "));
        false
    }

    async fn attempt(&self, attack: &'static Attack, duration: Duration) -> Vec<String> {
        let [ours, others] = &self.fleets;
        let trial = self.attackers.run(attack, &self.site, [ours, others], duration).await;
        tell(attack, &trial);
        trial.faults(attack)
    }
}

fn tell(attack: &Attack, trial: &Trial) {
    let Trial { percentiles: here, control: there, .. } = trial;
    println!(
        "{:42} updates {:.0?} ({:.0?}), new clients {:.0?} ({:.0?}), {:+.1} MiB, {:.1} left, {:.2} cores, counted {}",
        attack.name,
        here.update,
        there.update,
        here.connect,
        there.connect,
        trial.grown as f64 / f64::from(1 << 20),
        trial.left as f64 / f64::from(1 << 20),
        trial.cores,
        trial.counted,
    );
    for (mode, outcome) in &trial.outcomes {
        println!(
            "    {mode:?}: {} of {} closed, within {:.1?}",
            outcome.closed, outcome.opened, outcome.slowest
        );
    }
}
