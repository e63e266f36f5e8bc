//! The content of a push, summed up from the snapshots of its units (WAV-4).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::push_set::{PushType, PushUnit, PushedName};
use crate::rollout::plan::Gated;
use crate::rollout::push::{Content, Differs, Growth, TypePush};
use crate::rollout::{Plan, ReleaseDigest, UnitId, UnitPush};
use sluice_engine::cache::Known;
use sluice_engine::change::NameList;
use sluice_engine::downstream::SourceId;
use sluice_engine::lanes::{Published, Release, held, held_name, known_wildcard};
use sluice_engine::snapshot::{LaneMark, Snapshot, TypeSnapshot};
use sluice_xds::{Resource, ResourceName, TypeUrl};

/// One unit of a push. `before`: the content before the first change. `latest`: the latest candidate of the
/// unit.
pub fn sum_up(
    plan: &Plan,
    unit: UnitId,
    before: &Snapshot,
    after: &Snapshot,
    latest: Option<&Snapshot>,
) -> (PushUnit, UnitPush) {
    let changes = PushUnit::between(SourceId(unit.0), before, after, &plan.gated);
    let types = changes.types.iter().map(summed).collect();
    // Only an enforcing plan compares contents with past contents.
    let digest = |snapshot: &Snapshot| match plan.enforces() {
        true => ReleaseDigest::of(snapshot, &plan.gated),
        false => ReleaseDigest::default(),
    };
    let (stable, candidate) = (digest(before), digest(after));
    let pushed = UnitPush {
        unit,
        types,
        condemned: None,
        findings: Vec::new(),
        is_current: is_current(plan, after),
        is_former: latest.is_some_and(|latest| !PushUnit::differs(latest, after, &plan.gated)),
        returns_to: None,
        stable,
        candidate,
        shared: None,
    };
    (changes, pushed)
}

/// The latest release with the content of a push: different from the stable content and equal to the
/// candidate, as far as both are known. `releases`: the oldest first. A digest does not tell, as clients may
/// have asked for more names since.
pub fn returned<'a>(
    plan: &Plan,
    releases: impl DoubleEndedIterator<Item = &'a Release>,
    stable: &Snapshot,
    candidate: &Snapshot,
) -> Option<u64> {
    let is_of = |release: &&Release| {
        let then = Snapshot::default().with_types(release.types.clone(), LaneMark::default());
        PushUnit::differs(&then, stable, &plan.gated) && !PushUnit::differs(&then, candidate, &plan.gated)
    };
    releases.rev().find(is_of).map(|release| release.push)
}

/// The newest content of a unit, compared with the stable content and with the latest `candidate` of the
/// unit. `is_kept`: [`Rollout::keeps`](crate::rollout::Rollout::keeps).
///
/// A source forgets names of which a class without clients was the last to ask. That takes nothing back.
pub fn compare(
    plan: &Plan,
    published: &Published,
    candidate: Option<&Arc<Snapshot>>,
    is_kept: bool,
) -> Differs {
    let live = &published.live;
    let differs = |from: &Arc<Snapshot>| PushUnit::differs(from, live, &plan.gated);
    let Some(lanes) = published.lanes_that_hold() else {
        let from_candidate = candidate.is_some_and(differs);
        return Differs { from_stable: false, from_candidate };
    };
    let stable = &lanes.stable;
    let from_stable = differs(stable);
    let from_candidate = candidate.map_or(from_stable, differs);
    let is_given = lanes.candidate.is_some();
    let is_forgotten = || match candidate {
        Some(candidate) => {
            PushUnit::between(SourceId(0), stable, candidate, &plan.gated).is_forgotten_by(live)
        }
        None => !is_given,
    };
    let may_be_asleep = !from_stable && is_kept && !(is_given && from_candidate);
    match may_be_asleep && is_forgotten() {
        true => Differs { from_stable: true, from_candidate: false },
        false => Differs { from_stable, from_candidate },
    }
}

/// Brings the latest candidate of a unit up to date: names from requests after the cut are part of the
/// candidate, too. `push`: the number of the latest push. A candidate of a push that went back takes over
/// later knowledge of the source, as a lane would.
pub fn renew(plan: &Plan, candidate: &mut Arc<Snapshot>, published: &Published, push: u64) {
    match published.candidate_of(push) {
        Some(latest) => candidate.clone_from(latest),
        None => {
            if let Some(renewed) = knowing(candidate, &published.live, &plan.gated) {
                *candidate = Arc::new(renewed);
            }
        }
    }
}

/// A snapshot with what only `live` knows; `None` if there is nothing.
fn knowing(candidate: &Snapshot, live: &Snapshot, gated: &Gated) -> Option<Snapshot> {
    let nothing = TypeSnapshot::default();
    let of_type = |(type_url, live): (&TypeUrl, &TypeSnapshot)| {
        Some((type_url.clone(), type_knowing(candidate.of(type_url).unwrap_or(&nothing), live)?))
    };
    let news: Vec<_> = live.gated_types(gated).filter_map(of_type).collect();
    if news.is_empty() {
        return None;
    }
    let types = candidate.types().map(|(type_url, content)| (type_url.clone(), content.clone()));
    Some(candidate.with_types(types.chain(news).collect(), candidate.lane()))
}

fn type_knowing(candidate: &TypeSnapshot, live: &TypeSnapshot) -> Option<TypeSnapshot> {
    use imbl::ordmap::DiffItem;
    let names = candidate.names.entries.diff(&live.names.entries).filter_map(|item| match item {
        DiffItem::Add(name, new) | DiffItem::Update { old: (name, Known::Unknown), new: (_, new) } => {
            (!matches!(new, Known::Unknown)).then_some((name, new))
        }
        DiffItem::Remove(..) | DiffItem::Update { .. } => None,
    });
    let names: Vec<_> = names.collect();
    let globs = live.globs.complete.iter().filter(|glob| !candidate.globs.complete.contains(*glob));
    let globs: BTreeSet<_> = globs.cloned().collect();
    let takes_wildcard = live.wildcard.is_whole() && !candidate.wildcard.is_whole();
    if names.is_empty() && globs.is_empty() && !takes_wildcard {
        return None;
    }
    let mut candidate = candidate.clone();
    // One content for all ways to ask, as in a lane.
    for (name, new) in names {
        let state = held_name(&candidate, live, name, new).unwrap_or_else(|| new.clone());
        candidate.names.entries.insert(name.clone(), state);
    }
    if takes_wildcard {
        candidate.wildcard = known_wildcard(&candidate, &live.wildcard);
    }
    let is_new = |name: &ResourceName| name.glob().is_some_and(|glob| globs.contains(&glob));
    for (name, new) in live.globs.members.iter().filter(|(name, _)| !globs.is_empty() && is_new(name)) {
        let stated = held(&candidate, new);
        if let Some(member) = stated.as_ref().map_or(Some(new), Known::cached) {
            candidate.globs.members.insert(name.clone(), member.clone());
        }
    }
    let sets = live.globs.sets.iter().filter(|(_, set)| set.names.iter().any(|glob| globs.contains(glob)));
    candidate.globs.sets.extend(sets.map(|(id, set)| (*id, set.clone())));
    candidate.globs.complete.extend(globs);
    Some(candidate)
}

/// Notes the condemned contents of a push (QUA-2): at each unit one.
pub fn condemn(pushed: &mut [UnitPush], condemned: Vec<(UnitId, Content)>) {
    for (unit, content) in condemned {
        if let Some(push) = pushed.iter_mut().find(|push| push.unit == unit) {
            push.condemned = Some(content);
        }
    }
}

/// Whether the server can be heard, and has answered for all gated types.
pub fn is_current(plan: &Plan, snapshot: &Snapshot) -> bool {
    let standing = snapshot.standing();
    let mut of_types = snapshot.gated_types(&plan.gated).filter_map(|(type_url, _)| standing.of(type_url));
    !standing.reach().is_lost() && of_types.all(|standing| standing.is_current)
}

fn summed(part: &PushType) -> TypePush {
    let grown = |before: usize, after: usize| Growth { before: before as u64, after: after as u64 };
    let (added, changed, removed) = Default::default();
    let mut sum = TypePush {
        type_url: part.type_url.clone(),
        added,
        changed,
        removed,
        resources: grown(part.before.resources, part.after.resources),
        bytes: grown(part.before.bytes, part.after.bytes),
        largest: None,
    };
    for name in part.names() {
        let list: &mut NameList = match (&name.before, &name.after) {
            (None, _) => &mut sum.added,
            (_, None) => &mut sum.removed,
            (Some(_), Some(_)) => &mut sum.changed,
        };
        list.add(&name.name);
        if name.before.is_some() {
            sum.note_largest(&name.name, growth_of(name));
        }
    }
    sum
}

fn growth_of(name: &PushedName) -> Growth {
    let size =
        |resource: &Option<Arc<Resource>>| resource.as_ref().map_or(0, |resource| resource.size() as u64);
    Growth { before: size(&name.before), after: size(&name.after) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sluice_engine::cache::CachedResource;
    use sluice_engine::time::ReceivedAt;
    use sluice_xds::{Any, Version};

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn resource(name: &str, version: u128, bytes: usize) -> Resource {
        Resource {
            name: name.into(),
            version: Version(version),
            body: Any { type_url: Arc::from(CLUSTER), value: Bytes::from(vec![0; bytes]) },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        }
    }

    /// Resources that are known by name.
    fn snapshot(resources: impl IntoIterator<Item = Resource>) -> Snapshot {
        let mut content = TypeSnapshot::default();
        for resource in resources {
            let name = resource.name.clone();
            let (resource, received_at) = (Arc::new(resource), ReceivedAt::default());
            content.names.entries.insert(name, Known::Present(CachedResource { resource, received_at }));
        }
        let types = [(TypeUrl::new(CLUSTER), content)].into();
        Snapshot::default().with_types(types, LaneMark::default())
    }

    #[test]
    fn grd_4_a_resource_that_doubled_comes_before_one_that_grew_by_more_bytes() {
        const KIB: usize = 1 << 10;
        let largest = |sizes: &[(&str, usize, usize)]| {
            let before = snapshot(sizes.iter().map(|(name, before, _)| resource(name, 1, *before)));
            let after = snapshot(sizes.iter().map(|(name, _, after)| resource(name, 2, *after)));
            let (_, push) = sum_up(&Plan::new("edge"), UnitId(1), &before, &after, None);
            push.types[0].largest.as_ref().map(|(name, _)| name.to_string())
        };
        let (large, small) = (("a", 10 << 20, 13 << 20), ("b", 512 * KIB, 2 << 20));
        assert_eq!(largest(&[large, ("b", 512 * KIB, 600 * KIB)]).as_deref(), Some("a"));
        assert_eq!(largest(&[large, small]).as_deref(), Some("b"));
        assert_eq!(largest(&[small, ("c", 10 << 20, 13 << 20)]).as_deref(), Some("b"), "whatever the order");
        assert_eq!(
            largest(&[small, ("c", KIB, 4 << 20)]).as_deref(),
            Some("c"),
            "the greater of two that doubled"
        );
    }

    /// WAV-17: a content that comes back is known although clients have asked for more names since.
    #[test]
    fn wav_17_a_push_returns_to_the_latest_release_with_its_content() {
        let content = |versions: &[(&str, u128)]| {
            snapshot(versions.iter().map(|(name, version)| resource(name, *version, 1)))
        };
        let release = |push, versions: &[(&str, u128)]| {
            let types = content(versions)
                .types()
                .map(|(type_url, content)| (type_url.clone(), content.clone()))
                .collect();
            Release { push, types }
        };
        let past = [release(0, &[("a", 1)]), release(3, &[("a", 2)]), release(4, &[("a", 1), ("b", 1)])];
        let returned = |stable: &[(&str, u128)], candidate: &[(&str, u128)]| {
            returned(&Plan::new("edge"), past.iter(), &content(stable), &content(candidate))
        };
        assert_eq!(returned(&[("a", 2), ("b", 1), ("c", 1)], &[("a", 1), ("b", 1), ("c", 2)]), Some(4));
        assert_eq!(returned(&[("a", 2), ("b", 2)], &[("a", 1), ("b", 2)]), Some(0), "before b was known");
        assert_eq!(returned(&[("a", 1), ("b", 1)], &[("a", 3), ("b", 1)]), None, "forwards");
        assert_eq!(
            returned(&[("a", 1), ("b", 1), ("c", 1)], &[("a", 1), ("b", 1), ("c", 2)]),
            None,
            "another name"
        );
    }

    #[test]
    fn qua_2_a_condemned_content_is_noted_at_its_unit() {
        let unit = |number, changed: &[&str]| {
            let mut names = NameList::default();
            changed.iter().for_each(|name| names.add(&(*name).into()));
            let part = TypePush {
                type_url: TypeUrl::new("T"),
                added: NameList::default(),
                changed: names,
                removed: NameList::default(),
                resources: Growth::default(),
                bytes: Growth::default(),
                largest: None,
            };
            let (stable, candidate) = Default::default();
            let (unit, types) = (UnitId(number), vec![part]);
            UnitPush {
                unit,
                types,
                condemned: None,
                findings: Vec::new(),
                is_current: true,
                is_former: false,
                returns_to: None,
                stable,
                candidate,
                shared: None,
            }
        };
        let mut pushed = [unit(1, &["main"]), unit(2, &["main"])];
        let bad: Content = (TypeUrl::new("T"), "main".into(), Version(1));
        condemn(&mut pushed, vec![(UnitId(2), bad.clone())]);
        assert_eq!((&pushed[0].condemned, &pushed[1].condemned), (&None, &Some(bad)));
    }
}
