//! From the configuration to the settings of the rooms.

use std::sync::Arc;
use std::time::Duration;

use crate::client::ClientSettings;
use crate::config::{Config, ListenerSettings};
use crate::driver::DriverSettings;
use crate::driver::api::downstream::WhenUnavailable;
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::servers::ServerLists;
use crate::server::ServerLimits;
use crate::telemetry::cgroup_memory_limit;
use sluice_engine::class::facts::FactTable;
use sluice_engine::source;
use sluice_proof::proof::ProofSettings;

/// `generation`: the number of the configuration, counted from 1.
pub(super) fn relay_settings(
    config: &Config,
    lists: ServerLists,
    facts: Arc<FactTable>,
    generation: u64,
) -> DriverSettings {
    let fails = |listener: &ListenerSettings| listener.options.when_unavailable == WhenUnavailable::Fail;
    DriverSettings {
        generation,
        lists,
        source: source::SourceSettings {
            tells_reach: config.listeners.iter().any(fails),
            content_bytes: source_bytes(config).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            ..config.source.clone()
        },
        classes: config.node_classes.clone().with_facts(facts),
        rollouts: config.rollouts.clone(),
        proof: config.proof.as_deref().map(|proof| {
            let bytes = config.limits.relay.shadow_bytes;
            let settings = ProofSettings { shadow_bytes: bytes, ..proof.settings };
            Arc::new(ProofRules { settings, ..proof.clone() })
        }),
        load_listeners: config
            .listeners
            .iter()
            .map(|listener| (listener.name.clone(), listener.options.load_reports.is_none()))
            .collect(),
        load: config.limits.load,
        splits: Arc::default(),
        policy: config.authorization.policy().cloned().unwrap_or_default(),
        admin_has_tls: config.admin.tls.is_some(),
        limits: config.limits.relay.clone(),
        node: config.node.clone(),
        stream: config.limits.stream,
        encoded_bytes: config.encoded_bytes,
        checkpoint: config.checkpoint.clone(),
        // Opened once, at the start.
        ledger: None,
    }
}

/// The part of the memory budget for the content of one source, and for one response (ADR 68). While a
/// response is read, its message and its resources are in memory beside the content that they replace, and
/// new clients need the content once more.
const PART: u64 = 4;

fn budget(config: &Config) -> Option<u64> {
    config.limits.relay.memory_bytes.or_else(cgroup_memory_limit)
}

fn source_bytes(config: &Config) -> Option<u64> {
    config.limits.relay.source_bytes.or_else(|| Some(budget(config)? / PART))
}

/// The longest response of a server whose entry has the default of `max_response_bytes`.
pub(super) fn default_response_bytes(config: &Config) -> usize {
    let default = ClientSettings::default().max_response_bytes;
    let part = budget(config).and_then(|budget| usize::try_from(budget / PART).ok());
    part.map_or(default, |part| part.clamp(1 << 20, default))
}

/// `drain`: the part of the drain for connections.
pub(super) fn server_limits(limits: &ServerLimits, drain: Duration) -> ServerLimits {
    // With few descriptors, most of them still go to clients.
    let descriptors = rlimit::Resource::NOFILE.get_soft().unwrap_or(u64::MAX);
    ServerLimits { fd_reserve: limits.fd_reserve.min(descriptors / 4), drain_window: drain, ..limits.clone() }
}
