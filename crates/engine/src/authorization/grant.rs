//! The types, names and wildcards that one stream may ask for.

use std::sync::{Arc, LazyLock};

use crate::authorization::denial::Denial;
use crate::authorization::rule::{Allow, Rule, RuleVerdict};
use crate::authorization::template::Captures;
use sluice_identity::Identity;
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// Everything that one stream may ask for. Immutable, and shared wherever it needs no captures.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    scope: Scope,
    /// With `mode: report`: the scope that the rules would give.
    reported: Option<Scope>,
    who: Arc<Identity>,
    /// The reason at each denied name. One text for all names of the stream, so that it tells nothing of a
    /// name's existence (AUT-8).
    denied_name: Arc<Status>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Nothing,
    Everything,
    /// Without a policy: a client that proved nothing, on a network in plaintext (AUT-10).
    AllButSecrets,
    Rule {
        rule: Arc<Rule>,
        captures: Captures,
    },
}

/// A grant for one type.
#[derive(Clone, Copy, Debug)]
pub struct TypeGrant<'a> {
    scope: &'a Scope,
    type_url: &'a TypeUrl,
    every_name: bool,
    denied_name: &'a Arc<Status>,
}

impl Grant {
    pub(super) fn new(scope: Scope, reported: Option<Scope>, who: Arc<Identity>) -> Arc<Grant> {
        let text = match &*who {
            Identity::Anonymous => "a client without a proved identity may not ask for this name".to_owned(),
            who => format!("{who} may not ask for this name"),
        };
        let denied_name = Arc::new(Status::new(Code::PermissionDenied, text));
        Arc::new(Grant { scope, reported, who, denied_name })
    }

    /// The grant of a stream before its first request: every type is denied.
    pub fn nothing() -> Arc<Grant> {
        static NOTHING: LazyLock<Arc<Grant>> =
            LazyLock::new(|| Grant::new(Scope::Nothing, None, Arc::default()));
        NOTHING.clone()
    }

    /// The grant of a stream of a relay without a policy.
    pub fn everything() -> Arc<Grant> {
        Grant::new(Scope::Everything, None, Arc::default())
    }

    /// The name of the rule that gave the grant.
    pub fn rule(&self) -> Option<&str> {
        match self.reported.as_ref().unwrap_or(&self.scope) {
            Scope::Rule { rule, .. } => Some(&rule.name),
            Scope::Nothing | Scope::Everything | Scope::AllButSecrets => None,
        }
    }

    /// The entries of the grant with the captures filled in, for an operator.
    pub fn allows(&self) -> Option<(&[Allow], &Captures)> {
        match self.reported.as_ref().unwrap_or(&self.scope) {
            Scope::Rule { rule, captures } => match &rule.verdict {
                RuleVerdict::Allow(allow) => Some((allow, captures)),
                RuleVerdict::Deny => None,
            },
            Scope::Nothing | Scope::Everything | Scope::AllButSecrets => None,
        }
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn who(&self) -> &Arc<Identity> {
        &self.who
    }

    /// Whether nothing needs a look.
    pub fn allows_all(&self) -> bool {
        self.scope == Scope::Everything && self.reported.is_none()
    }

    /// The grant for a type.
    ///
    /// # Errors
    /// The type is denied as a whole (AUT-9).
    pub fn of_type<'a>(&'a self, type_url: &'a TypeUrl) -> Result<TypeGrant<'a>, Denial> {
        self.of_scope(&self.scope, type_url)
    }

    /// The grant that the rules would give for a type, with `mode: report`.
    pub fn reported_of_type<'a>(&'a self, type_url: &'a TypeUrl) -> Option<Result<TypeGrant<'a>, Denial>> {
        Some(self.of_scope(self.reported.as_ref()?, type_url))
    }

    fn of_scope<'a>(&'a self, scope: &'a Scope, type_url: &'a TypeUrl) -> Result<TypeGrant<'a>, Denial> {
        let every_name = match scope {
            Scope::Nothing => return Err(Denial::Type(type_url.clone())),
            Scope::Everything => true,
            Scope::AllButSecrets if type_url.is_secret() => return Err(Denial::Secrets(type_url.clone())),
            Scope::AllButSecrets => true,
            Scope::Rule { .. } => {
                let mut entries = scope.entries(type_url).peekable();
                if entries.peek().is_none() {
                    return Err(Denial::Type(type_url.clone()));
                }
                entries.any(|entry| entry.names.is_none() && entry.authorities.is_none())
            }
        };
        Ok(TypeGrant { scope, type_url, every_name, denied_name: &self.denied_name })
    }
}

impl Scope {
    /// The entries for a type.
    fn entries<'a>(&'a self, type_url: &'a TypeUrl) -> impl Iterator<Item = &'a Allow> {
        let allow = match self {
            Scope::Rule { rule, .. } => match &rule.verdict {
                RuleVerdict::Allow(allow) => allow.as_slice(),
                RuleVerdict::Deny => &[],
            },
            Scope::Nothing | Scope::Everything | Scope::AllButSecrets => &[],
        };
        allow.iter().filter(|entry| entry.types.covers(type_url))
    }
}

impl TypeGrant<'_> {
    /// Whether no name of the type is denied.
    pub fn has_every_name(&self) -> bool {
        self.every_name
    }

    pub fn allows_wildcard(&self) -> bool {
        match self.scope {
            Scope::Nothing => false,
            Scope::Everything | Scope::AllButSecrets => true,
            Scope::Rule { .. } => self.scope.entries(self.type_url).any(|entry| entry.wildcard),
        }
    }

    /// Whether a name in its canonical spelling is allowed. A glob is a name: the names of its members begin
    /// like the glob. Allocates nothing, and looks at nothing but the name (AUT-8).
    pub fn allows(&self, name: &ResourceName) -> bool {
        if self.every_name {
            return true;
        }
        let Scope::Rule { captures, .. } = self.scope else { return false };
        // Dynamic parameters select a variant, and do not make another name.
        let plain = name.plain();
        self.scope.entries(self.type_url).any(|entry| {
            let is_named = entry.names.as_ref().is_none_or(|patterns| {
                patterns.iter().any(|pattern| pattern.text.matches(pattern.how, plain, captures))
            });
            is_named && entry.has_authority_of(name)
        })
    }

    /// The reason at a denied name.
    pub fn denied_name(&self) -> &Arc<Status> {
        self.denied_name
    }
}
