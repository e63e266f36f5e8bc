//! Calls with one request and one response: REST-JSON and `Fetch*` (RST-1 to RST-12).

use std::sync::Arc;
use std::time::Duration;

use h2::RecvStream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, timeout};

use super::body::{self, RequestBody, ResponseBody};
use super::listener::ListenerOptions;
use super::reader::{Requests, read_one};
use super::streams::Streams;
use super::unfinished::Received;
use super::{Shared, status};
use crate::driver::api::downstream::{Codec, OpenStreams, Peer, Polled, RelayStream, Variant};
use crate::telemetry::Limit;
use sluice_json::read_request;
use sluice_setting::InForce;
use sluice_wire::RequestReader;
use sluice_xds::service::rest_path;
use sluice_xds::{ApiVersion, Code, Request as DiscoveryRequest, Service, SotwRequest, Status, StreamKind};

type Answer = Response<ResponseBody>;

/// REST paths of known services that the relay does not serve. Their answer is 501 rather than 404.
const NOT_SERVED: [&str; 2] = ["client_status", "health_check"];

/// True if the path is a REST path.
pub(super) fn is_rest(path: &str) -> bool {
    rest_path(path).is_some()
}

/// One call, with the needed parts of its connection.
pub(super) struct Unary<R: OpenStreams> {
    pub(super) shared: Arc<Shared<R>>,
    pub(super) streams: Arc<Streams<R::Stream>>,
    pub(super) peer: Arc<Peer>,
    pub(super) options: InForce<ListenerOptions>,
}

/// An error response over HTTP.
struct HttpRefusal(StatusCode, Status);

impl From<Status> for HttpRefusal {
    /// 4xx only for errors that the client can fix (RST-5).
    fn from(status: Status) -> Self {
        let code = match status.code {
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Unavailable | Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        HttpRefusal(code, status)
    }
}

impl HttpRefusal {
    fn new(http: StatusCode, code: Code, text: impl Into<String>) -> Self {
        HttpRefusal(http, Status::new(code, text))
    }
}

impl<R: OpenStreams> Unary<R> {
    pub(super) async fn rest(self, request: Request<RequestBody>) -> Answer {
        let (metrics, peer) = (self.shared.metrics.clone(), self.peer.clone());
        let unfinished = self.shared.unfinished.clone();
        let answered = self.answer_rest(request).await;
        let response = match answered {
            Ok(Polled::Set { shared, .. }) => {
                let untaken = unfinished.answer(&peer, &shared);
                body::json(StatusCode::OK, shared, Some(untaken))
            }
            Ok(Polled::Unchanged) => body::plain(StatusCode::NOT_MODIFIED),
            Err(HttpRefusal(code, status)) => {
                tracing::debug!(%code, %status, "REST request refused");
                let mut response = body::refusal(code, &status);
                if code == StatusCode::METHOD_NOT_ALLOWED {
                    let post = header::HeaderValue::from_static("POST");
                    response.headers_mut().insert(header::ALLOW, post);
                }
                response
            }
        };
        metrics.rest_response(response.status().as_u16());
        response
    }

    async fn answer_rest(self, request: Request<RequestBody>) -> Result<Polled, HttpRefusal> {
        let (service, api) = self.service_of(request.uri().path())?;
        if request.method() != Method::POST {
            let text = format!("{} is not POST", request.method());
            return Err(HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidArgument, text));
        }
        if !is_json(request.headers()) {
            let text = "the content type is not application/json";
            return Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, text));
        }
        let body = self.read_body(request.into_body()).await?;
        let request = read_request(&body.0, &self.shared.limits.get().requests).map_err(|error| {
            self.shared.metrics.streams_unreadable.inc();
            let over = super::reader::over_limit(&error);
            over.inspect(|limit| self.shared.metrics.limit_hit(*limit));
            let code = if over.is_some() { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
            HttpRefusal(code, error.into())
        })?;
        // Freed before the long wait begins.
        drop(body);
        Ok(self.poll(service, api, request, Codec::Json).await?)
    }

    fn service_of(&self, path: &str) -> Result<(&'static Service, ApiVersion), HttpRefusal> {
        let off = |api| api == ApiVersion::V2 && !self.options.get().v2;
        match Service::of_rest_path(path) {
            Some((_, api)) if off(api) => {
                let text =
                    format!("{path} belongs to the v2 API; `v2: true` on the listener enables the v2 API");
                Err(HttpRefusal::new(StatusCode::NOT_IMPLEMENTED, Code::Unimplemented, text))
            }
            Some(service) => Ok(service),
            None if rest_path(path).is_some_and(|(_, rest)| NOT_SERVED.contains(&rest)) => {
                let text = format!("{path} is not served");
                Err(HttpRefusal::new(StatusCode::NOT_IMPLEMENTED, Code::Unimplemented, text))
            }
            None => {
                self.shared.metrics.calls_unimplemented.inc();
                let text = format!("{path} is not served");
                Err(HttpRefusal::new(StatusCode::NOT_FOUND, Code::NotFound, text))
            }
        }
    }

    /// The whole body, within the size limit of a request and the timeout of a first request.
    async fn read_body(&self, body: RequestBody) -> Result<(Vec<u8>, Received), HttpRefusal> {
        let Shared { metrics, .. } = &*self.shared;
        let limits = self.shared.limits.epoch();
        let max = limits.requests.request_bytes;
        let read = self.gather(Limited::new(body, max));
        let body = timeout(limits.first_request_timeout, read).await.unwrap_or_else(|_| {
            metrics.limit_hit(Limit::FirstRequestTimeout);
            let text = "the request did not arrive in time";
            Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, text))
        })?;
        metrics.request_bytes.inc_by(body.0.len() as u64);
        Ok(body)
    }

    /// Reads the body piece by piece, and charges each piece to the connection and to all connections
    /// together.
    async fn gather(&self, mut body: Limited<RequestBody>) -> Result<(Vec<u8>, Received), HttpRefusal> {
        let metrics = &self.shared.metrics;
        let (mut bytes, mut received) = (Vec::new(), self.shared.unfinished.receive(&self.peer));
        loop {
            let frame = tokio::select! {
                biased;
                over_budget = received.cut() => return Err(over_budget.into()),
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { return Ok((bytes, received)) };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => {
                    metrics.limit_hit(Limit::RequestBytes);
                    let max = self.shared.limits.get().requests.request_bytes;
                    let text =
                        format!("the request has more than {max} bytes; the limit is limits.request_bytes");
                    HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, text)
                }
                false => {
                    let text = format!("cannot read the request: {error}");
                    HttpRefusal::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, text)
                }
            })?;
            let Ok(data) = frame.into_data() else { continue };
            // The charge includes the copy into a longer buffer.
            received.set(bytes.len().max(bytes.capacity()) + data.len())?;
            bytes.extend_from_slice(&data);
        }
    }

    pub(super) async fn fetch(self, service: &'static Service, api: ApiVersion, body: RecvStream) -> Answer {
        let Shared { metrics, .. } = &*self.shared;
        let limits = self.shared.limits.epoch();
        let reader = RequestReader::new(Variant::Sotw);
        let deadline = Instant::now() + limits.first_request_timeout;
        let received = self.shared.unfinished.receive(&self.peer);
        let requests = Requests::new(body, reader, received, self.shared.limits.clone(), metrics.clone());
        let request = match read_one(requests, deadline).await {
            Ok(DiscoveryRequest::Sotw(request)) => request,
            Ok(DiscoveryRequest::Delta(_)) => SotwRequest::default(),
            Err(status) => return body::trailers_only(&status),
        };
        match self.poll(service, api, request, Codec::Grpc).await {
            Ok(Polled::Set { private, shared }) => {
                let untaken = self.shared.unfinished.answer(&self.peer, &shared);
                status::stream_response(ResponseBody::unary(private, shared, untaken))
            }
            Ok(Polled::Unchanged) => status::stream_response(ResponseBody::Empty),
            Err(status) => body::trailers_only(&status),
        }
    }

    async fn poll(
        &self,
        service: &'static Service,
        api: ApiVersion,
        request: SotwRequest,
        form: Codec,
    ) -> Result<Polled, Status> {
        let draining = || Status::new(Code::Unavailable, "the server is draining");
        if self.streams.refuses_new() {
            return Err(draining());
        }
        let v2 = self.options.get().v2;
        let kind = StreamKind { service: Some(service), api, v2, ..Variant::Sotw.into() };
        let stream = self.shared.relay.open(kind, self.peer.clone())?;
        // Registered, so that a drain ends the wait.
        let _registered = self.streams.register(stream.clone(), None).ok_or_else(draining)?;
        stream.poll_once(request, form, self.hold()).await
    }

    fn hold(&self) -> Duration {
        self.options.get().rest_hold
    }
}

/// `application/json`, with or without parameters. An absent type is accepted, because some clients send
/// none.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return true };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rst_1_content_types_of_rest() {
        for (content_type, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/jsonx", false),
            ("text/plain", false),
            ("application/grpc", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
            assert_eq!(is_json(&headers), expected, "{content_type}");
        }
        assert!(is_json(&HeaderMap::new()));
    }

    #[test]
    fn rst_5_only_the_clients_faults_are_4xx() {
        for (code, expected) in [
            (Code::InvalidArgument, 400),
            (Code::PermissionDenied, 403),
            (Code::Unimplemented, 501),
            (Code::Unavailable, 503),
            (Code::ResourceExhausted, 503),
            (Code::Internal, 500),
            (Code::Unknown, 500),
        ] {
            assert_eq!(HttpRefusal::from(Status::new(code, "")).0.as_u16(), expected);
        }
    }
}
