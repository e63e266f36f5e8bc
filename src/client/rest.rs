//! A REST-JSON control plane.

use std::sync::Arc;

use http::HeaderValue;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::mpsc;

use super::dial::Dialer;
use super::poll::{self, PollHandle};
use super::rest_connector::{Connector, RestInner};
use super::{ClientSettings, Credentials, GrpcAddress, ServerChannel, StreamEvent};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::InForce;
use sluice_xds::TypeUrl;

/// One REST server, in HTTP/1.1. Connections stay open between polls, for `idle_timeout`. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub struct RestServer {
    inner: Arc<RestInner>,
}

impl RestServer {
    /// `prefix` precedes the paths of the protocol: empty, or `/some/path`.
    pub fn new(
        host: &str,
        port: u16,
        prefix: &str,
        settings: ClientSettings,
        metrics: Arc<ClientMetrics>,
    ) -> RestServer {
        let address = GrpcAddress::Tcp { host: host.to_owned(), port };
        RestServer::with_channel(ServerChannel::plaintext(address), prefix, settings, metrics)
    }

    /// As [`RestServer::new`], with credentials.
    pub fn with_channel(
        channel: ServerChannel,
        prefix: &str,
        settings: ClientSettings,
        metrics: Arc<ClientMetrics>,
    ) -> RestServer {
        let idle_timeout = settings.idle_timeout;
        let settings = InForce::new(settings);
        let base = format!("{}{}", channel.origin(), prefix.trim_end_matches('/'));
        let dialer = Arc::new(Dialer::new(channel, settings.clone(), metrics.clone()));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle_timeout)
            .build(Connector { dialer: dialer.clone(), metrics: metrics.clone() });
        RestServer { inner: Arc::new(RestInner { client, base, dialer, settings, metrics }) }
    }

    /// Puts other settings in force, for the next connection and the next poll.
    pub fn configure(&self, settings: ClientSettings) {
        self.inner.settings.publish(settings);
    }

    /// Whether both are clones of one server.
    pub fn is(&self, other: &RestServer) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Part of the identity of the server: two credentials are two servers (ISO-5).
    pub fn credentials(&self) -> &Credentials {
        &self.inner.channel().credentials
    }

    /// Starts one poll for a type. The poll reports into `events` like a stream with one request, the first
    /// given to the handle. `relays`: the path of the call (TIR-2). `None` if the type has no REST path
    /// (RPC-9). Must be called within a tokio runtime.
    pub fn open(
        &self,
        type_url: &TypeUrl,
        relays: Option<HeaderValue>,
        events: mpsc::Sender<StreamEvent>,
    ) -> Option<PollHandle> {
        poll::open(self.inner.clone(), type_url, relays, events)
    }
}
