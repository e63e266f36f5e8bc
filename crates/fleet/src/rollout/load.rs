//! The load that clients report, as evidence about a push (LRS-24): the clients with the push, against all
//! others, in the same clusters and at the same time.

use std::sync::Arc;
use std::time::Duration;

use super::plan::BucketBy;
use super::push::UnitId;

/// Requests of a cluster in each group, at least.
const REQUESTS_MIN: u64 = 100;
/// The error share of the admitted clients is more than so many times that of the others.
const FACTOR: f64 = 2.0;

/// Finished requests, and the errors among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub finished: u64,
    pub errors: u64,
}

impl Requests {
    /// The share of errors; 0 without requests.
    pub fn error_share(self) -> f64 {
        self.errors as f64 / self.finished.max(1) as f64
    }
}

/// The requests of one cluster since the step began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRequests {
    pub cluster: Arc<str>,
    pub admitted: Requests,
    pub others: Requests,
    /// The admitted clients' requests by unit of the push.
    pub by_unit: Vec<(UnitId, Requests)>,
}

impl ClusterRequests {
    /// The requests of the group with fewer.
    fn poorer(&self) -> u64 {
        self.admitted.finished.min(self.others.finished)
    }

    fn is_worse(&self, error_points: u32) -> bool {
        is_worse(self.admitted, self.others, error_points)
    }

    /// The units whose clients fail more often than the others.
    fn failing(&self, error_points: u32) -> impl Iterator<Item = UnitId> {
        let failing = self.by_unit.iter().filter(move |entry| is_worse(entry.1, self.others, error_points));
        failing.map(|entry| entry.0)
    }
}

/// Whether the share of the admitted is larger by the points, and by the factor.
fn is_worse(admitted: Requests, others: Requests, error_points: u32) -> bool {
    let (admitted, others) = (admitted.error_share(), others.error_share());
    admitted > others + f64::from(error_points) / 100.0 && admitted > FACTOR * others
}

/// The material of a judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadEvidence {
    pub clusters: Vec<ClusterRequests>,
    /// Streams that have reported since the step began.
    pub admitted: u64,
    pub others: u64,
    /// All streams of load reports in the plan's classes.
    pub streams: u64,
    /// The longest interval in which clients report, by the wish of their server.
    pub interval: Duration,
    /// Known causes for missing reports.
    pub deaf: Vec<Deaf>,
}

/// A part of the relay, or of its servers, where load reports end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deaf {
    /// A listener drops or refuses the reports of its clients.
    Listener(Arc<str>),
    /// A list without a server that takes reports.
    List(Arc<str>),
    /// A server without the service (LRS-21).
    Server(Arc<str>),
}

/// Clusters with a larger error share at the admitted clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorseLoad {
    /// The cluster with the largest error share.
    pub worst: ClusterRequests,
    /// So many other clusters are worse, too.
    pub more: usize,
}

/// Evidence that a judgement lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No client of the plan has a stream of load reports.
    Streams,
    /// No admitted client has reported.
    AdmittedReporters,
    /// No other client has reported.
    OtherReporters,
    /// No cluster has enough requests in both groups. `most`: the most requests of any cluster in its poorer
    /// group.
    Requests { most: u64, needed: u64 },
    /// The groups are no control for each other: a label or a place has chosen the admitted clients.
    Control,
    /// Some reports reach nobody.
    Deaf(Deaf),
    /// A verdict takes two intervals of the reports, and the step is shorter.
    Time { bake: Duration, interval: Duration },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadJudgement {
    Worse(WorseLoad),
    /// So many clusters have enough requests, and none is worse. So many others have requests of admitted
    /// clients, and too few of one group.
    Equal {
        clusters: usize,
        uncompared: usize,
    },
    CannotTell(Vec<Missing>),
}

impl LoadJudgement {
    /// The words of all judgements.
    pub const NAMES: [&str; 3] = ["equal", "worse", "cannot_tell"];

    pub fn name(&self) -> &'static str {
        let [equal, worse, cannot_tell] = LoadJudgement::NAMES;
        match self {
            LoadJudgement::Equal { .. } => equal,
            LoadJudgement::Worse(_) => worse,
            LoadJudgement::CannotTell(_) => cannot_tell,
        }
    }
}

impl BucketBy {
    /// Whether a bucket holds all clients of a place or of a service. Then the clients of a step differ from
    /// the others by nature.
    pub fn is_of_place(&self) -> bool {
        matches!(self, BucketBy::Cluster | BucketBy::Zone)
    }
}

/// Compares the groups. `error_points`: the difference of the error shares, in percentage points, from which
/// on a cluster is worse. `bake`: of the step. Gives the units of all worse clusters, too.
pub(super) fn judge(
    evidence: &LoadEvidence,
    error_points: u32,
    bake: Duration,
) -> (LoadJudgement, Vec<UnitId>) {
    let is_judged = |load: &&ClusterRequests| load.poorer() >= REQUESTS_MIN;
    let clusters = evidence.clusters.iter().filter(is_judged).count();
    if clusters == 0 {
        return (LoadJudgement::CannotTell(missing(evidence, bake)), Vec::new());
    }
    let worse = || evidence.clusters.iter().filter(is_judged).filter(|load| load.is_worse(error_points));
    let share = |load: &&ClusterRequests| load.admitted.error_share();
    let Some(worst) = worse().max_by(|one, other| share(one).total_cmp(&share(other))) else {
        let used = evidence.clusters.iter().filter(|load| load.admitted.finished > 0);
        let uncompared = used.filter(|load| !is_judged(load)).count();
        return (LoadJudgement::Equal { clusters, uncompared }, Vec::new());
    };
    let units = worse().flat_map(|load| load.failing(error_points)).collect();
    (LoadJudgement::Worse(WorseLoad { worst: worst.clone(), more: worse().count() - 1 }), units)
}

/// The time from the begin of a step to a verdict: the first report of a client covers time before the step.
pub fn verdict_takes(interval: Duration) -> Duration {
    interval.saturating_mul(2)
}

fn missing(evidence: &LoadEvidence, bake: Duration) -> Vec<Missing> {
    let deaf = evidence.deaf.iter().cloned().map(Missing::Deaf);
    if evidence.streams == 0 {
        return std::iter::once(Missing::Streams).chain(deaf).collect();
    }
    let interval = evidence.interval;
    let time = (verdict_takes(interval) > bake).then_some(Missing::Time { bake, interval });
    let counts =
        [(Missing::AdmittedReporters, evidence.admitted), (Missing::OtherReporters, evidence.others)];
    let silent = counts.into_iter().filter(|entry| entry.1 == 0).map(|entry| entry.0);
    let most = evidence.clusters.iter().map(ClusterRequests::poorer).max().unwrap_or_default();
    silent.chain([Missing::Requests { most, needed: REQUESTS_MIN }]).chain(deaf).chain(time).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn requests(errors: u64, finished: u64) -> Requests {
        Requests { finished, errors }
    }

    fn load(cluster: &str, admitted: Requests, others: Requests) -> ClusterRequests {
        ClusterRequests { cluster: cluster.into(), admitted, others, by_unit: vec![(UnitId(1), admitted)] }
    }

    const BAKE: Duration = Duration::from_secs(20);

    fn evidence(clusters: &[ClusterRequests]) -> LoadEvidence {
        let interval = BAKE / 2;
        let clusters = clusters.to_vec();
        LoadEvidence { clusters, admitted: 1, others: 9, streams: 10, interval, deaf: Vec::new() }
    }

    fn judged(clusters: &[ClusterRequests]) -> LoadJudgement {
        judge(&evidence(clusters), 5, BAKE).0
    }

    #[test]
    fn lrs_24_both_the_points_and_the_factor_decide() {
        let cases = [
            (requests(6, 100), requests(0, 100), true),
            (requests(5, 100), requests(0, 100), false),
            (requests(60, 1_000), requests(10, 1_000), false),
            (requests(61, 1_000), requests(10, 1_000), true),
            // Everybody fails much: the difference has to be twice as large.
            (requests(60, 100), requests(50, 100), false),
            (requests(99, 100), requests(49, 100), true),
            (requests(0, 100), requests(100, 100), false),
            (requests(1, u64::MAX), requests(1, u64::MAX), false),
        ];
        for (admitted, others, is_worse) in cases {
            let judgement = judged(&[load("c", admitted, others)]);
            assert_eq!(matches!(judgement, LoadJudgement::Worse(_)), is_worse, "{judgement:?}");
        }
    }

    #[test]
    fn lrs_24_one_bad_cluster_among_many_is_named() {
        let clusters = [
            load("good", requests(1, 500), requests(1, 500)),
            load("bad", requests(50, 100), requests(1, 100)),
            load("worst", requests(90, 100), requests(1, 100)),
            load("rare", requests(99, 99), requests(0, 500)),
        ];
        let LoadJudgement::Worse(worse) = judged(&clusters) else { panic!("the push is worse") };
        assert_eq!((&*worse.worst.cluster, worse.more), ("worst", 1));
        assert_eq!(judged(&clusters[..1]), LoadJudgement::Equal { clusters: 1, uncompared: 0 });
        let [good, _, _, rare] = &clusters;
        let equal = LoadJudgement::Equal { clusters: 1, uncompared: 1 };
        assert_eq!(judged(&[good.clone(), rare.clone()]), equal, "a new cluster has no control group");
    }

    #[test]
    fn lrs_24_units_are_blamed_that_are_worse_than_the_others() {
        let by_unit =
            vec![(UnitId(1), requests(1, 200)), (UnitId(2), requests(150, 150)), (UnitId(3), requests(0, 0))];
        let cluster = ClusterRequests { by_unit, ..load("c", requests(151, 350), requests(1, 400)) };
        assert_eq!(judge(&evidence(&[cluster]), 5, BAKE).1, [UnitId(2)]);
    }

    #[test]
    fn lrs_24_without_evidence_the_judge_says_what_is_missing() {
        let clusters =
            [load("rare", requests(99, 99), requests(0, 500)), load("c", requests(1, 10), requests(1, 10))];
        let too_few = |most| Missing::Requests { most, needed: 100 };
        assert_eq!(judged(&clusters), LoadJudgement::CannotTell(vec![too_few(99)]));
        let all = vec![Missing::AdmittedReporters, Missing::OtherReporters, too_few(0)];
        let silent = LoadEvidence { streams: 10, ..LoadEvidence::default() };
        assert_eq!(judge(&silent, 5, BAKE), (LoadJudgement::CannotTell(all), Vec::new()));
    }

    #[test]
    fn lrs_24_without_evidence_the_judge_names_the_causes_that_are_known() {
        let deaf = vec![Deaf::Listener("main".into()), Deaf::List("xds_servers".into())];
        let causes = || deaf.iter().cloned().map(Missing::Deaf);
        let nobody = LoadEvidence { deaf: deaf.clone(), ..LoadEvidence::default() };
        let expected = std::iter::once(Missing::Streams).chain(causes()).collect();
        assert_eq!(judge(&nobody, 5, BAKE).0, LoadJudgement::CannotTell(expected));
        let slow = LoadEvidence { deaf: deaf.clone(), interval: BAKE, ..evidence(&[]) };
        let time = Missing::Time { bake: BAKE, interval: BAKE };
        let few = Missing::Requests { most: 0, needed: 100 };
        let expected = std::iter::once(few).chain(causes()).chain([time]).collect();
        assert_eq!(judge(&slow, 5, BAKE).0, LoadJudgement::CannotTell(expected));
        // With evidence there is nothing to explain.
        let many = [load("c", requests(1, 500), requests(1, 500))];
        let heard = LoadEvidence { deaf, interval: BAKE, ..evidence(&many) };
        assert_eq!(judge(&heard, 5, BAKE).0, LoadJudgement::Equal { clusters: 1, uncompared: 0 });
    }
}
