//! Converts the configured servers to the attachments of sources.

use std::sync::Arc;

use anyhow::{Result, anyhow};

use crate::client::{
    self, ClientSettings, Credentials, GrpcAddress, Pool, RESERVE_IDLE_TIMEOUT, ServerChannel,
};
use crate::config::{
    self, Endpoint, GrpcServer, RestServerSettings, ServerKind, ServerListSettings, UpstreamServer,
};
use crate::driver::ground::servers::{Attach, Server as Upstream, ServerLists};
use crate::telemetry::Metrics;
use crate::trust::client::{Generation, Protocol, place};
use crate::trust::fault::Fault;
use crate::trust::rotation::Watched;
use sluice_engine::fallback::FallbackPolicy;
use sluice_engine::upstream;

/// The open channels of all servers of a configuration, kept for the next configuration: a server that stays
/// keeps its connections (REL-5).
#[derive(Clone, Default)]
pub(super) struct Channels {
    grpc: Vec<OpenServers<GrpcServer, Pool>>,
    rest: Vec<OpenServers<RestServerSettings, client::RestServer>>,
}

#[derive(Clone)]
struct OpenServers<C, T> {
    uri: String,
    config: C,
    /// The settings to put in force with the configuration.
    settings: ClientSettings,
    channel: T,
    files: Option<Watched<Generation>>,
}

impl Channels {
    /// Puts the connection settings of this configuration in force.
    pub(super) fn configure(&self) {
        for open in &self.grpc {
            open.channel.configure(open.settings.clone());
        }
        for open in &self.rest {
            open.channel.configure(open.settings.clone());
        }
    }

    /// The certificate files of all servers.
    pub(super) fn files(&self) -> Vec<Watched<Generation>> {
        let (grpc, rest) = (self.grpc.iter(), self.rest.iter());
        grpc.filter_map(|open| open.files.clone()).chain(rest.filter_map(|open| open.files.clone())).collect()
    }
}

/// Converts all lists, and reads the certificate files of new servers. For servers of `before`, nothing
/// changes until [`Channels::configure`].
///
/// `response_bytes`: the longest response, where the entry of a server does not say.
///
/// # Errors
/// A file that cannot be used, with its key. Nothing falls back to plaintext (TLS-8).
pub(super) fn lists(
    config: &config::Servers,
    response_bytes: usize,
    metrics: &Metrics,
    before: &Channels,
) -> Result<(ServerLists, Channels)> {
    of(config, Setup { metrics, before, now: Channels::default(), response_bytes, has_files: true })
}

fn of(config: &config::Servers, mut opening: Setup<'_>) -> Result<(ServerLists, Channels)> {
    let default = opening.servers("xds_servers", &config.default)?;
    let mut lists = ServerLists::new(default, config.default.fallback.clone());
    for (type_url, list) in &config.types {
        let path = format!("types[{}].xds_servers", type_url.message());
        lists.add_type(type_url.clone(), opening.servers(&path, list)?, list.fallback.clone());
    }
    let mut authorities = Vec::new();
    for (name, list) in &config.authorities {
        let servers = opening.servers(&format!("authorities[{name}].xds_servers"), list)?;
        authorities.push((name.clone(), servers, list.fallback.clone()));
    }
    lists.set_authorities(authorities);
    Ok((lists, opening.now))
}

/// The lists of a plan for a text: no file of it is read, and its servers leave no metrics (REL-10). Nobody
/// may open a stream of them.
pub(super) fn planned(config: &config::Servers, before: &Channels) -> Result<(ServerLists, Channels)> {
    let (metrics, response_bytes) = (Metrics::new(), usize::MAX);
    of(
        config,
        Setup { metrics: &metrics, before, now: Channels::default(), response_bytes, has_files: false },
    )
}

/// The unusable certificate files of all servers: a line each, beginning with the key.
pub(super) fn faults(config: &config::Servers) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, list) in config.lists() {
        for (number, server) in list.servers.iter().enumerate() {
            let tls = match &server.kind {
                ServerKind::Grpc(grpc) => grpc.credentials.tls.as_ref(),
                ServerKind::Rest(rest) => rest.credentials.tls.as_ref(),
                ServerKind::Directory { .. } => None,
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

/// The channels of a configuration while the lists are built.
struct Setup<'a> {
    metrics: &'a Metrics,
    before: &'a Channels,
    now: Channels,
    response_bytes: usize,
    has_files: bool,
}

impl Setup<'_> {
    fn servers(&mut self, path: &str, list: &ServerListSettings) -> Result<Vec<Arc<Upstream>>> {
        let mut servers = Vec::new();
        for (number, server) in list.servers.iter().enumerate() {
            let (uri, path) = (&server.server_uri, format!("{path}[{number}]"));
            let attach = match &server.kind {
                ServerKind::Grpc(grpc) => {
                    let pool = self.pool(uri, &path, grpc, number > 0)?;
                    Attach::Grpc { pool, settings: in_list(grpc, list) }
                }
                ServerKind::Rest(rest) => self.attach_rest(uri, &path, rest)?,
                ServerKind::Directory { path, mass_deletion_hold } => {
                    Attach::Files { directory: path.clone(), mass_deletion_hold: *mass_deletion_hold }
                }
            };
            servers.push(Arc::new(Upstream { uri: uri.as_str().into(), attach, load: server.load }));
        }
        Ok(servers)
    }

    /// Entries with the same server, credentials and features share their connections (FED-6). `in_reserve`:
    /// the server is not the first in the list where it was found first.
    fn pool(&mut self, uri: &str, path: &str, server: &GrpcServer, in_reserve: bool) -> Result<Pool> {
        let shares = |open: &&OpenServers<GrpcServer, Pool>| {
            open.uri == uri && open.config.shares_connections_with(server)
        };
        if let Some(open) = self.now.grpc.iter().find(shares) {
            return Ok(open.channel.clone());
        }
        let mut settings = self.bounded(&server.connection);
        if in_reserve {
            settings.idle_timeout = RESERVE_IDLE_TIMEOUT;
        }
        // A pool takes other settings over, and serves one entry.
        let is_free = |open: &&OpenServers<GrpcServer, Pool>| {
            let is_it = |taken: &OpenServers<GrpcServer, Pool>| taken.channel.is(&open.channel);
            open.uri == uri && !self.now.grpc.iter().any(is_it)
        };
        let mut before = self.before.grpc.iter().filter(is_free);
        let same = before.clone().find(shares);
        let kept = same.or_else(|| before.find(|open| open.config.is_same_server(server)));
        let (channel, files) = match kept {
            Some(open) => (open.channel.clone(), open.files.clone()),
            None => {
                let address = match &server.endpoint {
                    Endpoint::Tcp { host, port } => GrpcAddress::Tcp { host: host.clone(), port: *port },
                    Endpoint::Unix(path) => GrpcAddress::Unix(path.clone()),
                };
                let metrics = self.metrics.of_server(uri).client().clone();
                let channel = self.channel(address, server.credentials.clone(), Protocol::Http2, path)?;
                let files = channel.files();
                (Pool::with_channel(channel, settings.clone(), metrics), files)
            }
        };
        let (uri, config) = (uri.to_owned(), server.clone());
        self.now.grpc.push(OpenServers { uri, config, settings, channel: channel.clone(), files });
        Ok(channel)
    }

    fn attach_rest(&mut self, uri: &str, path: &str, rest: &RestServerSettings) -> Result<Attach> {
        let is_free = |open: &&OpenServers<RestServerSettings, client::RestServer>| {
            let is_it =
                |taken: &OpenServers<RestServerSettings, client::RestServer>| taken.channel.is(&open.channel);
            open.uri == uri && open.config.is_same_server(rest) && !self.now.rest.iter().any(is_it)
        };
        let settings = self.bounded(&rest.connection);
        let (channel, files) = match self.before.rest.iter().find(is_free) {
            Some(open) => (open.channel.clone(), open.files.clone()),
            None => {
                let address = GrpcAddress::Tcp { host: rest.host.clone(), port: rest.port };
                let channel = self.channel(address, rest.credentials.clone(), Protocol::Http1, path)?;
                let (files, metrics) = (channel.files(), self.metrics.of_server(uri).client().clone());
                (client::RestServer::with_channel(channel, &rest.prefix, settings.clone(), metrics), files)
            }
        };
        let (uri, config) = (uri.to_owned(), rest.clone());
        self.now.rest.push(OpenServers { uri, config, settings, channel: channel.clone(), files });
        Ok(Attach::Rest { server: channel, settings: rest.stream.clone() })
    }

    /// The settings of a connection, with the default for the longest response.
    fn bounded(&self, connection: &ClientSettings) -> ClientSettings {
        let mut settings = connection.clone();
        if settings.max_response_bytes == ClientSettings::default().max_response_bytes {
            settings.max_response_bytes = self.response_bytes.min(settings.max_response_bytes);
        }
        settings
    }

    /// Puts the certificate files of a server in force.
    fn channel(
        &self,
        address: GrpcAddress,
        credentials: Credentials,
        protocol: Protocol,
        path: &str,
    ) -> Result<ServerChannel> {
        if !self.has_files {
            return Ok(ServerChannel::planned(address, credentials));
        }
        let metrics = &self.metrics.downstream.tls;
        let channel = ServerChannel::open(address, credentials, protocol, path, metrics);
        channel.map_err(|fault| anyhow!(describe(path, &fault)))
    }
}

/// The settings of a server's streams, with the behaviour by the rules of the list.
fn in_list(server: &GrpcServer, list: &ServerListSettings) -> upstream::UpstreamSettings {
    let has_others = list.servers.len() > 1;
    let failover = has_others && list.fallback.policy == FallbackPolicy::Envoy;
    // One machine asks both servers, so an `api_type` of either is an order.
    let is_guessed = |server: &UpstreamServer| match &server.kind {
        ServerKind::Grpc(server) => server.stream.fall_back_to_sotw,
        _ => false,
    };
    upstream::UpstreamSettings {
        failover,
        needs_answer: has_others && list.fallback.policy == FallbackPolicy::Grpc,
        fall_back_to_sotw: match failover {
            true => list.servers.iter().all(is_guessed),
            false => server.stream.fall_back_to_sotw,
        },
        ..server.stream.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::client::{CallMetadata, InitialMetadata, MetadataValue};
    use crate::config::Servers;

    fn server(metadata: Option<&str>) -> UpstreamServer {
        let mut grpc = GrpcServer::new(Endpoint::Tcp { host: "127.0.0.1".into(), port: 1 });
        let entry = |text| InitialMetadata {
            key: http::HeaderName::from_static("x-token"),
            value: MetadataValue::text(text).unwrap(),
        };
        grpc.credentials.calls =
            CallMetadata { initial: metadata.map(entry).into_iter().collect(), token_file: None };
        UpstreamServer { server_uri: "127.0.0.1:1".into(), kind: ServerKind::Grpc(grpc), load: None }
    }

    #[test]
    fn iso_5_one_address_with_two_credentials_is_two_servers() {
        let (metrics, before) = (Metrics::new(), Channels::default());
        let lists = |servers| lists(&Servers::new(servers), usize::MAX, &metrics, &before).unwrap().0;
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
