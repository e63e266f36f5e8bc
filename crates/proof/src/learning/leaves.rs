//! The leaves of the metadata of nodes (LRN-3).

use std::collections::{BTreeMap, BTreeSet};

use sluice_xds::{Node, Value};

/// Leaves of the metadata below this depth count with the parent (LRN-3).
const DEPTH_MAX: usize = 6;

/// Leaves of the metadata over all nodes. Beyond the bound, the deepest maps fold into a leaf each (LRN-3).
const LEAVES_MAX: usize = 256;

/// The paths of the leaves in some of the nodes, each path once.
pub(super) fn leaves<'a>(nodes: impl Iterator<Item = &'a Node>) -> BTreeSet<Vec<String>> {
    let mut root = Leaves::default();
    for node in nodes {
        for (key, value) in &node.metadata {
            if root.is_folded {
                break;
            }
            root.children.entry(key.clone()).or_default().add(value, 1);
        }
        while root.count() > LEAVES_MAX {
            root.fold_deepest();
        }
    }
    let mut paths = BTreeSet::new();
    root.collect(&mut Vec::new(), &mut paths);
    paths
}

/// The paths of the metadata's leaves, as a tree.
#[derive(Debug, Default)]
struct Leaves {
    /// Some node has no map here, or an empty map; or the maps here are folded.
    is_leaf: bool,
    /// Everything below is a single leaf.
    is_folded: bool,
    children: BTreeMap<String, Leaves>,
}

impl Leaves {
    fn add(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Struct(fields) if !fields.is_empty() && depth < DEPTH_MAX && !self.is_folded => {
                for (key, value) in fields {
                    self.children.entry(key.clone()).or_default().add(value, depth + 1);
                }
            }
            _ => self.is_leaf = true,
        }
    }

    fn count(&self) -> usize {
        usize::from(self.is_leaf) + self.children.values().map(Leaves::count).sum::<usize>()
    }

    /// The maps above a leaf, on the longest way down.
    fn depth(&self) -> usize {
        self.children.values().map(|child| 1 + child.depth()).max().unwrap_or(0)
    }

    /// Folds the deepest map; of several, the map with the most leaves, and then the first.
    fn fold_deepest(&mut self) {
        let depth = self.depth();
        if depth <= 1 {
            *self = Leaves { is_leaf: true, is_folded: true, children: BTreeMap::new() };
            return;
        }
        // The last of equals wins with `max_by_key`.
        let deepest = self.children.values_mut().rev().filter(|child| child.depth() + 1 == depth);
        if let Some(child) = deepest.max_by_key(|child| child.count()) {
            child.fold_deepest();
        }
    }

    fn collect(&self, path: &mut Vec<String>, paths: &mut BTreeSet<Vec<String>>) {
        if self.is_leaf {
            paths.insert(path.clone());
        }
        for (key, child) in &self.children {
            path.push(key.clone());
            child.collect(path, paths);
            path.pop();
        }
    }
}
