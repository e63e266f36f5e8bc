//! Conditions on the node of a stream's first request (AUT-4).

use std::fmt;

use crate::authorization::denial::Claim;
use crate::authorization::template::{Captures, Match, Template};
use sluice_xds::{Node, Value};

/// A field of a node that a rule can look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    Id,
    Cluster,
    UserAgentName,
    Region,
    Zone,
    SubZone,
    /// A path of keys.
    Metadata(Vec<String>),
}

/// A condition on one field. A missing or empty field never fulfills it (AUT-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    pub field: Field,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any value that is not empty.
    Present,
    /// A value other than text.
    Equal(Value),
    Text(Match, Template),
}

impl NodeCondition {
    /// # Errors
    /// The client's claim, if the condition does not hold.
    pub fn check(&self, node: Option<&Node>, captures: &Captures) -> Result<(), Claim> {
        let claimed = node.map_or(Found::Nothing, |node| self.field.of(node));
        let holds = match (&self.condition, claimed) {
            (_, Found::Nothing | Found::Text("")) => false,
            (Condition::Present, _) => true,
            (Condition::Text(how, template), Found::Text(text)) => template.matches(*how, text, captures),
            (Condition::Text(..), Found::Value(_)) | (Condition::Equal(_), Found::Text(_)) => false,
            (Condition::Equal(expected), Found::Value(value)) => expected == value,
        };
        if holds {
            return Ok(());
        }
        Err(Claim::new(self.field.to_string(), claimed.shown()))
    }
}

/// The value of a field.
#[derive(Clone, Copy)]
enum Found<'a> {
    Nothing,
    Text(&'a str),
    /// A metadata value that is no text.
    Value(&'a Value),
}

impl Found<'_> {
    /// The value in the client's own words; `None` if there is none.
    fn shown(self) -> Option<String> {
        match self {
            Found::Nothing | Found::Text("") => None,
            Found::Text(text) => Some(text.to_owned()),
            Found::Value(Value::Bool(value)) => Some(value.to_string()),
            Found::Value(Value::Number(bits)) => Some(f64::from_bits(*bits).to_string()),
            Found::Value(Value::List(_)) => Some("(a list)".to_owned()),
            Found::Value(_) => Some("(a map)".to_owned()),
        }
    }
}

impl Field {
    fn of<'a>(&self, node: &'a Node) -> Found<'a> {
        let locality = node.locality.as_ref();
        let text = match self {
            Field::Id => Some(&node.id),
            Field::Cluster => Some(&node.cluster),
            Field::UserAgentName => Some(&node.user_agent_name),
            Field::Region => locality.map(|locality| &locality.region),
            Field::Zone => locality.map(|locality| &locality.zone),
            Field::SubZone => locality.map(|locality| &locality.sub_zone),
            Field::Metadata(path) => {
                return match node.metadata_at(path) {
                    None | Some(Value::Null) => Found::Nothing,
                    Some(Value::String(text)) => Found::Text(text),
                    Some(value) => Found::Value(value),
                };
            }
        };
        text.map_or(Found::Nothing, |text| Found::Text(text))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Id => f.write_str("id"),
            Field::Cluster => f.write_str("cluster"),
            Field::UserAgentName => f.write_str("user_agent_name"),
            Field::Region => f.write_str("locality.region"),
            Field::Zone => f.write_str("locality.zone"),
            Field::SubZone => f.write_str("locality.sub_zone"),
            Field::Metadata(path) => write!(f, "metadata {}", path.join(".")),
        }
    }
}
