//! Fallback between the servers of a list: `fallback` and `fallback_on_reachability_only`.

use super::reader::Map;
use super::units::{boolean, word};
use super::upstream::{ServerKind, UpstreamServer};
use sluice_engine::fallback::{FallbackPolicy, FallbackSettings, HOLD_DOWN, RESOLVE_TIMEOUT};

const FALLBACK: &str = "fallback";
const ON_REACHABILITY_ONLY: &str = "fallback_on_reachability_only";

const POLICIES: &[(&str, FallbackPolicy)] =
    &[("grpc", FallbackPolicy::Grpc), ("envoy", FallbackPolicy::Envoy)];

/// Timers that only gRPC's rules have.
const GRPC_KEYS: &[&str] = &["resolve_timeout", "hold_down"];

const SINGLE_SERVER: &str = "has no effect: the list has only one server";

/// Reads the fallback keys beside `xds_servers`. Missing keys are inherited, except the flag: each list has
/// its own (FBK-17).
pub(super) fn read_fallback(map: &mut Map<'_>, inherited: &FallbackSettings) -> FallbackSettings {
    let read = |map: &mut Map<'_>| {
        let policy = map.or("policy", inherited.policy, word(POLICIES));
        if policy == FallbackPolicy::Envoy {
            map.reject_inapplicable(GRPC_KEYS, "`policy: envoy`");
        }
        FallbackSettings {
            policy,
            on_reachability_only: false,
            resolve_timeout: map.value_or(&RESOLVE_TIMEOUT, inherited.resolve_timeout),
            hold_down: map.value_or(&HOLD_DOWN, inherited.hold_down),
        }
    };
    let settings = map.section(FALLBACK, read).unwrap_or_default();
    FallbackSettings { on_reachability_only: map.or(ON_REACHABILITY_ONLY, false, boolean()), ..settings }
}

/// Warns of settings without effect on a single server. `also_elsewhere`: longer lists inherit the settings.
pub(super) fn warn_if_single(map: &mut Map<'_>, settings: &FallbackSettings, also_elsewhere: bool) {
    if let Some(item) = map.item(FALLBACK).filter(|_| !also_elsewhere) {
        item.warn(SINGLE_SERVER);
    }
    if let Some(item) = map.item(ON_REACHABILITY_ONLY).filter(|_| settings.on_reachability_only) {
        item.warn(SINGLE_SERVER);
    }
}

/// Envoy's rules cover two servers. One stream moves between the two servers, so both must have the same
/// settings (FBK-20).
pub(super) fn check_envoy(map: &Map<'_>, settings: &FallbackSettings, servers: &[UpstreamServer]) {
    if settings.policy != FallbackPolicy::Envoy {
        return;
    }
    if settings.on_reachability_only {
        map.contradiction(
            ON_REACHABILITY_ONLY,
            "does not apply to `policy: envoy`, which uses the second server while the first has never answered",
        );
    }
    let at = if map.has(FALLBACK) { FALLBACK } else { "xds_servers" };
    if servers.len() > 2 {
        map.contradiction(
            at,
            format!("`policy: envoy` allows at most two servers; the list has {}", servers.len()),
        );
    }
    for server in servers.iter().filter(|server| !matches!(server.kind, ServerKind::Grpc(_))) {
        map.contradiction(
            at,
            format!("`policy: envoy` allows only gRPC servers; {:?} is not a gRPC server", server.server_uri),
        );
    }
    if let [UpstreamServer { kind: ServerKind::Grpc(first), .. }, rest @ ..] = servers {
        for server in rest {
            let ServerKind::Grpc(other) = &server.kind else { continue };
            for key in first.differing_stream_keys(other) {
                map.contradiction(
                    at,
                    format!(
                        "`policy: envoy` needs servers with equal settings; {:?} has another `{key}`",
                        server.server_uri
                    ),
                );
            }
        }
    }
}
