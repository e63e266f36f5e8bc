//! The connections of HTTP/1.1 clients: of a REST-JSON control plane (RST-10), and of hooks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;

use super::dial::{Dialer, Http1};
use super::tls::OwnLeaf;
use super::transport::UpstreamTransport;
use super::{ClientSettings, ServerChannel};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::InForce;
use sluice_xds::Status;

#[derive(Debug)]
pub(super) struct RestInner {
    pub(super) client: Client<Connector, Full<Bytes>>,
    /// `http://host:port/prefix` or `https://…`, without a slash at the end.
    pub(super) base: String,
    pub(super) dialer: Arc<Dialer>,
    pub(super) settings: InForce<ClientSettings>,
    pub(super) metrics: Arc<ClientMetrics>,
}

impl RestInner {
    pub(super) fn channel(&self) -> &ServerChannel {
        self.dialer.channel()
    }
}

/// Opens connections for the HTTP client.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) dialer: Arc<Dialer>,
    pub(super) metrics: Arc<ClientMetrics>,
}

impl tower_service::Service<Uri> for Connector {
    type Response = Counted;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Counted, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    /// All requests go to the same server.
    fn call(&mut self, _: Uri) -> Self::Future {
        let Connector { dialer, metrics } = self.clone();
        Box::pin(async move {
            match dialer.dial::<Http1>(None).await {
                Ok(Http1 { transport, leaf }) => {
                    metrics.connects.inc();
                    metrics.connections.inc();
                    Ok(Counted { io: TokioIo::new(transport), leaf, metrics })
                }
                Err(status) => {
                    metrics.connect_failures.inc();
                    Err(ConnectError(status))
                }
            }
        })
    }
}

/// Every attempt to connect failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConnectError(pub(super) Status);

/// A connection that counts as open until dropped.
pub(super) struct Counted {
    io: TokioIo<UpstreamTransport>,
    leaf: Option<OwnLeaf>,
    metrics: Arc<ClientMetrics>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        match &self.leaf {
            Some(leaf) => Connected::new().extra(leaf.clone()),
            None => Connected::new(),
        }
    }
}

impl Read for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
