//! The plans and their pushes, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::api::status::ClassStatus;
use crate::driver::ground::clock::wall_from;
use crate::telemetry::rollouts::Joins;
use sluice_engine::Time;
use sluice_fleet::evidence::{CondemnedContents, Content};
use sluice_fleet::rollout::{Command, CommandError, Plan, RolloutReport, UnitId};
use sluice_xds::ResourceName;

/// The plans of the configuration in force.
pub trait RolloutsView {
    /// In the order of the configuration. Empty without plans.
    fn rollouts(&self) -> Vec<Arc<RolloutStatus>> {
        Vec::new()
    }

    /// Carries out a command of an operator.
    fn command_plan(&self, _order: PlanOrder) -> BoxFuture<'_, Result<ObeyedOrder, OrderRefusal>> {
        async { Err(OrderRefusal::NoSuchPlan) }.boxed()
    }

    /// `None`: each plan decides for this replica only.
    fn ledger(&self) -> Option<LedgerStatus> {
        None
    }

    /// An operator believes the ledger as it is now (LDG-6).
    fn init_ledger(&self) -> BoxFuture<'_, Result<(), InitRefusal>> {
        async { Err(InitRefusal::NoLedger) }.boxed()
    }
}

/// The reason why there is no ledger to believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitRefusal {
    NoLedger,
    /// In words.
    Away(Box<str>),
}

/// The ledger that replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    pub place: String,
    pub replica: Box<str>,
    /// Why it is away, or not believed.
    pub fault: Option<Box<str>>,
    /// Why the latest write was not done.
    pub unwritten: Option<Box<str>>,
    pub entries: usize,
    pub bytes: usize,
}

/// A command for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOrder {
    pub plan: String,
    pub command: Command,
    /// With [`Command::Abort`]: contents that no later push may bring, each by the name of its type and its
    /// own name.
    pub condemn: Vec<(Box<str>, ResourceName)>,
    /// For this replica alone, whatever the ledger says.
    pub is_here: bool,
}

/// A command that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct ObeyedOrder {
    /// The state of the plan after the command.
    pub after: Arc<RolloutStatus>,
    /// Why the ledger has not taken the command, which acts on this replica alone until then.
    pub unwritten: Option<Box<str>>,
}

/// The reason why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderRefusal {
    /// The configuration has no such plan.
    NoSuchPlan,
    /// The ledger takes no writes, in words.
    Unwritten(Box<str>),
    Refused(CommandError),
}

/// A plan at one moment: at the last tally, or at the last change of its state.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutStatus {
    pub plan: Arc<Plan>,
    pub report: RolloutReport,
    /// The units of the plan that exist, and those that the report names.
    pub units: BTreeMap<UnitId, UnitStatus>,
    /// Units of a plan that enforces with a content that all clients were given without a judgement: their
    /// first content, and that of a push without evidence (WAV-7).
    pub unproved: usize,
    /// Units without the content of the pinned release: they came after the pin, and have the newest content
    /// (HIS-3).
    pub diverged: Vec<UnitId>,
    /// The contents that no push may bring (QUA-2), by clients' rejections or an operator's word, each until
    /// its end.
    pub condemned: CondemnedContents,
    /// Condemned contents that all clients of some unit are served all the same: nothing older is known
    /// there, as after a restart without a checkpoint, an operator let the push go on, or the plan observes
    /// (QUA-5).
    pub condemned_served: BTreeSet<Content>,
    pub newcomers: JoiningUnits,
    /// The disk does not have this state yet. Only with a checkpoint and a plan that enforces.
    pub is_unsaved: bool,
    /// The wall clock at the origin of the report's times.
    pub origin: SystemTime,
}

/// The units without stable content, at a push of several replicas (LDG-3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoiningUnits {
    /// The units whose clients wait.
    pub units: Vec<UnitId>,
    /// The latest push that some of them wait for; `None`: they wait for the first word of the ledger.
    pub push: Option<u64>,
    /// The clients are given the content all the same, as configured.
    pub is_served: bool,
    /// The replica has no stable content at all, and a push is under way.
    pub keeps_unready: bool,
}

impl JoiningUnits {
    /// `None`: nobody waits.
    pub fn joins(&self) -> Option<Joins> {
        let JoiningUnits { units, push, is_served, .. } = self;
        (!units.is_empty()).then_some(Joins { units: units.len(), push: *push, is_served: *is_served })
    }
}

/// A unit, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStatus {
    pub server: Arc<str>,
    pub list: Arc<str>,
    pub class: ClassStatus,
}

impl RolloutStatus {
    /// A time of the report, for display (I18).
    pub fn wall(&self, time: Time) -> SystemTime {
        self.origin + time.since(Time::ZERO)
    }

    /// The oldest change that is held from somebody. May be from before the start of the process.
    pub fn behind_from(&self) -> Option<SystemTime> {
        self.report.behind_from.map(|from| wall_from(self.origin, from))
    }
}
