//! The operator's configuration, validated: plain data with consistent relations.
//!
//! A file is read twice: first into a tree of pure syntax, then by readers that collect every error, so that
//! one run reports all of them. The result is complete: every default is filled in, every relative path is
//! resolved against the file's directory. This room reads no clock, starts no task and touches no file but
//! the given one, the file of `authorization`, which the text of a caller does not open, and the file of
//! `facts`. `docs/configuration.md` explains each key.

pub mod error;
mod tree;
mod json_places;
mod expand;
mod syntax;
mod form;
mod units;
mod key_report;
mod reader;
mod address;
mod server_keys;
mod calls;
mod server_tls;
mod credentials;
mod process;
mod traces;
pub mod limits;
pub mod upstream;
mod rest;
mod fallback;
mod ledger;
pub mod servers;
mod tls;
pub mod listener;
mod upstream_node;
mod classes;
mod rollouts;
mod proof;
mod authorization;
mod admin;
mod node;
mod facts;
mod effect;
mod shown;
mod read;
mod schema;
mod explain;
mod explain_grant;
pub mod xds_relay;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use crate::telemetry::logging::LogFormat;
pub use address::{Endpoint, parse_endpoint};
pub use admin::AdminListener;
pub use authorization::{Authorization, load_policy, parse_policy};
pub use effect::{Effect, process_keys};
pub use error::{ConfigError, KeyError, Place, Problem, Warning};
pub use expand::{Variables, environment};
pub use explain::{explain_classes, explain_servers};
pub use explain_grant::{explain_decision, explain_unbound, find_listener, parse_identity};
pub use facts::{FactsSource, load_facts};
pub use limits::Limits;
pub use listener::{Address, ListenerSettings};
pub use node::parse_client_node;
pub use process::ReloadSettings;
pub use read::{FileContext, Loaded, load, parse, parse_file, parse_foreign};
pub use rest::RestServerSettings;
pub use schema::schema;
pub use servers::{ListenerTemplates, ServerListSettings, Servers};
pub use shown::{ChangedKey, Shown};
pub use traces::traces_to;
pub use tree::Format;
pub use upstream::{GrpcServer, ServerKind, UpstreamServer};

use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::{CheckpointSettings, ENCODED_BYTES};
use crate::handover::HandoverSettings;
use crate::ledger::LedgerSettings;
use crate::server::limits::{DRAIN, DRAIN_DELAY};
use crate::telemetry::traces::TraceSettings;
use sluice_engine::class::NodeClasses;
use sluice_engine::source;
use sluice_fleet::rollout::Plan;
use sluice_fleet::rollout::plan::History;
use sluice_xds::{Node, UserAgentVersion};

/// The complete input of `sluice serve`. Wide because each field is a section of the file, for another room.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The relay's own identity. RLY-15 defines how much of it goes upstream beside the projection of a node
    /// class.
    pub node: Node,
    /// The control planes, and the resources that each list is responsible for.
    pub servers: Servers,
    /// The rules. The table of facts is empty here: its source has a life of its own.
    pub node_classes: NodeClasses,
    /// The source of the facts of clients, by [`NodeClasses::facts`]' key.
    pub facts: Option<FactsSource>,
    /// In order; the first plan that matches a unit decides. Empty: off.
    pub rollouts: Vec<Arc<Plan>>,
    /// `None`: the grouping is not proved (PRF-5).
    pub proof: Option<Arc<ProofRules>>,
    /// The past that plans remember; each plan has it, too.
    pub history: History,
    pub authorization: Authorization,
    /// At least one, with distinct names and addresses.
    pub listeners: Vec<ListenerSettings>,
    pub admin: AdminListener,
    pub log: LogSettings,
    pub limits: Limits,
    /// `coalescing`, `linger` and `cache.unwatched_bytes`.
    pub source: source::SourceSettings,
    /// See [`ENCODED_BYTES`].
    pub encoded_bytes: u64,
    /// `None`: off (RLY-7).
    pub checkpoint: Option<CheckpointSettings>,
    /// `None`: each plan decides for this replica only (LDG-1).
    pub ledger: Option<LedgerSettings>,
    /// `None`: off (OBS-2).
    pub traces: Option<TraceSettings>,
    /// See [`DRAIN`].
    pub drain: Duration,
    /// See [`DRAIN_DELAY`].
    pub drain_delay: Duration,
    pub handover: HandoverSettings,
    pub reload: ReloadSettings,
    /// The beginning of the BLAKE3 hash of the file's text, in hex digits. Empty without a file.
    pub hash: String,
}

impl Config {
    /// A configuration with this server, and defaults for everything else.
    pub fn new(hostname: &str, server: UpstreamServer) -> Self {
        Config {
            node: relay_node(format!("sluice-{hostname}")),
            servers: Servers::new(vec![server]),
            node_classes: NodeClasses::default(),
            facts: None,
            rollouts: Vec::new(),
            proof: None,
            history: History::default(),
            authorization: Authorization::default(),
            listeners: vec![ListenerSettings::default()],
            admin: AdminListener::default(),
            log: LogSettings::default(),
            limits: Limits::default(),
            source: source::SourceSettings::default(),
            encoded_bytes: ENCODED_BYTES.default,
            checkpoint: None,
            ledger: None,
            traces: None,
            drain: DRAIN.default,
            drain_delay: DRAIN_DELAY.default,
            handover: HandoverSettings::default(),
            reload: ReloadSettings::default(),
            hash: String::new(),
        }
    }
}

/// A node that identifies as this version of sluice.
fn relay_node(id: String) -> Node {
    let number = |text: &str| text.parse().unwrap_or_default();
    Node {
        id,
        user_agent_name: "sluice".into(),
        user_agent_version: Some(UserAgentVersion::Build {
            major: number(env!("CARGO_PKG_VERSION_MAJOR")),
            minor: number(env!("CARGO_PKG_VERSION_MINOR")),
            patch: number(env!("CARGO_PKG_VERSION_PATCH")),
        }),
        ..Node::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub format: LogFormat,
    /// Comma-separated directives `level` or `target=level`, valid for `tracing_subscriber::EnvFilter`.
    pub level: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { format: LogFormat::Text, level: "info".into() }
    }
}
