//! The checks of a push before its first client. Guards look at the change, not at the state.

use crate::rollout::plan::{GuardAction, Plan};
use crate::rollout::push::{FindingKind, TypePush, UnitId, UnitPush, is_doubled, is_tripled};
use crate::rollout::report::{Grown, GrownPart, Note, Reason};

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
    // A content that clients rejected is the best reason.
    let mut findings = condemned(units);
    let growth = units
        .iter()
        .filter_map(grown)
        .map(|grown| (grown.unit, Reason::Grown(grown.clone()), Note::Grown(grown)));
    findings.add(plan.guards.growth, growth);
    for kind in FindingKind::ALL {
        let of_kind = |unit: &UnitPush| {
            let finding = unit.findings.iter().find(|finding| finding.kind == kind)?.clone();
            Some((unit.unit, Reason::Found(finding.clone()), Note::Found(finding)))
        };
        findings.add(plan.guards.of(kind), units.iter().filter_map(of_kind));
    }
    findings
}

impl Findings {
    /// Adds what a guard found in each unit. The first reason against the push stays the reason.
    fn add(&mut self, action: GuardAction, mut findings: impl Iterator<Item = (UnitId, Reason, Note)>) {
        match action {
            GuardAction::Off => {}
            GuardAction::Warn => self.notes.extend(findings.next().map(|(_, _, note)| note)),
            GuardAction::Halt if self.reason.is_some() => {}
            GuardAction::Halt => {
                for (unit, reason, _) in findings {
                    self.reason.get_or_insert(reason);
                    self.blamed.push(unit);
                }
            }
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
    unit.types.iter().find_map(|part| grown_type(unit.unit, part))
}

/// GRD-4: a resource or a type doubled by more than 1 MiB, or the number of resources tripled by more than
/// 20.
fn grown_type(unit: UnitId, pushed: &TypePush) -> Option<Grown> {
    let resource = pushed.largest.clone().filter(|(_, growth)| is_doubled(*growth));
    let (part, growth) = resource
        .map(|(name, growth)| (GrownPart::Resource(name), growth))
        .or_else(|| is_doubled(pushed.bytes).then_some((GrownPart::Bytes, pushed.bytes)))
        .or_else(|| is_tripled(pushed.resources).then_some((GrownPart::Count, pushed.resources)))?;
    Some(Grown { unit, type_url: pushed.type_url.clone(), part, growth })
}
