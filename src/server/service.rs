//! From the path of a request to the answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use h2::RecvStream;
use http::{HeaderMap, Request, StatusCode, Version, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};
use tonic::codegen::Service as _;

use super::body::{self, RequestBody, ResponseBody};
use super::listener::{Compression, ListenerOptions, LoadReports};
use super::load_reports;
use super::reader::{Requests, read_requests};
use super::streams::{RegisteredStream, Streams};
use super::unary::{Unary, is_rest};
use super::{HealthService, Shared};
use crate::driver::api::downstream::{LoadStream, OpenStreams, Peer, RelayStream};
use crate::telemetry::Limit;
use crate::telemetry::metrics::CallKind;
use sluice_setting::InForce;
use sluice_wire::RequestReader;
use sluice_xds::{
    ApiVersion, Call, Code, Coding, Method, RelayPath, Status, StreamKind, Variant, coding, last_word, mark,
    relay_path,
};

/// The destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The discovery services (RPC-1, RPC-2).
    Discovery(Method),
    /// The health service of tonic.
    Health,
    LoadReports(ApiVersion),
}

fn route(path: &str) -> Option<Route> {
    match path {
        "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => Some(Route::Health),
        _ => {
            let discovery = Method::of_path(path).map(Route::Discovery);
            discovery.or_else(|| load_reports::api_of_path(path).map(Route::LoadReports))
        }
    }
}

/// Answers the calls of one connection.
pub(super) struct Service<R: OpenStreams> {
    pub(super) shared: Arc<Shared<R>>,
    pub(super) streams: Arc<Streams<R::Stream>>,
    /// One allocation for the connection, its task and its streams.
    pub(super) peer: Arc<Peer>,
    pub(super) options: InForce<ListenerOptions>,
}

type Response = http::Response<ResponseBody>;

/// The answer to a call.
pub(super) enum Routed<F, S: RelayStream> {
    Now(Response),
    Later(BoxFuture<'static, Response>),
    /// A stream of load reports, over HTTP/2 only.
    LoadReports(RecvStream, Box<dyn LoadStream>),
    /// An xDS stream, over HTTP/2 only. `requests` reads the requests of the client and hands them to the
    /// stream. The headers confirm the marks, the last words and the coding of the kind.
    Stream {
        requests: F,
        registered: RegisteredStream<S>,
        kind: StreamKind,
    },
}

/// The service for HTTP/1.1.
impl<R: OpenStreams> hyper::service::Service<Request<Incoming>> for Service<R> {
    type Response = Response;
    type Error = Infallible;
    type Future =
        Either<Ready<Result<Response, Infallible>>, BoxFuture<'static, Result<Response, Infallible>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let streams = self.streams.clone();
        let announced = move |response| Ok(announce_end(response, &streams));
        match self.answer(request.map(RequestBody::Http1)) {
            Routed::Now(response) => Either::Left(ready(announced(response))),
            Routed::Later(response) => Either::Right(response.map(announced).boxed()),
            Routed::Stream { .. } | Routed::LoadReports(..) => Either::Left(ready(announced(no_http2()))),
        }
    }
}

/// HND-1: the client of a closing connection sends its next request on another one. The connection ends with
/// this response.
fn announce_end<S: RelayStream>(mut response: Response, streams: &Streams<S>) -> Response {
    if streams.is_going() {
        response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    response
}

/// Streams and trailers need HTTP/2.
fn no_http2() -> Response {
    body::plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED)
}

fn only_post() -> Response {
    let mut response = body::plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
    response
}

impl<R: OpenStreams> Service<R> {
    pub(super) fn answer(
        &self,
        request: Request<RequestBody>,
    ) -> Routed<impl Future<Output = ()> + Send + use<R>, R::Stream> {
        self.streams.mark_used();
        if let Some(refused) = self.refuse_long_headers(&request) {
            return Routed::Now(refused);
        }
        if is_rest(request.uri().path()) {
            self.shared.metrics.call(CallKind::Rest);
            return match self.unary(request.headers()) {
                Ok(unary) => Routed::Later(unary.rest(request).boxed()),
                Err(status) => Routed::Now(body::refusal(StatusCode::BAD_REQUEST, &status)),
            };
        }
        if request.method() != http::Method::POST {
            return Routed::Now(only_post());
        }
        let path = request.uri().path();
        let route = route(path);
        if !is_grpc(request.headers()) {
            let is_known = route.is_some();
            let code = if is_known { StatusCode::UNSUPPORTED_MEDIA_TYPE } else { StatusCode::NOT_FOUND };
            return Routed::Now(body::plain(code));
        }
        if request.version() < Version::HTTP_2 {
            return Routed::Now(no_http2());
        }
        match route {
            Some(Route::Discovery(method)) if method.api == ApiVersion::V2 && !self.options.get().v2 => {
                let text = "is a method of the v2 API; `v2: true` on the listener enables the v2 API";
                Routed::Now(self.unimplemented(format!("{path} {text}")))
            }
            Some(Route::Discovery(Method { call: Call::Stream(variant), service, api })) => {
                let marks = variant == Variant::Delta && reads_marks(request.headers());
                let last_words = reads_last_words(request.headers());
                let (v2, coding) = (self.options.get().v2, self.coding(request.headers()));
                let kind = StreamKind { variant, service, api, v2, marks, last_words, coding };
                let peer = self.peer(request.headers());
                let RequestBody::Http2(body) = request.into_body() else { return Routed::Now(no_http2()) };
                match peer.and_then(|peer| self.open_stream(kind, peer, body)) {
                    Ok((requests, registered)) => Routed::Stream { requests, registered, kind },
                    Err(status) => Routed::Now(body::trailers_only(&status)),
                }
            }
            Some(Route::Discovery(Method { call: Call::Fetch, service: Some(service), api })) => {
                let unary = self.unary(request.headers());
                let RequestBody::Http2(body) = request.into_body() else { return Routed::Now(no_http2()) };
                self.shared.metrics.call(CallKind::Fetch);
                match unary {
                    Ok(unary) => Routed::Later(unary.fetch(service, api, body).boxed()),
                    Err(status) => Routed::Now(body::trailers_only(&status)),
                }
            }
            Some(Route::Health) => {
                let time = self.shared.limits.get().first_request_timeout;
                Routed::Later(answer_health(self.shared.health_service.clone(), request, time).boxed())
            }
            Some(Route::LoadReports(api)) if self.takes_load_reports(api) => {
                self.answer_load_reports(request)
            }
            // There is no aggregated Fetch.
            Some(Route::Discovery(_) | Route::LoadReports(_)) | None => {
                self.note_health_discovery(path);
                Routed::Now(self.unimplemented(format!("{path} is not served")))
            }
        }
    }

    /// HTTP/2 accepts headers that are a few times too long, so that the refusal is counted and explained
    /// here.
    fn refuse_long_headers(&self, request: &Request<RequestBody>) -> Option<Response> {
        let max = self.shared.limits.get().header_list_bytes;
        let bytes = header_list_bytes(request);
        if bytes <= max as usize {
            return None;
        }
        self.shared.metrics.limit_hit(Limit::HeaderListBytes);
        if !is_grpc(request.headers()) {
            return Some(body::plain(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let text = format!("bytes of a call's headers: found {bytes}, the limit is {max}");
        Some(body::trailers_only(&Status::new(Code::ResourceExhausted, text)))
    }

    fn unary(&self, headers: &HeaderMap) -> Result<Unary<R>, Status> {
        let (shared, streams, options) = (self.shared.clone(), self.streams.clone(), self.options.clone());
        Ok(Unary { shared, streams, peer: self.peer(headers)?, options })
    }

    /// The client of a call, as the listener treats its next stream. A call of a relay names the relays on
    /// the way (TIR-2).
    fn peer(&self, headers: &HeaderMap) -> Result<Arc<Peer>, Status> {
        let relays = headers.get(relay_path::HEADER).map(|value| RelayPath::parse(value.as_bytes()));
        let relays =
            relays.transpose().map_err(|fault| Status::new(Code::InvalidArgument, fault.to_string()))?;
        let when_unavailable = self.options.get().when_unavailable;
        if relays.is_none() && when_unavailable == self.peer.when_unavailable {
            return Ok(self.peer.clone());
        }
        let relays = relays.map(Arc::new);
        Ok(Arc::new(Peer { when_unavailable, relays, ..Peer::clone(&self.peer) }))
    }

    /// The compression of a client's large responses.
    fn coding(&self, headers: &HeaderMap) -> Option<Coding> {
        let is_meant = match self.options.get().compression {
            Compression::Relays => headers.contains_key(relay_path::HEADER),
            Compression::All => true,
            Compression::Off => false,
        };
        let accepted = headers.get(coding::ACCEPT_HEADER).filter(|_| is_meant)?;
        Coding::best_of(accepted.to_str().ok()?)
    }

    fn takes_load_reports(&self, api: ApiVersion) -> bool {
        let options = self.options.get();
        options.load_reports != Some(LoadReports::Refuse) && (api == ApiVersion::V3 || options.v2)
    }

    fn answer_load_reports<F>(&self, request: Request<RequestBody>) -> Routed<F, R::Stream> {
        let stream = self.peer(request.headers()).and_then(|peer| self.open_load(peer));
        match (request.into_body(), stream) {
            (RequestBody::Http2(reports), Ok(stream)) => Routed::LoadReports(reports, stream),
            (RequestBody::Http2(_), Err(status)) => Routed::Now(body::trailers_only(&status)),
            (RequestBody::Http1(_), _) => Routed::Now(no_http2()),
        }
    }

    fn open_load(&self, peer: Arc<Peer>) -> Result<Box<dyn LoadStream>, Status> {
        if self.streams.refuses_new() {
            return Err(draining());
        }
        self.shared.metrics.call(CallKind::LoadReports);
        self.shared.relay.open_load(peer)
    }

    /// An Envoy asks for its endpoints to check again and again, whatever the answer (RLY-73).
    fn note_health_discovery(&self, path: &str) {
        let is_meant = path.starts_with("/envoy.service.health.v3.HealthDiscoveryService/");
        if is_meant && !self.shared.once.health_discovery.swap(true, Relaxed) {
            tracing::warn!(listener = %self.peer.listener,
                "clients ask for health discovery (HDS), which the relay does not have; point their `hds_config` at the \
                control plane, or leave it out");
        }
    }

    fn unimplemented(&self, text: String) -> Response {
        self.shared.metrics.calls_unimplemented.inc();
        body::trailers_only(&Status::new(Code::Unimplemented, text))
    }

    fn open_stream(
        &self,
        kind: StreamKind,
        peer: Arc<Peer>,
        body: RecvStream,
    ) -> Result<(impl Future<Output = ()> + Send + use<R>, RegisteredStream<R::Stream>), Status> {
        let Shared { relay, metrics, .. } = &*self.shared;
        let limits = self.shared.limits.epoch();
        if self.streams.refuses_new() {
            return Err(draining());
        }
        let stream = relay.open(kind, peer)?;
        metrics.call(if kind.service.is_some() { CallKind::PerType } else { CallKind::Ads });
        let registered = self.streams.register(stream.clone(), Some(kind.variant)).ok_or_else(draining)?;
        let reader = RequestReader::new(kind.variant);
        let received = self.shared.unfinished.receive(&self.peer);
        let requests = Requests::new(body, reader, received, self.shared.limits.clone(), metrics.clone());
        let deadline = Instant::now() + limits.first_request_timeout;
        Ok((read_requests(requests, stream, deadline), registered))
    }
}

fn draining() -> Status {
    Status::new(Code::Unavailable, "the server is draining")
}

/// The size of the headers of a call as RFC 9113 §6.5.2 counts: names and values, and 32 bytes per field.
fn header_list_bytes(request: &Request<RequestBody>) -> usize {
    const FIELD: usize = 32;
    let uri = request.uri();
    let scheme = uri.scheme_str().map_or(0, |scheme| ":scheme".len() + scheme.len() + FIELD);
    let authority =
        uri.authority().map_or(0, |authority| ":authority".len() + authority.as_str().len() + FIELD);
    let path = uri.path_and_query().map_or(0, |path| ":path".len() + path.as_str().len() + FIELD);
    let method = ":method".len() + request.method().as_str().len() + FIELD;
    let fields = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD)
        .sum::<usize>();
    scheme + authority + path + method + fields
}

/// True if the client is a relay that waits for marks (ADR 14). Any client may claim so: the only effect is
/// marks.
fn reads_marks(headers: &HeaderMap) -> bool {
    headers.get(mark::HEADER).is_some_and(|value| value == mark::HEADER_VALUE)
}

/// True if the client is a relay that reads last words (ADR 101). Relays name themselves, too (TIR-2).
fn reads_last_words(headers: &HeaderMap) -> bool {
    headers.contains_key(relay_path::HEADER)
        && headers.get(last_word::HEADER).is_some_and(|value| value == last_word::HEADER_VALUE)
}

/// `application/grpc`, with or without a codec or parameters. Excludes `application/grpc-web`, which has
/// other frames.
fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

async fn answer_health(
    mut health: HealthService,
    request: Request<RequestBody>,
    first_request_timeout: Duration,
) -> Response {
    match timeout(first_request_timeout, health.call(request)).await {
        Ok(Ok(response)) => response.map(ResponseBody::Health),
        Ok(Err(never)) => match never {},
        Err(_) => body::trailers_only(&Status::new(Code::DeadlineExceeded, "no request arrived in time")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), expected, "{content_type}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
