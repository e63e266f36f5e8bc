//! The samples of a class, as long as they count (PRF-25).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::history::NameKey;
use super::population::{Pair, Print};
use super::report::{SampleReport, SampleResult};
use sluice_engine::Time;
use sluice_xds::TypeUrl;

/// A sample counts for a day, or for a round if a round takes longer (PRF-25).
const DAY: Duration = Duration::from_secs(86_400);
/// No node is sampled twice within an hour, unless asked (PRF-21).
pub const HOUR: Duration = Duration::from_secs(3_600);
/// Nodes to remember; the oldest go first.
const NODES_MAX: usize = 50_000;
/// Samples in the list for operators.
const LISTED_MAX: usize = 256;
/// Restless names of one type. A type with more leaves the proof as a whole.
const RESTLESS_MAX: usize = 1_000;

/// The latest sample of a node.
#[derive(Clone, Copy, Debug)]
struct LatestSample {
    at: Time,
    result: SampleResult,
    print: Print,
    /// The round of the node's turn in the rotation.
    round: u64,
}

/// The evidence about a class under a rule.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    nodes: BTreeMap<u64, LatestSample>,
    /// The latest sample of each fingerprint, whatever its result.
    prints: BTreeMap<Print, Time>,
    /// The values of equal samples, with the latest time.
    values: BTreeMap<Pair, Time>,
    listed: VecDeque<SampleReport>,
    /// Names outside of the proof, since when (PRF-16).
    restless: BTreeMap<NameKey, Time>,
    restless_types: BTreeMap<TypeUrl, Time>,
    pushes_seen: u64,
}

/// One sample as evidence.
pub struct SampleOf<'a> {
    pub node_key: u64,
    pub node_id: &'a str,
    pub print: Print,
    pub row: &'a [Pair],
    pub round: u64,
}

impl Evidence {
    pub fn add(&mut self, sample: &SampleOf<'_>, result: SampleResult, now: Time) {
        if self.nodes.len() >= NODES_MAX
            && !self.nodes.contains_key(&sample.node_key)
            && let Some(oldest) = self.nodes.iter().min_by_key(|entry| entry.1.at).map(|entry| *entry.0)
        {
            self.nodes.remove(&oldest);
        }
        let latest = LatestSample { at: now, result, print: sample.print, round: sample.round };
        self.nodes.insert(sample.node_key, latest);
        // A sample without a word is a turn of the fingerprint, too: else a silent client would stop others.
        self.prints.insert(sample.print, now);
        if result == SampleResult::Equal {
            self.values.extend(sample.row.iter().map(|pair| (*pair, now)));
        }
        self.listed.push_front(SampleReport { at: now, node_id: sample.node_id.into(), result });
        self.listed.truncate(LISTED_MAX);
    }

    /// The latest sample of a node says nothing.
    pub fn forget(&mut self, node_key: u64) {
        self.nodes.remove(&node_key);
    }

    /// A differing node has left, and differs no more.
    pub fn forget_differing(&mut self, node_key: u64) {
        if self.is_differing(node_key) {
            self.nodes.remove(&node_key);
        }
    }

    /// Drops outdated evidence.
    pub fn age(&mut self, round: Duration, now: Time) {
        let life = DAY.max(round);
        let counts = |at: Time| now.since(at) <= life;
        self.nodes.retain(|_, latest| counts(latest.at));
        self.prints.retain(|_, at| counts(*at));
        self.values.retain(|_, at| counts(*at));
        self.restless.retain(|_, at| counts(*at));
        self.restless_types.retain(|_, at| counts(*at));
    }

    /// An open shadow stayed equal over a change of the content.
    pub fn see_push(&mut self) {
        self.pushes_seen += 1;
    }

    pub fn pushes_seen(&self) -> u64 {
        self.pushes_seen
    }

    /// Whether the node may be sampled again without being asked for (PRF-21).
    pub fn is_rested(&self, node_key: u64, now: Time) -> bool {
        self.nodes.get(&node_key).is_none_or(|latest| now.since(latest.at) >= HOUR)
    }

    pub fn sampled_at(&self, node_key: u64) -> Option<Time> {
        self.nodes.get(&node_key).map(|latest| latest.at)
    }

    /// Whether a sample of the node had a word since a time.
    pub fn has_word_since(&self, node_key: u64, since: Time) -> bool {
        let is_word = |latest: &LatestSample| latest.at >= since && latest.result != SampleResult::NoWord;
        self.nodes.get(&node_key).is_some_and(is_word)
    }

    /// Whether the node had a turn in the round.
    pub fn had_turn(&self, node_key: u64, round: u64) -> bool {
        self.nodes.get(&node_key).is_some_and(|latest| latest.round >= round)
    }

    /// The time of the latest sample of a fingerprint; `None`: never seen (PRF-21 a).
    pub fn print_at(&self, print: Print) -> Option<Time> {
        self.prints.get(&print).copied()
    }

    /// Whether a row has a value without an equal sample (PRF-21 b).
    pub fn lacks_value_of(&self, row: &[Pair]) -> bool {
        row.iter().any(|pair| !self.values.contains_key(pair))
    }

    /// Whether the latest sample of the node, if any, was equal.
    pub fn is_equal(&self, node_key: u64) -> bool {
        self.nodes.get(&node_key).is_some_and(|latest| latest.result == SampleResult::Equal)
    }

    /// Whether the latest sample of the node differs.
    pub fn is_differing(&self, node_key: u64) -> bool {
        self.nodes.get(&node_key).is_some_and(|latest| latest.result == SampleResult::Differs)
    }

    fn count(&self, result: SampleResult) -> usize {
        self.nodes.values().filter(|latest| latest.result == result).count()
    }

    /// The nodes with a sample since a time, and whether each differs.
    pub fn recent(&self, since: Time) -> impl Iterator<Item = (u64, bool)> {
        let is_word = move |latest: &LatestSample| {
            latest.at >= since && matches!(latest.result, SampleResult::Equal | SampleResult::Differs)
        };
        let recent = self.nodes.iter().filter(move |entry| is_word(entry.1));
        recent.map(|entry| (*entry.0, entry.1.result == SampleResult::Differs))
    }

    /// The fingerprints of nodes with an equal latest sample.
    pub fn equal_prints(&self) -> BTreeSet<Print> {
        let equal = self.nodes.values().filter(|latest| latest.result == SampleResult::Equal);
        equal.map(|latest| latest.print).collect()
    }

    /// Nodes with an equal latest sample, and the number of fingerprints among them.
    pub fn equal(&self) -> (usize, usize) {
        (self.count(SampleResult::Equal), self.equal_prints().len())
    }

    /// Nodes with a differing latest sample.
    pub fn differs(&self) -> usize {
        self.count(SampleResult::Differs)
    }

    /// The earliest sample in the evidence.
    pub fn since(&self) -> Option<Time> {
        self.nodes.values().map(|latest| latest.at).min()
    }

    pub fn listed(&self) -> Vec<SampleReport> {
        self.listed.iter().cloned().collect()
    }

    /// The name leaves the proof (PRF-16). Returns whether the name was part of the proof until now.
    pub fn exclude(&mut self, key: &NameKey, now: Time) -> bool {
        let of_type = self.restless.keys().filter(|other| other.type_url == key.type_url).count();
        if of_type >= RESTLESS_MAX {
            self.restless_types.insert(key.type_url.clone(), now);
        }
        !self.is_restless(key) && self.restless.insert(key.clone(), now).is_none()
    }

    pub fn is_restless(&self, key: &NameKey) -> bool {
        self.is_restless_type(&key.type_url) || self.restless.contains_key(key)
    }

    pub fn is_restless_type(&self, type_url: &TypeUrl) -> bool {
        self.restless_types.contains_key(type_url)
    }

    pub fn restless(&self) -> impl Iterator<Item = &NameKey> {
        self.restless.keys()
    }
}

/// The statement about a share: of `samples` members none differs, so fewer than this share does, in
/// thousandths, with 95 % certainty (3 ÷ n, PRF-24).
pub fn at_most(samples: usize) -> Option<u32> {
    let share = 3_000usize.div_ceil(samples.max(1)).min(1_000);
    (samples > 0).then(|| u32::try_from(share).unwrap_or(1_000))
}

/// The id of a node in reports.
pub fn shown_id(id: &str) -> Arc<str> {
    const CHARS_MAX: usize = 200;
    id.chars().take(CHARS_MAX).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::collection::CollectionKind;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    fn sample(node_key: u64, row: &[Pair]) -> SampleOf<'_> {
        SampleOf { node_key, node_id: "n", print: 7, row, round: 1 }
    }

    #[test]
    fn prf_25_a_sample_counts_for_a_day_or_a_longer_round() {
        let mut evidence = Evidence::default();
        evidence.add(&sample(1, &[(1, 1)]), SampleResult::Equal, at(0));
        evidence.age(HOUR, at(86_400));
        assert_eq!((evidence.equal(), evidence.lacks_value_of(&[(1, 1)])), ((1, 1), false));
        evidence.age(HOUR * 48, at(86_401));
        assert_eq!(evidence.equal(), (1, 1));
        evidence.age(HOUR, at(86_401));
        assert_eq!((evidence.equal(), evidence.lacks_value_of(&[(1, 1)])), ((0, 0), true));
        assert_eq!((evidence.print_at(7), evidence.since()), (None, None));
    }

    #[test]
    fn prf_21_only_equal_samples_cover_values_and_the_last_word_of_a_node_counts() {
        let mut evidence = Evidence::default();
        evidence.add(&sample(1, &[(1, 1)]), SampleResult::Differs, at(0));
        assert!(evidence.lacks_value_of(&[(1, 1)]) && evidence.print_at(7).is_some());
        assert_eq!((evidence.equal(), evidence.differs()), ((0, 0), 1));
        evidence.add(&sample(1, &[(1, 1)]), SampleResult::Equal, at(1));
        assert_eq!((evidence.equal(), evidence.differs()), ((1, 1), 0));
        assert!(!evidence.is_rested(1, at(3_600)) && evidence.is_rested(1, at(3_601)));
    }

    #[test]
    fn prf_24_three_by_n() {
        assert_eq!([0, 1, 3, 40, 312].map(at_most), [None, Some(1_000), Some(1_000), Some(75), Some(10)]);
    }

    #[test]
    fn prf_16_restless_names_are_bounded() {
        let mut evidence = Evidence::default();
        let key = |number: usize| NameKey {
            type_url: TypeUrl::of_message("envoy.config.cluster.v3.Cluster"),
            kind: CollectionKind::Wildcard,
            name: number.to_string().as_str().into(),
        };
        let excluded = (0..2 * RESTLESS_MAX).filter(|number| evidence.exclude(&key(*number), at(0))).count();
        assert_eq!(excluded, RESTLESS_MAX);
        assert!(evidence.restless().count() <= RESTLESS_MAX);
        assert!(evidence.is_restless(&key(9_999_999)), "the whole type is");
    }
}
