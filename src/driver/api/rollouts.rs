//! The plans and their pushes, as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::driver::api::status::ClassStatus;
use crate::engine::Time;
use crate::engine::rollout::{Plan, RolloutReport, UnitId};

/// The plans of the configuration in force.
pub trait RolloutsView {
    /// In the order of the configuration. Empty without plans.
    fn rollouts(&self) -> Vec<Arc<RolloutStatus>> {
        Vec::new()
    }
}

/// A plan at one moment: at the last tally, or at the last change of its state.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutStatus {
    pub plan: Arc<Plan>,
    pub report: RolloutReport,
    /// The units of the plan that exist, and those that the report names.
    pub units: BTreeMap<UnitId, UnitStatus>,
    /// The wall clock at the origin of the report's times.
    pub origin: SystemTime,
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
}
