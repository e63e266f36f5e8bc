//! The content of a push, summed up from the snapshots of its units (WAV-4).

use std::sync::Arc;

use crate::engine::change::NameList;
use crate::engine::downstream::{PushType, PushUnit, PushedName, SourceId};
use crate::engine::rollout::push::{Condemned, Growth, TypePush};
use crate::engine::rollout::{Plan, UnitId, UnitPush};
use crate::engine::snapshot::Snapshot;
use crate::xds::Resource;

/// One unit of a push. `before`: the content before the first change.
pub fn unit_of(plan: &Plan, unit: UnitId, before: &Snapshot, after: &Snapshot) -> (PushUnit, UnitPush) {
    let changes =
        PushUnit::between(SourceId(unit.0), before, after, &|type_url| plan.gated.contains(type_url));
    let types = changes.types.iter().map(summed).collect();
    let pushed = UnitPush { unit, types, condemned: None, is_current: is_current(plan, after) };
    (changes, pushed)
}

/// Notes a condemned content of a push (QUA-2). The machine drops units whose content is again as before, so the note is
/// at another unit.
pub fn condemn(pushed: &mut [UnitPush], condemned: Option<Condemned>) {
    if let Some(first) = pushed.iter_mut().find(|push| !push.is_empty()) {
        first.condemned = condemned;
    }
}

/// Whether the server can be heard, and has answered for all gated types.
fn is_current(plan: &Plan, snapshot: &Snapshot) -> bool {
    let standing = snapshot.standing();
    let gated = snapshot.types().filter(|(type_url, _)| plan.gated.contains(type_url));
    let mut of_types = gated.filter_map(|(type_url, _)| standing.of(type_url));
    !standing.reach().is_lost() && of_types.all(|of| of.is_current)
}

fn summed(of: &PushType) -> TypePush {
    let (mut added, mut changed, mut removed) = Default::default();
    let mut largest = None;
    for name in of.names() {
        let list: &mut NameList = match (&name.before, &name.after) {
            (None, _) => &mut added,
            (_, None) => &mut removed,
            (Some(_), Some(_)) => &mut changed,
        };
        list.add(&name.name);
        let growth = growth_of(name);
        let is_larger = |(_, known): &(_, Growth)| growth.by() > known.by();
        if name.before.is_some() && largest.as_ref().is_none_or(is_larger) {
            largest = Some((name.name.clone(), growth));
        }
    }
    let grown = |before: usize, after: usize| Growth { before: before as u64, after: after as u64 };
    TypePush {
        type_url: of.type_url.clone(),
        added,
        changed,
        removed,
        resources: grown(of.before.resources, of.after.resources),
        bytes: grown(of.before.bytes, of.after.bytes),
        largest,
    }
}

fn growth_of(name: &PushedName) -> Growth {
    let size = |of: &Option<Arc<Resource>>| of.as_ref().map_or(0, |resource| resource.size() as u64);
    Growth { before: size(&name.before), after: size(&name.after) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::{TypeUrl, Version};

    #[test]
    fn qua_2_a_condemned_content_is_noted_at_a_unit_that_changes() {
        let unit = |number, changed: &[&str]| {
            let mut names = NameList::default();
            changed.iter().for_each(|name| names.add(&(*name).into()));
            let of = TypePush {
                type_url: TypeUrl::new("T"),
                added: NameList::default(),
                changed: names,
                removed: NameList::default(),
                resources: Growth::default(),
                bytes: Growth::default(),
                largest: None,
            };
            UnitPush { unit: UnitId(number), types: vec![of], condemned: None, is_current: true }
        };
        let mut pushed = [unit(1, &[]), unit(2, &["main"])];
        let bad = Condemned { type_url: TypeUrl::new("T"), name: "main".into(), version: Version(1) };
        condemn(&mut pushed, Some(bad.clone()));
        assert_eq!((&pushed[0].condemned, &pushed[1].condemned), (&None, &Some(bad)));
    }
}
