//! Builds a [`Config`] from a file: the top level, and the checks across its parts.

use std::path::Path;

use super::authorization::{Authorization, read_authorization, warn_of_domains};
use super::classes::read_classes;
use super::error::{ConfigError, Warning};
use super::expand::{Variables, environment, no_environment};
use super::facts::read_facts;
use super::ledger::read_ledger;
use super::listener::{ListenerSettings, read_listeners};
use super::node::read_relay_node;
use super::process::{read_checkpoint, read_handover, read_reload};
use super::proof::read_proof;
use super::reader::{Item, Map, walk};
use super::rollouts::{check_load_listeners, read_rollouts};
use super::servers::{Servers, read_servers};
use super::shown::Shown;
use super::syntax;
use super::traces::read_traces;
use super::tree::{Format, Tree};
use super::units::word;
use super::{AdminListener, Config, Endpoint, GrpcServer, Limits, LogFormat, LogSettings};
use super::{ServerKind, UpstreamServer};
use crate::driver::{ENCODED_BYTES, LoadUse};
use crate::server::limits::{DRAIN, DRAIN_DELAY};
use sluice_engine::class::{ClassRule, IdPart, LocalityDepth, NodeClasses};
use sluice_engine::source::{self, UNWATCHED_BYTES};
use sluice_fleet::rollout::plan::History;
use sluice_setting::Read;
use sluice_xds::TypeUrl;

/// Enough to tell files apart.
const HASH_DIGITS: usize = 8;

/// A configuration, and its warnings for the operator.
#[derive(Debug, PartialEq)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<Warning>,
    /// The text, without credentials.
    pub shown: Shown,
}

/// The surroundings of a file, which decide its meaning together with its text.
#[derive(Clone, Copy)]
pub struct FileContext<'a> {
    /// Relative paths are relative to this directory.
    pub directory: &'a Path,
    /// A part of the relay's default node id.
    pub hostname: &'a str,
    pub variables: Variables<'a>,
    /// The policy in force, for a text that may open no file (REL-10). Its `authorization.file` can only be
    /// the file of this policy.
    pub policy: Option<&'a Authorization>,
}

/// Reads a file: JSON if its name is `*.json`, else YAML. Relative paths are relative to the file's own
/// directory.
///
/// `hostname` is part of the relay's default node id.
pub fn load(file: &Path, hostname: &str) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ConfigError::Unreadable { path: file.to_path_buf(), error })?;
    parse_file(&text, file, hostname)
}

/// Reads the text of a file, as [`load`] does.
pub fn parse_file(text: &str, file: &Path, hostname: &str) -> Result<Loaded, ConfigError> {
    let directory = file.parent().unwrap_or(Path::new(""));
    parse_as(text, file, FileContext { directory, hostname, variables: &environment, policy: None })
}

/// Reads a text of somebody else as [`parse_file`] does, without the files and the variables of this host
/// (REL-10). `in_force`: the policy for a text with the file of this policy.
pub fn parse_foreign(
    text: &str,
    file: &Path,
    hostname: &str,
    in_force: &Authorization,
) -> Result<Loaded, ConfigError> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let policy = Some(in_force);
    parse_as(text, file, FileContext { directory, hostname, variables: &no_environment, policy })
}

fn parse_as(text: &str, file: &Path, context: FileContext<'_>) -> Result<Loaded, ConfigError> {
    let mut loaded = parse(text, Format::of(file), context)?;
    loaded.config.hash = blake3::hash(text.as_bytes()).to_hex().chars().take(HASH_DIGITS).collect();
    Ok(loaded)
}

/// Reads the text of a file. The error contains every error of the file, or the first syntax
/// error.
pub fn parse(text: &str, format: Format, context: FileContext<'_>) -> Result<Loaded, ConfigError> {
    let tree = syntax::parse(text, format, context.variables)?;
    let (config, warnings) = walk(&tree, |map| read_config(map, context))?;
    Ok(Loaded { config, warnings, shown: Shown::of(&tree) })
}

/// Keys of a gRPC bootstrap that only gRPC clients use.
const BOOTSTRAP_KEYS: &[&str] =
    &["grpc_server_resource_name_id", "certificate_providers", "allowed_grpc_services"];

const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

/// LRS-23: a control plane that weighs endpoints by the locality of the reporter must not have classes of
/// several zones.
fn warn_of_shared_zones(items: &[Item<'_>], classes: &NodeClasses, servers: Option<&Servers>) {
    let all = servers.into_iter().flat_map(Servers::lists).flat_map(|(_, list)| &list.servers);
    let mut reported = all.filter(|server| server.load == Some(LoadUse::Aggregate));
    let Some(server) = reported.next() else { return };
    let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    for (entry, item) in items.iter().enumerate() {
        let is_shared = |rule: &ClassRule| {
            let (split, types) = (&rule.projection, &rule.types);
            let is_of_clusters = types.is_empty() || types.contains(&cluster);
            is_of_clusters && split.id != IdPart::Whole && split.locality < Some(LocalityDepth::Zone)
        };
        if classes.rules.iter().any(|rule| rule.id.entry == entry && !rule.id.is_default && is_shared(rule)) {
            item.warn(format!(
                "clients of several zones share a class, and {} sees one reporter for all of them (`lrs: aggregate`); \
                 a control plane that weighs endpoints by the locality of the reporter needs `split_by.locality: zone`",
                server.server_uri
            ));
        }
    }
}

/// `None` only if an error was reported.
pub(super) fn read_config(map: &mut Map<'_>, context: FileContext<'_>) -> Option<Config> {
    let FileContext { directory, hostname, variables, policy } = context;
    map.allow_holders();
    // A placeholder until the file's own server is known, so that errors of all other keys are found, too.
    let unnamed = GrpcServer::new(Endpoint::Tcp { host: String::new(), port: 0 });
    let stand_in = UpstreamServer { server_uri: String::new(), kind: ServerKind::Grpc(unnamed), load: None };
    let d = Config::new(hostname, stand_in);
    let node = map.section("node", |map| read_relay_node(map, d.node.clone())).unwrap_or(d.node);
    let servers = read_servers(map, directory);
    let classes = map.list("node_classes");
    let listeners = read_listeners(map, directory);
    let facts = map.item("facts").map(|item| item.map(|map| read_facts(map, directory)).flatten());
    let mut node_classes = read_classes(&classes, facts.is_some());
    if facts.is_some() && !node_classes.read_facts() {
        map.warn_at("facts", "no rule of `node_classes` splits by facts (`split_by.facts`)");
    }
    warn_of_shared_zones(&classes, &node_classes, servers.as_ref());
    let facts = facts.flatten();
    node_classes.facts.key = facts.as_ref().map(|facts| facts.key.clone()).unwrap_or_default();
    let checkpoint = map.item("checkpoint").and_then(|item| read_checkpoint(&item, directory));
    let ledger = map.item("ledger").and_then(|item| read_ledger(&item, directory, hostname));
    let history = map.section("history", |map| read_history(map)).unwrap_or(d.history);
    let rollouts = read_rollouts(map, servers.as_ref(), &node_classes, checkpoint.is_some(), history);
    check_load_listeners(map, &rollouts, &listeners);
    let proof = map.item("proof").and_then(|item| read_proof(&item, servers.as_ref(), &node_classes));
    let names: Vec<&str> = listeners.iter().map(|listener| &*listener.name).collect();
    let authorization =
        map.item("authorization").map(|item| read_authorization(&item, directory, variables, policy, &names));
    match &authorization {
        None => warn_of_any_node(map, &listeners),
        Some(authorization) => warn_of_domains(map, authorization, &listeners),
    }
    let admin =
        map.section("admin", |map| AdminListener::read(map, &listeners, directory)).unwrap_or(d.admin);
    let log = map.section("log", read_log).unwrap_or(d.log);
    let limits = map.section("limits", Limits::read).unwrap_or(d.limits);
    let source = source::SourceSettings::read(map);
    let linger_of_one = if map.has("linger") { source.linger } else { source.linger_of_one };
    let cache = map.section("cache", read_cache).unwrap_or((d.source.unwatched_bytes, d.encoded_bytes));
    let config = Config {
        node,
        node_classes,
        facts: facts.map(|facts| facts.source),
        rollouts,
        proof,
        history,
        authorization: authorization.unwrap_or_default(),
        admin,
        listeners,
        log,
        limits,
        source: source::SourceSettings { unwatched_bytes: cache.0, linger_of_one, ..source },
        encoded_bytes: cache.1,
        checkpoint,
        ledger,
        traces: map.item("traces").and_then(|item| read_traces(&item)),
        drain: map.value(&DRAIN),
        drain_delay: map.value(&DRAIN_DELAY),
        handover: map.section("handover", |map| read_handover(map, directory)).unwrap_or(d.handover),
        reload: map.section("reload", read_reload).unwrap_or(d.reload),
        hash: d.hash,
        servers: d.servers,
    };
    map.warn_unused(BOOTSTRAP_KEYS, "has no effect on the relay; the key is for gRPC clients");
    Some(Config { servers: servers?, ..config })
}

/// AUT-2: without rules, a certificate proves that its holder may connect, and nothing about the holder's
/// node.
fn warn_of_any_node(map: &Map<'_>, listeners: &[ListenerSettings]) {
    for (index, listener) in listeners.iter().enumerate() {
        let authorities = listener.tls.as_ref().and_then(|tls| tls.anchors.as_ref());
        if let Some(authorities) = authorities {
            let text = format!(
                "client certificates are checked, but there is no `authorization`: any certificate of {} may claim any \
                 node",
                authorities.path().display()
            );
            map.warn_at(&format!("listeners[{index}].tls"), text);
        }
    }
}

fn read_log(map: &mut Map<'_>) -> LogSettings {
    let d = LogSettings::default();
    LogSettings {
        format: map.or("format", d.format, word(FORMATS)),
        level: map.or("level", d.level, read_level),
    }
}

/// Checks each directive: the filter would take a misspelled level for the name of a target.
fn read_level(tree: &Tree) -> Result<String, String> {
    let is_level = |word: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|level| word.eq_ignore_ascii_case(level))
    };
    let is_target = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'))
    };
    let is_directive = |directive: &str| match directive.split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(directive),
    };
    match tree {
        Tree::Text(text) if text.split(',').all(|directive| is_directive(directive.trim())) => {
            Ok(text.clone())
        }
        _ => Err(
            "error, warn, info, debug, trace or off, or such levels per target: info,sluice::driver=debug"
                .into(),
        ),
    }
}

/// Keys of a history on disk.
const UNSUPPORTED_HISTORY: &[(&str, &str)] = &[
    ("directory", "releases are kept in memory, and the digests in the checkpoint"),
    ("max_age", "use `pushes`"),
    ("bytes", "use `limits.held_bytes`"),
    ("payloads", "`/rollouts` shows no payloads"),
];

fn read_history(map: &mut Map<'_>) -> History {
    map.unsupported(UNSUPPORTED_HISTORY);
    History::read(map)
}

/// `cache`: `unwatched_bytes` of a source, and `encoded_bytes` of the driver.
fn read_cache(map: &mut Map<'_>) -> (usize, u64) {
    (map.value(&UNWATCHED_BYTES), map.value(&ENCODED_BYTES))
}
