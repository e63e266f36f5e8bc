//! Which clients may ask for which resources (AUT-1 to AUT-13).
//!
//! A [`Policy`] is an ordered list of rules. It judges the proved identity of a client and the node of the stream's
//! first request, once for each stream. The result is a [`Grant`]: the types, names and wildcards that the stream may
//! ask for. A session asks its grant at each change of subscription, before any look into a cache, so that neither
//! time nor text tells whether a denied name exists (AUT-8). Updates need no decision: a denied name is never watched.
//!
//! 1. [`template`]: texts with captures. 2. [`identity`]: patterns of identities. 3. [`node`]: conditions on nodes.
//! 4. [`denial`]: denials in words. 5. [`grant`]: the result. 6. [`policy`]: rules, and the decision.

pub mod template;
pub mod identity;
pub mod node;
pub mod denial;
pub mod grant;
pub mod policy;
#[cfg(test)]
mod tests;

pub use denial::{Claim, Denial, Denials};
pub use grant::{Allow, Grant, NamePattern, TypeGrant, Types};
pub use identity::{IdentityPattern, PatternError};
pub use node::{Condition, Field, NodeCondition};
pub use policy::{Claimant, Decision, Mode, Policy, Rule, Verdict};
pub use template::{Captures, Match, Template, TemplateError};
