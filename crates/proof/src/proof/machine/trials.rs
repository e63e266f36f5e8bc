//! The open trials of a server, and the constants of time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::class::is_refusal;
use super::super::input::{ClassKey, ShadowId};
use super::super::output::QuestionId;
use super::super::trial::{Trial, Unasked};
use sluice_engine::Time;
use sluice_xds::{Code, Status, TypeUrl};

/// After a search without a member to sample.
pub const IDLE: Duration = Duration::from_secs(5);
/// Between two searches, whatever happens.
pub const SEARCH_GAP: Duration = Duration::from_millis(250);
/// A shadow waits for room, or for the end of a reason to give way.
pub const WAIT: Duration = Duration::from_secs(1);
/// Replicas are compared once an hour (PRF-18).
pub const REPLICAS_EVERY: Duration = Duration::from_secs(3_600);
/// An order to compare replicas waits for the test of the server for so long.
pub const TEST_MAX: Duration = Duration::from_secs(120);
/// The same divergence, or lag, is told once an hour (PRF-26).
pub const TOLD_EVERY: Duration = Duration::from_secs(3_600);
/// After so long, two living streams of an id are proof enough: the server bears both.
pub const TWINS_AFTER: Duration = Duration::from_secs(1);
/// Questions without an answer are given up.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A witness with an outdated subscription is opened anew after this time.
pub const RENEWED_AFTER: Duration = Duration::from_secs(600);
/// Evidence ages in steps.
pub const AGE_EVERY: Duration = Duration::from_secs(60);

/// While samples explain a divergence, the answers are read so often.
pub const ASKED_EVERY: Duration = Duration::from_millis(500);
/// The samples that make a share of the breaker (PRF-29).
pub const SHARE_OF: Duration = Duration::from_secs(60);

/// Whether the server bears two streams of an id.
#[derive(Clone, Debug, Default)]
pub enum Twins {
    #[default]
    Unknown,
    Allowed,
    /// No control may be opened, because a control could end the stream of a class. Tried again at `until`.
    Forbidden {
        status: Status,
        until: Time,
        was_told: bool,
    },
}

/// The role of a shadow in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sample,
    Second,
    Control,
}

/// An open question.
#[derive(Clone, Debug)]
pub struct Asked {
    pub trial: ShadowId,
    pub type_url: TypeUrl,
    pub pairs: Vec<Unasked>,
    pub at: Time,
}

/// The trials, by the number of the sample.
#[derive(Clone, Debug, Default)]
pub struct Trials {
    pub by_sample: BTreeMap<ShadowId, Trial>,
    pub roles: BTreeMap<ShadowId, (ShadowId, Role)>,
    /// Witnesses with a difference that wait for a slot of `streams`.
    pub waiting: BTreeSet<ShadowId>,
    pub questions: BTreeMap<QuestionId, Asked>,
    pub last_shadow: u64,
    pub last_question: u64,
    /// The nodes that the streams of classes show to the server, by their keys.
    pub shown: BTreeMap<ClassKey, u64>,
}

impl Trials {
    pub fn next_shadow(&mut self) -> ShadowId {
        self.last_shadow += 1;
        ShadowId(self.last_shadow)
    }

    pub fn witnesses(&self) -> usize {
        self.by_sample.values().filter(|trial| trial.is_witness).count()
    }

    /// Trials in a slot of `streams`: samples, and witnesses under confirmation (PRF-19).
    pub fn in_slots(&self) -> usize {
        let is_in_slot =
            |trial: &&Trial| trial.order.is_none() && (!trial.is_witness || trial.is_confirming());
        self.by_sample.values().filter(is_in_slot).count()
    }

    /// Trials of a class.
    pub fn of_class<'a>(&'a self, class: &'a ClassKey) -> impl Iterator<Item = &'a Trial> {
        self.by_sample.values().filter(move |trial| trial.class == *class)
    }

    pub fn has_question(&self, trial: ShadowId) -> bool {
        self.questions.values().any(|asked| asked.trial == trial)
    }
}

/// Whether the end of a second stream of an id is a refusal of the second.
pub fn refuses_twins(code: Code) -> bool {
    is_refusal(code) || matches!(code, Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted)
}
