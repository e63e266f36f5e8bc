//! Which clients may ask for which resources (AUT-1 to AUT-13).
//!
//! A [`Policy`] is an ordered list of rules. It judges the proved identity of a client and the node of the
//! stream's first request, once for each stream. The result is a [`Grant`]: the types, names and wildcards
//! that the stream may ask for. A session asks its grant at each change of subscription, before any look into
//! a cache, so that neither time nor text tells whether a denied name exists (AUT-8). Updates need no
//! decision: a denied name is never watched.
//!
//! In reading order:
//!
//! - [`template`]: texts with captures. [`identity`]: patterns of identities. [`node`]: conditions on nodes.
//! - [`denial`]: denials in words. [`rule`]: one rule. [`grant`]: the result.
//! - [`policy`]: all rules, and the decision.

pub mod template;
pub mod identity;
pub mod node;
pub mod denial;
pub mod rule;
pub mod grant;
pub mod policy;
#[cfg(test)]
mod tests;

pub use denial::{Claim, Denial, Denials};
pub use grant::{Grant, TypeGrant};
pub use identity::{IdentityPattern, PatternError};
pub use node::{Condition, Field, NodeCondition};
pub use policy::{Claimant, Decision, Mode, Policy};
pub use rule::{Allow, NamePattern, Rule, RuleVerdict, Types};
pub use template::{Captures, Match, Template, TemplateError};
