//! One rule: the clients it is for, their claims, and their rights.

use crate::authorization::identity::IdentityPattern;
use crate::authorization::node::NodeCondition;
use crate::authorization::template::{Captures, Match, Template};
use sluice_identity::Identity;
use sluice_xds::{ResourceName, TypeUrl};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: Box<str>,
    /// Names of listeners; empty: all.
    pub listeners: Vec<Box<str>>,
    pub identity: IdentityPattern,
    /// All must hold (AUT-4).
    pub node: Vec<NodeCondition>,
    pub verdict: RuleVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    Deny,
    Allow(Vec<Allow>),
}

/// An entry of a rule's `allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    pub types: Types,
    /// `None`: every name.
    pub names: Option<Vec<NamePattern>>,
    /// `None`: names of every authority and of none. Else only `xdstp:` names of these authorities, as
    /// canonical names spell them; with `wildcard` also names of no authority.
    pub authorities: Option<Vec<Box<str>>>,
    /// Also the wildcard. Never beside `names`: a wildcard is answered whole (AUT-7).
    pub wildcard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Types {
    /// Every type but Secrets, which a rule has to name (AUT-10).
    All,
    Listed(Vec<TypeUrl>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    pub how: Match,
    pub text: Template,
}

impl Rule {
    /// The captures of a client that the rule is for.
    pub(super) fn matches(&self, listener: &str, identity: &Identity) -> Option<Captures> {
        let at_listener = self.listeners.is_empty() || self.listeners.iter().any(|name| **name == *listener);
        if !at_listener {
            return None;
        }
        self.identity.matches(identity)
    }
}

impl Allow {
    pub(super) fn has_authority_of(&self, name: &ResourceName) -> bool {
        let Some(authorities) = &self.authorities else { return true };
        match name.authority() {
            Some(authority) => authorities.iter().any(|allowed| **allowed == *authority),
            None => self.wildcard && !name.is_xdstp(),
        }
    }
}

impl Types {
    pub(super) fn covers(&self, type_url: &TypeUrl) -> bool {
        match self {
            Types::All => !type_url.is_secret(),
            Types::Listed(types) => types.contains(type_url),
        }
    }
}
