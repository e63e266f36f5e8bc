//! Converts the configured servers to the attachments of sources.

use std::sync::Arc;
use std::time::Duration;

use super::size;
use crate::client::{self, GrpcAddress, Pool};
use crate::config::{
    self, ApiType, Backoff, Endpoint, GrpcServer, MassDeletion, RestServer, ServerKind, ServerList,
    UpstreamServer, WildcardForm,
};
use crate::driver::ground::servers::{Attach, Server as Upstream, ServerLists};
use crate::engine::fallback::Policy;
use crate::engine::upstream;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::ClientMetrics;
use crate::xds::Variant;

/// How long a connection to a reserve server stays open without streams. The connection closes within a
/// second after the last client returned to a preferred server (RLY-60, I9), and survives the pause between
/// two streams.
const RESERVE_IDLE: Duration = Duration::from_millis(500);

pub(super) fn lists(config: &config::Servers, metrics: &Metrics) -> ServerLists {
    let mut channels = Channels { metrics, open: Vec::new() };
    let mut lists = ServerLists::new(channels.servers(&config.default), config.default.fallback.clone());
    for (type_url, list) in &config.types {
        lists.add_type(type_url.clone(), channels.servers(list), list.fallback.clone());
    }
    let authorities = config.authorities.iter();
    let authorities =
        authorities.map(|(name, list)| (name.clone(), channels.servers(list), list.fallback.clone()));
    lists.set_authorities(authorities.collect());
    lists
}

/// The pools created so far, each with the properties of its server's channel.
struct Channels<'a> {
    metrics: &'a Metrics,
    open: Vec<(UpstreamServer, Pool)>,
}

impl Channels<'_> {
    fn servers(&mut self, list: &ServerList) -> Vec<Arc<Upstream>> {
        let mut servers = Vec::new();
        for (number, server) in list.servers.iter().enumerate() {
            let attach = match &server.kind {
                ServerKind::Grpc(grpc) => Attach::Grpc {
                    pool: self.pool(server, grpc, number > 0),
                    settings: protocol_of(grpc, list),
                },
                ServerKind::Rest(rest) => {
                    attach_rest(rest, self.metrics.of_server(&server.server_uri).client().clone())
                }
                ServerKind::Directory(directory) => Attach::Files { directory: directory.clone() },
            };
            servers.push(Arc::new(Upstream { uri: server.server_uri.as_str().into(), attach }));
        }
        servers
    }

    /// Entries with the same server, credentials and features share their connections (FED-6).
    fn pool(&mut self, server: &UpstreamServer, grpc: &GrpcServer, in_reserve: bool) -> Pool {
        let channel = UpstreamServer { kind: ServerKind::Grpc(channel_of(grpc)), ..server.clone() };
        if let Some((_, pool)) = self.open.iter().find(|(open, _)| *open == channel) {
            return pool.clone();
        }
        let pool = pool_of(grpc, in_reserve, self.metrics.of_server(&server.server_uri).client().clone());
        self.open.push((channel, pool.clone()));
        pool
    }
}

/// A server entry reduced to its connection settings; settings of single streams have their defaults.
fn channel_of(server: &GrpcServer) -> GrpcServer {
    let d = GrpcServer::new(server.endpoint.clone());
    GrpcServer {
        api_type: d.api_type,
        wildcard: d.wildcard,
        resource_timeout: d.resource_timeout,
        resource_timeouts: d.resource_timeouts,
        mass_deletion: d.mass_deletion,
        ..server.clone()
    }
}

/// `in_reserve`: the server is not the first in the list where it was found first.
fn pool_of(server: &GrpcServer, in_reserve: bool, metrics: Arc<ClientMetrics>) -> Pool {
    let address = match &server.endpoint {
        Endpoint::Tcp { host, port } => GrpcAddress::Tcp { host: host.clone(), port: *port },
        Endpoint::Unix(path) => GrpcAddress::Unix(path.clone()),
    };
    let defaults = client::ClientSettings::default();
    let keepalive = server.tcp_keepalive.clone().unwrap_or_default();
    let transport = client::ClientSettings {
        connect_timeout: server.connect_timeout,
        settings_timeout: server.settings_timeout,
        open_timeout: server.stream_open_timeout,
        streams_per_connection: server.streams_per_connection as usize,
        ping_interval: server.ping_interval,
        keepalive_idle: keepalive.time,
        keepalive_interval: keepalive.interval,
        keepalive_retries: keepalive.probes,
        user_timeout: keepalive.user_timeout,
        backoff_initial: server.backoff.initial,
        backoff_max: server.backoff.max,
        message_bytes_max: size(server.max_response_bytes),
        idle_timeout: if in_reserve { RESERVE_IDLE } else { defaults.idle_timeout },
        ..defaults
    };
    Pool::new(address, transport, metrics)
}

fn protocol_of(server: &GrpcServer, list: &ServerList) -> upstream::Settings {
    upstream::Settings {
        failover: list.fallback.policy == Policy::Envoy && list.servers.len() > 1,
        needs_answer: list.fallback.policy == Policy::Grpc && list.servers.len() > 1,
        fails_on_data_errors: server.fail_on_data_errors,
        transport: match server.api_type {
            ApiType::AggregatedDeltaGrpc | ApiType::AggregatedGrpc => upstream::Transport::Aggregated,
            ApiType::DeltaGrpc | ApiType::Grpc => upstream::Transport::PerType,
        },
        variant: match server.api_type {
            ApiType::AggregatedDeltaGrpc | ApiType::DeltaGrpc => Variant::Delta,
            ApiType::AggregatedGrpc | ApiType::Grpc => Variant::Sotw,
        },
        wildcard: match server.wildcard {
            WildcardForm::Explicit => upstream::WildcardStyle::Explicit,
            WildcardForm::Legacy => upstream::WildcardStyle::Legacy,
        },
        resource_timeout: server.resource_timeout,
        resource_timeouts: server.resource_timeouts.clone(),
        mass_deletion_hold: hold(server.mass_deletion),
        timeout_is_transient: server.resource_timer_is_transient_error,
        backoff: backoff(&server.backoff),
        ..upstream::Settings::default()
    }
}

fn hold(mass_deletion: MassDeletion) -> Option<upstream::Hold> {
    match mass_deletion {
        MassDeletion::Honour => None,
        MassDeletion::HoldThenHonour { hold } => Some(upstream::Hold::For(hold)),
        MassDeletion::HoldUntilConfirmed => Some(upstream::Hold::UntilConfirmed),
    }
}

fn attach_rest(server: &RestServer, metrics: Arc<ClientMetrics>) -> Attach {
    let transport = client::ClientSettings {
        connect_timeout: server.connect_timeout,
        request_timeout: server.request_timeout,
        keepalive_idle: server.tcp_keepalive.time,
        keepalive_interval: server.tcp_keepalive.interval,
        keepalive_retries: server.tcp_keepalive.probes,
        user_timeout: server.tcp_keepalive.user_timeout,
        message_bytes_max: size(server.max_response_bytes),
        ..client::ClientSettings::default()
    };
    let protocol = upstream::Settings {
        transport: upstream::Transport::Rest { refresh_delay: server.refresh_delay },
        variant: Variant::Sotw,
        // A poll has no state: the empty list can only mean the wildcard, and every server supports it.
        wildcard: upstream::WildcardStyle::Legacy,
        mass_deletion_hold: hold(server.mass_deletion),
        backoff: backoff(&server.backoff),
        ..upstream::Settings::default()
    };
    let server = client::RestServer::new(&server.host, server.port, &server.prefix, transport, metrics);
    Attach::Rest { server, settings: protocol }
}

fn backoff(backoff: &Backoff) -> upstream::BackoffSettings {
    upstream::BackoffSettings {
        initial: backoff.initial,
        cap: backoff.max,
        ..upstream::BackoffSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::xds::TypeUrl;

    #[test]
    fn fed_6_what_concerns_streams_only_opens_no_second_channel() {
        let plain = GrpcServer::new(Endpoint::Tcp { host: "cp".into(), port: 1 });
        let timeouts = BTreeMap::from([(TypeUrl::of_message("acme.T"), Duration::from_secs(1))]);
        let other = GrpcServer {
            api_type: ApiType::Grpc,
            wildcard: WildcardForm::Legacy,
            resource_timeout: Duration::from_secs(1),
            resource_timeouts: timeouts,
            mass_deletion: MassDeletion::HoldThenHonour { hold: Duration::from_secs(1) },
            ..plain.clone()
        };
        assert_eq!(channel_of(&other), channel_of(&plain));
        let far = GrpcServer { connect_timeout: Duration::from_secs(1), ..plain.clone() };
        assert_ne!(channel_of(&far), channel_of(&plain));
    }
}
