//! Conditions on nodes: the nodes that meet them, the conditions that exclude each other, and the words for
//! people.

use sluice_xds::{Locality, Node, Value};

/// A condition on nodes: all given fields must match; an empty condition matches every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMatch {
    pub id: Option<TextMatch>,
    pub cluster: Option<TextMatch>,
    pub user_agent_name: Option<TextMatch>,
    pub region: Option<TextMatch>,
    pub zone: Option<TextMatch>,
    pub sub_zone: Option<TextMatch>,
    pub metadata: Vec<MetadataMatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextMatch {
    Exact(String),
    Prefix(String),
    Suffix(String),
}

/// A condition on the metadata value under a path of keys. A missing value never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataMatch {
    pub path: Vec<String>,
    pub value: ValueMatch,
}

impl MetadataMatch {
    fn holds(&self, node: &Node) -> bool {
        node.metadata_at(&self.path).is_some_and(|value| self.value.matches(value))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// Any value, including null.
    Present,
    Equal(Value),
    /// A string that matches.
    Text(TextMatch),
}

/// A condition of a rule that does not hold. The value is `None` if it may be confidential.
pub(super) struct Failure {
    pub field: String,
    pub condition: String,
    pub value: Option<String>,
}

impl Failure {
    pub fn new(field: &str, condition: String, value: Option<&str>) -> Failure {
        Failure { field: field.to_owned(), condition, value: value.map(str::to_owned) }
    }
}

/// A field, its condition, and its value in a node.
type Field<'a> = (&'static str, &'a Option<TextMatch>, fn(&Node) -> &str);

impl NodeMatch {
    pub fn matches(&self, node: &Node) -> bool {
        let mut texts = self.texts().into_iter();
        texts.all(|(_, condition, value)| condition.as_ref().is_none_or(|text| text.matches(value(node))))
            && self.metadata.iter().all(|condition| condition.holds(node))
    }

    /// Whether certainly no node meets both conditions.
    pub fn excludes(&self, other: &NodeMatch) -> bool {
        let mut texts = self.texts().into_iter().zip(other.texts());
        let is_excluded = |metadata: &MetadataMatch| {
            let same = other.metadata.iter().filter(|other| other.path == metadata.path);
            same.into_iter().any(|other| metadata.value.excludes(&other.value))
        };
        texts.any(|((_, one, _), (_, other, _))| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one.excludes(other))
        }) || self.metadata.iter().any(is_excluded)
    }

    /// The conditions on texts, in the order of the configuration.
    fn texts(&self) -> [Field<'_>; 6] {
        fn place(node: &Node, part: fn(&Locality) -> &str) -> &str {
            node.locality.as_ref().map_or("", part)
        }
        [
            ("id", &self.id, |node| &node.id),
            ("cluster", &self.cluster, |node| &node.cluster),
            ("user_agent_name", &self.user_agent_name, |node| &node.user_agent_name),
            ("locality.region", &self.region, |node| place(node, |locality| &locality.region)),
            ("locality.zone", &self.zone, |node| place(node, |locality| &locality.zone)),
            ("locality.sub_zone", &self.sub_zone, |node| place(node, |locality| &locality.sub_zone)),
        ]
    }

    /// The conditions, as `id=envoy-*`.
    pub(super) fn describe(&self) -> Vec<String> {
        let texts = self.texts().into_iter().filter_map(|(field, condition, _)| {
            condition.as_ref().map(|condition| format!("{field}={}", condition.describe()))
        });
        let metadata = self.metadata.iter();
        let metadata = metadata
            .map(|condition| format!("{}={}", path_text(&condition.path), condition.value.describe()));
        texts.chain(metadata).collect()
    }

    pub(super) fn failures(&self, node: &Node) -> Vec<Failure> {
        let texts = self.texts().into_iter().filter_map(|(field, condition, value_of)| {
            let (condition, value) = (condition.as_ref()?, value_of(node));
            (!condition.matches(value)).then(|| Failure::new(field, condition.describe(), Some(value)))
        });
        let metadata = self.metadata.iter().filter(|condition| !condition.holds(node));
        let metadata = metadata
            .map(|condition| Failure::new(&path_text(&condition.path), condition.value.describe(), None));
        texts.chain(metadata).collect()
    }
}

fn path_text(path: &[String]) -> String {
    format!("metadata.{}", path.join("/"))
}

impl TextMatch {
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            TextMatch::Exact(exact) => text == exact,
            TextMatch::Prefix(prefix) => text.starts_with(prefix),
            TextMatch::Suffix(suffix) => text.ends_with(suffix),
        }
    }

    fn excludes(&self, other: &TextMatch) -> bool {
        use TextMatch::{Exact, Prefix, Suffix};
        match (self, other) {
            (Exact(text), condition) | (condition, Exact(text)) => !condition.matches(text),
            (Prefix(one), Prefix(other)) => !one.starts_with(other) && !other.starts_with(one),
            (Suffix(one), Suffix(other)) => !one.ends_with(other) && !other.ends_with(one),
            (Prefix(_), Suffix(_)) | (Suffix(_), Prefix(_)) => false,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            TextMatch::Exact(text) => text.clone(),
            TextMatch::Prefix(text) => format!("{text}*"),
            TextMatch::Suffix(text) => format!("*{text}"),
        }
    }
}

impl ValueMatch {
    fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (ValueMatch::Present, _) => true,
            (ValueMatch::Equal(condition), value) => condition == value,
            (ValueMatch::Text(condition), Value::String(text)) => condition.matches(text),
            (ValueMatch::Text(_), _) => false,
        }
    }

    fn excludes(&self, other: &ValueMatch) -> bool {
        match (self, other) {
            (ValueMatch::Present, _) | (_, ValueMatch::Present) => false,
            (ValueMatch::Equal(value), condition) | (condition, ValueMatch::Equal(value)) => {
                !condition.matches(value)
            }
            (ValueMatch::Text(one), ValueMatch::Text(other)) => one.excludes(other),
        }
    }

    fn describe(&self) -> String {
        match self {
            ValueMatch::Present => "present".to_owned(),
            // A value of the configuration may stand for a secret of the nodes.
            ValueMatch::Equal(_) => "a certain value".to_owned(),
            ValueMatch::Text(text) => text.describe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Value;

    fn cluster(text: TextMatch) -> NodeMatch {
        NodeMatch { cluster: Some(text), ..NodeMatch::default() }
    }

    fn label(value: ValueMatch) -> NodeMatch {
        NodeMatch { metadata: vec![MetadataMatch { path: vec!["a".into()], value }], ..NodeMatch::default() }
    }

    #[test]
    fn conditions_exclude_each_other_only_if_no_node_meets_both() {
        use TextMatch::{Exact, Prefix, Suffix};
        let exclude = |one: &NodeMatch, other: &NodeMatch| {
            assert_eq!(one.excludes(other), other.excludes(one), "{one:?} {other:?}");
            one.excludes(other)
        };
        for (one, other, expected) in [
            (Exact("edge".into()), Exact("batch".into()), true),
            (Exact("edge".into()), Exact("edge".into()), false),
            (Exact("edge".into()), Prefix("ed".into()), false),
            (Exact("edge".into()), Suffix("x".into()), true),
            (Prefix("ed".into()), Prefix("edge".into()), false),
            (Prefix("ed".into()), Prefix("b".into()), true),
            (Suffix("ge".into()), Suffix("e".into()), false),
            (Suffix("a".into()), Suffix("b".into()), true),
            (Prefix("a".into()), Suffix("b".into()), false),
        ] {
            assert_eq!(
                exclude(&cluster(one.clone()), &cluster(other.clone())),
                expected,
                "{one:?} {other:?}"
            );
            let labels = (label(ValueMatch::Text(one)), label(ValueMatch::Text(other)));
            assert_eq!(exclude(&labels.0, &labels.1), expected);
        }
        let (yes, no) = (ValueMatch::Equal(Value::Bool(true)), ValueMatch::Equal(Value::Bool(false)));
        assert!(exclude(&label(yes.clone()), &label(no)));
        assert!(exclude(&label(yes.clone()), &label(ValueMatch::Text(Exact("true".into())))));
        assert!(!exclude(&label(yes.clone()), &label(ValueMatch::Present)));
        assert!(!exclude(&label(yes), &cluster(Exact("edge".into()))), "other parts");
        assert!(!exclude(&NodeMatch::default(), &cluster(Exact("edge".into()))));
    }
}
