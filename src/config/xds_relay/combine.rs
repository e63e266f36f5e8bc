//! Rules of all fragments, as `node_classes`.

use std::collections::{BTreeMap, BTreeSet};

use super::fragment::{Fragment, Rule};
use super::line;
use super::predicate::{ExpectedValue, NodeField, Predicate, Together};
use super::quoted;

/// The translated rules.
#[derive(Default)]
pub(super) struct CombinedClasses {
    pub rules: Vec<ClassRule>,
    pub lost: Vec<String>,
    /// Clients of API v2 are named.
    pub has_v2: bool,
}

/// An entry of `node_classes`.
#[derive(Clone, PartialEq)]
pub(super) struct ClassRule {
    types: Vec<&'static str>,
    matched: BTreeMap<NodeField, ExpectedValue>,
    fields: BTreeSet<NodeField>,
}

/// The types that xds-relay serves: the name in API v3, and the one in v2.
const TYPES: &[(&str, &str)] = &[
    ("envoy.config.listener.v3.Listener", "envoy.api.v2.Listener"),
    ("envoy.config.cluster.v3.Cluster", "envoy.api.v2.Cluster"),
    ("envoy.config.route.v3.RouteConfiguration", "envoy.api.v2.RouteConfiguration"),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.api.v2.ClusterLoadAssignment"),
];

const PREFIX: &str = "type.googleapis.com/";

/// Each condition doubles the entries of a type; with more, the fields split.
const CONDITIONS_MAX: usize = 4;

pub(super) fn classes(fragments: &[Fragment]) -> CombinedClasses {
    let rules: Vec<&Rule> = fragments.iter().flat_map(|fragment| &fragment.rules).collect();
    let mut classes = CombinedClasses::default();
    let mut named = BTreeSet::new();
    rules.iter().for_each(|rule| types_of(&rule.predicate, &mut named));
    let is_known = |name: &str| {
        let name = name.strip_prefix(PREFIX);
        name.is_some_and(|name| TYPES.iter().any(|(v3, v2)| name == *v3 || name == *v2))
    };
    for name in named.iter().filter(|name| !is_known(name)) {
        classes.lost.push(format!("{name} is no type that xds-relay serves; its rules are left out"));
    }
    let mut groups: Vec<(&'static str, Vec<ClassRule>)> = Vec::new();
    for (v3, v2) in TYPES {
        classes.has_v2 |= named.contains(&format!("{PREFIX}{v2}"));
        let of_type = of_type(v3, v2, &rules, &mut classes.lost);
        if of_type.is_empty() {
            let text = format!(
                "no rule names {v3}: xds-relay refuses this type, and sluice serves it by its default rules"
            );
            classes.lost.push(text);
            continue;
        }
        groups.push((v3, of_type));
    }
    if classes.has_v2 {
        classes.lost.push("the control plane must speak API v3: sluice serves v2 to clients only".to_owned());
    }
    // Types with the same entries share them.
    while let Some((first, of_type)) = groups.first().cloned() {
        let types: Vec<_> =
            groups.iter().filter(|(_, other)| *other == of_type).map(|(name, _)| *name).collect();
        groups.retain(|(name, other)| *name != first && *other != of_type);
        classes.rules.extend(of_type.into_iter().map(|rule| ClassRule { types: types.clone(), ..rule }));
    }
    classes
}

fn types_of(predicate: &Predicate, named: &mut BTreeSet<String>) {
    match predicate {
        Predicate::Types(types) => named.extend(types.iter().cloned()),
        Predicate::All(all) | Predicate::AnyOf(all) => {
            all.iter().for_each(|predicate| types_of(predicate, named));
        }
        Predicate::Not(predicate) => types_of(predicate, named),
        Predicate::Any | Predicate::Never | Predicate::Field(..) => {}
    }
}

/// The entries of a type, the most special first; none if no rule can apply.
fn of_type(v3: &str, v2: &str, rules: &[&Rule], lost: &mut Vec<String>) -> Vec<ClassRule> {
    let mut base = BTreeSet::new();
    let mut conditional: Vec<(Together, &[NodeField])> = Vec::new();
    let (mut applies, mut always) = (false, false);
    for rule in rules {
        let mut alternatives = rule.predicate.for_type(&format!("{PREFIX}{v3}"));
        for other in rule.predicate.for_type(&format!("{PREFIX}{v2}")) {
            if !alternatives.contains(&other) {
                alternatives.push(other);
            }
        }
        for together in alternatives {
            applies = true;
            if together.is_exact && together.conditions.is_empty() {
                always = true;
                base.extend(rule.fields.iter().cloned());
            } else {
                conditional.push((together, &rule.fields));
            }
        }
    }
    if !applies {
        return Vec::new();
    }
    let (mut exact, rest): (Vec<_>, Vec<_>) =
        conditional.into_iter().partition(|(together, _)| together.is_exact);
    let overflow = exact.split_off(exact.len().min(CONDITIONS_MAX));
    if !overflow.is_empty() {
        lost.push(format!("more than {CONDITIONS_MAX} conditions for {v3}: the fields of the others split, so less is shared"));
    }
    if !rest.is_empty() {
        lost.push(format!(
            "some conditions for {v3} have no words here: their fields split, so less is shared"
        ));
    }
    for (together, fields) in overflow.into_iter().chain(rest) {
        base.extend(together.conditions.into_iter().map(|(field, _)| field));
        base.extend(fields.iter().cloned());
    }
    if !always {
        lost.push(format!(
            "xds-relay refuses requests for {v3} of clients that match no rule; sluice serves them (see `authorization`)"
        ));
    }
    let rules = branches(&base, &exact);
    if rules.iter().any(ClassRule::is_too_deep) {
        lost.push(format!(
            "a zone or sub_zone of {v3} splits together with its region and zone, so less may be shared"
        ));
    }
    rules
}

/// An entry for each set of conditions that can hold together: the fields of a condition split, too, because
/// equal selections are one class.
fn branches(base: &BTreeSet<NodeField>, conditions: &[(Together, &[NodeField])]) -> Vec<ClassRule> {
    let mut sets: Vec<u32> = (0..1 << conditions.len()).collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.count_ones()));
    let mut rules: Vec<ClassRule> = Vec::new();
    for set in sets {
        let chosen = conditions.iter().enumerate().filter(|(index, _)| set & (1 << index) != 0);
        let mut rule = ClassRule { types: Vec::new(), matched: BTreeMap::new(), fields: base.clone() };
        let mut is_possible = true;
        for (_, (together, fields)) in chosen {
            rule.fields.extend(fields.iter().cloned());
            for (field, value) in &together.conditions {
                let Some(value) = value else { continue };
                let before = rule.matched.insert(field.clone(), value.clone());
                is_possible &= before.is_none_or(|before| before == *value);
                rule.fields.insert(field.clone());
            }
        }
        if is_possible && !rules.iter().any(|other| other.matched == rule.matched) {
            rules.push(rule);
        }
    }
    rules
}

impl ClassRule {
    /// A locality splits from the region down.
    fn is_too_deep(&self) -> bool {
        let has = |field| self.fields.contains(&field);
        (has(NodeField::Zone) && !has(NodeField::Region))
            || (has(NodeField::SubZone) && !(has(NodeField::Region) && has(NodeField::Zone)))
    }

    pub(super) fn render(&self, yaml: &mut String) {
        line(yaml, format_args!("  - match:\n      types:"));
        for name in &self.types {
            line(yaml, format_args!("        - {name}"));
        }
        let text = |field: &NodeField| match self.matched.get(field) {
            Some(ExpectedValue::Text(text)) => Some(quoted(text)),
            _ => None,
        };
        for (name, field) in [("id", NodeField::Id), ("cluster", NodeField::Cluster)] {
            if let Some(text) = text(&field) {
                line(yaml, format_args!("      {name}: {text}"));
            }
        }
        let parts =
            [("region", NodeField::Region), ("zone", NodeField::Zone), ("sub_zone", NodeField::SubZone)];
        let parts = parts.iter().filter_map(|(name, field)| Some(format!("{name}: {}", text(field)?)));
        let parts: Vec<_> = parts.collect();
        if !parts.is_empty() {
            line(yaml, format_args!("      locality: {{ {} }}", parts.join(", ")));
        }
        let metadata: Vec<_> = self
            .matched
            .iter()
            .filter_map(|(field, value)| match (field, value) {
                (NodeField::Metadata(path), ExpectedValue::Text(text)) => Some((path, quoted(text))),
                (NodeField::Metadata(path), ExpectedValue::Bool(value)) => Some((path, value.to_string())),
                _ => None,
            })
            .collect();
        if !metadata.is_empty() {
            line(yaml, format_args!("      metadata:"));
        }
        for (path, value) in metadata {
            line(yaml, format_args!("        - {{ path: {}, exact: {value} }}", path_text(path)));
        }
        self.render_projection(yaml);
    }

    fn render_projection(&self, yaml: &mut String) {
        let has = |field: &NodeField| self.fields.contains(field);
        let mut parts = Vec::new();
        parts.extend(has(&NodeField::Id).then(|| "id: true".to_owned()));
        parts.extend(has(&NodeField::Cluster).then(|| "cluster: true".to_owned()));
        let depths =
            [(NodeField::SubZone, "sub_zone"), (NodeField::Zone, "zone"), (NodeField::Region, "region")];
        let depth = depths.iter().find(|(field, _)| has(field));
        parts.extend(depth.map(|(_, name)| format!("locality: {name}")));
        let paths: Vec<_> = self
            .fields
            .iter()
            .filter_map(|field| match field {
                NodeField::Metadata(path) => Some(path_text(path)),
                _ => None,
            })
            .collect();
        parts.extend((!paths.is_empty()).then(|| format!("metadata: [{}]", paths.join(", "))));
        let split = if parts.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", parts.join(", ")) };
        line(yaml, format_args!("    split_by: {split}"));
        // xds-relay shows the first client of a key to the control plane.
        line(yaml, format_args!("    upstream_node: member"));
    }
}

fn path_text(path: &[String]) -> String {
    let keys: Vec<_> = path.iter().map(|key| quoted(key)).collect();
    format!("[{}]", keys.join(", "))
}
