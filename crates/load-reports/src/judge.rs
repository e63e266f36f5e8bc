//! The judge of a push by load reports (LRS-24): the clients with the push, against all others, for the same
//! cluster and at the same time.

use crate::counters::{Group, PerGroup, Tally};

/// Requests of a cluster in each group, at least.
const REQUESTS_MIN: u64 = 100;
/// The error share of the admitted clients is more than so many times that of the others.
const FACTOR: f64 = 2.0;

/// The tallies of one cluster in one class since the step began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLoad<'a> {
    pub class: &'a str,
    pub cluster: &'a str,
    pub tallies: PerGroup<Tally>,
}

/// The material of a judgement.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub clusters: &'a [ClusterLoad<'a>],
    /// Streams that have reported since the step began.
    pub reporters: PerGroup<u64>,
    /// The step admits by zone or by label, so that the groups may differ by nature.
    pub is_by_place: bool,
}

/// A cluster with a larger error share at the admitted clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Worse<'a> {
    pub load: ClusterLoad<'a>,
    /// Errors among the requests, from 0 to 1.
    pub shares: PerGroup<f64>,
}

/// Evidence that a judgement lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No client of the group has reported.
    Reporters { group: Group },
    /// No cluster has enough requests in both groups. `most`: the most requests of any cluster in its poorer
    /// group.
    Requests { most: u64, needed: u64 },
    /// The groups are no control for each other.
    Control,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Judgement<'a> {
    /// The clusters, the worst first.
    Worse(Vec<Worse<'a>>),
    /// So many clusters have enough requests, and none is worse.
    Equal {
        clusters: usize,
    },
    CannotTell(Vec<Missing>),
}

/// Compares the groups. `error_points`: the difference of the error shares, in percentage points, from which
/// on a cluster is worse.
pub fn judge<'a>(evidence: &Evidence<'a>, error_points: u32) -> Judgement<'a> {
    if evidence.is_by_place {
        return Judgement::CannotTell(vec![Missing::Control]);
    }
    let poorer =
        |load: &&ClusterLoad<'_>| load.tallies.admitted.requests().min(load.tallies.others.requests());
    let judged: Vec<&ClusterLoad<'_>> =
        evidence.clusters.iter().filter(|load| poorer(load) >= REQUESTS_MIN).collect();
    if judged.is_empty() {
        return Judgement::CannotTell(missing(
            evidence,
            evidence.clusters.iter().map(|load| poorer(&load)).max(),
        ));
    }
    let clusters = judged.len();
    let worse = judged.into_iter().filter(|load| is_worse(&load.tallies, error_points));
    let mut worse: Vec<Worse<'_>> = worse
        .map(|load| Worse {
            load: load.clone(),
            shares: PerGroup { admitted: share(load.tallies.admitted), others: share(load.tallies.others) },
        })
        .collect();
    worse.sort_by(|one, other| other.shares.admitted.total_cmp(&one.shares.admitted));
    if worse.is_empty() { Judgement::Equal { clusters } } else { Judgement::Worse(worse) }
}

fn missing(evidence: &Evidence<'_>, most: Option<u64>) -> Vec<Missing> {
    let counts = [(Group::Admitted, evidence.reporters.admitted), (Group::Others, evidence.reporters.others)];
    let silent = counts.into_iter().filter(|entry| entry.1 == 0);
    let mut missing: Vec<Missing> = silent.map(|(group, _)| Missing::Reporters { group }).collect();
    missing.push(Missing::Requests { most: most.unwrap_or_default(), needed: REQUESTS_MIN });
    missing
}

/// Whether the share of the admitted is larger by the points, and by the factor.
fn is_worse(tallies: &PerGroup<Tally>, error_points: u32) -> bool {
    let (admitted, others) = (share(tallies.admitted), share(tallies.others));
    admitted > others + f64::from(error_points) / 100.0 && admitted > FACTOR * others
}

/// The share of errors; 0 without requests.
fn share(tally: Tally) -> f64 {
    tally.error as f64 / tally.requests().max(1) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn tally(error: u64, all: u64) -> Tally {
        Tally { success: all - error, error }
    }

    fn load(cluster: &str, admitted: Tally, others: Tally) -> ClusterLoad<'_> {
        ClusterLoad { class: "class", cluster, tallies: PerGroup { admitted, others } }
    }

    fn judged<'a>(clusters: &'a [ClusterLoad<'a>]) -> Judgement<'a> {
        let reporters = PerGroup { admitted: 1, others: 9 };
        judge(&Evidence { clusters, reporters, is_by_place: false }, 5)
    }

    #[test]
    fn lrs_24_both_the_points_and_the_factor_decide() {
        let cases = [
            (tally(6, 100), tally(0, 100), true),
            (tally(5, 100), tally(0, 100), false),
            (tally(60, 1_000), tally(10, 1_000), false),
            (tally(61, 1_000), tally(10, 1_000), true),
            // Everybody fails much: the difference has to be twice as large.
            (tally(60, 100), tally(50, 100), false),
            (tally(99, 100), tally(49, 100), true),
            (tally(0, 100), tally(100, 100), false),
            (tally(u64::MAX - 1, u64::MAX), tally(1, u64::MAX), true),
        ];
        for (admitted, others, is_worse) in cases {
            let clusters = [load("c", admitted, others)];
            let judgement = judged(&clusters);
            assert_eq!(matches!(judgement, Judgement::Worse(_)), is_worse, "{clusters:?}: {judgement:?}");
        }
    }

    #[test]
    fn lrs_24_one_bad_cluster_among_many_is_named_with_its_shares() {
        let clusters = [
            load("good", tally(1, 500), tally(1, 500)),
            load("bad", tally(50, 100), tally(1, 100)),
            load("worst", tally(90, 100), tally(1, 100)),
            load("rare", tally(99, 99), tally(0, 500)),
        ];
        let Judgement::Worse(worse) = judged(&clusters) else { panic!("the push is worse") };
        let names: Vec<_> = worse.iter().map(|worse| worse.load.cluster).collect();
        assert_eq!(names, ["worst", "bad"]);
        assert_eq!(worse[0].shares, PerGroup { admitted: 0.9, others: 0.01 });
        assert_eq!(judged(&clusters[..1]), Judgement::Equal { clusters: 1 });
    }

    #[test]
    fn lrs_24_without_evidence_the_judge_says_what_is_missing() {
        let clusters = [load("rare", tally(99, 99), tally(0, 500)), load("c", tally(1, 9), tally(1, 9))];
        let requests = |most| Missing::Requests { most, needed: 100 };
        assert_eq!(judged(&clusters), Judgement::CannotTell(vec![requests(99)]));
        let evidence = |reporters, is_by_place| Evidence { clusters: &[], reporters, is_by_place };
        let none = judge(&evidence(PerGroup::default(), false), 5);
        let silent = |group| Missing::Reporters { group };
        let all = vec![silent(Group::Admitted), silent(Group::Others), requests(0)];
        assert_eq!(none, Judgement::CannotTell(all));
        let by_zone = Evidence { is_by_place: true, ..evidence(PerGroup { admitted: 1, others: 1 }, true) };
        assert_eq!(judge(&by_zone, 5), Judgement::CannotTell(vec![Missing::Control]));
    }
}
