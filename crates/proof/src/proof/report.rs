//! Reports for operators (PRF-17, PRF-24).

use std::sync::Arc;
use std::time::Duration;

use super::input::{ClassKey, MemberId, ShadowId};
use sluice_engine::Time;
use sluice_xds::{ResourceName, Status, TypeUrl, Version};

/// The role of a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShadowKind {
    /// A member, asked once.
    Sample,
    /// The same member again, after a difference (PRF-16).
    Second,
    /// The class's own node (PRF-16).
    Control,
    /// The class's own node on another connection (PRF-18).
    Replica,
    /// An open sample after the result. No shadow begins as a witness: [`Output::Keep`](super::Output::Keep)
    /// makes a witness of a sample.
    Witness,
}

/// The result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SampleResult {
    Equal,
    Lag,
    Differs,
    Restless,
    NoWord,
}

impl SampleResult {
    pub const ALL: [SampleResult; 5] = [
        SampleResult::Equal,
        SampleResult::Lag,
        SampleResult::Differs,
        SampleResult::Restless,
        SampleResult::NoWord,
    ];

    /// The word of metrics and lists.
    pub fn name(self) -> &'static str {
        match self {
            SampleResult::Equal => "equal",
            SampleResult::Lag => "lag",
            SampleResult::Differs => "differs",
            SampleResult::Restless => "restless",
            SampleResult::NoWord => "no_word",
        }
    }
}

/// A word about a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassState {
    /// Samples were equal, none differs, and no fingerprint is without a sample. Never shown without
    /// [`ClassReport::words`] (PRF-24).
    Proved,
    Unproved,
    Differs,
    /// Some members differ, and a split or a refusal waits for the reason in [`ClassReport::split_waits`].
    SplitWaits,
    /// Nothing differs, and some names cannot be proved (PRF-16).
    Restless,
    /// The server cannot be asked (PRF-9).
    Impossible,
}

impl ClassState {
    pub fn name(self) -> &'static str {
        match self {
            ClassState::Proved => "proved",
            ClassState::Unproved => "unproved",
            ClassState::Differs => "differs",
            ClassState::SplitWaits => "split_waits",
            ClassState::Restless => "restless",
            ClassState::Impossible => "impossible",
        }
    }
}

/// The proof of one class.
///
/// Wide because operators read a line of `/classes`.
#[derive(Clone, Debug)]
pub struct ClassReport {
    pub class: ClassKey,
    pub rule: Arc<str>,
    pub state: ClassState,
    /// Members now, and members that may never be asked about (PRF-5, PRF-6).
    pub members: usize,
    pub not_sampled: usize,
    pub fingerprints: usize,
    /// Equal samples in the evidence (PRF-25); of so many distinct nodes and fingerprints.
    pub samples: usize,
    pub sampled_members: usize,
    pub sampled_fingerprints: usize,
    /// Changes of the content with an open shadow that stayed equal (PRF-25).
    pub pushes_seen: u64,
    /// Members with a differing latest sample.
    pub differs: usize,
    /// At most this share of the members differs, in thousandths, with 95 % certainty; `None` without
    /// samples, and while some differ (PRF-24).
    pub at_most: Option<u32>,
    /// The time of the earliest evidence.
    pub since: Option<Time>,
    /// Uncovered values of hidden fields, without a representative or a witness, as path and value: at
    /// most 100.
    pub uncovered: Vec<(Arc<str>, Arc<str>)>,
    pub uncovered_count: usize,
    pub witnesses: usize,
    /// Names outside of the proof, by type: at most 100, and the count. Secrets only as a count (PRF-7).
    pub restless: Vec<(TypeUrl, Vec<ResourceName>, usize)>,
    /// The paths of `proof.ignore` that hid a difference (PRF-15).
    pub ignored: Vec<(TypeUrl, Arc<str>)>,
    pub impossible: Option<Status>,
    /// The class that the members came from, by the proof or by an operator.
    pub split_from: Option<ClassKey>,
    /// The split of the proof that made the class; `None` for classes of rules and of operators.
    pub split: Option<SplitReport>,
    /// The reason why a split or a refusal waits (PRF-29, PRF-30).
    pub split_waits: Option<Arc<str>>,
    /// A rule by a covered value is noticed within this time after the push.
    pub covered_within: Duration,
    /// Every member and every fingerprint has a turn within this time (PRF-24).
    pub round: Duration,
    /// The report in words: the proved part, and the rest.
    pub words: String,
}

/// The split that made a class, with the sample that did it (PRF-31, PRF-32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitReport {
    pub parent: ClassKey,
    pub type_url: TypeUrl,
    pub member_id: Arc<str>,
    pub age: Duration,
    /// The least time for which the split holds, counted from the split.
    pub holds: Duration,
    /// Changes of the content since the split, over which the two classes stayed equal without a break. A
    /// split ends after two.
    pub equal_over: u32,
}

/// Nothing splits or refuses for a while (PRF-29).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerReport {
    pub reason: Arc<str>,
    pub ends_in: Duration,
}

/// A name with unequal answers for a member and the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivergentName {
    pub name: ResourceName,
    /// `None`: absent.
    pub class_version: Option<Version>,
    pub member_version: Option<Version>,
    /// The differing fields, without values.
    pub paths: Vec<Arc<str>>,
}

/// A confirmed divergence of one class and type (PRF-17).
///
/// Wide because operators read an item of `/classes/divergences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub class: ClassKey,
    pub rule: Arc<str>,
    pub type_url: TypeUrl,
    /// At most 100. Empty for Secrets (PRF-7).
    pub names: Vec<DivergentName>,
    pub name_count: usize,
    /// Compared names of the type, for `Secret, 2 of 14 differ`.
    pub compared: usize,
    /// A differing member, and the id of the node.
    pub member: MemberId,
    pub member_id: Arc<str>,
    pub representative_id: Arc<str>,
    /// The paths of the fields in which the two nodes differ: at most 100.
    pub differing_fields: Vec<Arc<str>>,
    /// The fewest fields that explain all samples of the class (LRN-7): alternatives, each a field or a pair.
    pub explained_by: Vec<Vec<Arc<str>>>,
    /// The values of the first explanation at the members that differ: at most 16. For operators who may read
    /// `/clients`.
    pub suspect_values: Vec<Vec<Arc<str>>>,
    /// Members of the class with the suspect values.
    pub clients: usize,
    pub since: Time,
}

/// An open shadow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowReport {
    pub id: ShadowId,
    pub class: ClassKey,
    pub kind: ShadowKind,
    pub member: Option<MemberId>,
    pub since: Time,
}

/// The proof of a server.
#[derive(Clone, Debug, Default)]
pub struct ProofReport {
    pub classes: Vec<ClassReport>,
    pub divergences: Vec<Arc<Divergence>>,
    pub shadows: Vec<ShadowReport>,
    /// The reason why no shadow is begun now (PRF-20).
    pub gives_way: Option<&'static str>,
    /// The breaker, while it is open (PRF-29).
    pub breaker: Option<BreakerReport>,
    /// Members without evidence.
    pub unproved_members: usize,
    /// Every member of the server has a turn within this time.
    pub round: Duration,
}

/// One sample, for `/classes/{digest}/samples`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleReport {
    pub at: Time,
    pub node_id: Arc<str>,
    pub result: SampleResult,
}

/// The progress of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProveState {
    pub class: ClassKey,
    /// Replicas are compared, and no members (PRF-18).
    pub replicas: bool,
    /// Members to sample.
    pub asked: usize,
    pub equal: usize,
    pub differs: usize,
    /// Samples without a word: restless, lagging, refused, or ended before an answer.
    pub no_word: usize,
    pub is_done: bool,
    /// The class cannot be asked, with the reason in words.
    pub refused: Option<Arc<str>>,
}
