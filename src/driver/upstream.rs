//! How a source's task reaches its server: a few ADS streams of a shared pool, or a watched directory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tracing::trace;

use super::hub::Attach;
use crate::client::{
    FileError, FileEvent, FileHandle, FileServer, FileSettings, Pool, StreamEvent, StreamHandle,
};
use crate::engine::source::{STREAMS, StreamIndex};
use crate::engine::upstream::Output;
use crate::telemetry::metrics::{GaugePart, ServerMetrics};
use crate::wire::upstream::encode_request;

/// Responses that may wait for the source's task: it is never far behind, and a slow one slows the stream (FLW-4).
const EVENTS_MAX: usize = 4;

/// What the server has to say.
#[derive(Debug)]
pub enum LinkEvent {
    Stream(StreamIndex, StreamEvent),
    Files(FileEvent),
}

#[derive(Debug)]
pub struct OpenStream {
    handle: StreamHandle,
    events: mpsc::Receiver<StreamEvent>,
    /// Counts the stream as open once it is.
    open: Option<GaugePart>,
    variant: crate::xds::Variant,
}

/// One source's side of the attachment.
#[derive(Debug)]
pub enum Link {
    Streams { node: Vec<u8>, streams: [Option<OpenStream>; STREAMS] },
    Files { events: mpsc::Receiver<FileEvent>, _watch: FileHandle },
}

impl Link {
    /// `node`: encoded, as this class shows itself upstream. Fails for a directory that cannot be served at all (FIL-3).
    pub async fn new(attach: &Attach, node: Vec<u8>) -> Result<Link, FileError> {
        match attach {
            Attach::Grpc { .. } => Ok(Link::Streams { node, streams: [const { None }; STREAMS] }),
            Attach::Files { directory } => {
                let (sender, events) = mpsc::channel(EVENTS_MAX);
                let watch = FileServer::watch(directory, FileSettings::default(), sender).await?;
                Ok(Link::Files { events, _watch: watch })
            }
        }
    }

    /// Carries out what the machine of one stream decided.
    pub fn carry_out(&mut self, pool: &Pool, index: StreamIndex, output: Output) {
        let Link::Streams { node, streams } = self else { return };
        let Some(slot) = streams.get_mut(index) else { return };
        match output {
            Output::Open { variant } => {
                let (sender, events) = mpsc::channel(EVENTS_MAX);
                *slot = Some(OpenStream { handle: pool.open(variant, sender), events, open: None, variant });
            }
            Output::Close => *slot = None,
            Output::Send { request, first } => {
                trace!(stream = index, ?request, "request to upstream");
                if let Some(stream) = slot {
                    stream.handle.send(encode_request(&request, first.then_some(node.as_slice())));
                }
            }
            Output::Probe => {
                if let Some(stream) = slot {
                    stream.handle.probe();
                }
            }
            Output::Changes(_) | Output::Event(_) => {}
        }
    }

    /// The next thing that the server says. Cancel-safe.
    pub async fn next(&mut self, metrics: &Arc<ServerMetrics>) -> LinkEvent {
        poll_fn(|context| self.poll_next(metrics, context)).await
    }

    fn poll_next(&mut self, metrics: &Arc<ServerMetrics>, context: &mut Context<'_>) -> Poll<LinkEvent> {
        match self {
            Link::Files { events, .. } => match events.poll_recv(context) {
                Poll::Ready(Some(event)) => Poll::Ready(LinkEvent::Files(event)),
                // The watch lives as long as this link: it never hangs up.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
            Link::Streams { streams, .. } => {
                for (index, slot) in streams.iter_mut().enumerate() {
                    let Some(stream) = slot else { continue };
                    let Poll::Ready(Some(event)) = stream.events.poll_recv(context) else { continue };
                    match &event {
                        StreamEvent::Opened => stream.open = Some(metrics.stream(stream.variant)),
                        StreamEvent::Closed(_) => *slot = None,
                        _ => {}
                    }
                    return Poll::Ready(LinkEvent::Stream(index, event));
                }
                Poll::Pending
            }
        }
    }
}
