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
                let field = |(key, value): (&String, &Value)| format!("{key:?}: {value}");
                write!(f, "{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
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

    pub fn has_feature(&self, feature: &str) -> bool {
        self.client_features.iter().any(|f| f == feature)
    }

    /// The metadata value at a path of keys.
    pub fn metadata_at(&self, path: &[String]) -> Option<&Value> {
        Value::at(&self.metadata, path)
    }
}
