//! The promises over all replicas together (I30), by what stands in the ledger, what has come to a replica,
//! and what clients are given.

use std::collections::{BTreeMap, BTreeSet};

use sluice_fleet::rollout::shared::record::{PastPush, PlanRecord};
use sluice_fleet::rollout::shared::{ChangeHash, ContentSet};
use sluice_fleet::rollout::{Counts, UnitId};

use crate::contents::{Content, hash, hashes, keys};
use crate::replica::{Client, Replica};
use crate::world::BAKE_MS;

/// Clients are given content that no step anywhere has admitted them to.
pub const SEATS: &str = "I30a";
/// Clients are given content after its halt.
pub const HALTS: &str = "I30b";
/// A step goes on without its evidence.
pub const EVIDENCE: &str = "I30c";
/// Something goes on without the ledger, or before the others could write.
pub const GONE: &str = "I30d";

/// The invariant, and words.
pub type Fault = (&'static str, String);

/// What the steps in the ledger have admitted so far.
#[derive(Debug, Default)]
pub struct Judge {
    /// The largest threshold of each push.
    pub pushes: BTreeMap<u64, u16>,
    /// The contents of the steps, each with its threshold.
    contents: Vec<(ContentSet, u16)>,
    /// All changes of the control plane.
    pub published: Vec<ChangeHash>,
}

/// The push of a key below `done/edge/` or `halted/edge/`.
pub fn push_of(key: &str) -> u64 {
    key.split('/').nth(2).and_then(|push| push.parse().ok()).unwrap_or_default()
}

impl Judge {
    pub fn admit(&mut self, push: u64, changed: &ContentSet, threshold: u16) {
        self.pushes.insert(push, threshold);
        if self.contents.last().is_none_or(|(set, last)| (set, *last) != (changed, threshold)) {
            self.contents.push((changed.clone(), threshold));
        }
    }

    /// A client is given a push. `record`: that of the ledger.
    pub fn faults_of_push(
        &self,
        replica: &Replica,
        client: &Client,
        push: u64,
        record: Option<&PlanRecord>,
    ) -> Vec<Fault> {
        let alone = replica.alone.thresholds.get(&push);
        let thresholds = [self.pushes.get(&push), alone];
        let is_beyond = thresholds.into_iter().flatten().all(|threshold| client.bucket >= *threshold);
        let rules = replica.rollout.plan().shared_rules();
        let is_apart = alone.is_none()
            && record.is_some_and(|record| record.push == push && record.rules != rules)
            && replica.admission.threshold < 10_000;
        let beyond = format!("gives push {push} to bucket {}, beyond the ledger", client.bucket);
        let apart = format!("gives push {push} by seats that are not those of the push");
        let faults = [(is_beyond, beyond), (is_apart, apart)];
        faults.into_iter().filter(|(is_fault, _)| *is_fault).map(|(_, words)| (SEATS, words)).collect()
    }

    /// Each version that a client is given was part of some step with the client's seat.
    pub fn fault_of_content(&self, replica: &Replica, client: &Client, content: &Content) -> Option<Fault> {
        let unit = UnitId(client.unit);
        let is_admitted = |(name, version): &(&u64, &u64)| {
            let change = hash(unit, **name, **version);
            let admits = |(set, threshold): &(ContentSet, u16)| client.bucket < *threshold && set.has(change);
            // All clients have the first version from the start on.
            **version == 0 || self.contents.iter().any(admits) || replica.alone.changes.contains(&change)
        };
        let mut news = content.iter().filter(|(name, version)| client.content.get(name) != Some(version));
        let beyond = news.find(|change| !is_admitted(change))?;
        Some((SEATS, format!("gives {beyond:?} to bucket {}, and no step has it", client.bucket)))
    }

    /// Why the step that a replica writes may not follow: the counts of a live replica are missing or too bad, the
    /// writer has not seen the step before for its bake, or no live replica has some of the changes.
    pub fn faults_of_step(
        &self,
        replica: &Replica,
        number: usize,
        before: &PlanRecord,
        changed: &ContentSet,
        now: u64,
    ) -> Vec<String> {
        let mut sum: Counts = replica.tallied.admitted;
        let mut faults = Vec::new();
        let name = format!("tally/edge/r{number}");
        for (key, tally) in replica.heard_tallies.iter().filter(|(key, _)| **key != name) {
            if (tally.push, tally.step, tally.threshold) != (before.push, before.step, before.threshold) {
                faults.push(format!("push {} goes on without {key}: {tally:?}", before.push));
            }
            sum = sum + tally.admitted;
        }
        if sum.rejected > 0 || sum.accepted * 100 < sum.evidence() * 95 {
            faults.push(format!("push {} goes on with {sum:?}", before.push));
        }
        // A replica that an operator let go ahead counts by the record.
        let is_ahead = replica.reached.0 == before.push && replica.reached.1 > before.step;
        let (push, step, since) = if is_ahead { replica.seen } else { replica.reached };
        if (push, step) != (before.push, before.step) || now < since + BAKE_MS {
            let seen = format!("r{number} has seen step {step} of push {push} since {since} ms");
            faults.push(format!("push {} goes on from step {}, and {seen}", before.push, before.step));
        }
        let candidates = replica.units.iter().filter_map(|(id, unit)| Some((id, unit.candidate.as_ref()?)));
        let own = candidates.flat_map(|(id, (_, content))| hashes(UnitId(*id), content));
        let others = replica.heard_tallies.values().flat_map(|tally| before.changed.at(&tally.part));
        let spoken: BTreeSet<ChangeHash> = own.chain(others).collect();
        if self.published.iter().any(|change| changed.has(*change) && !spoken.contains(change)) {
            faults.push(format!("push {} goes on with changes that no live replica has", before.push));
        }
        faults
    }
}

/// A client is given a push whose halt has come here, or no other changes than those of a halted unit.
pub fn fault_of_halted(replica: &Replica, unit: u64, push: u64, content: &Content) -> Option<Fault> {
    if replica.heard_halted.contains(&push) {
        return Some((HALTS, format!("gives push {push}, and knows that it is halted")));
    }
    let (id, stable) = (UnitId(unit), &replica.units[&unit].stable);
    let news = content.iter().filter(|(name, version)| stable.get(name) != Some(version));
    let news: Vec<ChangeHash> = news.map(|(name, version)| hash(id, *name, *version)).collect();
    let is_sound = |done: &u64| replica.heard_halts.keys().all(|key| push_of(key) != *done);
    let is_done =
        |change: &ChangeHash| replica.heard_done.iter().any(|(done, set)| is_sound(done) && set.has(*change));
    if news.iter().all(is_done) {
        return None;
    }
    let is_same = |(key, past): &(&String, &PastPush)| {
        let mut later = replica.heard_done.range(push_of(key) + 1..).filter(|(done, _)| is_sound(done));
        let mut same = replica.heard_halts.iter().filter(|(other, _)| push_of(other) == push_of(key));
        push_of(key) < push
            // Those that halted it say better which changes they mean.
            && !(past.is_assumed && same.any(|(_, other)| !other.is_assumed))
            && (past.blamed.is_empty() || past.blamed.contains(&keys()[&id]))
            && past.changed.covers(&news)
            // All clients have had something else in the place since, so the unit is not that of the halt.
            && !later.any(|(_, set)| news.iter().any(|change| set.has_place_of(*change)))
    };
    let (key, _) = replica.heard_halts.iter().find(is_same)?;
    Some((HALTS, format!("gives {content:?} of push {push} instead of {stable:?}, and {key} has it")))
}
