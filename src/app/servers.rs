//! Converts the configured servers to the attachments of sources.

use std::sync::Arc;

use anyhow::{Result, anyhow};

use super::tls::Certificates;
use crate::client::{self, Channel, ClientSettings, Credentials, GrpcAddress, Pool, RESERVE_IDLE_TIMEOUT};
use crate::config::{self, Endpoint, GrpcServer, RestServer, ServerKind, ServerList};
use crate::driver::ground::servers::{Attach, Server as Upstream, ServerLists};
use crate::engine::fallback::Policy;
use crate::engine::upstream;
use crate::telemetry::Metrics;
use crate::trust::client::{Protocol, place};
use crate::trust::fault::Fault;

/// Converts all lists, and puts the certificate files of all servers in force.
///
/// # Errors
/// A file that cannot be used, with its key. Nothing falls back to plaintext (TLS-8).
pub(super) fn lists(
    config: &config::Servers,
    metrics: &Metrics,
    certificates: &mut Certificates,
) -> Result<ServerLists> {
    let mut channels = Channels { metrics, certificates, open: Vec::new() };
    let default = channels.servers("xds_servers", &config.default)?;
    let mut lists = ServerLists::new(default, config.default.fallback.clone());
    for (type_url, list) in &config.types {
        let path = format!("types[{}].xds_servers", type_url.message());
        lists.add_type(type_url.clone(), channels.servers(&path, list)?, list.fallback.clone());
    }
    let mut authorities = Vec::new();
    for (name, list) in &config.authorities {
        let servers = channels.servers(&format!("authorities[{name}].xds_servers"), list)?;
        authorities.push((name.clone(), servers, list.fallback.clone()));
    }
    lists.set_authorities(authorities);
    Ok(lists)
}

/// The certificate files of all servers that cannot be used: one line each, beginning with the key.
pub(super) fn faults(config: &config::Servers) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, list) in config.lists() {
        for (number, server) in list.servers.iter().enumerate() {
            let tls = match &server.kind {
                ServerKind::Grpc(grpc) => grpc.credentials.tls.as_ref(),
                ServerKind::Rest(rest) => rest.credentials.tls.as_ref(),
                ServerKind::Directory(_) => None,
            };
            let Some(tls) = tls else { continue };
            let path = if path == "xds_servers" { path.clone() } else { format!("{path}.xds_servers") };
            let path = format!("{path}[{number}]");
            let read = place(path.clone(), tls, Protocol::Http2).read();
            faults.extend(read.err().map(|fault| describe(&path, &fault)));
        }
    }
    faults
}

fn describe(path: &str, fault: &Fault) -> String {
    format!("{path}.channel_creds[tls].config.{}: {fault}", fault.key)
}

/// The pools created so far, each with its server.
struct Channels<'a> {
    metrics: &'a Metrics,
    certificates: &'a mut Certificates,
    open: Vec<(String, GrpcServer, Pool)>,
}

impl Channels<'_> {
    fn servers(&mut self, path: &str, list: &ServerList) -> Result<Vec<Arc<Upstream>>> {
        let mut servers = Vec::new();
        for (number, server) in list.servers.iter().enumerate() {
            let (uri, path) = (&server.server_uri, format!("{path}[{number}]"));
            let attach = match &server.kind {
                ServerKind::Grpc(grpc) => {
                    let pool = self.pool(uri, &path, grpc, number > 0)?;
                    Attach::Grpc { pool, settings: in_list(grpc, list) }
                }
                ServerKind::Rest(rest) => self.attach_rest(uri, &path, rest)?,
                ServerKind::Directory(directory) => Attach::Files { directory: directory.clone() },
            };
            servers.push(Arc::new(Upstream { uri: uri.as_str().into(), attach }));
        }
        Ok(servers)
    }

    /// Entries with the same server, credentials and features share their connections (FED-6). `in_reserve`:
    /// the server is not the first in the list where it was found first.
    fn pool(&mut self, uri: &str, path: &str, server: &GrpcServer, in_reserve: bool) -> Result<Pool> {
        let is_same = |(other, open, _): &&(String, GrpcServer, Pool)| {
            other == uri && open.shares_connections_with(server)
        };
        if let Some((_, _, pool)) = self.open.iter().find(is_same) {
            return Ok(pool.clone());
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
        let channel = self.channel(address, server.credentials.clone(), Protocol::Http2, path)?;
        let pool = Pool::with_channel(channel, connection, metrics);
        self.open.push((uri.to_owned(), server.clone(), pool.clone()));
        Ok(pool)
    }

    fn attach_rest(&mut self, uri: &str, path: &str, rest: &RestServer) -> Result<Attach> {
        let address = GrpcAddress::Tcp { host: rest.host.clone(), port: rest.port };
        let channel = self.channel(address, rest.credentials.clone(), Protocol::Http1, path)?;
        let (connection, metrics) = (rest.connection.clone(), self.metrics.of_server(uri).client().clone());
        let server = client::RestServer::with_channel(channel, &rest.prefix, connection, metrics);
        Ok(Attach::Rest { server, settings: rest.stream.clone() })
    }

    /// Puts the certificate files of a server in force.
    fn channel(
        &mut self,
        address: GrpcAddress,
        credentials: Credentials,
        protocol: Protocol,
        path: &str,
    ) -> Result<Channel> {
        let metrics = &self.metrics.downstream.tls;
        let channel = Channel::open(address, credentials, protocol, path, metrics);
        let channel = channel.map_err(|fault| anyhow!(describe(path, &fault)))?;
        self.certificates.watch(channel.files());
        Ok(channel)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::client::{CallMetadata, InitialMetadata, MetadataValue};
    use crate::config::{Servers, UpstreamServer};

    fn server(metadata: Option<&str>) -> UpstreamServer {
        let mut grpc = GrpcServer::new(Endpoint::Tcp { host: "127.0.0.1".into(), port: 1 });
        let entry = |text| InitialMetadata {
            key: http::HeaderName::from_static("x-token"),
            value: MetadataValue::text(text).unwrap(),
        };
        grpc.credentials.calls =
            CallMetadata { initial: metadata.map(entry).into_iter().collect(), token_file: None };
        UpstreamServer { server_uri: "127.0.0.1:1".into(), kind: ServerKind::Grpc(grpc) }
    }

    #[test]
    fn iso_5_one_address_with_two_credentials_is_two_servers() {
        let lists =
            |servers| lists(&Servers::new(servers), &Metrics::new(), &mut Certificates::default()).unwrap();
        let servers =
            |lists: &ServerLists| -> Vec<_> { lists.configured().map(|listed| listed.place()).collect() };
        let found = lists(vec![server(None), server(Some("a")), server(Some("b"))]);
        let places: std::collections::BTreeSet<_> = servers(&found).into_iter().collect();
        assert_eq!(places.len(), 3, "sources are apart");
        let alone = |text| servers(&lists(vec![server(text)])).remove(0);
        assert_ne!(alone(None), alone(Some("a")), "not only by the position in the list");
        assert_ne!(alone(Some("a")), alone(Some("b")));
        assert_eq!(alone(Some("a")), alone(Some("a")));
    }
}
