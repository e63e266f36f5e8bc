//! The rules of a configuration against the evidence (LRN-21).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::app::facts;
use crate::command::outcome::Failure;
use sluice_engine::class::{NameKind, NameStyle, NodeClasses};
use sluice_engine::collection::style_of;
use sluice_identity::Identity;
use sluice_proof::learning::{Conflict, Field, Fleet, Partition, StudyEvidence, explain};
use sluice_xds::{Kind, ResourceName, TypeUrl};

/// The rules of a file.
pub(super) struct Check {
    file: PathBuf,
    classes: NodeClasses,
}

/// Classes that are too coarse, by one rule.
#[derive(Debug)]
pub(super) struct Coarse {
    /// As operators count: `node_classes[0]`.
    pub rule: String,
    pub type_url: TypeUrl,
    /// For each class one pair of nodes.
    pub conflicts: Vec<Conflict>,
    /// The fields that explain all of these pairs; empty: no field does.
    pub explained_by: Vec<Field>,
}

impl Check {
    pub fn load(file: &Path, hostname: &str) -> Result<Check, Failure> {
        let config = super::load(file, hostname)?;
        let table = facts::load(&config).map_err(Failure::Usage)?;
        Ok(Check { file: file.to_path_buf(), classes: config.node_classes.with_facts(table) })
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The rules that put two nodes in one class which the server told two things.
    pub fn judge(&self, fleet: &Fleet, evidence: &StudyEvidence) -> Vec<Coarse> {
        let types = evidence
            .types()
            .flat_map(|type_url| self.kinds(fleet, type_url).into_iter().map(move |kind| (type_url, kind)));
        types.filter_map(|(type_url, kind)| self.judge_kind(fleet, evidence, type_url, kind)).collect()
    }

    /// The kinds of names of the nodes.
    fn kinds(&self, fleet: &Fleet, type_url: &TypeUrl) -> Vec<NameKind> {
        let mut kinds: Vec<NameKind> = Vec::new();
        for kind in fleet.nodes.iter().flat_map(|node| self.classes.kinds(node, type_url)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn judge_kind(
        &self,
        fleet: &Fleet,
        evidence: &StudyEvidence,
        type_url: &TypeUrl,
        kind: NameKind,
    ) -> Option<Coarse> {
        // A wildcard is an old-style name, and in no list.
        let is_whole = !matches!(type_url.kind(), Kind::ClusterLoadAssignment | Kind::RouteConfiguration);
        if is_whole && kind != NameKind::from(NameStyle::Old) {
            return None;
        }
        let classes = fleet.nodes.iter().map(|node| {
            // Nobody proves an identity here, so rules that split by it are taken without it.
            let class = self.classes.classify(Some(node), &Identity::Anonymous, type_url, kind);
            class.ok().map(|class| (class.node, class.attributes))
        });
        let classes = Partition::by(classes);
        let class_of = |node: usize| classes.classes().get(node).copied();
        let has_rule = |node: usize, name: &ResourceName| {
            let listed = |node| self.classes.listing(Some(node), type_url, name);
            let named = |node| NameKind { style: style_of(name), listed: listed(node) };
            is_whole || fleet.nodes.get(node).is_some_and(|node| named(node) == kind)
        };
        let conflicts = evidence.conflicts(type_url, &class_of, &has_rule);
        let (first, _) = conflicts.first()?.nodes;
        let choice = self.classes.choose(fleet.nodes.get(first)?, type_url, kind)?;
        let differences: Vec<BTreeSet<Field>> =
            conflicts.iter().map(|conflict| fleet.differences(conflict.nodes)).collect();
        Some(Coarse {
            rule: choice.rule.id.to_string(),
            type_url: type_url.clone(),
            explained_by: explain(&differences).fields(),
            conflicts,
        })
    }
}
