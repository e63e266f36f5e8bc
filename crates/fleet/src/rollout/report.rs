//! The state of a plan and the way of its pushes, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::command::Until;
use super::hook::{HookAnswer, HookReport};
use super::load::{LoadJudgement, WorseLoad};
use super::plan::Mode;
use super::push::{Content, Finding, Growth, TypePush, UnitId, UnitPush};
use super::shared::record::SharedState;
use super::tally::{Control, Counts, Rejection};
use sluice_engine::Time;
use sluice_engine::change::NameList;
use sluice_engine::time::ReceivedAt;
use sluice_xds::{ResourceName, TypeUrl};

/// A plan at one moment, for API, log and metrics. Wide because each reader shows some of the facts alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutReport {
    pub state: RolloutState,
    /// The push under way, or the halted or paused push that no other push has followed yet.
    pub push: Option<Arc<PushReport>>,
    /// Units whose changes wait for the next push.
    pub waiting: Vec<UnitId>,
    /// The pushes that are over, the latest first; at most as many as the plan remembers.
    pub past: Vec<Arc<PushReport>>,
    /// The oldest change that is held from somebody.
    pub behind_from: Option<ReceivedAt>,
    /// Units whose content waits although other units go on.
    pub barred: Vec<UnitId>,
    pub pin: Option<Pin>,
    pub frozen_until: Option<Time>,
    /// The numbers of the releases that the plan can serve again, the latest first. 0 is the content before
    /// the first push.
    pub releases: Vec<u64>,
    /// No push begins, because the contents that are held take too many bytes.
    pub is_full: bool,
    /// Units with waiting changes because of a lost server. Pushes go on without the units (WAV-18).
    pub left_out: Vec<UnitId>,
    /// No push begins: a server is lost, and no other unit has a change, or clients keep a halted push with
    /// content of the server.
    pub waits_for_server: bool,
    /// Under `mode: enforce`, the units whose stable content came by a push that clients accepted. All others
    /// are unproved (WAV-7).
    pub proved: BTreeSet<UnitId>,
    /// The units that serve the pinned release.
    pub pinned: BTreeSet<UnitId>,
    /// `None`: the plan decides for this replica only.
    pub shared: Option<SharedReport>,
}

/// The part of this replica among the others.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedReport {
    /// The name of this replica.
    pub replica: Box<str>,
    /// Why the ledger is not acted on; `None`: it is here.
    pub fault: Option<Box<str>>,
    /// The push of the record; 0 before the first.
    pub push: u64,
    pub state: SharedState,
    pub step: u8,
    /// An order of an operator here is not in the record yet.
    pub is_unwritten: bool,
    /// In words, the ways in which this replica has acted otherwise than the record: by orders for it alone,
    /// while the ledger was away, or because it lacks something.
    pub diverged: Vec<Box<str>>,
    /// Why the latest changes of this replica have not begun.
    pub waits: Option<&'static str>,
    /// The live replicas, with this one, by name.
    pub replicas: Vec<ReplicaReport>,
    /// The replicas whose leases have run out within the last leases, or that have left.
    pub silent: Vec<Box<str>>,
}

/// A live replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaReport {
    pub name: Box<str>,
    /// The push and the step that it has counted its clients at.
    pub push: u64,
    pub step: u8,
    pub takes_part: bool,
    /// It has not counted its clients at the step of the record: nobody goes on without it.
    pub is_behind: bool,
    /// It acts otherwise than the record, by orders for it alone, or because it lacks something.
    pub is_diverged: bool,
    pub clients: u64,
}

/// A release that is served to all clients, whatever the servers say (HIS-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    pub release: u64,
    pub from: Time,
    pub until: Until,
}

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RolloutState {
        /// No push.
        #[default]
        Open = "open",
        /// Changes have come; more may belong to the push.
        Gathering = "gathering",
        /// A step is under way.
        Waving = "waving",
        /// The step lacks evidence.
        Paused = "paused",
        /// All clients are admitted, and the final bake is under way.
        Settling = "settling",
        Halted = "halted",
        /// A release of the past is served, and changes wait.
        Pinned = "pinned",
        /// No push begins before an end that an operator stated.
        Frozen = "frozen",
    }
}

/// A push and its way through the steps: kept by the machine, and read by API, log and metrics. Wide because
/// each reader shows some of the facts alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushReport {
    pub number: u64,
    pub mode: Mode,
    /// The steps of the plan that began the push, with the step that admits all clients.
    pub step_count: u8,
    /// The first change of the push.
    pub gathered_from: Time,
    /// The end of the gathering.
    pub began: Time,
    /// The state while the push is under way, and the last state of a push that is over.
    pub state: RolloutState,
    /// `None`: the push is not over.
    pub end: Option<End>,
    /// The units of the push.
    pub units: Vec<UnitId>,
    /// The differences of all units together, by type. A name that changed in several units counts for each.
    pub types: Vec<TypePush>,
    /// The begun steps. The step after the last step of the plan admits all clients.
    pub steps: Vec<StepReport>,
    pub verdict: Option<Verdict>,
    /// Findings that did not stop the push.
    pub notes: Vec<Note>,
    /// The last tally.
    pub admitted: Counts,
    pub others: Counts,
    pub rejections: Vec<Rejection>,
    pub blamed: Vec<UnitId>,
    /// Contents with so many rejections that a later push with the content is halted at once.
    pub condemned: Vec<Content>,
    /// The changed and added resources that no admitted client was sent by the last tally, by type (WAV-14).
    /// Empty before the first.
    pub without_evidence: Vec<(TypeUrl, NameList)>,
    /// The latest question to the hook, and the answer. `None` without a hook.
    pub hook: Option<HookReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub at: Time,
    pub outcome: Outcome,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Outcome {
        /// All clients stood with the push for the final bake.
        Finished = "finished",
        /// The push passed all steps, but no client's answer was evidence: nobody was affected, or all were
        /// sent a later push instead, or only known rejecters answered.
        Unjudged = "unjudged",
        /// The evidence, or a guard, was against the push.
        Halted = "halted",
        /// The evidence never sufficed.
        Paused = "paused",
        /// Another configuration exchanged the plan, or gave its units to another plan.
        Abandoned = "abandoned",
        /// The servers took the push back.
        Withdrawn = "withdrawn",
        /// The content is an earlier release, given to all clients at once.
        Restored = "restored",
    }
}

/// A step of a push.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// From 1.
    pub number: u8,
    /// Buckets below are admitted. Raised for [`Step::at_least`](super::plan::Step::at_least).
    pub threshold: u16,
    pub began: Time,
    pub ended: Option<Time>,
    /// The admitted clients at the last tally of the step.
    pub admitted: Counts,
    /// The latest word of load reports; `None`: they do not judge the step.
    pub load: Option<LoadJudgement>,
}

/// The decision that a push must not go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub at: Time,
    /// The time since the push began.
    pub after: Duration,
    pub step: u8,
    /// The admitted and affected clients at that moment.
    pub clients: u64,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    Rejected {
        rejected: u64,
        clients: u64,
    },
    Lost {
        lost: u64,
        clients: u64,
        control: Control,
    },
    /// Requests of the clients fail more often than those of others (LRS-24).
    Errors(WorseLoad),
    Grown(Grown),
    Condemned(Content),
    /// A guard found a fault in the content.
    Found(Finding),
    /// The clients of a step did not accept the push in time.
    NoEvidence {
        accepted: u64,
        clients: u64,
    },
    /// The hook halted the push, or did not let it go on in time.
    Hook(HookAnswer),
    /// The server of a unit is lost, so its content may not be the newest.
    ServerLost(UnitId),
    /// An operator's command.
    Operator,
    Frozen,
    /// A successor of the process decides.
    Succeeded,
    /// The push was halted or paused when the relay began anew.
    Restarted,
    /// The ledger is away, or not to be relied on, in words (LDG-5).
    Ledger(Box<str>),
    /// Another replica halted the push.
    Replica {
        replica: Box<str>,
        why: Box<str>,
    },
}

impl Reason {
    /// The clocks of the push stand, and go on when the reason is gone.
    pub(super) fn stops_clocks(&self) -> bool {
        matches!(
            self,
            Reason::ServerLost(_) | Reason::Operator | Reason::Frozen | Reason::Succeeded | Reason::Ledger(_)
        )
    }

    /// The reason for other replicas: without names, words of clients, and content.
    pub(super) fn shared_text(&self) -> Box<str> {
        match self {
            Reason::Rejected { rejected, clients } => {
                format!("{rejected} of {clients} clients rejected it").into()
            }
            Reason::Lost { lost, clients, .. } => format!("{lost} clients were lost beside {clients}").into(),
            Reason::Errors(_) => "requests of its clients fail more often".into(),
            Reason::Grown(_) | Reason::Found(_) => "a guard found a fault in it".into(),
            Reason::Condemned(_) => "it brings a condemned content".into(),
            Reason::NoEvidence { accepted, clients } => {
                format!("{accepted} of {clients} clients accepted it").into()
            }
            Reason::Hook(_) => "the hook halted it".into(),
            Reason::ServerLost(_) => "a server is lost".into(),
            Reason::Operator | Reason::Frozen => "an operator stopped it".into(),
            Reason::Succeeded | Reason::Restarted => "the relay began anew".into(),
            Reason::Ledger(why) | Reason::Replica { why, .. } => why.clone(),
        }
    }

    /// Whether the reason is evidence against certain units. Without it, a halted push blames all of its
    /// units.
    pub(super) fn names_units(&self) -> bool {
        !matches!(self, Reason::Operator | Reason::Hook(_))
    }
}

/// A finding of the guard against growth (GRD-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    pub unit: UnitId,
    pub type_url: TypeUrl,
    pub part: GrownPart,
    pub growth: Growth,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrownPart {
    /// The bytes of one resource.
    Resource(ResourceName),
    /// The bytes of all resources of the type.
    Bytes,
    /// The number of resources.
    Count,
}

/// A finding that did not stop the push.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    Grown(Grown),
    Found(Finding),
    /// No connected client was affected and admitted, so the step gave no evidence.
    NobodyInStep(u8),
    /// The admitted and affected clients are relays: time alone spoke for the push (TIR-1).
    OnlyRelaysInStep(u8),
    /// The admitted and affected clients judged only a later push, or are known rejecters: the step gave no
    /// evidence.
    NoVoiceInStep {
        step: u8,
        overtaken: u64,
        rejected_again: u64,
    },
}

impl PushReport {
    /// The step that the push has reached; 0 before the first.
    pub fn reached(&self) -> u8 {
        self.steps.last().map_or(0, |step| step.number)
    }

    /// The step after the reached step; the last step at the end.
    pub fn next_step(&self) -> u8 {
        self.step_count.min(self.reached() + 1)
    }

    /// The resources that changed, were added or removed.
    pub fn resources(&self) -> usize {
        self.types.iter().map(|part| part.added.count + part.changed.count + part.removed.count).sum()
    }
}

/// The differences of all units, by type in the order of sending.
pub(super) fn merged(units: &[UnitPush]) -> Vec<TypePush> {
    let mut types: BTreeMap<TypeUrl, TypePush> = BTreeMap::new();
    for part in units.iter().flat_map(|unit| &unit.types) {
        match types.get_mut(&part.type_url) {
            None => drop(types.insert(part.type_url.clone(), part.clone())),
            Some(all) => all.merge(part),
        }
    }
    types.into_values().collect()
}
