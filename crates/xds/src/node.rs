//! The identity that a client states (`core.v3.Node`).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

/// A `google.protobuf.Value`. Numbers are stored as bits, so that values can be compared and sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    Null,
    Bool(bool),
    /// The bits of the IEEE 754 double.
    Number(u64),
    String(String),
    List(Vec<Value>),
    Struct(BTreeMap<String, Value>),
}

impl Value {
    /// The value at a path of keys, from the outermost in.
    pub fn at<'a>(fields: &'a BTreeMap<String, Value>, path: &[String]) -> Option<&'a Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(fields.get(first)?, |value, key| match value {
            Value::Struct(fields) => fields.get(key),
            _ => None,
        })
    }
}

/// One line that no other value has.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(bits) => write!(f, "{}", f64::from_bits(*bits)),
            Value::String(text) => write!(f, "{text:?}"),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Value::Struct(fields) => {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key:?}: {value}")).collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserAgentVersion {
    Text(String),
    Build { major: u32, minor: u32, patch: u32 },
}

/// The parts of a client's node that sluice reads. The request reader drops `extensions` and
/// `listening_addresses` (STR-3).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub id: String,
    pub cluster: String,
    pub metadata: BTreeMap<String, Value>,
    pub locality: Option<Locality>,
    pub user_agent_name: String,
    pub user_agent_version: Option<UserAgentVersion>,
    /// Sorted, without duplicates (FEA-1).
    pub client_features: Vec<String>,
    /// The encoded `dynamic_parameters` entries, sorted. Only these may change on a live stream (STR-3).
    pub dynamic_parameters: Vec<Bytes>,
}

/// Letters of a user agent in reports. Clients choose the text.
const USER_AGENT_CHARS_MAX: usize = 100;

impl Node {
    /// The client's program, for reports: `envoy 1.38.2`. Empty if the node names none.
    pub fn user_agent(&self) -> String {
        let version = match &self.user_agent_version {
            Some(UserAgentVersion::Build { major, minor, patch }) => format!(" {major}.{minor}.{patch}"),
            Some(UserAgentVersion::Text(text)) if !text.is_empty() => format!(" {text}"),
            _ => String::new(),
        };
        let text = self.user_agent_name.chars().chain(version.chars());
        text.take(USER_AGENT_CHARS_MAX).collect::<String>().trim_start().to_owned()
    }

    /// The paths at which two nodes differ, as `metadata.LABELS.app`; `most` at most.
    pub fn differences(&self, other: &Node, most: usize) -> Vec<String> {
        let none = Locality::default();
        let (place, others) =
            (self.locality.as_ref().unwrap_or(&none), other.locality.as_ref().unwrap_or(&none));
        let fields = [
            ("id", self.id != other.id),
            ("cluster", self.cluster != other.cluster),
            ("locality.region", place.region != others.region),
            ("locality.zone", place.zone != others.zone),
            ("locality.sub_zone", place.sub_zone != others.sub_zone),
            ("user_agent_name", self.user_agent_name != other.user_agent_name),
            ("user_agent_version", self.user_agent_version != other.user_agent_version),
            ("client_features", self.client_features != other.client_features),
            ("dynamic_parameters", self.dynamic_parameters != other.dynamic_parameters),
        ];
        let differing = fields.into_iter().filter(|(_, differs)| *differs);
        let mut paths: Vec<String> = differing.map(|(name, _)| name.to_owned()).collect();
        compare("metadata", &self.metadata, &other.metadata, &mut paths, most);
        paths.truncate(most);
        paths
    }

    pub fn has_feature(&self, feature: &str) -> bool {
        self.client_features.iter().any(|f| f == feature)
    }

    /// The metadata value at a path of keys.
    pub fn metadata_at(&self, path: &[String]) -> Option<&Value> {
        Value::at(&self.metadata, path)
    }
}

fn compare(
    path: &str,
    one: &BTreeMap<String, Value>,
    other: &BTreeMap<String, Value>,
    paths: &mut Vec<String>,
    most: usize,
) {
    let added = other.keys().filter(|key| !one.contains_key(*key));
    for key in one.keys().chain(added).filter(|key| one.get(*key) != other.get(*key)) {
        if paths.len() >= most {
            return;
        }
        let path = format!("{path}.{key}");
        match (one.get(key), other.get(key)) {
            (Some(Value::Struct(one)), Some(Value::Struct(other))) => compare(&path, one, other, paths, most),
            _ => paths.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rly_10_the_paths_at_which_nodes_differ_are_named() {
        let text = |text: &str| Value::String(text.into());
        let labels =
            |app: &str| Value::Struct([("app".to_owned(), text(app)), ("v".to_owned(), text("1"))].into());
        let node = |id: &str, zone: Option<&str>, app: &str, more: Option<&str>| {
            let locality = zone.map(|zone| Locality { zone: zone.into(), ..Locality::default() });
            let more = more.map(|key| (key.to_owned(), Value::Null));
            let metadata = [("LABELS".to_owned(), labels(app))].into_iter().chain(more).collect();
            Node { id: id.into(), locality, metadata, ..Node::default() }
        };
        let (one, other) = (node("a", None, "web", None), node("b", Some("z"), "api", Some("NEW")));
        let all = ["id", "locality.zone", "metadata.LABELS.app", "metadata.NEW"];
        assert_eq!(one.differences(&other, 9), all);
        assert_eq!(other.differences(&one, 9), all);
        assert_eq!(one.differences(&other, 2), all[..2]);
        assert_eq!(one.differences(&node("a", Some(""), "web", None), 9), [""; 0]);
    }
}
