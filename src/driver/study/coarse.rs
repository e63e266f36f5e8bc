//! Rules of node classes against the evidence of a study (LRN-21).

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::class::{NameKind, NameStyle, NodeClasses};
use sluice_engine::collection::style_of;
use sluice_identity::Identity;
use sluice_proof::explanation::explain_differences;
use sluice_proof::learning::{Conflict, Field, Fleet, Partition, StudyEvidence};
use sluice_xds::{Kind, ResourceName, TypeUrl};

/// Classes that are too coarse, by one rule.
#[derive(Debug)]
pub struct Coarse {
    /// As operators count: `node_classes[0]`.
    pub rule: String,
    pub type_url: TypeUrl,
    /// For each class one pair of nodes.
    pub conflicts: Vec<Conflict>,
    /// The fields that explain all of these pairs; empty: no field does.
    pub explained_by: Vec<Field>,
}

/// The rules that put two nodes into one class that the server told two things. `identities`: of the
/// clients of the fleet, in its order.
pub fn judge(
    classes: &NodeClasses,
    fleet: &Fleet,
    identities: &[Arc<Identity>],
    evidence: &StudyEvidence,
) -> Vec<Coarse> {
    let judge = Judge { classes, fleet, identities, evidence };
    let types = evidence
        .types()
        .flat_map(|type_url| judge.kinds(type_url).into_iter().map(move |kind| (type_url, kind)));
    types.filter_map(|(type_url, kind)| judge.judge_kind(type_url, kind)).collect()
}

struct Judge<'a> {
    classes: &'a NodeClasses,
    fleet: &'a Fleet,
    identities: &'a [Arc<Identity>],
    evidence: &'a StudyEvidence,
}

impl Judge<'_> {
    /// The kinds of names of the nodes.
    fn kinds(&self, type_url: &TypeUrl) -> Vec<NameKind> {
        let mut kinds: Vec<NameKind> = Vec::new();
        for kind in self.fleet.nodes.iter().flat_map(|node| self.classes.kinds(node, type_url)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn judge_kind(&self, type_url: &TypeUrl, kind: NameKind) -> Option<Coarse> {
        // A wildcard is an old-style name, and in no list.
        let is_whole = !matches!(type_url.kind(), Kind::ClusterLoadAssignment | Kind::RouteConfiguration);
        if is_whole && kind != NameKind::from(NameStyle::Old) {
            return None;
        }
        let classes = self.fleet.nodes.iter().zip(self.identities).map(|(node, identity)| {
            let class = self.classes.classify(Some(node), identity, type_url, kind);
            class.ok().map(|class| (class.node, class.attributes, class.identity))
        });
        let classes = Partition::by(classes);
        let class_of = |node: usize| classes.classes().get(node).copied();
        let has_rule = |node: usize, name: &ResourceName| {
            let listed = |node| self.classes.listing(Some(node), type_url, name);
            let named = |node| NameKind { style: style_of(name), listed: listed(node) };
            is_whole || self.fleet.nodes.get(node).is_some_and(|node| named(node) == kind)
        };
        let conflicts = self.evidence.conflicts(type_url, &class_of, &has_rule);
        let (first, _) = conflicts.first()?.nodes;
        let choice = self.classes.choose(self.fleet.nodes.get(first)?, type_url, kind)?;
        let differences: Vec<BTreeSet<Field>> =
            conflicts.iter().map(|conflict| self.fleet.differences(conflict.nodes)).collect();
        Some(Coarse {
            rule: choice.rule.id.to_string(),
            type_url: type_url.clone(),
            explained_by: explain_differences(&differences).into_iter().next().unwrap_or_default(),
            conflicts,
        })
    }
}
