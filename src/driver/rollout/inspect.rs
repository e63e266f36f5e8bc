//! A look into the contents of a push, for the guards of a plan (GRD-5 to GRD-7). It decodes, so it belongs
//! on a thread that may be busy.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_fleet::evidence::PushUnit;
use sluice_fleet::rollout::plan::{GuardAction, Guards};
use sluice_fleet::rollout::push::{Finding, FindingKind};
use sluice_json::redact::named_clusters;
use sluice_xds::{Kind, Resource, ResourceName, TypeUrl};

/// The contents that are read for one unit, in bytes: a second of work or two. The rest is not looked at.
const BYTES_MAX: usize = 64 << 20;

/// The changed resources of a unit with their types, and the unit's contents.
pub(super) struct Inspection {
    changed: Vec<(TypeUrl, Arc<Resource>)>,
    /// The clusters that are there no more.
    gone: BTreeSet<ResourceName>,
    before: Arc<Snapshot>,
    after: Arc<Snapshot>,
}

impl Inspection {
    pub(super) fn new(changes: &PushUnit, before: &Arc<Snapshot>, after: &Arc<Snapshot>) -> Inspection {
        let (mut changed, mut gone) = (Vec::new(), BTreeSet::new());
        for part in &changes.types {
            for change in part.names() {
                match &change.after {
                    Some(resource) => changed.push((part.type_url.clone(), resource.clone())),
                    None if part.type_url.kind() == Kind::Cluster => drop(gone.insert(change.name.clone())),
                    None => {}
                }
            }
        }
        Inspection { changed, gone, before: before.clone(), after: after.clone() }
    }

    /// The findings of the guards, at most one of each kind.
    pub(super) fn inspect(&self, guards: &Guards) -> Vec<Finding> {
        let wants = |kind| guards.of(kind) != GuardAction::Off;
        let (mut findings, mut read) = (UnitFindings::default(), 0);
        let clusters = Clusters::of(&self.before, &self.after);
        let looks = FindingKind::ALL.into_iter().any(wants);
        for (type_url, resource) in self.changed.iter().filter(|_| looks) {
            let Some(named) = look(type_url, resource, &mut read) else { break };
            match (named, &clusters) {
                (Err(what), _) => findings.add(FindingKind::Unreadable, type_url, resource, &what),
                (Ok(named), Some(clusters)) => {
                    let missing = named.iter().filter(|name| clusters.lack(name));
                    missing.for_each(|name| findings.add(FindingKind::Dangling, type_url, resource, name));
                }
                (Ok(_), None) => {}
            }
        }
        if wants(FindingKind::GoneWhileUsed) && !self.gone.is_empty() && clusters.is_some() {
            self.find_used(&mut findings, &mut read);
        }
        findings.0.retain(|finding| wants(finding.kind));
        findings.0
    }

    /// All routes and filters that the unit has with the push, against the clusters that are gone.
    fn find_used(&self, findings: &mut UnitFindings, read: &mut usize) {
        let referring = self.after.types().filter(|(type_url, _)| type_url.kind().refers_to_clusters());
        for (type_url, types) in referring {
            for resource in types.resources() {
                let Some(named) = look(type_url, resource, read) else { return };
                let named = named.unwrap_or_default();
                let used = named.iter().filter(|name| self.gone.contains(&ResourceName::from(name.as_str())));
                used.for_each(|name| findings.add(FindingKind::GoneWhileUsed, type_url, resource, name));
            }
        }
    }
}

/// The clusters that a resource names. `None` when enough has been read.
fn look(
    type_url: &TypeUrl,
    resource: &Resource,
    read: &mut usize,
) -> Option<Result<BTreeSet<String>, String>> {
    *read += resource.body.value.len();
    (*read <= BYTES_MAX).then(|| named_clusters(type_url, &resource.body.value))
}

/// The first finding of each kind, with the number of the others.
#[derive(Default)]
struct UnitFindings(Vec<Finding>);

impl UnitFindings {
    fn add(&mut self, kind: FindingKind, type_url: &TypeUrl, resource: &Resource, what: &str) {
        match self.0.iter_mut().find(|finding| finding.kind == kind) {
            Some(first) => first.more += 1,
            None => {
                let (type_url, name) = (type_url.clone(), resource.name.clone());
                self.0.push(Finding { kind, type_url, name, what: what.into(), more: 0 });
            }
        }
    }
}

/// All clusters of a unit before and with a push.
struct Clusters<'a>([&'a TypeSnapshot; 2]);

impl<'a> Clusters<'a> {
    /// `None` if nobody watches all clusters: then nobody knows which exist.
    fn of(before: &'a Snapshot, after: &'a Snapshot) -> Option<Clusters<'a>> {
        let clusters = |snapshot: &'a Snapshot| {
            let (_, clusters) = snapshot.types().find(|(type_url, _)| type_url.kind() == Kind::Cluster)?;
            clusters.wildcard.is_whole().then_some(clusters)
        };
        Some(Clusters([clusters(before)?, clusters(after)?]))
    }

    /// Whether no cluster has the name. Names of authorities may come from another list.
    fn lack(&self, name: &str) -> bool {
        let key = ResourceName::from(name);
        let has = |types: &&TypeSnapshot| {
            let named = types.names.entries.get(&key).is_some_and(|state| state.cached().is_some());
            named || types.wildcard.members.get(&key).is_some() || types.globs.members.get(&key).is_some()
        };
        !name.starts_with("xdstp:") && !self.0.iter().any(has)
    }
}
