//! The checks of a push before its first client. They look at the change, not at the state.

use crate::engine::rollout::plan::{GuardAction, Plan};
use crate::engine::rollout::push::{Growth, TypePush, UnitId, UnitPush};
use crate::engine::rollout::report::{Grown, GrownPart, Note, Reason};

/// Growth by less is never suspicious (GRD-4).
const BYTES_FLOOR: u64 = 1 << 20;
const COUNT_FLOOR: u64 = 20;

/// The results of the guards.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The reason against the push.
    pub reason: Option<Reason>,
    /// The units of the reason.
    pub blamed: Vec<UnitId>,
    /// Findings that only warn.
    pub notes: Vec<Note>,
}

pub(super) fn check(plan: &Plan, units: &[UnitPush]) -> Findings {
    // A content that clients rejected is the better reason.
    let condemned = condemned(units);
    let grown = || units.iter().filter_map(grown);
    match plan.guards.growth {
        GuardAction::Halt if condemned.reason.is_none() => Findings {
            reason: grown().next().map(Reason::Grown),
            blamed: grown().map(|of| of.unit).collect(),
            notes: Vec::new(),
        },
        GuardAction::Halt | GuardAction::Off => condemned,
        GuardAction::Warn => {
            Findings { notes: grown().next().map(Note::Grown).into_iter().collect(), ..condemned }
        }
    }
}

/// Contents that clients rejected before (QUA-2).
pub(super) fn condemned(units: &[UnitPush]) -> Findings {
    let of_units = || units.iter().filter(|unit| unit.condemned.is_some());
    Findings {
        reason: of_units().next().and_then(|unit| unit.condemned.clone()).map(Reason::Condemned),
        blamed: of_units().map(|unit| unit.unit).collect(),
        notes: Vec::new(),
    }
}

fn grown(unit: &UnitPush) -> Option<Grown> {
    unit.types.iter().find_map(|of| grown_type(unit.unit, of))
}

/// GRD-4: a resource or a type doubled by more than 1 MiB, or the number of resources tripled by more than 20.
fn grown_type(unit: UnitId, of: &TypePush) -> Option<Grown> {
    let doubled = |growth: &Growth| grew(*growth, 2, BYTES_FLOOR);
    let resource = of.largest.clone().filter(|(_, growth)| doubled(growth));
    let (part, growth) = resource
        .map(|(name, growth)| (GrownPart::Resource(name), growth))
        .or_else(|| doubled(&of.bytes).then_some((GrownPart::Bytes, of.bytes)))
        .or_else(|| grew(of.resources, 3, COUNT_FLOOR).then_some((GrownPart::Count, of.resources)))?;
    Some(Grown { unit, type_url: of.type_url.clone(), of: part, growth })
}

/// Growth from nothing is a beginning, not a fault.
fn grew(growth: Growth, times: u64, floor: u64) -> bool {
    let Growth { before, after } = growth;
    before > 0 && after > before.saturating_mul(times) && after - before > floor
}
