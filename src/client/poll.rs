//! One poll of a REST server, in a task of its own.

use std::error::Error;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, capture_connection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::rest_connector::{ConnectError, RestInner};
use super::stream::USER_AGENT;
use super::tls::OwnLeaf;
use super::{Arrival, StreamEvent, status};
use crate::telemetry::wall_now;
use sluice_json::{JsonError, encode_rest_request, parse_rest_response};
use sluice_xds::{Code, Service, SotwRequest, SotwResponse, Status, TypeUrl, relay_path};

const NOT_JSON: &str = "the response is not JSON";

/// The maximum part of a refusal's body in its status, in bytes.
const REFUSAL_BYTES: usize = 300;

/// The caller's end of one poll. Dropping the handle aborts the poll without further events.
#[derive(Debug)]
pub struct PollHandle {
    request: Option<oneshot::Sender<(SotwRequest, Bytes)>>,
    _task: AbortOnDropHandle<()>,
}

impl PollHandle {
    /// Sends the request, with the node in JSON. A poll has one request; further ones are ignored.
    pub fn send(&mut self, request: SotwRequest, node: Bytes) {
        if let Some(sender) = self.request.take() {
            // The task waits for the request until aborted.
            let _ = sender.send((request, node));
        }
    }
}

pub(super) fn open(
    server: Arc<RestInner>,
    type_url: &TypeUrl,
    relays: Option<HeaderValue>,
    events: mpsc::Sender<StreamEvent>,
) -> Option<PollHandle> {
    let path = Service::of_type(type_url)?.rest_path()?;
    let (request, requested) = oneshot::channel();
    let url = format!("{}{path}", server.base);
    let poll = Poll { url, type_url: type_url.clone(), relays, server, events };
    let task = AbortOnDropHandle::new(tokio::spawn(poll.run(requested)));
    Some(PollHandle { request: Some(request), _task: task })
}

struct Poll {
    url: String,
    type_url: TypeUrl,
    /// The relays on the way, this one last (TIR-2).
    relays: Option<HeaderValue>,
    server: Arc<RestInner>,
    events: mpsc::Sender<StreamEvent>,
}

/// The reason why a poll brought no response.
enum PollFailure {
    /// There was no connection (CLI-1 a).
    Unconnected(Status),
    /// The connection or the response broke off.
    Failed(Status),
    /// The server answered with this status.
    Refused(Status),
    /// The response is unreadable.
    Undecodable(Status),
}

impl Poll {
    async fn run(self, requested: oneshot::Receiver<(SotwRequest, Bytes)>) {
        self.report(StreamEvent::Opened).await;
        let Ok((request, node)) = requested.await else { return };
        let end = match self.poll(request, node).await {
            Ok(answer) => {
                self.report(answer).await;
                StreamEvent::Closed(Status::ok())
            }
            Err(PollFailure::Unconnected(status)) => {
                self.report(StreamEvent::ConnectFailed(status.clone())).await;
                StreamEvent::Closed(status)
            }
            Err(PollFailure::Failed(status)) => StreamEvent::Closed(status),
            Err(PollFailure::Refused(status)) => StreamEvent::Ended(status),
            Err(PollFailure::Undecodable(status)) => {
                self.server.metrics.undecodable.inc();
                self.report(StreamEvent::Undecodable(status.clone())).await;
                StreamEvent::Closed(status)
            }
        };
        self.report(end).await;
    }

    async fn poll(&self, request: SotwRequest, node: Bytes) -> Result<StreamEvent, PollFailure> {
        let is_versioned = !request.version_info.is_empty();
        let body = aside(move || encode_rest_request(request, &node)).await.map_err(PollFailure::Failed)?;
        let response = self.ask(body).await?;
        match response.status() {
            StatusCode::OK => {
                must_be_plain(response.headers()).map_err(PollFailure::Undecodable)?;
                let body = self.read(response.into_body()).await?;
                let complete_at = Instant::now();
                let response = self.decode(body).await.map_err(PollFailure::Undecodable)?;
                let response = Box::new(sluice_xds::Response::Sotw(response));
                Ok(StreamEvent::Response(response, Arrival::decoded(complete_at)))
            }
            StatusCode::NOT_MODIFIED if is_versioned => Ok(StreamEvent::Unchanged),
            StatusCode::NOT_MODIFIED => {
                let text = "the server answered 304 to a request without a version";
                Err(PollFailure::Refused(Status::new(Code::Internal, text)))
            }
            refusal => Err(PollFailure::Refused(self.refused(refusal, response.into_body()).await)),
        }
    }

    /// Sends the request and waits for the head of the response. Connecting has a time limit of its own.
    async fn ask(&self, body: Bytes) -> Result<Response<Incoming>, PollFailure> {
        let mut request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Full::new(body))
            .map_err(|error| PollFailure::Failed(Status::new(Code::Internal, error.to_string())))?;
        if let Some(relays) = &self.relays {
            request.headers_mut().insert(relay_path::HEADER, relays.clone());
        }
        let settings = self.server.settings.epoch();
        // IDN-9, IDN-12.
        let calls = &self.server.channel().calls;
        calls.add_to(request.headers_mut(), &settings.backoff).await.map_err(PollFailure::Failed)?;
        let limit = settings.connect_timeout * 2 + settings.request_timeout;
        let connection = capture_connection(&mut request);
        let answer = timeout(limit, self.server.client.request(request)).await;
        if let Some(connected) = connection.connection_metadata().as_ref() {
            retire(connected);
        }
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unavailable(&error)),
            Err(_) => {
                let text = format!("no answer within {limit:?}");
                Err(PollFailure::Failed(Status::new(Code::DeadlineExceeded, text)))
            }
        }
    }

    async fn read(&self, mut body: Incoming) -> Result<Bytes, PollFailure> {
        let settings = self.server.settings.epoch();
        let mut bytes = BytesMut::new();
        loop {
            let frame = match timeout(settings.request_timeout, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(unavailable(&error)),
                Ok(None) => return Ok(bytes.freeze()),
                Err(_) => {
                    let text =
                        format!("no further part of the response within {:?}", settings.request_timeout);
                    return Err(PollFailure::Failed(Status::new(Code::DeadlineExceeded, text)));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            let (length, allowed) = (bytes.len() + data.len(), settings.max_response_bytes);
            if length > allowed {
                let text =
                    format!("bytes of a response message: found {length} or more, the limit is {allowed}");
                return Err(PollFailure::Undecodable(Status::new(Code::ResourceExhausted, text)));
            }
            bytes.extend_from_slice(&data);
        }
    }

    async fn decode(&self, body: Bytes) -> Result<SotwResponse, Status> {
        let type_url = self.type_url.clone();
        aside(move || match std::str::from_utf8(&body) {
            Ok(text) => parse_rest_response(text, &type_url).map_err(|error| match error {
                JsonError::Syntax(reason) => format!("{NOT_JSON}: {reason}"),
                error => error.to_string(),
            }),
            Err(error) => Err(format!("{NOT_JSON}: {error}")),
        })
        .await
    }

    /// The body of a refusal is text for humans.
    async fn refused(&self, refusal: StatusCode, body: Incoming) -> Status {
        let mut status = status::of_http(refusal);
        let limited = http_body_util::Limited::new(body, REFUSAL_BYTES);
        if let Ok(Ok(body)) = timeout(self.server.settings.get().request_timeout, limited.collect()).await {
            let text = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
            if !text.is_empty() {
                status.message = format!("{}: {text:?}", status.message);
            }
        }
        status
    }

    /// Waits while the channel is full. A send error means that the handle was dropped, which aborts this
    /// task.
    async fn report(&self, event: StreamEvent) {
        let _ = self.events.send(event).await;
    }
}

/// Ends a connection after its poll if the relay's certificate on the connection is nearly over (CRT-10).
fn retire(connected: &Connected) {
    let mut extensions = http::Extensions::new();
    connected.get_extras(&mut extensions);
    if extensions.get::<OwnLeaf>().is_some_and(|leaf| leaf.is_over_at(wall_now())) {
        connected.poison();
    }
}

/// The request offered no content encoding.
fn must_be_plain(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let text = format!("the response has the content encoding {encoding:?}, but none was offered");
            Err(Status::new(Code::Internal, text))
        }
        _ => Ok(()),
    }
}

/// Runs slow work on a blocking thread, so that other tasks continue. JSON is slow.
async fn aside<T: Send + 'static, E: ToString + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Status::new(Code::Internal, error.to_string())),
        Err(error) => Err(Status::new(Code::Internal, error.to_string())),
    }
}

/// The HTTP client's own message is only "client error (Connect)"; the sources of the error contain the
/// reason.
fn unavailable(error: &(dyn Error + 'static)) -> PollFailure {
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
        if let Some(ConnectError(status)) = reason.downcast_ref() {
            return PollFailure::Unconnected(status.clone());
        }
    }
    PollFailure::Failed(Status::new(Code::Unavailable, reason.to_string()))
}
