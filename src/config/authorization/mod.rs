//! `authorization:`, who may ask for what (AUT-2, AUT-3). Inline, or in a file of its own.

mod node;
mod allow;
mod domains;

use std::path::{Path, PathBuf};

use super::error::{ConfigError, KeyError, Problem};
use super::expand::{Variables, environment};
use super::form::{Form, Parsed, Shaped};
use super::reader::{Item, Map, walk};
use super::syntax;
use super::tree::{Format, Tree};
use super::units::{boolean, word};
pub(super) use domains::warn_of_domains;
use sluice_engine::authorization::{
    IdentityPattern, Match, Mode, Policy, Rule, RuleVerdict, Template, TemplateError,
};
use sluice_identity::spiffe::check_trust_domain;

/// The longest list of rules. A decision walks the list once for each stream, in microseconds.
const RULES_MAX: usize = 1024;

/// The longest file of rules, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("report", Mode::Report)];

/// The source of the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Authorization {
    #[default]
    Off,
    Inline(Policy),
    /// A file with the same keys, and its content. The file is read again when it changes.
    File(PathBuf, Policy),
}

impl Authorization {
    /// `None` if authorization is off.
    pub fn policy(&self) -> Option<&Policy> {
        match self {
            Authorization::Off => None,
            Authorization::Inline(policy) | Authorization::File(_, policy) => Some(policy),
        }
    }
}

/// Reads `authorization`. `in_force`: the policy for a text that opens no file (REL-10). `listeners` are the
/// names of the listeners.
pub(super) fn read_authorization(
    item: &Item<'_>,
    directory: &Path,
    variables: Variables<'_>,
    in_force: Option<&Authorization>,
    listeners: &[&str],
) -> Authorization {
    if item.is_word("off") {
        return Authorization::Off;
    }
    let read = item.map(|map| {
        map.can_be("file", &[Form::Text]);
        let Some(item) = map.item("file") else {
            return read_policy(map, listeners).map(Authorization::Inline);
        };
        map.reject_inapplicable(&["mode", "rules"], "`file`, which has these keys itself");
        let file = directory.join(item.text()?);
        if let Some(in_force) = in_force {
            return policy_in_force(&item, file, in_force);
        }
        match load_from(&file, listeners, variables) {
            Ok(policy) => Some(Authorization::File(file, policy)),
            Err(ConfigError::Invalid { errors }) => {
                let at = |error: &KeyError| match &error.problem {
                    // `check --offline` lists a variable, wherever its value is.
                    Problem::Unset { variable, .. } => {
                        let within = format!("{}:{}: {}", file.display(), error.place, error.path);
                        Problem::Unset { variable: variable.clone(), within: Some(within) }
                    }
                    _ => Problem::Contradiction { reason: format!("{}:{error}", file.display()) },
                };
                errors.iter().for_each(|error| item.error(at(error)));
                None
            }
            Err(error @ ConfigError::Unreadable { .. }) => {
                item.error(Problem::Contradiction { reason: error.to_string() });
                None
            }
            Err(error @ ConfigError::Syntax { .. }) => {
                let reason = format!("{}:{error}", file.display());
                item.error(Problem::Contradiction { reason });
                None
            }
        }
    });
    read.flatten().unwrap_or_default()
}

/// The policy of the file in force. No other file is opened for the text of a caller (REL-10).
fn policy_in_force(item: &Item<'_>, file: PathBuf, in_force: &Authorization) -> Option<Authorization> {
    match in_force {
        Authorization::File(path, policy) if *path == file => Some(Authorization::File(file, policy.clone())),
        _ => {
            let reason = "the text of a caller opens no file, and this one is not in force".to_owned();
            item.error(Problem::Contradiction { reason });
            None
        }
    }
}

/// Reads a policy from a file of its own: JSON if its name is `*.json`, else YAML. `listeners` as in the
/// configuration.
///
/// # Errors
/// Every error of the file. The file as a whole is not used then.
pub fn load_policy(file: &Path, listeners: &[&str]) -> Result<Policy, ConfigError> {
    load_from(file, listeners, &environment)
}

fn load_from(file: &Path, listeners: &[&str], variables: Variables<'_>) -> Result<Policy, ConfigError> {
    let text = syntax::read_text(file, FILE_BYTES_MAX)?;
    parse_policy(&text, Format::of(file), listeners, variables)
}

/// Reads a policy from the text of its own file.
///
/// # Errors
/// Every error of the text, or the first error of syntax.
pub fn parse_policy(
    text: &str,
    format: Format,
    listeners: &[&str],
    variables: Variables<'_>,
) -> Result<Policy, ConfigError> {
    let tree = syntax::parse(text, format, variables)?;
    let (policy, _) = walk(&tree, |map| {
        map.allow_holders();
        read_policy(map, listeners)
    })?;
    Ok(policy)
}

/// `None` only if an error was reported.
fn read_policy(map: &mut Map<'_>, listeners: &[&str]) -> Option<Policy> {
    let mode = map.or("mode", Mode::default(), word(MODES));
    let list = map.required("rules", "a list of rules; an empty list denies everything")?;
    let items = list.list()?;
    if items.len() > RULES_MAX {
        list.invalid(format!("at most {RULES_MAX} rules"));
        return None;
    }
    let mut rules: Vec<Rule> = Vec::new();
    for item in &items {
        let Some(Some(rule)) = item.map(|map| read_rule(map, listeners)) else { continue };
        if rules.iter().any(|other| other.name == rule.name) {
            let reason = format!("{:?} is also the name of another rule", rule.name);
            item.error_at("name", Problem::Contradiction { reason });
        }
        if rules.iter().any(|earlier| catches(earlier, &rule)) {
            let reason = "never reached: an earlier rule matches all of its clients".into();
            item.error(Problem::Contradiction { reason });
        }
        rules.push(rule);
    }
    Some(Policy::new(mode, rules))
}

/// Whether no client of `rule` gets past `earlier`.
fn catches(earlier: &Rule, rule: &Rule) -> bool {
    let all_listeners = earlier.listeners.is_empty()
        || (!rule.listeners.is_empty() && rule.listeners.iter().all(|name| earlier.listeners.contains(name)));
    all_listeners && (earlier.identity == IdentityPattern::Any || earlier.identity == rule.identity)
}

fn read_rule(map: &mut Map<'_>, listeners: &[&str]) -> Option<Rule> {
    let name = map.required("name", "a name for the log").and_then(|item| item.text());
    let matched = map.section("match", |map| read_match(map, listeners)).flatten();
    let captures = matched.as_ref().map(|(_, identity)| identity.captures()).unwrap_or_default();
    // Without a valid pattern, every capture would seem unknown.
    let names = Captures { names: &captures, is_known: matched.is_some() };
    let node = map.section("node", |map| node::read_conditions(map, names)).unwrap_or_default();
    let deny = map.optional("deny", boolean());
    if deny == Some(false) {
        map.contradiction("deny", "must be true; a rule without `deny` has `allow`");
    }
    if deny.is_some() && map.has("node") {
        map.contradiction("node", "has no effect beside `deny`: a rule that denies needs no claims");
    }
    let verdict = match (map.has("deny"), map.item("allow")) {
        (true, None) => Some(RuleVerdict::Deny),
        (true, Some(item)) => {
            item.error(Problem::Contradiction { reason: "and `deny` exclude each other".into() });
            None
        }
        (false, Some(item)) => allow::read_allow(&item, names).map(RuleVerdict::Allow),
        (false, None) => {
            map.error(
                "allow",
                Problem::Missing { expected: "a list of grants, or `deny: true` beside".into() },
            );
            None
        }
    };
    let (listeners, identity) = matched?;
    Some(Rule { name: name?.into(), listeners, identity, node, verdict: verdict? })
}

fn read_match(map: &mut Map<'_>, listeners: &[&str]) -> Option<(Vec<Box<str>>, IdentityPattern)> {
    let mut named = Vec::new();
    for item in map.list("listeners") {
        let Some(name) = item.text() else { continue };
        if !listeners.contains(&name) {
            item.invalid(format!("the name of a listener: {}", listeners.join(", ")));
        }
        named.push(name.into());
    }
    let item = map.required("identity", FORMS)?;
    Some((named, read_identity(&item)?))
}

const FORMS: &str = "a SPIFFE ID like spiffe://TRUST-DOMAIN/ns/{ns}, { dns: NAME }, { trust_domain: NAME }, { unix_uid: [ 0 ] }, \
     anonymous or any";

pub(super) fn read_identity(item: &Item<'_>) -> Option<IdentityPattern> {
    let faulty = |item: &Item<'_>, text: &str, fault: String| {
        let shown = item.quoting(format!("{text:?}: {fault}"));
        item.error(Problem::Contradiction { reason: format!("{shown}; expected {FORMS}") });
    };
    item.can_be(&[Form::Text, Form::Map]);
    match item.tree {
        Tree::Text(text) if text == "any" => Some(IdentityPattern::Any),
        Tree::Text(text) if text == "anonymous" => Some(IdentityPattern::Anonymous),
        Tree::Text(text) => IdentityPattern::spiffe(text).map_err(|error| faulty(item, text, error.0)).ok(),
        Tree::Map(_) => item.map(|map| {
            let users = map.item("unix_uid");
            let dns = map.item("dns");
            map.can_be("trust_domain", &[Form::Text]);
            let trust_domain = map.item("trust_domain");
            match (users, dns, trust_domain) {
                (Some(users), None, None) => {
                    let users: Vec<_> =
                        users.list()?.iter().filter_map(|item| item.parse(Shaped(UID, uid))).collect();
                    if users.is_empty() {
                        map.error("unix_uid", Problem::Missing { expected: "at least one user id".into() });
                    }
                    Some(IdentityPattern::Unix(users.into()))
                }
                (None, Some(dns), None) => {
                    let text = dns.text()?;
                    IdentityPattern::dns(text).map_err(|error| faulty(&dns, text, error.0)).ok()
                }
                (None, None, Some(name)) => {
                    let text = name.text()?;
                    let checked = check_trust_domain(text);
                    checked.map_err(|error| faulty(&name, text, error.to_string())).ok()?;
                    Some(IdentityPattern::TrustDomain(text.into()))
                }
                _ => {
                    map.invalid("one of `dns`, `trust_domain` and `unix_uid`");
                    None
                }
            }
        })?,
        _ => {
            item.invalid(FORMS);
            None
        }
    }
}

const UID: &[Form] = &[Form::Integer { least: 0, most: u32::MAX as u64 }];

fn uid(tree: &Tree) -> Parsed<u32> {
    let id = match tree {
        Tree::Integer(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    id.ok_or_else(|| "a user id".to_owned())
}

/// The captures of a rule's identity.
#[derive(Clone, Copy)]
struct Captures<'a> {
    names: &'a [String],
    is_known: bool,
}

/// Reads a text with captures.
fn read_template(item: &Item<'_>, how: Match, captures: Captures<'_>) -> Option<Template> {
    let text = item.text()?;
    let reason = match Template::parse(text, captures.names) {
        Ok(template) if template.is_open(how) => format!(
            "{text:?}: a capture at the end of a {how} also fits longer names; expected the separator beside it"
        ),
        Ok(template) => return Some(template),
        Err(TemplateError::Unknown(_)) if !captures.is_known => return None,
        Err(TemplateError::Unknown(name)) => {
            let names: Vec<_> = captures.names.iter().map(|name| format!("{{{name}}}")).collect();
            let names = if names.is_empty() { "no captures".to_owned() } else { names.join(" and ") };
            format!("\"{{{name}}}\" is not a part of match.identity; it has {names}")
        }
        Err(TemplateError::Brace) => format!("{text:?}: a brace has no partner; `{{{{` stands for a brace"),
    };
    item.error(Problem::Contradiction { reason: item.quoting(reason) });
    None
}

/// Reads the one of `exact`, `prefix` and `suffix` that a map has.
fn read_pattern(map: &mut Map<'_>, captures: Captures<'_>) -> Option<(Match, Template)> {
    let forms = [("exact", Match::Exact), ("prefix", Match::Prefix), ("suffix", Match::Suffix)];
    forms.iter().for_each(|(key, _)| map.can_be(key, &[Form::Text]));
    let patterns = forms.map(|(key, how)| map.item(key).map(|item| (item, how)));
    let mut patterns = patterns.into_iter().flatten();
    let (Some((item, how)), None) = (patterns.next(), patterns.next()) else {
        map.invalid("one of `exact`, `prefix` and `suffix`");
        return None;
    };
    Some((how, read_template(&item, how, captures)?))
}

/// Reads plain text, which must match exactly, or a map with `exact`, `prefix` or `suffix`.
fn read_text(item: &Item<'_>, captures: Captures<'_>) -> Option<(Match, Template)> {
    item.can_be(&[Form::Text, Form::Map]);
    match item.tree {
        Tree::Text(_) => Some((Match::Exact, read_template(item, Match::Exact, captures)?)),
        Tree::Map(_) => item.map(|map| read_pattern(map, captures))?,
        _ => {
            item.invalid("text, {prefix: TEXT} or {suffix: TEXT}");
            None
        }
    }
}
