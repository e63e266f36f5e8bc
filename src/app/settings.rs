//! From the configuration to the settings of the rooms.

use std::time::Duration;

use crate::config::{Config, Listener};
use crate::driver::DriverSettings;
use crate::driver::api::downstream::WhenUnavailable;
use crate::driver::ground::servers::ServerLists;
use crate::engine::source;
use crate::server::ServerLimits;

/// `generation`: the number of the configuration, counted from 1.
pub(super) fn relay_settings(config: &Config, lists: ServerLists, generation: u64) -> DriverSettings {
    let fails = |listener: &Listener| listener.options.when_unavailable == WhenUnavailable::Fail;
    DriverSettings {
        generation,
        lists,
        source: source::SourceSettings {
            tells_reach: config.listeners.iter().any(fails),
            ..config.source.clone()
        },
        classes: config.node_classes.clone(),
        rollouts: config.rollouts.clone(),
        policy: config.authorization.policy().cloned().unwrap_or_default(),
        admin_has_tls: config.admin.tls.is_some(),
        limits: config.limits.relay.clone(),
        node: config.node.clone(),
        stream: config.limits.stream,
        encoded_bytes: config.encoded_bytes,
        checkpoint: config.checkpoint.clone(),
    }
}

/// `drain`: the part of the drain for connections.
pub(super) fn server_limits(limits: &ServerLimits, drain: Duration) -> ServerLimits {
    // With few descriptors, most of them still go to clients.
    let descriptors = rlimit::Resource::NOFILE.get_soft().unwrap_or(u64::MAX);
    ServerLimits { fd_reserve: limits.fd_reserve.min(descriptors / 4), drain_window: drain, ..limits.clone() }
}
