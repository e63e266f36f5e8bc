//! The parts of a plan's next record.

use std::collections::BTreeSet;
use std::time::Duration;

use super::word::Bid;
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitKey};
use crate::rollout::shared::record::{FORMAT, PlanRecord, SharedHalt, SharedState};

/// The push of this replica, as far as others have to know.
#[derive(Debug)]
pub struct LocalPush<'a> {
    pub number: u64,
    pub changes: &'a BTreeSet<ChangeHash>,
    /// The step of an operator's promotion with which the push begins, and the halted push.
    pub promoted: Option<(u8, u64)>,
    /// By evidence of this replica, with the changes of the blamed units.
    pub halt: Option<(SharedHalt, ContentSet)>,
    pub bid: Option<Bid>,
    /// The bid does not wait for others' changes.
    pub is_urgent: bool,
}

impl LocalPush<'_> {
    /// Whether the push is that of a record: by other rules it is not, although it may have the number.
    pub(super) fn takes_part(&self, record: &PlanRecord, rules: Rules) -> bool {
        self.number == record.push && record.rules == rules.hash
    }
}

/// The rules of a plan, as the ledger needs them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub hash: u128,
    /// How long a push gathers changes of other replicas.
    pub quiet: Duration,
}

/// The record of a plan without a push.
pub(super) fn blank() -> PlanRecord {
    PlanRecord { version: FORMAT, ..PlanRecord::default() }
}

/// The push of this replica is the one under way.
pub(super) fn begin(next: &mut PlanRecord, local: &LocalPush<'_>, rules: Rules) {
    next.push = local.number;
    next.state = SharedState::Gathering;
    (next.step, next.threshold) = (0, 0);
    next.changed = local.changes.iter().copied().collect();
    next.rules = rules.hash;
    next.promoted = local.promoted.map(|(step, _)| step);
    next.promoted_of = local.promoted.map(|(_, halted)| halted);
    next.halt = None;
    (next.orders.paused, next.orders.barred) = (None, Vec::new());
}

/// A halt of here stands in the record whatever else is going on (LDG-4).
pub(super) fn halt(next: &mut PlanRecord, local: &LocalPush<'_>, rules: Rules) {
    let Some((halt, _)) = &local.halt else { return };
    if local.number > next.push && !next.state.is_under_way() && !local.changes.is_empty() {
        begin(next, local, rules);
    }
    if local.number != next.push {
        return;
    }
    match &mut next.halt {
        _ if next.state == SharedState::Over => {}
        Some(first) if next.state == SharedState::Halted => {
            // The first reason stays. All units that anybody blames wait.
            let more = halt.blamed.iter().filter(|unit| !first.blamed.contains(unit));
            let more: Vec<UnitKey> = more.copied().collect();
            if !first.blamed.is_empty() {
                first.blamed.extend(more);
            }
        }
        _ => {
            next.state = SharedState::Halted;
            next.halt = Some(halt.clone());
        }
    }
}
