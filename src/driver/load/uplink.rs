//! The stream of a load to its server.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::mpsc;

use crate::client::{Pool, StreamEvent, StreamHandle};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::GaugePart;
use sluice_wire::frame::framed;
use sluice_xds::RelayPath;

/// The method of load reports. Servers of v2 alone get no reports.
const PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// Events in the queue of a task. A slow task slows the stream down (FLW-4).
const EVENTS_MAX: usize = 4;

/// An open stream, or one that waits for a connection.
pub struct LoadUplink {
    handle: StreamHandle,
    events: mpsc::Receiver<StreamEvent>,
    server: Arc<str>,
    metrics: Arc<Metrics>,
    /// Counts the stream in the gauge of open streams.
    open: Option<GaugePart>,
}

impl LoadUplink {
    /// Opens a stream over the server's shared connections.
    pub fn open(pool: &Pool, relays: &RelayPath, server: &Arc<str>, metrics: &Arc<Metrics>) -> LoadUplink {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let relays = HeaderValue::from_str(relays.as_str()).ok();
        let (server, metrics) = (server.clone(), metrics.clone());
        LoadUplink { handle: pool.open_messages(PATH, relays, sender), events, server, metrics, open: None }
    }

    /// Sends a message. [`StreamEvent::Flushed`] follows once HTTP/2 has taken the message.
    pub fn send(&self, message: &[u8]) {
        // Reports are far below gRPC's 4 GiB.
        self.handle.send(framed(message).unwrap_or_default());
        self.handle.flush();
    }

    /// Sends a message that is not reported as written.
    pub fn send_first(&self, message: &Bytes) {
        self.handle.send(framed(message).unwrap_or_default());
    }

    pub fn finish(&self) {
        self.handle.finish();
    }

    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<StreamEvent> {
        match self.events.poll_recv(context) {
            Poll::Ready(Some(event)) => {
                if matches!(event, StreamEvent::Opened) {
                    self.open = Some(self.metrics.load.stream(&self.server));
                }
                Poll::Ready(event)
            }
            // The sender lives until it has sent the end, and nobody asks after the end.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The next event of a stream, if there is one. Cancel-safe.
pub async fn next_event(link: &mut Option<LoadUplink>) -> StreamEvent {
    match link {
        Some(link) => poll_fn(|context| link.poll_event(context)).await,
        None => pending().await,
    }
}
