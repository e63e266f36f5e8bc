//! Conditions that no node meets together.

use super::{MetadataMatch, NodeMatch, TextMatch, ValueMatch};

impl NodeMatch {
    /// Whether certainly no node meets both conditions.
    pub fn excludes(&self, other: &NodeMatch) -> bool {
        let texts = [
            (&self.id, &other.id),
            (&self.cluster, &other.cluster),
            (&self.user_agent_name, &other.user_agent_name),
            (&self.region, &other.region),
            (&self.zone, &other.zone),
            (&self.sub_zone, &other.sub_zone),
        ];
        let excludes = |(one, other): (&Option<TextMatch>, &Option<TextMatch>)| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one.excludes(other))
        };
        let is_excluded = |of: &MetadataMatch| {
            let same = other.metadata.iter().filter(|other| other.path == of.path);
            same.into_iter().any(|other| of.value.excludes(&other.value))
        };
        texts.into_iter().any(excludes) || self.metadata.iter().any(is_excluded)
    }
}

impl TextMatch {
    fn excludes(&self, other: &TextMatch) -> bool {
        use TextMatch::{Exact, Prefix, Suffix};
        match (self, other) {
            (Exact(text), of) | (of, Exact(text)) => !of.matches(text),
            (Prefix(one), Prefix(other)) => !one.starts_with(other) && !other.starts_with(one),
            (Suffix(one), Suffix(other)) => !one.ends_with(other) && !other.ends_with(one),
            (Prefix(_), Suffix(_)) | (Suffix(_), Prefix(_)) => false,
        }
    }
}

impl ValueMatch {
    fn excludes(&self, other: &ValueMatch) -> bool {
        match (self, other) {
            (ValueMatch::Present, _) | (_, ValueMatch::Present) => false,
            (ValueMatch::Equal(value), of) | (of, ValueMatch::Equal(value)) => !of.matches(value),
            (ValueMatch::Text(one), ValueMatch::Text(other)) => one.excludes(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Value;

    fn cluster(of: TextMatch) -> NodeMatch {
        NodeMatch { cluster: Some(of), ..NodeMatch::default() }
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
