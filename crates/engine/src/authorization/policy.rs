//! Rules in order, and the decision about one stream.

use std::sync::Arc;

use crate::authorization::denial::Denial;
use crate::authorization::grant::{Grant, Scope};
use crate::authorization::rule::{Rule, RuleVerdict};
use sluice_identity::Identity;
use sluice_xds::Node;

/// Whether denials have an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// Denials are counted and logged, and nothing is denied (AUT-15).
    Report,
}

/// The rules in force. The default is no rules at all: every client may ask for everything, but for Secrets
/// (AUT-10).
#[derive(Debug)]
pub struct Policy {
    rules: Option<(Mode, Vec<Arc<Rule>>)>,
    /// The grants of a relay without rules, shared by all streams.
    everything: Arc<Grant>,
    all_but_secrets: Arc<Grant>,
    nothing: Arc<Grant>,
}

/// A client as the relay knows it, without its claims.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The name of the listener.
    pub listener: &'a str,
    pub identity: &'a Arc<Identity>,
    /// The client came over a unix socket or the loopback interface.
    pub is_local: bool,
}

/// The decision about one stream.
#[derive(Clone, Debug)]
pub struct Decision {
    pub grant: Arc<Grant>,
    /// The rules deny the whole stream. With [`Mode::Report`] the grant is another than nothing all the same.
    pub denial: Option<Denial>,
    /// The index of the rule that decided.
    pub rule: Option<usize>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy::with(None)
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Clone for Policy {
    fn clone(&self) -> Self {
        Policy::with(self.rules.clone())
    }
}

impl Policy {
    /// The first rule that matches decides; without one, the stream is denied (AUT-2).
    pub fn new(mode: Mode, rules: Vec<Rule>) -> Policy {
        Policy::with(Some((mode, rules.into_iter().map(Arc::new).collect())))
    }

    fn with(rules: Option<(Mode, Vec<Arc<Rule>>)>) -> Policy {
        let all_but_secrets = Grant::new(Scope::AllButSecrets, None, Arc::default());
        Policy { rules, everything: Grant::everything(), all_but_secrets, nothing: Grant::nothing() }
    }

    /// `None` without rules.
    pub fn mode(&self) -> Option<Mode> {
        self.rules.as_ref().map(|(mode, _)| *mode)
    }

    pub fn rules(&self) -> &[Arc<Rule>] {
        self.rules.as_ref().map_or(&[], |(_, rules)| rules)
    }

    /// Judges a stream by the identity of its connection and the node of its first request.
    pub fn decide(&self, claimant: Claimant<'_>, node: Option<&Node>) -> Decision {
        let Some((mode, rules)) = &self.rules else {
            return Decision { grant: self.without_rules(claimant).clone(), denial: None, rule: None };
        };
        let entry = rules.iter().enumerate().find_map(|(index, rule)| {
            Some((index, rule, rule.matches(claimant.listener, claimant.identity)?))
        });
        let index = entry.as_ref().map(|(index, ..)| *index);
        let judged = entry.ok_or(Denial::Identity).and_then(|(_, rule, captures)| {
            for condition in &rule.node {
                condition.check(node, &captures).map_err(Denial::Node)?;
            }
            match rule.verdict {
                RuleVerdict::Deny => Err(Denial::Identity),
                RuleVerdict::Allow(_) => Ok(Scope::Rule { rule: rule.clone(), captures }),
            }
        });
        let who = claimant.identity;
        let (grant, denial) = match (judged, mode) {
            (Ok(scope), Mode::Enforce) => (Grant::new(scope, None, who.clone()), None),
            (Ok(scope), Mode::Report) => {
                let in_force = self.without_rules(claimant).scope().clone();
                (Grant::new(in_force, Some(scope), who.clone()), None)
            }
            (Err(denial), Mode::Enforce) => (self.nothing.clone(), Some(denial)),
            (Err(denial), Mode::Report) => (self.without_rules(claimant).clone(), Some(denial)),
        };
        Decision { grant, denial, rule: index }
    }

    /// Secrets go to proved identities, unix sockets and loopback only (AUT-10).
    fn without_rules(&self, claimant: Claimant<'_>) -> &Arc<Grant> {
        let is_known = claimant.is_local || **claimant.identity != Identity::Anonymous;
        if is_known { &self.everything } else { &self.all_but_secrets }
    }
}
