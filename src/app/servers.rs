//! Converts the configured servers to the attachments of sources.

use std::sync::Arc;

use crate::client::{self, ClientSettings, GrpcAddress, Pool, RESERVE_IDLE_TIMEOUT};
use crate::config::{self, Endpoint, GrpcServer, RestServer, ServerKind, ServerList};
use crate::driver::ground::servers::{Attach, Server as Upstream, ServerLists};
use crate::engine::fallback::Policy;
use crate::engine::upstream;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::ClientMetrics;

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

/// The pools created so far, each with its server.
struct Channels<'a> {
    metrics: &'a Metrics,
    open: Vec<(String, GrpcServer, Pool)>,
}

impl Channels<'_> {
    fn servers(&mut self, list: &ServerList) -> Vec<Arc<Upstream>> {
        let mut servers = Vec::new();
        for (number, server) in list.servers.iter().enumerate() {
            let uri = &server.server_uri;
            let attach = match &server.kind {
                ServerKind::Grpc(grpc) => {
                    Attach::Grpc { pool: self.pool(uri, grpc, number > 0), settings: in_list(grpc, list) }
                }
                ServerKind::Rest(rest) => attach_rest(rest, self.metrics.of_server(uri).client().clone()),
                ServerKind::Directory(directory) => Attach::Files { directory: directory.clone() },
            };
            servers.push(Arc::new(Upstream { uri: uri.as_str().into(), attach }));
        }
        servers
    }

    /// Entries with the same server, credentials and features share their connections (FED-6). `in_reserve`:
    /// the server is not the first in the list where it was found first.
    fn pool(&mut self, uri: &str, server: &GrpcServer, in_reserve: bool) -> Pool {
        let is_same = |(other, open, _): &&(String, GrpcServer, Pool)| {
            other == uri && open.shares_connections_with(server)
        };
        if let Some((_, _, pool)) = self.open.iter().find(is_same) {
            return pool.clone();
        }
        let address = match &server.endpoint {
            Endpoint::Tcp { host, port } => GrpcAddress::Tcp { host: host.clone(), port: *port },
            Endpoint::Unix(path) => GrpcAddress::Unix(path.clone()),
        };
        let mut connection: ClientSettings = server.connection.clone();
        if in_reserve {
            connection.idle_timeout = RESERVE_IDLE_TIMEOUT;
        }
        let metrics = self.metrics.of_server(uri).client().clone();
        let pool = Pool::with_credentials(address, server.credentials.clone(), connection, metrics);
        self.open.push((uri.to_owned(), server.clone(), pool.clone()));
        pool
    }
}

/// The settings of a server's streams, with the behaviour that the rules of its list demand.
fn in_list(server: &GrpcServer, list: &ServerList) -> upstream::UpstreamSettings {
    let has_others = list.servers.len() > 1;
    upstream::UpstreamSettings {
        failover: has_others && list.fallback.policy == Policy::Envoy,
        needs_answer: has_others && list.fallback.policy == Policy::Grpc,
        ..server.stream.clone()
    }
}

fn attach_rest(rest: &RestServer, metrics: Arc<ClientMetrics>) -> Attach {
    let address = GrpcAddress::Tcp { host: rest.host.clone(), port: rest.port };
    let (credentials, connection) = (rest.credentials.clone(), rest.connection.clone());
    let server =
        client::RestServer::with_credentials(address, &rest.prefix, credentials, connection, metrics);
    Attach::Rest { server, settings: rest.stream.clone() }
}
