//! `proof:`: whom the relay asks the server as, beside the classes (PRF-5, PRF-19).

use std::sync::Arc;

use super::classes::{read_node_match, read_type};
use super::error::Problem;
use super::form::{Form, Parsed, Shaped};
use super::reader::{Item, Map};
use super::rollouts::read_units;
use super::servers::Servers;
use super::tree::Tree;
use super::units::word;
use super::upstream::ServerKind;
use crate::driver::ground::proof_rules::{IgnoredField, ProofRules};
use sluice_engine::class::{ClassRule, IdPart, NodeClasses, NodeMatch, UpstreamNode};
use sluice_fleet::rollout::plan::UnitMatch;
use sluice_proof::proof::settings::STANDING_MAX;
use sluice_proof::proof::{Policy, ProofPace, ProofSettings, Standing};

const POLICIES: &[(&str, Policy)] =
    &[("warn", Policy::Warn), ("split", Policy::Split), ("refuse", Policy::Refuse)];

/// Whether Secrets are compared.
const SECRETS: &[(&str, bool)] = &[("never", false), ("versions", true)];

const STANDING_FORM: &[Form] =
    &[Form::Integer { least: 0, most: STANDING_MAX as u64 }, Form::Pattern("^([0-9]{1,2}(\\.[0-9])?|100)%$")];

/// An ignored path hides the next error (PRF-15).
const IGNORED: &str = "differences in this field are never told, whatever they are";

/// `None` only if an error was reported. `servers`: `None` if the lists have errors of their own.
pub(super) fn read_proof(
    item: &Item<'_>,
    servers: Option<&Servers>,
    classes: &NodeClasses,
) -> Option<Arc<ProofRules>> {
    let before = item.error_count();
    let rules = item.map(|map| read_rules(map, servers, classes))?;
    check_servers(item, &rules.units, servers);
    check_classes(item, classes);
    (item.error_count() == before).then(|| Arc::new(rules))
}

fn read_rules(map: &mut Map<'_>, servers: Option<&Servers>, classes: &NodeClasses) -> ProofRules {
    let lists: Option<Vec<String>> = servers.map(|servers| servers.lists().map(|(key, _)| key).collect());
    let policy = map.or("policy", Policy::default(), word(POLICIES));
    let units = map.section("match", |map| read_units(map, lists.as_deref(), classes)).unwrap_or_default();
    let pace = ProofPace::read(map);
    let standing = map.or("standing", Standing::default(), Shaped(STANDING_FORM, read_standing));
    let compares_secrets = map.or("secrets", false, word(SECRETS));
    let never = map.list("never").iter().filter_map(read_never).collect();
    let ignored = map.list("ignore").iter().filter_map(|item| item.map(read_ignored).flatten()).collect();
    let settings = ProofSettings { policy, pace, standing, compares_secrets, ..ProofSettings::default() };
    ProofRules { settings, units, never, ignored }
}

/// A number of clients, or a share of them in percent.
fn read_standing(tree: &Tree) -> Parsed<Standing> {
    let expected =
        || format!("an integer from 0 to {STANDING_MAX}, or a share of the clients, written like 2%");
    match tree {
        Tree::Integer(number) => {
            let number = u32::try_from(*number).ok().filter(|number| *number as usize <= STANDING_MAX);
            number.map(Standing::Count).ok_or_else(expected)
        }
        Tree::Text(text) => {
            let thousandths = text.strip_suffix('%').and_then(thousandths);
            thousandths.map(Standing::Share).ok_or_else(expected)
        }
        _ => Err(expected()),
    }
}

/// Percent with at most one decimal, up to 100, in thousandths.
fn thousandths(percent: &str) -> Option<u32> {
    let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(tenths) || tenths.len() > 1 || whole.len() > 3 {
        return None;
    }
    let thousandths = whole.parse::<u32>().ok()? * 10 + tenths.parse::<u32>().ok()?;
    (thousandths <= 1_000).then_some(thousandths)
}

fn read_never(item: &Item<'_>) -> Option<NodeMatch> {
    let nodes = item.map(read_node_match)?;
    if nodes == NodeMatch::default() {
        item.invalid("at least one condition; without `proof` no node is shown");
    }
    Some(nodes)
}

fn read_ignored(map: &mut Map<'_>) -> Option<IgnoredField> {
    let type_url = map.required("type", "a full message name").and_then(|item| read_type(&item));
    let path = map.required("path", "the path of a field")?;
    let text = path.text()?;
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !text.split('.').all(is_name) {
        path.invalid("names of fields with dots between, as filter_chains.filters.typed_config.stat_prefix");
        return None;
    }
    path.warn(IGNORED);
    Some(IgnoredField { type_url: type_url?, path: text.to_owned() })
}

/// Only a control plane with gRPC can be asked twice.
fn check_servers(item: &Item<'_>, units: &UnitMatch, servers: Option<&Servers>) {
    let Some(servers) = servers else { return };
    let lists = servers
        .lists()
        .filter(|(key, _)| units.lists.is_empty() || units.lists.iter().any(|list| **list == **key));
    let (mut asked, mut others) = (0, Vec::new());
    for server in lists.flat_map(|(_, list)| &list.servers) {
        match &server.kind {
            ServerKind::Grpc(_) => asked += 1,
            ServerKind::Rest(_) | ServerKind::Directory { .. } => others.push(server.server_uri.as_str()),
        }
        if server.server_uri.to_lowercase().contains("kuma") {
            item.warn(format!(
                "{}: Kuma registers a client when it connects, and takes it off when its last stream ends; no node is \
                    shown to a server that calls itself kuma",
                server.server_uri
            ));
        }
    }
    if asked == 0 {
        let reason = "cannot work: no server of these lists is a control plane with gRPC (directories and polls give \
            the same answers, or have no streams)";
        item.error(Problem::Contradiction { reason: reason.into() });
    } else if !others.is_empty() {
        item.warn(format!(
            "does not apply to {}: only control planes with gRPC are asked",
            others.join(", ")
        ));
    }
}

/// A class that shows a projection has no member to ask as.
fn check_classes(item: &Item<'_>, classes: &NodeClasses) {
    let shows_projection = |rule: &&ClassRule| {
        rule.upstream_node == UpstreamNode::Projection && rule.projection.id != IdPart::Whole
    };
    let stated = || classes.rules.iter().filter(|rule| !rule.id.is_default);
    if let Some(rule) = stated().find(shows_projection) {
        let reason = format!(
            "cannot work with `upstream_node: projection` in {}: such a class has no member to ask as; set \
                `upstream_node: member` there",
            rule.id
        );
        item.error(Problem::Contradiction { reason });
    } else if stated().next().is_none() {
        let reason = "cannot work without a rule of `node_classes` with `upstream_node: member`: the built-in classes \
            show a projection, and have no member to ask as";
        item.error(Problem::Contradiction { reason: reason.into() });
    } else if stated().all(|rule| rule.projection.id == IdPart::Whole) {
        item.warn(
            "proves nothing where each client has an id of its own: all rules of `node_classes` split by the whole id, \
                so each class has one client",
        );
    } else if !stated().any(|rule| rule.nodes == NodeMatch::default() && rule.types.is_empty()) {
        item.warn(
            "does not apply to clients and types that no rule of `node_classes` matches: the built-in classes show a \
                projection, and have no member to ask as",
        );
    }
}
