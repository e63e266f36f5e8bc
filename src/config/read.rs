//! Builds a [`Config`] from a file: the top level, and the checks across its parts.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::authorization::{Authorization, read_authorization, warn_of_domains};
use super::classes::read_classes;
use super::error::{ConfigError, Warning};
use super::expand::{Origin, environment, no_environment};
use super::facts::read_facts;
use super::listener::{Listener, read_listeners};
use super::node::read_relay_node;
use super::process::{read_checkpoint, read_handover, read_reload};
use super::reader::{Item, Map, Report};
use super::rollouts::read_rollouts;
use super::servers::read_servers;
use super::shown::Shown;
use super::traces::read_traces;
use super::tree::{Format, Node, Tree};
use super::units::word;
use super::{Admin, Config, Endpoint, GrpcServer, Limits, Log, LogFormat};
use super::{ServerKind, UpstreamServer};
use crate::driver::ENCODED_BYTES;
use crate::server::limits::{DRAIN, DRAIN_DELAY};
use sluice_engine::source::{self, UNWATCHED_BYTES};
use sluice_fleet::rollout::plan::History;
use sluice_setting::Read;

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
    parse_as(text, file, Origin { directory, hostname, variables: &environment, policy: None })
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
    parse_as(text, file, Origin { directory, hostname, variables: &no_environment, policy })
}

/// Whether a file is JSON, by its name. All others are YAML.
pub(super) fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// Reads a file that the configuration names. Nothing that is no file is opened, and no more than `bytes` are
/// read.
pub(super) fn read_bounded(file: &Path, bytes: u64) -> Result<String, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable { path: file.to_path_buf(), error };
    // Looked at first: to open a pipe waits for a writer.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let open = File::open(file).map_err(unreadable)?;
    let mut text = String::new();
    open.take(bytes + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > bytes {
        let text = format!("the file is too long; at most {bytes} bytes are read");
        return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    Ok(text)
}

fn parse_as(text: &str, file: &Path, origin: Origin<'_>) -> Result<Loaded, ConfigError> {
    let format = if is_json(file) { Format::Json } else { Format::Yaml };
    let mut loaded = parse(text, format, origin)?;
    loaded.config.hash = blake3::hash(text.as_bytes()).to_hex().chars().take(HASH_DIGITS).collect();
    Ok(loaded)
}

/// Reads the text of a file. The error contains every error of the file, or the first syntax
/// error.
pub fn parse(text: &str, format: Format, origin: Origin<'_>) -> Result<Loaded, ConfigError> {
    let tree = Node::parse(text, format, origin.variables)?;
    let report = Report::default();
    let config = Item::root(&tree, &report).map(|map| read_config(map, origin)).flatten();
    let errors = report.errors.into_inner();
    match config {
        Some(config) if errors.is_empty() => {
            Ok(Loaded { config, warnings: report.warnings.into_inner(), shown: Shown::of(&tree) })
        }
        _ => Err(ConfigError::Invalid { errors }),
    }
}

/// Keys of a gRPC bootstrap that only gRPC clients use.
const BOOTSTRAP_KEYS: &[&str] =
    &["grpc_server_resource_name_id", "certificate_providers", "allowed_grpc_services"];

const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

/// `None` only if an error was reported.
pub(super) fn read_config(map: &mut Map<'_>, origin: Origin<'_>) -> Option<Config> {
    let Origin { directory, hostname, .. } = origin;
    map.allow_holders();
    // A placeholder until the file's own server is known, so that errors of all other keys are found, too.
    let unnamed = GrpcServer::new(Endpoint::Tcp { host: String::new(), port: 0 });
    let stand_in = UpstreamServer { server_uri: String::new(), kind: ServerKind::Grpc(unnamed) };
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
    let facts = facts.flatten();
    node_classes.facts.key = facts.as_ref().map(|facts| facts.key.clone()).unwrap_or_default();
    let checkpoint = map.item("checkpoint").and_then(|item| read_checkpoint(&item, directory));
    let history = map.section("history", |map| read_history(map)).unwrap_or(d.history);
    let rollouts = read_rollouts(map, servers.as_ref(), &node_classes, checkpoint.is_some(), history);
    let names: Vec<&str> = listeners.iter().map(|listener| &*listener.name).collect();
    let authorization = map.item("authorization").map(|item| read_authorization(&item, origin, &names));
    match &authorization {
        None => warn_of_any_node(map, &listeners),
        Some(authorization) => warn_of_domains(map, authorization, &listeners),
    }
    let admin = map.section("admin", |map| Admin::read(map, &listeners, directory)).unwrap_or(d.admin);
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
        history,
        authorization: authorization.unwrap_or_default(),
        admin,
        listeners,
        log,
        limits,
        source: source::SourceSettings { unwatched_bytes: cache.0, linger_of_one, ..source },
        encoded_bytes: cache.1,
        checkpoint,
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
fn warn_of_any_node(map: &Map<'_>, listeners: &[Listener]) {
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

fn read_log(map: &mut Map<'_>) -> Log {
    let d = Log::default();
    Log { format: map.or("format", d.format, word(FORMATS)), level: map.or("level", d.level, read_level) }
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
