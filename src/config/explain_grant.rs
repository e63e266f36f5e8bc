//! The decision of the rules about one client, as text for `sluice check --identity`, and the claims that no
//! rule binds.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use super::{Address, Config, ListenerSettings};
use sluice_engine::authorization::{
    Allow, Captures, Claimant, Decision, Field, Grant, Match, RuleVerdict, Types,
};
use sluice_engine::class::{
    IdPart, MetadataParts, NodeKey, NodeMatch, Projection, ShareSecrets, VersionPart,
};
use sluice_identity::spiffe::check_trust_domain;
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Node, ResourceName, TypeUrl};

/// The listener with this name; without a name, the first.
///
/// # Errors
/// The names of the listeners, if there is no such listener.
pub fn find_listener<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a ListenerSettings, String> {
    let has_name = |listener: &&ListenerSettings| name.is_none_or(|name| *name == *listener.name);
    config.listeners.iter().find(has_name).ok_or_else(|| {
        let names: Vec<&str> = config.listeners.iter().map(|listener| &*listener.name).collect();
        format!("no such listener; available are {}", names.join(", "))
    })
}

/// An identity as an operator writes it: `spiffe://…`, `dns:NAME`, `trust_domain:NAME`, `unix:UID` or
/// `anonymous`.
pub fn parse_identity(text: &str) -> Option<Identity> {
    if text == "anonymous" {
        return Some(Identity::Anonymous);
    }
    if let Some(uid) = text.strip_prefix("unix:") {
        return uid.parse().ok().map(|uid| Identity::Unix { uid });
    }
    if let Some(name) = text.strip_prefix("dns:") {
        return Some(Identity::Dns(name.to_ascii_lowercase().into()));
    }
    if let Some(name) = text.strip_prefix("trust_domain:") {
        return check_trust_domain(name).ok().map(|()| Identity::TrustDomain(name.into()));
    }
    SpiffeId::parse(text).ok().map(Identity::Spiffe)
}

/// The rule that decides about a client, and the client's grant (AUT-15). `ask`: a type, and a name or all of
/// them.
pub fn explain_decision(
    config: &Config,
    listener: &ListenerSettings,
    identity: Identity,
    node: Option<&Node>,
    ask: Option<(&str, Option<&str>)>,
) -> String {
    let (mut text, identity) = (String::new(), Arc::new(identity));
    let policy = config.authorization.policy().cloned().unwrap_or_default();
    let claimant = Claimant {
        listener: &listener.name,
        identity: &identity,
        is_local: matches!(listener.address, Address::Unix { .. }),
    };
    let Decision { grant, denial, rule } = policy.decide(claimant, node);
    let rule = match rule.and_then(|index| Some((index, policy.rules().get(index)?))) {
        Some((index, rule)) => format!("rule {} {:?}", index + 1, rule.name),
        None if policy.mode().is_none() => "authorization is off".to_owned(),
        None => "no rule".to_owned(),
    };
    // Writing to a String can't fail.
    let _ = writeln!(text, "listener {}, {identity}: {rule}", listener.name);
    if let Some(denial) = denial {
        let _ = writeln!(text, "  denied; the client reads: {}", denial.status(&identity).message);
        return text;
    }
    match grant.allows() {
        Some((allow, captures)) => {
            for entry in allow {
                let _ = writeln!(text, "  {}", describe(entry, captures));
            }
        }
        None if grant.allows_all() => text.push_str("  all types, every name, the wildcard\n"),
        None => text.push_str("  all types but Secrets, every name, the wildcard\n"),
    }
    if let Some((type_name, name)) = ask {
        let _ = writeln!(text, "{}", answer(&grant, type_name, name));
    }
    text
}

fn describe(entry: &Allow, captures: &Captures) -> String {
    let types = match &entry.types {
        Types::All => "all types but Secrets".to_owned(),
        Types::Listed(types) => types.iter().map(TypeUrl::short).collect::<Vec<_>>().join(", "),
    };
    let names = entry.names.as_ref().map_or("every name".to_owned(), |patterns| {
        let pattern = |how: Match, text: String| match how {
            Match::Exact => format!("{text:?}"),
            Match::Prefix => format!("{text:?}…"),
            Match::Suffix => format!("…{text:?}"),
        };
        let names: Vec<_> = patterns.iter().map(|name| pattern(name.how, name.text.fill(captures))).collect();
        format!("names {}", names.join(", "))
    });
    let authorities = entry.authorities.as_ref().map_or(String::new(), |names| {
        format!(" of the authorities {:?}{}", names, if entry.wildcard { " and of none" } else { "" })
    });
    let wildcard = if entry.wildcard { ", the wildcard" } else { "" };
    format!("{types}: {names}{authorities}{wildcard}")
}

fn answer(grant: &Grant, type_name: &str, name: Option<&str>) -> String {
    let message = type_name.strip_prefix("type.googleapis.com/").unwrap_or(type_name);
    let type_url = TypeUrl::of_message(message);
    let is_allowed = |name: &ResourceName| {
        let of_type = grant.reported_of_type(&type_url).unwrap_or_else(|| grant.of_type(&type_url));
        let canonical = name.canonical(message).ok()?;
        Some(of_type.is_ok_and(|of_type| match name.is_wildcard() {
            true => of_type.allows_wildcard(),
            false => of_type.allows(canonical.as_ref().unwrap_or(name)),
        }))
    };
    let shown = name.map_or("all resources".to_owned(), |name| format!("{name:?}"));
    let verdict = match is_allowed(&ResourceName::new(name.unwrap_or("*"))) {
        Some(true) => "allowed",
        Some(false) => "denied",
        None => "not a name of this type",
    };
    format!("{shown} of {message}: {verdict}")
}

/// One line per listener with fields of nodes that decide a client's class, and that no rule binds: a client
/// may state any value there (AUT-6). Empty while authorization is off.
pub fn explain_unbound(config: &Config) -> String {
    let mut text = String::new();
    let Some(policy) = config.authorization.policy() else { return text };
    let looked_at = looked_at(config);
    for listener in &config.listeners {
        let is_here = |listeners: &[Box<str>]| {
            listeners.is_empty() || listeners.iter().any(|name| **name == *listener.name)
        };
        let rules = policy
            .rules()
            .iter()
            .filter(|rule| is_here(&rule.listeners) && matches!(rule.verdict, RuleVerdict::Allow(_)));
        let bound: BTreeSet<String> =
            rules.flat_map(|rule| &rule.node).map(|condition| condition.field.to_string()).collect();
        let free: Vec<&str> =
            looked_at.iter().filter(|field| !bound.contains(*field)).map(String::as_str).collect();
        if !free.is_empty() {
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "listener {}: node_classes looks at {}, and no rule of authorization binds these claims",
                listener.name,
                free.join(", ")
            );
        }
    }
    text
}

/// The fields that decide the class of some client.
fn looked_at(config: &Config) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for rule in &config.node_classes.rules {
        fields.extend(of_match(&rule.nodes).map(|field| field.to_string()));
        fields.extend(of_projection(&rule.projection));
        if rule.projection.facts.keeps_any() {
            fields.insert(of_key(&config.node_classes.facts.key).to_string());
        }
        // Secrets are split by the id, too (RLY-21).
        fields.extend((rule.share_secrets != ShareSecrets::Yes).then(|| Field::Id.to_string()));
    }
    fields
}

/// The claim by which the facts of a client are found.
fn of_key(key: &NodeKey) -> Field {
    match key {
        NodeKey::Id | NodeKey::IdPart { .. } => Field::Id,
        NodeKey::Metadata(path) => Field::Metadata(path.clone()),
    }
}

fn of_match(nodes: &NodeMatch) -> impl Iterator<Item = Field> {
    let stated = [
        (nodes.id.is_some(), Field::Id),
        (nodes.cluster.is_some(), Field::Cluster),
        (nodes.user_agent_name.is_some(), Field::UserAgentName),
        (nodes.region.is_some(), Field::Region),
        (nodes.zone.is_some(), Field::Zone),
        (nodes.sub_zone.is_some(), Field::SubZone),
    ];
    let stated = stated.into_iter().filter_map(|(is_stated, field)| is_stated.then_some(field));
    stated.chain(nodes.metadata.iter().map(|condition| Field::Metadata(condition.path.clone())))
}

fn of_projection(projection: &Projection) -> Vec<String> {
    let mut fields = Vec::new();
    let locality = [Field::Region, Field::Zone, Field::SubZone];
    let depth = projection.locality.map_or(0, |depth| depth as usize + 1);
    let stated = [
        (projection.id != IdPart::None, Field::Id),
        (projection.cluster, Field::Cluster),
        (projection.user_agent_name, Field::UserAgentName),
    ];
    fields.extend(stated.into_iter().filter_map(|(is_stated, field)| is_stated.then(|| field.to_string())));
    fields.extend(locality.iter().take(depth).map(Field::to_string));
    match &projection.metadata {
        MetadataParts::AllBut(_) => fields.push("metadata".to_owned()),
        MetadataParts::Paths(paths) => {
            fields.extend(paths.iter().map(|path| Field::Metadata(path.clone()).to_string()));
        }
    }
    fields.extend(projection.address_family.as_ref().map(|key| of_key(key).to_string()));
    if projection.user_agent_version != VersionPart::None {
        fields.push("user_agent_version".to_owned());
    }
    fields
}
