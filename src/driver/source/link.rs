//! The link of a source's task to its server: streams of a shared pool, polls, or a watched directory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::mpsc;
use tracing::trace;

use crate::client::{
    ConnectionChoice, FileEvent, FileHandle, FileServer, FileSettings, PollHandle, StreamEvent, StreamHandle,
};
use crate::driver::ground::servers::Attach;
use crate::telemetry::metrics::{GaugePart, ServerMetrics};
use sluice_engine::source::StreamIndex;
use sluice_engine::upstream::Output;
use sluice_json::encode_rest_node;
use sluice_wire::upstream::{encode_node, encode_request};
use sluice_xds::service::ads_path;
use sluice_xds::{Node, RelayPath, Request, ResourceCopies, Service, TypeUrl, Variant};

/// Responses in the queue of a source's task. The task is never far behind, and a slow task slows the stream
/// down (FLW-4).
const EVENTS_MAX: usize = 4;

/// An event from the server.
#[derive(Debug)]
pub enum LinkEvent {
    Stream(StreamIndex, StreamEvent),
    /// The replacement of this stream is open, or (false) could not be opened.
    Next(StreamIndex, bool),
    Files(FileEvent),
}

#[derive(Debug)]
pub struct LinkStream {
    handle: Handle,
    events: mpsc::Receiver<StreamEvent>,
    /// Counts the stream in the gauge of open streams.
    open: Option<GaugePart>,
    variant: Variant,
    /// The metrics of the stream's server.
    metrics: Arc<ServerMetrics>,
    /// The replacement of the stream.
    next: Option<Box<LinkStream>>,
}

#[derive(Debug)]
enum Handle {
    Stream(StreamHandle),
    Poll(PollHandle),
}

/// One source's side of the attachment.
#[derive(Debug)]
pub enum Link {
    Streams {
        /// The encoded node, in JSON for polls.
        node: Bytes,
        /// The path of further calls (TIR-2).
        relays: Option<HeaderValue>,
        choice: ConnectionChoice,
        /// The resources of all sources; `None`: this source shares none.
        copies: Option<Arc<dyn ResourceCopies>>,
        streams: Vec<Option<LinkStream>>,
        /// The first stream to poll: a busy stream does not silence others.
        turn: usize,
    },
    Files {
        events: mpsc::Receiver<FileEvent>,
        _watch: FileHandle,
    },
    Nothing,
}

impl Link {
    /// `node`: the class's node for the server. `choice`: the connection of its streams. `copies`: the
    /// resources of all sources, for a source that shares.
    ///
    /// # Errors
    /// The reason why a directory cannot be served at all (FIL-3).
    pub async fn new(
        attach: &Attach,
        node: &Node,
        choice: ConnectionChoice,
        copies: Option<Arc<dyn ResourceCopies>>,
    ) -> Result<Link, String> {
        let streams = |node: Vec<u8>| {
            let (node, streams) = (node.into(), Vec::new());
            Link::Streams { node, relays: None, choice, copies, streams, turn: 0 }
        };
        match attach {
            Attach::Grpc { .. } => Ok(streams(encode_node(node))),
            Attach::Rest { .. } => encode_rest_node(node).map(streams).map_err(|error| error.to_string()),
            Attach::Nothing | Attach::Refused => Ok(Link::Nothing),
            Attach::Files { directory, .. } => {
                let (sender, events) = mpsc::channel(EVENTS_MAX);
                let watch = FileServer::watch(directory, FileSettings::default(), sender).await;
                let watch = watch.map_err(|error| error.to_string())?;
                Ok(Link::Files { events, _watch: watch })
            }
        }
    }

    /// Carries out an output of one stream's machine. `type_url`: the type of the stream, unless the stream
    /// is aggregated. `attach` and `metrics`: those of the server to which a stream opens.
    pub fn carry_out(
        &mut self,
        attach: &Attach,
        index: StreamIndex,
        type_url: Option<&TypeUrl>,
        output: Output,
        metrics: impl Fn() -> Arc<ServerMetrics>,
    ) {
        let Link::Streams { node, relays, choice, copies, streams, .. } = self else { return };
        let open = |variant| {
            let calls = Calls { relays, choice, copies };
            open(attach, type_url, variant, calls, &metrics)
        };
        if streams.len() <= index {
            streams.resize_with(index + 1, || None);
        }
        let slot = &mut streams[index];
        match output {
            Output::Open { variant, .. } => *slot = open(variant),
            Output::Close => *slot = None,
            Output::OpenNext { variant, .. } => {
                if let Some(stream) = slot {
                    stream.next = open(variant).map(Box::new);
                }
            }
            Output::TakeNext => *slot = slot.take().and_then(|stream| stream.next).map(|next| *next),
            Output::Send { request, first } => {
                trace!(stream = index, ?request, "request to upstream");
                match (slot.as_mut().map(|stream| &mut stream.handle), request) {
                    (Some(Handle::Stream(handle)), request) => {
                        handle.send(encode_request(&request, first.then_some(node)));
                    }
                    (Some(Handle::Poll(handle)), Request::Sotw(request)) => {
                        handle.send(request, node.clone());
                    }
                    (Some(Handle::Poll(_)), Request::Delta(_)) | (None, _) => {}
                }
            }
            Output::Flush => {
                // A poll has one request.
                if let Some(LinkStream { handle: Handle::Stream(handle), .. }) = slot {
                    handle.flush();
                }
            }
            Output::Probe => {
                // Polls have a time limit of their own.
                if let Some(LinkStream { handle: Handle::Stream(handle), .. }) = slot {
                    handle.probe();
                }
            }
            Output::RoundTrip => {
                // The answer to a poll comes as a whole.
                if let Some(LinkStream { handle: Handle::Stream(handle), .. }) = slot {
                    handle.round_trip();
                }
            }
            Output::Changes(_) | Output::Event(_) => {}
        }
    }

    /// The length of the node in the first request of a stream.
    pub fn node_bytes(&self) -> usize {
        match self {
            Link::Streams { node, .. } => node.len(),
            Link::Files { .. } | Link::Nothing => 0,
        }
    }

    /// Sets the path of all further streams and polls (TIR-2).
    pub fn set_relays(&mut self, path: &RelayPath) {
        if let Link::Streams { relays, .. } = self {
            *relays = HeaderValue::from_str(path.as_str()).ok();
        }
    }

    /// Sets the node of all further streams and polls.
    pub fn set_node(&mut self, attach: &Attach, changed: &Node) {
        let Link::Streams { node, .. } = self else { return };
        let encoded = match attach {
            // A node that JSON cannot express leaves the previous node in place.
            Attach::Rest { .. } => encode_rest_node(changed).ok(),
            _ => Some(encode_node(changed)),
        };
        if let Some(encoded) = encoded {
            *node = encoded.into();
        }
    }

    /// The next event from the server. Cancel-safe.
    pub async fn next(&mut self) -> LinkEvent {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<LinkEvent> {
        match self {
            Link::Files { events, .. } => match events.poll_recv(context) {
                Poll::Ready(Some(event)) => Poll::Ready(LinkEvent::Files(event)),
                // The watch lives as long as this link, so its channel does not close.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
            Link::Nothing => Poll::Pending,
            Link::Streams { streams, turn, .. } => {
                let count = streams.len();
                for index in (*turn..count).chain(0..count.min(*turn)) {
                    let slot = &mut streams[index];
                    let Some(stream) = slot else { continue };
                    if let Some(is_open) = stream.poll_next_stream(context) {
                        return Poll::Ready(LinkEvent::Next(index, is_open));
                    }
                    let Poll::Ready(Some(event)) = stream.events.poll_recv(context) else { continue };
                    match &event {
                        StreamEvent::Opened => {
                            stream.open = Some(stream.metrics.stream(stream.variant));
                        }
                        StreamEvent::Closed(status) | StreamEvent::Ended(status) => {
                            stream.metrics.stream_closed(status.code);
                            *slot = None;
                        }
                        _ => {}
                    }
                    *turn = index + 1;
                    return Poll::Ready(LinkEvent::Stream(index, event));
                }
                Poll::Pending
            }
        }
    }
}

impl LinkStream {
    /// Whether the replacement of this stream is open (`true`) or has failed (`false`); `None` while
    /// undecided.
    fn poll_next_stream(&mut self, context: &mut Context<'_>) -> Option<bool> {
        loop {
            let next = self.next.as_mut()?;
            let Poll::Ready(Some(event)) = next.events.poll_recv(context) else { return None };
            match event {
                StreamEvent::Opened => {
                    next.open = Some(next.metrics.stream(next.variant));
                    return Some(true);
                }
                StreamEvent::ConnectFailed(_) | StreamEvent::Closed(_) | StreamEvent::Ended(_) => {
                    self.next = None;
                    return Some(false);
                }
                // No request was sent on the new stream yet.
                _ => {}
            }
        }
    }
}

/// The parts of each call of a link.
struct Calls<'a> {
    relays: &'a Option<HeaderValue>,
    choice: &'a ConnectionChoice,
    copies: &'a Option<Arc<dyn ResourceCopies>>,
}

/// `None` for a type without such a method; the machine never asks for that.
fn open(
    attach: &Attach,
    type_url: Option<&TypeUrl>,
    variant: Variant,
    calls: Calls<'_>,
    metrics: &impl Fn() -> Arc<ServerMetrics>,
) -> Option<LinkStream> {
    let Calls { relays, choice, copies } = calls;
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let handle = match attach {
        Attach::Grpc { pool, .. } => {
            let path = match type_url {
                None => ads_path(variant),
                Some(type_url) => Service::of_type(type_url)?.stream_path(variant)?,
            };
            let (relays, choice, copies) = (relays.clone(), choice.clone(), copies.clone());
            Handle::Stream(pool.open_method(path, variant, relays, choice, copies, sender))
        }
        Attach::Rest { server, .. } => Handle::Poll(server.open(type_url?, relays.clone(), sender)?),
        Attach::Files { .. } | Attach::Nothing | Attach::Refused => return None,
    };
    Some(LinkStream { handle, events, open: None, variant, metrics: metrics(), next: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientSettings, RestServer};
    use crate::telemetry::Metrics;
    use crate::telemetry::metrics::ClientMetrics;
    use sluice_xds::{Code, Status};

    /// The handle does not matter: the test sends the events.
    fn stream() -> (LinkStream, mpsc::Sender<StreamEvent>) {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let server = RestServer::new(
            "127.0.0.1",
            1,
            "",
            ClientSettings::default(),
            Arc::new(ClientMetrics::default()),
        );
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let Some(handle) = server.open(&type_url, None, mpsc::channel(1).0) else { panic!("no service") };
        let metrics = Metrics::new().of_server("server");
        let handle = Handle::Poll(handle);
        (LinkStream { handle, events, open: None, variant: Variant::Delta, metrics, next: None }, sender)
    }

    #[tokio::test]
    async fn a_next_stream_has_failed_however_it_ended() {
        let status = || Status::new(Code::Unavailable, "");
        for end in [
            StreamEvent::ConnectFailed(status()),
            StreamEvent::Closed(status()),
            StreamEvent::Ended(status()),
        ] {
            let text = format!("{end:?}");
            let (mut stream, _sender) = stream_with_next(end).await;
            let failed = poll_fn(|context| Poll::Ready(stream.poll_next_stream(context))).await;
            assert_eq!((failed, stream.next.is_none()), (Some(false), true), "{text}");
        }
    }

    async fn stream_with_next(event: StreamEvent) -> (LinkStream, mpsc::Sender<StreamEvent>) {
        let ((mut stream, sender), (next, events)) = (stream(), stream());
        let _ = events.send(event).await;
        stream.next = Some(Box::new(next));
        (stream, sender)
    }
}
