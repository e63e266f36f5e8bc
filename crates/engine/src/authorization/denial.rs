//! Denials, and their words for the client (AUT-13).
//!
//! A client reads which of its claims failed, and its own values. It never reads which values would have
//! passed. The rule is for the log.

use std::fmt;

use sluice_identity::Identity;
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// The longest value of a client that a text repeats, in characters: enough to recognize the value.
const SHOWN_MAX: usize = 200;

/// The part of a request that is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// No rule is for the identity, or the rule denies.
    Identity,
    Node(Claim),
    Type(TypeUrl),
    /// Secrets of a client that proved nothing, without a policy (AUT-10).
    Secrets(TypeUrl),
    Wildcard(TypeUrl),
    Name(TypeUrl, ResourceName),
}

/// A field of a node and the client's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    field: Box<str>,
    /// `None`: missing or empty.
    value: Option<Box<str>>,
}

impl Claim {
    pub fn new(field: String, value: Option<String>) -> Claim {
        Claim { field: field.into(), value: value.map(|value| shown(&value).into()) }
    }
}

impl Denial {
    /// The label of the metric.
    pub fn what(&self) -> &'static str {
        match self {
            Denial::Identity => "identity",
            Denial::Node(_) => "node",
            Denial::Type(_) | Denial::Secrets(_) => "type",
            Denial::Wildcard(_) => "wildcard",
            Denial::Name(..) => "name",
        }
    }

    /// The status for the client.
    pub fn status(&self, identity: &Identity) -> Status {
        Status::new(Code::PermissionDenied, Words { denial: self, who: Who(identity) }.to_string())
    }
}

/// The denials of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denials {
    pub first: Denial,
    /// The number of denied names, or 1.
    pub count: u64,
}

struct Words<'a> {
    denial: &'a Denial,
    who: Who<'a>,
}

struct Who<'a>(&'a Identity);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Identity::Anonymous => f.write_str("a client without a proved identity"),
            identity => write!(f, "{identity}"),
        }
    }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = &self.who;
        match self.denial {
            Denial::Identity => write!(f, "{who} has no access here"),
            Denial::Node(Claim { field, value: Some(value) }) => {
                write!(f, "the node's {field} is {value:?}, which {who} may not say")
            }
            Denial::Node(Claim { field, value: None }) => {
                write!(f, "the node has no {field}, which {who} must state")
            }
            Denial::Type(type_url) => write!(f, "{who} may not ask for {}", shown(type_url.as_str())),
            Denial::Secrets(_) => f.write_str(
                "Secrets are not served to a client without a proved identity over a network in plaintext; \
                 they need TLS with a client certificate, a unix socket or loopback",
            ),
            Denial::Wildcard(type_url) => {
                write!(f, "{who} may not ask for all resources of {}", shown(type_url.as_str()))
            }
            Denial::Name(type_url, name) => {
                write!(f, "{who} may not ask for {} of {}", shown(name.plain()), shown(type_url.as_str()))
            }
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
