//! The node matchers of a request (CSD-2, ADM-22). Matchers are joined by "or", the parts of a matcher by
//! "and".

use regex::{Regex, RegexBuilder};

use sluice_proto::csds::matcher::{
    NodeMatcher, StringMatcher, StructMatcher, ValueMatcher, double_matcher, list_matcher, string_matcher,
    struct_matcher, value_matcher,
};
use sluice_xds::{Code, Node, Status, Value};

/// The text of a regular expression. Its engine takes linear time.
const REGEX_BYTES_MAX: usize = 4 << 10;

/// The memory of a compiled expression: a short text may repeat itself a million times.
const REGEX_MEMORY_MAX: usize = 256 << 10;

/// The expressions and texts of one request. Each is compared with every client.
const PARTS_MAX: usize = 64;

/// Selects nodes.
pub(super) struct Matchers(Vec<Matcher>);

/// A part without condition matches everything.
struct Matcher {
    id: Option<TextMatcher>,
    metadata: Vec<(Vec<String>, Expected)>,
}

enum TextMatcher {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// Compared in lower case.
    Folded(Box<TextMatcher>),
    Regex(Regex),
}

enum Expected {
    Null,
    Number(f64),
    Text(TextMatcher),
    Bool(bool),
    Present(bool),
    OneOf(Box<Expected>),
    Any(Vec<Expected>),
}

impl Matchers {
    /// # Errors
    /// INVALID_ARGUMENT with the path of the field that cannot be used.
    pub fn read(matchers: &[NodeMatcher]) -> Result<Matchers, Status> {
        let mut reader = Reader { parts: 0 };
        let read = |(index, matcher)| reader.node(&format!("node_matchers[{index}]"), matcher);
        matchers.iter().enumerate().map(read).collect::<Result<_, _>>().map(Matchers)
    }

    /// An unnamed node, before the first request of a stream, has an empty id.
    pub fn match_node(&self, node: &Node) -> bool {
        self.0.iter().any(|matcher| {
            matcher.id.as_ref().is_none_or(|id| id.matches(&node.id))
                && matcher.metadata.iter().all(|(path, expected)| expected.matches(node.metadata_at(path)))
        })
    }
}

struct Reader {
    parts: usize,
}

impl Reader {
    fn node(&mut self, field: &str, matcher: &NodeMatcher) -> Result<Matcher, Status> {
        let id = matcher.node_id.as_ref().map(|id| self.text(&format!("{field}.node_id"), id)).transpose()?;
        let metadata = matcher.node_metadatas.iter().enumerate();
        let metadata = metadata
            .map(|(index, matcher)| self.structure(&format!("{field}.node_metadatas[{index}]"), matcher));
        Ok(Matcher { id, metadata: metadata.collect::<Result<_, _>>()? })
    }

    fn count(&mut self, field: &str) -> Result<(), Status> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            Err(invalid(field, format!("more than {PARTS_MAX} conditions")))
        } else {
            Ok(())
        }
    }

    fn text(&mut self, field: &str, matcher: &StringMatcher) -> Result<TextMatcher, Status> {
        use string_matcher::MatchPattern;
        self.count(field)?;
        let fold = |text: &String| if matcher.ignore_case { text.to_lowercase() } else { text.clone() };
        let text = match matcher.match_pattern.as_ref() {
            Some(MatchPattern::Exact(text)) => TextMatcher::Exact(fold(text)),
            Some(MatchPattern::Prefix(text)) => TextMatcher::Prefix(fold(text)),
            Some(MatchPattern::Suffix(text)) => TextMatcher::Suffix(fold(text)),
            Some(MatchPattern::Contains(text)) => TextMatcher::Contains(fold(text)),
            // As in Envoy, an expression decides on the case itself.
            Some(MatchPattern::SafeRegex(matcher)) => {
                return regex(&format!("{field}.safe_regex"), &matcher.regex);
            }
            Some(MatchPattern::Custom(_)) => {
                return Err(invalid(&format!("{field}.custom"), "not supported"));
            }
            None => return Err(invalid(field, "no pattern")),
        };
        Ok(if matcher.ignore_case { TextMatcher::Folded(Box::new(text)) } else { text })
    }

    fn structure(&mut self, field: &str, matcher: &StructMatcher) -> Result<(Vec<String>, Expected), Status> {
        let key = |segment: &struct_matcher::PathSegment| {
            let struct_matcher::path_segment::Segment::Key(key) = segment.segment.as_ref()?;
            Some(key.clone())
        };
        let path: Option<Vec<_>> = matcher.path.iter().map(key).collect();
        let path = path
            .filter(|path| !path.is_empty())
            .ok_or_else(|| invalid(&format!("{field}.path"), "no keys"))?;
        let value = matcher.value.as_ref().ok_or_else(|| invalid(&format!("{field}.value"), "missing"))?;
        Ok((path, self.value(&format!("{field}.value"), value)?))
    }

    fn value(&mut self, field: &str, matcher: &ValueMatcher) -> Result<Expected, Status> {
        use value_matcher::MatchPattern;
        self.count(field)?;
        Ok(match matcher.match_pattern.as_ref() {
            Some(MatchPattern::NullMatch(_)) => Expected::Null,
            Some(MatchPattern::BoolMatch(expected)) => Expected::Bool(*expected),
            Some(MatchPattern::PresentMatch(expected)) => Expected::Present(*expected),
            Some(MatchPattern::StringMatch(inner)) => {
                Expected::Text(self.text(&format!("{field}.string_match"), inner)?)
            }
            Some(MatchPattern::DoubleMatch(inner)) => match inner.match_pattern.as_ref() {
                Some(double_matcher::MatchPattern::Exact(expected)) => Expected::Number(*expected),
                Some(double_matcher::MatchPattern::Range(_)) => {
                    return Err(invalid(&format!("{field}.double_match.range"), "not supported"));
                }
                None => return Err(invalid(&format!("{field}.double_match"), "no pattern")),
            },
            Some(MatchPattern::ListMatch(inner)) => match inner.match_pattern.as_ref() {
                Some(list_matcher::MatchPattern::OneOf(one)) => {
                    Expected::OneOf(Box::new(self.value(&format!("{field}.list_match.one_of"), one)?))
                }
                None => return Err(invalid(&format!("{field}.list_match"), "no pattern")),
            },
            Some(MatchPattern::OrMatch(inner)) => {
                let inner = inner.value_matchers.iter().enumerate();
                let inner = inner.map(|(index, one)| {
                    self.value(&format!("{field}.or_match.value_matchers[{index}]"), one)
                });
                Expected::Any(inner.collect::<Result<_, _>>()?)
            }
            None => return Err(invalid(field, "no pattern")),
        })
    }
}

fn regex(field: &str, text: &str) -> Result<TextMatcher, Status> {
    if text.len() > REGEX_BYTES_MAX {
        return Err(invalid(field, format!("longer than {REGEX_BYTES_MAX} bytes")));
    }
    // The whole text has to match, as in Envoy.
    let built = RegexBuilder::new(&format!("^(?:{text})$")).size_limit(REGEX_MEMORY_MAX).build();
    built.map(TextMatcher::Regex).map_err(|_| invalid(field, "not a regular expression, or too large"))
}

fn invalid(field: &str, reason: impl std::fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, format!("{field}: {reason}"))
}

impl TextMatcher {
    fn matches(&self, text: &str) -> bool {
        match self {
            TextMatcher::Exact(expected) => text == expected,
            TextMatcher::Prefix(expected) => text.starts_with(expected.as_str()),
            TextMatcher::Suffix(expected) => text.ends_with(expected.as_str()),
            TextMatcher::Contains(expected) => text.contains(expected.as_str()),
            TextMatcher::Folded(folded) => folded.matches(&text.to_lowercase()),
            TextMatcher::Regex(regex) => regex.is_match(text),
        }
    }
}

impl Expected {
    fn matches(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Expected::Present(expected), value) => value.is_some() == *expected,
            (Expected::Any(all), value) => all.iter().any(|expected| expected.matches(value)),
            (_, None) => false,
            (Expected::Null, Some(value)) => *value == Value::Null,
            (Expected::Number(expected), Some(Value::Number(bits))) => f64::from_bits(*bits) == *expected,
            (Expected::Text(expected), Some(Value::String(text))) => expected.matches(text),
            (Expected::Bool(expected), Some(Value::Bool(value))) => value == expected,
            (Expected::OneOf(expected), Some(Value::List(values))) => {
                values.iter().any(|value| expected.matches(Some(value)))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use sluice_proto::csds::matcher::{
        DoubleMatcher, ListMatcher, OrMatcher, RegexMatcher, double_matcher, struct_matcher::PathSegment,
        struct_matcher::path_segment::Segment, value_matcher::NullMatch,
    };

    type Pattern = string_matcher::MatchPattern;
    type Wanted = value_matcher::MatchPattern;

    fn node(id: &str) -> Node {
        let text = |text: &str| Value::String(text.to_owned());
        let metadata = BTreeMap::from([
            ("ISTIO_VERSION".to_owned(), text("1.24.1")),
            ("tags".to_owned(), Value::List(vec![text("blue"), text("canary")])),
            ("canary".to_owned(), Value::Bool(true)),
            ("weight".to_owned(), Value::Number(2.5_f64.to_bits())),
            ("nothing".to_owned(), Value::Null),
            ("app".to_owned(), Value::Struct(BTreeMap::from([("name".to_owned(), text("web"))]))),
        ]);
        Node { id: id.to_owned(), metadata, ..Node::default() }
    }

    fn text(pattern: Pattern, ignore_case: bool) -> StringMatcher {
        StringMatcher { match_pattern: Some(pattern), ignore_case }
    }

    fn regex(regex: &str) -> Pattern {
        Pattern::SafeRegex(RegexMatcher { regex: regex.to_owned() })
    }

    fn value(pattern: Wanted) -> ValueMatcher {
        ValueMatcher { match_pattern: Some(pattern) }
    }

    fn is_text(pattern: Pattern) -> Wanted {
        Wanted::StringMatch(text(pattern, false))
    }

    fn at(path: &str, pattern: Wanted) -> StructMatcher {
        let key = |key: &str| PathSegment { segment: Some(Segment::Key(key.to_owned())) };
        StructMatcher { path: path.split('/').map(key).collect(), value: Some(value(pattern)) }
    }

    fn by_id(id: StringMatcher) -> NodeMatcher {
        NodeMatcher { node_id: Some(id), node_metadatas: vec![] }
    }

    fn by_metadata(matchers: Vec<StructMatcher>) -> NodeMatcher {
        NodeMatcher { node_id: None, node_metadatas: matchers }
    }

    fn is_matched(matchers: &[NodeMatcher], id: &str) -> bool {
        Matchers::read(matchers).map_err(|error| error.to_string()).unwrap().match_node(&node(id))
    }

    #[test]
    fn adm_22_ids_are_matched_in_every_way() {
        let cases = [
            (Pattern::Exact("web-1".into()), false, "web-1", true),
            (Pattern::Exact("web-1".into()), false, "Web-1", false),
            (Pattern::Exact("web-1".into()), true, "Web-1", true),
            (Pattern::Prefix("WEB".into()), true, "web-1", true),
            (Pattern::Prefix("web".into()), false, "a-web", false),
            (Pattern::Suffix("-1".into()), false, "web-1", true),
            (Pattern::Suffix("-1".into()), false, "web-12", false),
            (Pattern::Contains("eb-".into()), false, "web-1", true),
            (Pattern::Contains("EB-".into()), false, "web-1", false),
            (regex("web-[0-9]+"), false, "web-12", true),
            // The whole id has to match.
            (regex("web"), false, "web-12", false),
            (regex("a|web-1"), false, "web-12", false),
            // As in Envoy, `ignore_case` has no effect on an expression.
            (regex("WEB.1"), true, "web-1", false),
        ];
        for (pattern, ignore_case, id, expected) in cases {
            let case = format!("{pattern:?} {ignore_case} {id}");
            assert_eq!(is_matched(&[by_id(text(pattern, ignore_case))], id), expected, "{case}");
        }
    }

    #[test]
    fn adm_22_metadata_is_matched_by_path() {
        let one_of = |pattern| {
            let one = list_matcher::MatchPattern::OneOf(Box::new(value(pattern)));
            Wanted::ListMatch(Box::new(ListMatcher { match_pattern: Some(one) }))
        };
        let number = |exact| {
            let exact = double_matcher::MatchPattern::Exact(exact);
            Wanted::DoubleMatch(DoubleMatcher { match_pattern: Some(exact) })
        };
        let either = |a, b| Wanted::OrMatch(OrMatcher { value_matchers: vec![value(a), value(b)] });
        let cases = [
            (at("ISTIO_VERSION", is_text(Pattern::Prefix("1.24".into()))), true),
            (at("app/name", is_text(Pattern::Exact("web".into()))), true),
            (at("app/name", is_text(Pattern::Exact("db".into()))), false),
            (at("app/none", is_text(Pattern::Exact("web".into()))), false),
            (at("tags", one_of(is_text(Pattern::Exact("canary".into())))), true),
            (at("tags", is_text(Pattern::Exact("canary".into()))), false),
            (at("canary", Wanted::BoolMatch(true)), true),
            (at("canary", Wanted::BoolMatch(false)), false),
            (at("weight", number(2.5)), true),
            (at("weight", number(2.0)), false),
            (at("nothing", Wanted::NullMatch(NullMatch {})), true),
            (at("absent", Wanted::NullMatch(NullMatch {})), false),
            (at("app", Wanted::PresentMatch(true)), true),
            (at("absent", Wanted::PresentMatch(false)), true),
            (at("weight", either(number(1.0), number(2.5))), true),
            (at("weight", either(number(1.0), number(2.0))), false),
        ];
        for (matcher, expected) in cases {
            assert_eq!(is_matched(&[by_metadata(vec![matcher.clone()])], "x"), expected, "{matcher:?}");
        }
    }

    #[test]
    fn csd_2_matchers_are_alternatives_and_their_parts_are_all_wanted() {
        let web = || text(Pattern::Exact("web".into()), false);
        let canary = |expected| at("canary", Wanted::BoolMatch(expected));
        assert!(is_matched(&[NodeMatcher::default()], "anything"), "an empty matcher finds all");
        let both = |expected| NodeMatcher { node_id: Some(web()), node_metadatas: vec![canary(expected)] };
        assert!(is_matched(&[both(true)], "web"));
        assert!(!is_matched(&[both(true)], "db"));
        assert!(!is_matched(&[both(false)], "web"));
        assert!(is_matched(&[both(false), by_metadata(vec![canary(true)])], "db"));
        assert!(!is_matched(&[by_metadata(vec![canary(true), canary(false)])], "web"));
    }

    #[test]
    fn adm_22_parts_that_are_not_supported_are_refused_by_name() {
        let range = double_matcher::MatchPattern::Range(bytes::Bytes::from_static(b"\x09"));
        let id = |pattern| by_id(StringMatcher { match_pattern: pattern, ignore_case: false });
        let cases = [
            (
                id(Some(Pattern::Custom(bytes::Bytes::new()))),
                "node_matchers[0].node_id.custom: not supported",
            ),
            (id(None), "node_matchers[0].node_id: no pattern"),
            (id(Some(regex("("))), "node_matchers[0].node_id.safe_regex: not a regular expression"),
            (
                id(Some(regex(&"a".repeat(4097)))),
                "node_matchers[0].node_id.safe_regex: longer than 4096 bytes",
            ),
            (id(Some(regex("((a{100}){100}){100}"))), "safe_regex: not a regular expression, or too large"),
            (
                by_metadata(vec![at("a", Wanted::DoubleMatch(DoubleMatcher { match_pattern: Some(range) }))]),
                "node_matchers[0].node_metadatas[0].value.double_match.range: not supported",
            ),
            (by_metadata(vec![StructMatcher::default()]), "node_matchers[0].node_metadatas[0].path: no keys"),
            (by_metadata(vec![at("a", Wanted::BoolMatch(true)); 65]), "more than 64 conditions"),
        ];
        for (matcher, reason) in cases {
            let Err(error) = Matchers::read(&[matcher]) else { panic!("{reason}") };
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(error.message.contains(reason), "{}", error.message);
        }
    }
}
