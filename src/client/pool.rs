//! The streams to one gRPC server, over shared connections.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;

use super::connections::PoolInner;
use super::decode::StreamContent;
use super::stream::{self, StreamHandle};
use super::{ClientSettings, ConnectionChoice, Credentials, GrpcAddress, ServerChannel, StreamEvent};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::Backoff;
use sluice_xds::service::ads_path;
use sluice_xds::{ResourceCopies, Variant, relay_path};

/// The connections to one server, shared by all streams to the server. Cheap to clone.
///
/// At most one attempt to connect runs at a time, on behalf of all waiting streams. The pool opens a
/// connection when a stream finds no permit, and closes connections that are without streams for a while.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<PoolInner>,
}

impl Pool {
    /// Puts other settings in force for all connections to this server.
    pub fn configure(&self, settings: ClientSettings) {
        self.inner.peer.configure(settings);
    }

    /// Whether both are clones of one pool.
    pub fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Connections in plaintext, and calls without metadata.
    pub fn new(address: GrpcAddress, settings: ClientSettings, metrics: Arc<ClientMetrics>) -> Pool {
        Pool::with_channel(ServerChannel::plaintext(address), settings, metrics)
    }

    pub fn with_channel(
        channel: ServerChannel,
        settings: ClientSettings,
        metrics: Arc<ClientMetrics>,
    ) -> Pool {
        Pool { inner: Arc::new(PoolInner::new(channel, settings, metrics)) }
    }

    /// Part of the identity of the server: two credentials are two servers (ISO-5).
    pub fn credentials(&self) -> &Credentials {
        &self.inner.channel().credentials
    }

    /// Opens one ADS stream; see [`Pool::open_method`].
    pub fn open(&self, variant: Variant, events: mpsc::Sender<StreamEvent>) -> StreamHandle {
        self.open_method(ads_path(variant), variant, None, ConnectionChoice::default(), None, events)
    }

    /// Opens a stream for the method at `path` as soon as a connection is ready, and reports its events into
    /// `events`. While `events` is full, the stream reads nothing. `relays`: the path of the call (TIR-2).
    /// `choice`: the connection. `copies`: the resources of other streams, for streams that share.
    /// Must be called within a tokio runtime.
    pub fn open_method(
        &self,
        path: String,
        variant: Variant,
        relays: Option<HeaderValue>,
        choice: ConnectionChoice,
        copies: Option<Arc<dyn ResourceCopies>>,
        events: mpsc::Sender<StreamEvent>,
    ) -> StreamHandle {
        let content = StreamContent::Responses(variant);
        stream::open(self.inner.clone(), path, content, path_of_call(relays), choice, copies, events)
    }

    /// As [`Pool::open_method`], for another service than discovery: [`StreamEvent::Message`] has each
    /// message of the server.
    pub fn open_messages(
        &self,
        path: &str,
        relays: Option<HeaderValue>,
        events: mpsc::Sender<StreamEvent>,
    ) -> StreamHandle {
        self.open_call(path, path_of_call(relays), events)
    }

    /// As [`Pool::open_messages`], with the metadata of this call.
    pub fn open_call(
        &self,
        path: &str,
        metadata: Vec<(HeaderName, HeaderValue)>,
        events: mpsc::Sender<StreamEvent>,
    ) -> StreamHandle {
        let choice = ConnectionChoice::default();
        let content = StreamContent::Messages;
        stream::open(self.inner.clone(), path.to_owned(), content, metadata, choice, None, events)
    }

    /// The delays between two tries at the server (CLI-4).
    pub fn backoff(&self) -> Backoff {
        self.inner.peer.settings().backoff
    }

    pub fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.inner.peer.metrics
    }
}

/// The relays on the way of a call, this one last (TIR-2).
fn path_of_call(relays: Option<HeaderValue>) -> Vec<(HeaderName, HeaderValue)> {
    relays.map(|relays| (HeaderName::from_static(relay_path::HEADER), relays)).into_iter().collect()
}
